"""Stationary covariances: Matern 3/2 and 5/2, and the squared exponential.

With r = |(x - x') / l|, where every coordinate has its own length scale l:

    Matern 3/2             (1 + sqrt(3) r) exp(-sqrt(3) r)
    Matern 5/2             (1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r)
    squared exponential    exp(-r^2 / 2)

times the square of the amplitude.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

MATERN_32, MATERN_52, SQUARED_EXPONENTIAL = 1.5, 2.5, math.inf
"""The smoothness of each kernel: its nu."""


def scaled_distance(
    a: Float[Tensor, "*a n query"], b: Float[Tensor, "*b m query"], lengthscale: Float[Tensor, "*l query"]
) -> Float[Tensor, "*batch n m"]:
    """The distance of every pair of places, in units of the length scale.

    Args:
        a: Places, ``*batch x n x query``.
        b: Other places, ``*batch x m x query``.
        lengthscale: ``*batch x query``. The batch dimensions of all three are broadcast.

    Returns:
        ``*batch x n x m``; its gradient at coinciding places is zero.
    """
    scale = lengthscale[..., None, :]
    # Not by a product of matrices: its rounding is a visible noise at short distances.
    return torch.cdist(a / scale, b / scale, compute_mode="donot_use_mm_for_euclid_dist")


def correlation(distance: Float[Tensor, "*shape"], smoothness: float) -> Float[Tensor, "*shape"]:
    """The correlation of f at places that are a scaled distance apart.

    Args:
        distance: Any shape.
        smoothness: ``MATERN_32``, ``MATERN_52`` or ``SQUARED_EXPONENTIAL``.

    Returns:
        The shape of ``distance``.
    """
    if smoothness == SQUARED_EXPONENTIAL:
        return torch.exp(distance.square() / -2)
    far = math.sqrt(2 * smoothness) * distance
    if smoothness == MATERN_32:
        return (1 + far) * torch.exp(-far)
    assert smoothness == MATERN_52, f"no kernel of smoothness {smoothness}"
    return (1 + far + far.square() / 3) * torch.exp(-far)


class Kernel(NamedTuple):
    """The covariance of f, or of a batch of functions of one smoothness."""

    lengthscale: Float[Tensor, "*batch query"]
    amplitude: Float[Tensor, "*batch"]
    """Standard deviation of f."""
    smoothness: float

    def covariance(self, a: Float[Tensor, "*a n query"], b: Float[Tensor, "*b m query"]) -> Float[Tensor, "*c n m"]:
        """The covariance of f at every pair of places.

        Args:
            a: Places, ``*batch x n x query``.
            b: Other places, ``*batch x m x query``; batch dimensions are broadcast with the kernel's.

        Returns:
            ``*batch x n x m``.
        """
        shape = correlation(scaled_distance(a, b, self.lengthscale), self.smoothness)
        return self.amplitude.square()[..., None, None] * shape

    def frequencies(self, count: int, rng: Generator) -> Float[Tensor, "count query"]:
        """Draws from the spectral density of a single function: f is a sum of waves exp(i w x) with these w.

        A Matern kernel's is Student's t with 2 nu degrees of freedom; the squared exponential's is normal.

        Args:
            count: How many.
            rng: Draws them.

        Returns:
            ``count x query``.
        """
        shape = (count, self.lengthscale.shape[-1])
        frequency = torch.randn(shape, generator=rng, dtype=torch.float64) / self.lengthscale
        if self.smoothness == SQUARED_EXPONENTIAL:
            return frequency
        degrees = round(2 * self.smoothness)
        normal = torch.randn((count, degrees), generator=rng, dtype=torch.float64)
        return frequency * torch.sqrt(degrees / normal.square().sum(dim=1, keepdim=True))
