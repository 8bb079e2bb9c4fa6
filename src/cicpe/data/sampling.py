"""Fields on a grid: the posterior mean, draws from the posterior, and twins.

A *draw* is a function that the samples allow: the posterior mean is smoother than any of them. A *twin* is what the
posterior mean might have been: a field drawn from the fitted prior is sampled at the region's own places with its own
noise, and its posterior mean is taken. Twins look as tasks look; their peaks lie elsewhere.
"""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.data.fields import RandomField
from cicpe.gp.exact import noisy_root
from cicpe.gp.kernels import Kernel
from cicpe.gp.matheron import prior_draws

FEATURES = 2048
"""Random Fourier features of a draw."""


def grid_places(side: int) -> Float[Tensor, "cells 2"]:
    """The grid points of the unit square, corners included; the north coordinate runs fastest."""
    axis = torch.linspace(0, 1, side, dtype=torch.float64)
    return torch.cartesian_prod(axis, axis)


def grid_mean(field: RandomField, side: int) -> Float[Tensor, "side side"]:
    """The posterior mean on the grid.

    Args:
        field: A fitted field.
        side: Grid points along a side.

    Returns:
        The first index is east, the second north.
    """
    return (field.weights(grid_places(side)).T @ field.mean).view(side, side).float()


def grid_draws(field: RandomField, side: int, count: int, rng: Generator) -> Float[Tensor, "count side side"]:
    """Functions from the posterior, by Matheron's rule: a prior path, moved to where the inducing values should be.

    f(x) = g(x) + a(x)^T (v - L^-1 g(Z)) with v ~ q(v), and g a path of the prior in random Fourier features. Every
    draw has features of its own, so that the mean and the covariance of f are those of the posterior; only its law
    is not exactly Gaussian.

    Args:
        field: A fitted field.
        side: Grid points along a side.
        count: How many functions.
        rng: Draws them.

    Returns:
        Every function on the grid.
    """
    weights = field.weights(grid_places(side)).T.float()
    whitener = field.whitener()
    draws = torch.empty(count, side, side)
    for index in range(count):
        frequency, phase = _features(field.kernel, rng)
        white = torch.randn(len(field.mean), generator=rng, dtype=torch.float64)
        at_inducing = (torch.exp(1j * (field.inducing @ frequency.T)) @ phase).real[:, None]
        moved = field.mean + field.root @ white
        moved = moved - torch.linalg.solve_triangular(whitener, at_inducing, upper=False)[:, 0]
        draws[index] = _on_grid(frequency, phase, side) + (weights @ moved.float()).view(side, side)
    return draws


def _features(kernel: Kernel, rng: Generator) -> tuple[Float[Tensor, "features 2"], Tensor]:
    """Frequencies of the kernel and complex amplitudes."""
    frequency = kernel.frequencies(FEATURES, rng)
    parts = torch.randn((FEATURES, 2), generator=rng, dtype=torch.float64)
    return frequency, torch.view_as_complex(parts) * kernel.amplitude / math.sqrt(FEATURES)


def _on_grid(frequency: Float[Tensor, "features 2"], phase: Tensor, side: int) -> Float[Tensor, "side side"]:
    """The path on the grid: exp(i w x) is a product over the axes, so the sum over features is one of matrices."""
    axis = torch.linspace(0, 1, side, dtype=torch.float64)[:, None]
    east, north = (torch.exp(1j * axis * w).to(torch.complex64) for w in frequency.T)
    path: Tensor = ((east * phase.to(torch.complex64)) @ north.T).real
    return path


def grid_twins(
    field: RandomField, place: Float[Tensor, "n 2"], side: int, count: int, rng: Generator
) -> Float[Tensor, "count side side"]:
    """Posterior means of simulated surveys, whose values are turned into standard scores as a real survey's are.

    Args:
        field: A fitted field, whose prior is drawn from.
        place: Where the simulated surveys sample.
        side: Grid points along a side.
        count: How many surveys.
        rng: Draws them.

    Returns:
        Every posterior mean on the grid.
    """
    covariance = field.kernel.covariance(place, place)
    white = torch.randn((2, len(place), count), generator=rng, dtype=torch.float64)
    value = prior_draws(covariance, white[0].mT, 1e-9).mT + field.noise * white[1]
    value = (value - value.mean(dim=0)) / value.std(dim=0, correction=0)
    solved = torch.cholesky_solve(value, noisy_root(covariance, field.noise**2))
    smooth = field.kernel.covariance(grid_places(side), place) @ solved
    return smooth.T.float().contiguous().view(count, side, side)
