"""A Gaussian process per episode through BoTorch: Matern kernel, hyperparameters fitted anew at every step."""

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.baselines.base import History, extra
from cicpe.spaces import Space

ITERATIONS = 100
"""Steps of a fit, at most."""
PLAUSIBLE: Mapping[str, tuple[float, float]] = {
    "likelihood.noise_covar.raw_noise": (1e-4, 10.0),
    "model.covar_module.raw_outputscale": (-10.0, 100.0),
    "model.covar_module.base_kernel.raw_lengthscale": (-10.0, 20.0),
}
"""Bounds of a fit (before the softplus, but for the noise), far outside of what the priors expect. A search that tries
a huge value would meet a covariance without a Cholesky factor, and end the fits of all episodes."""
RESOLUTION = 2**30
"""Parts of an axis that a Sobol sequence tells apart."""


def fit_gps(history: History, space: Space, sign: int) -> Any:
    """A Gaussian process for every episode of a batch, their hyperparameters fitted by BoTorch, all at once.

    Each has a search of its own (BoTorch's batched L-BFGS-B); their likelihoods are computed together.

    Args:
        history: Of the whole batch.
        space: Of the queries.
        sign: 1 where larger observations are better, -1 where smaller ones are.

    Returns:
        A BoTorch model of ``sign`` times the observation, over the unit cube, with the batch as its batch dimension.
    """
    models, fit, mll = extra("botorch.models"), extra("botorch.optim.fit"), extra("gpytorch.mlls")
    modules, transforms = extra("botorch.models.utils.gpytorch_modules"), extra("botorch.models.transforms.outcome")
    batch = history.query_BTQ.shape[:1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few points; a fit that ends before it has converged is good enough
        model = models.SingleTaskGP(
            to_cube(space, history.query_BTQ),
            sign * history.observation_BTY.double(),
            likelihood=modules.get_gaussian_likelihood_with_gamma_prior(batch_shape=batch),
            covar_module=modules.get_matern_kernel_with_gamma_prior(space.dim, batch_shape=batch),
            outcome_transform=transforms.Standardize(m=1, batch_shape=batch),
        )
        likelihood = mll.ExactMarginalLogLikelihood(model.likelihood, model)
        fit.fit_gpytorch_mll_scipy(likelihood.train(), bounds=dict(PLAUSIBLE), options={"maxiter": ITERATIONS})
    return model.eval()


def to_cube(space: Space, point: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
    """Points of a box in [0, 1]^d, in double precision."""
    return ((space.to_unit(point).double() + 1) / 2).clamp(0, 1)


def from_cube(space: Space, cube: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
    """The inverse of ``to_cube``, in single precision."""
    return space.project(space.from_unit((2 * cube - 1).float()))


def design_point(history: History, space: Space, rng: Generator) -> Float[Tensor, "batch dim"]:
    """The next point of every episode's Sobol design: one scrambled sequence per episode.

    An agent keeps no seed from step to step, so the sequence is scrambled by what the history holds. The first query
    x_0 is uniform, and the others are a digital shift of the Sobol points s_t by it, x_t = x_0 XOR s_t, bit by bit
    (s_0 = 0). That leaves the sequence as even as it was: of the first 2^m points, each of 2^m equal parts of an axis
    holds one.

    Args:
        history: Of a batch of episodes.
        space: Of the queries.
        rng: Draws the first queries.

    Returns:
        Points in the unit cube, ``batch x dim``.
    """
    if history.steps == 0:
        return torch.rand((len(history.query_BTQ), space.dim), generator=rng, dtype=torch.float64)
    engine: Any = torch.quasirandom.SobolEngine
    sequence: Tensor = engine(space.dim, scramble=False).draw(history.steps + 1, dtype=torch.float64)
    first = (to_cube(space, history.query_BTQ[:, 0]) * RESOLUTION).long().clamp(0, RESOLUTION - 1)
    shifted: Tensor = first ^ (sequence[-1] * RESOLUTION).long()
    return (shifted.double() + 0.5) / RESOLUTION
