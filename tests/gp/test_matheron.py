"""Draws by Matheron's rule against the closed-form posterior; interpolation against multilinear functions."""

import math

import pytest
import torch
from torch import Tensor

from cicpe.gp.exact import condition
from cicpe.gp.kernels import MATERN_32, SQUARED_EXPONENTIAL, Kernel
from cicpe.gp.matheron import lattice_corners, posterior_draws, prior_draws, whitened_error

PLACES = torch.linspace(0, 1, 24, dtype=torch.float64)[:, None]
SEEN = torch.tensor([2, 11, 12, 20])
VALUES = torch.tensor([0.8, -0.4, -0.2, 1.1], dtype=torch.float64)
NOISE, DRAWS = 0.2, 20_000


def kernel(smoothness: float = MATERN_32) -> Kernel:
    return Kernel(torch.tensor([0.3]).double(), torch.tensor(1.1).double(), smoothness)


def drawn(prior: Kernel, model: Kernel, noise: float = NOISE) -> Tensor:
    """Prior draws of one kernel, moved as if they were of another."""
    rng = torch.Generator().manual_seed(4)
    white = torch.randn((DRAWS, len(PLACES)), generator=rng, dtype=torch.float64)
    f = prior_draws(prior.covariance(PLACES, PLACES), white, 1e-9)
    covariance = model.covariance(PLACES, PLACES)
    posterior = condition(covariance[SEEN][:, SEEN], NOISE**2, VALUES)
    own = noise * torch.randn((DRAWS, len(SEEN)), generator=rng, dtype=torch.float64)
    error = whitened_error(posterior.root, VALUES, f[:, SEEN], own)
    return posterior_draws(f, error, posterior.whiten(covariance[SEEN]))


def worst(draws: Tensor, model: Kernel) -> tuple[float, float]:
    """The largest errors of the mean and of the covariance, in standard errors of each."""
    covariance = model.covariance(PLACES, PLACES)
    gain = covariance[:, SEEN] @ (covariance[SEEN][:, SEEN] + NOISE**2 * torch.eye(4).double()).inverse()
    mean, left = gain @ VALUES, covariance - gain @ covariance[SEEN]
    variance = left.diagonal()
    of_mean = (draws.mean(dim=0) - mean).abs() / (variance / DRAWS).sqrt()
    error = ((torch.outer(variance, variance) + left.square()) / DRAWS).sqrt()
    return float(of_mean.max()), float(((draws.T.cov() - left).abs() / error).max())


@pytest.mark.parametrize("smoothness", [MATERN_32, SQUARED_EXPONENTIAL])
def test_moved_draws_have_the_moments_of_the_posterior(smoothness: float) -> None:
    k = kernel(smoothness)
    assert max(worst(drawn(k, k), k)) < 5


def test_a_wrong_kernel_or_no_noise_is_found_out() -> None:
    k = kernel()
    assert worst(drawn(kernel(SQUARED_EXPONENTIAL), k), k)[1] > 10
    assert worst(drawn(k, k, noise=0.0), k)[1] > 10


def test_prior_draws_have_the_priors_covariance() -> None:
    k = kernel()
    covariance = k.covariance(PLACES, PLACES)
    eye = torch.eye(len(PLACES), dtype=torch.float64)
    root = prior_draws(covariance, eye, 0.0).mT  # white noise along each axis in turn gives the columns of the root
    torch.testing.assert_close(root @ root.mT, covariance, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_corners_interpolate_multilinear_functions_exactly(dim: int) -> None:
    side, rng = 5, torch.Generator().manual_seed(dim)
    axis = torch.linspace(0, 1, side, dtype=torch.float64)
    lattice = torch.cartesian_prod(*[axis] * dim).view(-1, dim)

    def multilinear(place: Tensor) -> Tensor:
        return (1 + torch.arange(1, dim + 1) * place).prod(dim=-1)

    place = torch.rand((50, dim), generator=rng, dtype=torch.float64)
    corner, share = lattice_corners(place, side)
    torch.testing.assert_close(share.sum(dim=-1), torch.ones(50).double())
    torch.testing.assert_close((multilinear(lattice)[corner] * share).sum(dim=-1), multilinear(place))
    other = corner.flip(-1)  # the wrong corners
    assert not torch.allclose((multilinear(lattice)[other] * share).sum(dim=-1), multilinear(place))


def test_outside_the_cube_the_nearest_place_is_taken() -> None:
    corner, share = lattice_corners(torch.tensor([[-0.3], [1.0], [7.0]]), 4)
    assert corner.tolist() == [[0, 1], [2, 3], [2, 3]]
    assert share.tolist() == [[1, 0], [0, 1], [0, 1]]
    assert math.isclose(float(share.sum()), 3.0)
