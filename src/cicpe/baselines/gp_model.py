"""One Gaussian process an episode through BoTorch: Matern kernel, hyperparameters fitted anew at every step."""

import warnings
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from cicpe.baselines.base import History, extra
from cicpe.spaces import Space


def fit_gp(history: History, episode: int, space: Space, sign: int) -> Any:
    """A BoTorch model of ``sign`` times the observation, over the unit cube, for one episode of a batch."""
    models, fit, mll = extra("botorch.models"), extra("botorch.fit"), extra("gpytorch.mlls")
    modules, transforms = extra("botorch.models.utils.gpytorch_modules"), extra("botorch.models.transforms.outcome")
    place = to_cube(space, history.query_BTQ[episode])
    value = sign * history.observation_BTY[episode].double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few points, unlucky starts: the fit is tried again by itself
        model = models.SingleTaskGP(
            place,
            value,
            likelihood=modules.get_gaussian_likelihood_with_gamma_prior(),
            covar_module=modules.get_matern_kernel_with_gamma_prior(space.dim),
            outcome_transform=transforms.Standardize(m=1),
        )
        fit.fit_gpytorch_mll(mll.ExactMarginalLogLikelihood(model.likelihood, model))
    return model.eval()


def to_cube(space: Space, point: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
    """Points of a box in [0, 1]^d, in double precision."""
    return ((space.to_unit(point).double() + 1) / 2).clamp(0, 1)


def from_cube(space: Space, cube: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
    """The inverse of ``to_cube``, in single precision."""
    return space.project(space.from_unit((2 * cube - 1).float()))


def sobol(space: Space, n: int, seed: int) -> Float[Tensor, "n dim"]:
    """A scrambled Sobol design in the unit cube."""
    engine: Any = torch.quasirandom.SobolEngine
    points: Tensor = engine(space.dim, scramble=True, seed=seed).draw(n, dtype=torch.float64)
    return points
