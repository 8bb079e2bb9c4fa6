"""Draws from the prior moved to draws from the posterior, by Matheron's rule.

If f is a draw from the prior and e a draw of the noise, then

    f(x) + k(x, X) (K + noise^2 I)^-1 (y - f(X) - e) = f(x) + u(x)^T L^-1 (y - f(X) - e)

is a draw from the posterior, with the root L and the whitened rows u(x) of ``exact``. The same prior draws serve
every history.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cicpe.gp.exact import noisy_root


def prior_draws(
    covariance: Float[Tensor, "*batch m m"], white: Float[Tensor, "n m"], jitter: Float[Tensor, ""] | float
) -> Float[Tensor, "*batch n m"]:
    """Functions from a prior of mean zero, at m places.

    Args:
        covariance: Of the places, ``*batch x m x m``.
        white: Standard normal numbers, ``n x m``; every function of the batch uses the same.
        jitter: Added to the diagonal, so that it can be factorised.

    Returns:
        ``*batch x n x m``.
    """
    return white @ noisy_root(covariance, jitter).mT


def lattice_corners(
    place: Float[Tensor, "*batch query"], side: int
) -> tuple[Int[Tensor, "*batch corner"], Float[Tensor, "*batch corner"]]:
    """The points of a lattice about a place, and the share of each in multilinear interpolation.

    Args:
        place: In the unit cube, ``*batch x query``; outside, the nearest place inside is taken.
        side: Points of the lattice along each axis, both ends included.

    Returns:
        Indices into the lattice, its last axis running fastest, and shares that sum to one: ``*batch x corner`` each,
        with ``2 ** query`` corners.
    """
    at = (place * (side - 1)).clamp(0, side - 1)
    cell = at.floor().clamp_max(side - 2)
    part = at - cell
    index, share = torch.zeros_like(at[..., :1]), torch.ones_like(at[..., :1])
    for axis in range(place.shape[-1]):
        step, up = cell[..., axis : axis + 1], part[..., axis : axis + 1]
        index = torch.cat([index * side + step, index * side + step + 1], dim=-1)
        share = torch.cat([share * (1 - up), share * up], dim=-1)
    return index.long(), share


def whitened_error(
    root: Float[Tensor, "*batch t t"],
    value: Float[Tensor, "*v t"],
    prior: Float[Tensor, "*p n t"],
    noise: Float[Tensor, "*e n t"],
) -> Float[Tensor, "*batch n t"]:
    """What each prior draw gets wrong of the observations, whitened: L^-1 (y - f(X) - e).

    Args:
        root: L, ``*batch x t x t``.
        value: y, ``*batch x t``.
        prior: f(X), ``*batch x n x t``.
        noise: e, ``*batch x n x t``.

    Returns:
        ``*batch x n x t``.
    """
    error = value[..., None, :] - prior - noise
    white: Tensor = torch.linalg.solve_triangular(root, error.mT, upper=False)
    return white.mT


def posterior_draws(
    prior: Float[Tensor, "*p n m"], error: Float[Tensor, "*batch n t"], rows: Float[Tensor, "*batch t m"]
) -> Float[Tensor, "*batch n m"]:
    """Prior draws moved by their errors.

    Args:
        prior: f at m places, ``*batch x n x m``.
        error: What ``whitened_error`` returns, ``*batch x n x t``.
        rows: L^-1 k(X, x) of the m places, ``*batch x t x m``.

    Returns:
        ``*batch x n x m``.
    """
    return prior + error @ rows
