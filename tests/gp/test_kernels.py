"""Kernels against their formulas in NumPy, and against their own spectral densities."""

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.special import gamma, kv

from cicpe.gp.kernels import MATERN_32, MATERN_52, SQUARED_EXPONENTIAL, Kernel, correlation, scaled_distance

KERNELS = (MATERN_32, MATERN_52, SQUARED_EXPONENTIAL)
Array = npt.NDArray[np.float64]


def textbook(distance: Array, smoothness: float) -> Array:
    """The general Matern formula, by its Bessel function; its limit for the squared exponential."""
    if math.isinf(smoothness):
        return np.exp(-(distance**2) / 2)
    z = math.sqrt(2 * smoothness) * distance
    return 2 ** (1 - smoothness) / gamma(smoothness) * z**smoothness * kv(smoothness, z)


@pytest.mark.parametrize("smoothness", KERNELS)
def test_a_correlation_is_the_textbooks_and_no_other(smoothness: float) -> None:
    distance = torch.linspace(0.01, 6, 200, dtype=torch.float64)
    expected = {nu: textbook(distance.numpy(), nu) for nu in KERNELS}
    np.testing.assert_allclose(correlation(distance, smoothness).numpy(), expected[smoothness], rtol=1e-10)
    for other in set(KERNELS) - {smoothness}:
        assert np.abs(correlation(distance, smoothness).numpy() - expected[other]).max() > 0.02
    assert float(correlation(torch.zeros(()), smoothness)) == 1.0


@pytest.mark.parametrize("smoothness", KERNELS)
def test_a_covariance_has_a_scale_for_every_axis_and_an_amplitude(smoothness: float) -> None:
    rng = np.random.default_rng(0)
    a, b, scale = rng.normal(size=(4, 2)), rng.normal(size=(3, 2)), np.array([0.3, 1.7])
    apart = np.sqrt((((a[:, None] - b) / scale) ** 2).sum(axis=-1))
    kernel = Kernel(torch.tensor(scale), torch.tensor(1.4, dtype=torch.float64), smoothness)
    covariance = kernel.covariance(torch.tensor(a), torch.tensor(b)).numpy()
    np.testing.assert_allclose(covariance, 1.4**2 * textbook(apart, smoothness), rtol=1e-9)
    swapped = kernel._replace(lengthscale=kernel.lengthscale.flip(0)).covariance(torch.tensor(a), torch.tensor(b))
    assert np.abs(swapped.numpy() - covariance).max() > 0.05


def test_batches_are_the_single_ones() -> None:
    rng = torch.Generator().manual_seed(1)
    scale, amplitude = torch.rand((5, 2), generator=rng) + 0.1, torch.rand(5, generator=rng)
    a, b = torch.rand((5, 4, 2), generator=rng), torch.rand((3, 2), generator=rng)
    batch = Kernel(scale, amplitude, MATERN_52).covariance(a, b)
    single = [Kernel(scale[i], amplitude[i], MATERN_52).covariance(a[i], b) for i in range(5)]
    torch.testing.assert_close(batch, torch.stack(single))


def test_coinciding_places_have_a_gradient() -> None:
    place = torch.tensor([[0.2], [0.2], [0.7]], dtype=torch.float64)
    scale = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    scaled_distance(place, place, scale).sum().backward()  # type: ignore[no-untyped-call]
    assert scale.grad is not None
    # Four pairs are 0.5 / l apart, so the sum is 2 / l.
    assert float(scale.grad) == pytest.approx(-2 / 0.5**2)


@pytest.mark.parametrize("smoothness", KERNELS)
def test_waves_of_the_spectral_density_add_up_to_the_kernel(smoothness: float) -> None:
    """E cos(w (x - x')) = k(x, x'): with 200,000 waves to within 5 standard errors; another kernel is told apart."""
    count = 200_000
    kernel = Kernel(torch.tensor([0.3, 0.8]).double(), torch.tensor(1.0).double(), smoothness)
    frequency = kernel.frequencies(count, torch.Generator().manual_seed(2))
    lag = torch.tensor([[0.1, 0.0], [0.2, 0.3], [0.5, -0.4]], dtype=torch.float64)
    mean = torch.cos(frequency @ lag.T).mean(dim=0)
    error = (mean - kernel.covariance(lag, torch.zeros(1, 2).double())[:, 0]).abs()
    assert bool((error < 5 / math.sqrt(count)).all())
    for other in set(KERNELS) - {smoothness}:
        wrong = kernel._replace(smoothness=other).covariance(lag, torch.zeros(1, 2).double())[:, 0]
        assert bool(((mean - wrong).abs() > 5 / math.sqrt(count)).any())
