"""A Gaussian process for each region, fitted as in the paper: sparse, variational, Matern-3/2.

    f ~ GP(0, s_f^2 k),   k(x, x') = (1 + r) exp(-r),   r = sqrt(3) |(x - x') / l|,   y = f(x) + N(0, s_n^2)

With inducing values f(Z) = L v, where K_ZZ = L L^T, and q(v) = N(m, T T^T), the bound that is climbed is

    ELBO = sum_i ( log N(y_i; a_i^T m, s_n^2) - (s_f^2 - |a_i|^2 + |T^T a_i|^2) / (2 s_n^2) ) - KL(q(v), N(0, I)),

a_i = L^-1 k(Z, x_i). This is what gpytorch's whitened ``VariationalStrategy`` and ``VariationalELBO`` compute, and a
test holds the two equal. Written out it is quicker, and fields can be fitted without that package.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from cicpe.data.regions import Region
from cicpe.errors import InvalidInput
from cicpe.gp.exact import noisy_root
from cicpe.gp.kernels import MATERN_32, Kernel

JITTER = 1e-6
"""Added to the diagonal of K_ZZ."""
LEAST_NOISE = 1e-4
"""The least variance of an observation, as in gpytorch."""


@final
@dataclass(frozen=True)
class FitSettings:
    """How a field is fitted and simulated. The defaults are the paper's; a change makes other files in the cache."""

    inducing: int = 500
    """Inducing points, at most; never more than there are places."""
    steps: int = 1000
    """Steps of Adam."""
    rate: float = 0.01
    """Learning rate."""
    grid: int = 200
    """Grid points along a side of the unit square."""
    draws: int = 24
    """Fields of each simulated kind: draws from the posterior, and posterior means of simulated surveys."""
    seed: int = 0
    """Decides the starting places of k-means, and everything that is simulated."""

    def __post_init__(self) -> None:
        for name in ("inducing", "steps", "draws"):
            if getattr(self, name) < 1:
                raise InvalidInput(name, getattr(self, name), "a whole number of at least 1")


class RandomField(NamedTuple):
    """A fitted field: the kernel, the noise, and the posterior of the whitened inducing values."""

    kernel: Kernel
    noise: Float[Tensor, ""]
    """Standard deviation of an observation."""
    inducing: Float[Tensor, "m 2"]
    mean: Float[Tensor, " m"]
    root: Float[Tensor, "m m"]
    """Lower triangle: the covariance of the whitened inducing values is root root^T."""
    elbo: Float[Tensor, " steps"]
    """The bound at every step, per place."""

    def whitener(self) -> Float[Tensor, "m m"]:
        """L, where K_ZZ = L L^T."""
        return noisy_root(self.kernel.covariance(self.inducing, self.inducing), JITTER)

    def weights(self, place: Float[Tensor, "n 2"]) -> Float[Tensor, "m n"]:
        """The columns a(x) = L^-1 k(Z, x)."""
        cross = self.kernel.covariance(self.inducing, place)
        columns: Tensor = torch.linalg.solve_triangular(self.whitener(), cross, upper=False)
        return columns

    def posterior(self, place: Float[Tensor, "n 2"]) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
        """Mean and variance of f."""
        weights = self.weights(place)
        spread = (self.root.T @ weights).square().sum(dim=0)
        return weights.T @ self.mean, self.kernel.amplitude**2 - weights.square().sum(dim=0) + spread


def elbo(field: RandomField, place: Float[Tensor, "n 2"], value: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """The evidence lower bound of a field.

    Args:
        field: Kernel, noise and posterior of the inducing values.
        place: Where samples were taken.
        value: What they are, in standard scores.

    Returns:
        The bound per place.
    """
    mean, variance = field.posterior(place)
    noise = field.noise**2
    expected = -0.5 * torch.log(2 * math.pi * noise) - 0.5 * ((value - mean).square() + variance) / noise
    size = field.root.square().sum() + field.mean.square().sum() - len(field.mean)
    divergence = 0.5 * size - field.root.diagonal().abs().log().sum()
    return (expected.sum() - divergence) / len(value)


def inducing_points(place: Float[Tensor, "n 2"], most: int, seed: int) -> Float[Tensor, "m 2"]:
    """All places where there are few of them; else the centres of clusters (k-means).

    Args:
        place: Where samples were taken.
        most: The most inducing points.
        seed: Decides the starting places of k-means.

    Returns:
        At most ``most`` points.
    """
    if len(place) <= most:
        return place.clone()
    from scipy.cluster.vq import kmeans2

    centres, _ = kmeans2(place.numpy(), most, minit="++", rng=np.random.default_rng(seed), missing="raise")
    return torch.from_numpy(centres)


def fit_field(region: Region, settings: FitSettings) -> RandomField:
    """Climbs the bound with Adam, from gpytorch's starting values, in double precision and on the calling thread.

    Args:
        region: The samples.
        settings: How to fit.

    Returns:
        The field, with the bound at every step.
    """
    place, value = torch.from_numpy(region.place), torch.from_numpy(region.value)
    inducing = inducing_points(place, settings.inducing, settings.seed)
    m = len(inducing)
    # Positive numbers are the softplus of free ones: length scales, signal variance and noise variance.
    free = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    mean = torch.zeros(m, dtype=torch.float64, requires_grad=True)
    root = torch.eye(m, dtype=torch.float64).requires_grad_()
    optimiser = torch.optim.Adam([free, mean, root], lr=settings.rate)

    def current() -> RandomField:
        positive = softplus(free)
        kernel = Kernel(positive[:2], positive[2].sqrt(), MATERN_32)
        return RandomField(kernel, (positive[3] + LEAST_NOISE).sqrt(), inducing, mean, root.tril(), torch.empty(0))

    curve = torch.empty(settings.steps)
    for step in range(settings.steps):
        optimiser.zero_grad()
        bound = elbo(current(), place, value)
        (-bound).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        curve[step] = bound.detach()
    with torch.no_grad():
        return current()._replace(mean=mean.detach(), elbo=curve)
