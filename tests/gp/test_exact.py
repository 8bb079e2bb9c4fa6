"""The posterior by its root against the textbook's formulas with an explicit inverse."""

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from cicpe.gp.exact import GPPosterior, condition, log_density, no_observations, noisy_root
from cicpe.gp.kernels import MATERN_32, MATERN_52, SQUARED_EXPONENTIAL, Kernel

NOISE = 0.1


def kernel(smoothness: float = MATERN_52, length: float = 0.4) -> Kernel:
    return Kernel(torch.tensor([length]).double(), torch.tensor(1.2).double(), smoothness)


@pytest.fixture(scope="module")
def history() -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(3)
    place = torch.rand((7, 1), generator=rng, dtype=torch.float64)
    return place, torch.sin(6 * place[:, 0]) + NOISE * torch.randn(7, generator=rng, dtype=torch.float64)


def textbook(k: Kernel, place: Tensor, value: Tensor, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, variance and log evidence."""
    covariance = k.covariance(place, place) + NOISE**2 * torch.eye(len(place)).double()
    gain = k.covariance(at, place) @ covariance.inverse()
    variance = (k.covariance(at, at) - gain @ k.covariance(place, at)).diagonal()
    evidence = MultivariateNormal(torch.zeros_like(value), covariance).log_prob(value)
    return gain @ value, variance, evidence


def appended(k: Kernel, place: Tensor, value: Tensor) -> GPPosterior:
    """One observation after the other."""
    posterior = no_observations()
    for t in range(len(place)):
        cross = k.covariance(place[:t], place[t : t + 1])[:, 0]
        posterior = posterior.append(cross, k.amplitude.square(), torch.tensor(NOISE**2, dtype=torch.float64), value[t])
    return posterior


@pytest.mark.parametrize("smoothness", [MATERN_32, MATERN_52, SQUARED_EXPONENTIAL])
@pytest.mark.parametrize("how", ["at once", "one by one"])
def test_moments_and_evidence_are_the_textbooks(history: tuple[Tensor, Tensor], smoothness: float, how: str) -> None:
    place, value = history
    k, at = kernel(smoothness), torch.linspace(-0.5, 1.5, 9).double()[:, None]
    whole = condition(k.covariance(place, place), NOISE**2, value)
    posterior = whole if how == "at once" else appended(k, place, value)
    torch.testing.assert_close(posterior.root, whole.root)
    rows = posterior.whiten(k.covariance(place, at))
    mean, variance = posterior.predict(rows, k.amplitude.square().expand(9))
    expected = textbook(k, place, value, at)
    for part, truth in zip((mean, variance, posterior.log_evidence()), expected, strict=True):
        torch.testing.assert_close(part, truth, rtol=1e-8, atol=1e-9)


def test_another_kernel_has_another_posterior(history: tuple[Tensor, Tensor]) -> None:
    place, value = history
    at = torch.linspace(-0.5, 1.5, 9).double()[:, None]
    mean, variance, evidence = textbook(kernel(MATERN_52), place, value, at)
    for wrong in (kernel(MATERN_32), kernel(length=0.3)):
        posterior = condition(wrong.covariance(place, place), NOISE**2, value)
        moments = posterior.predict(posterior.whiten(wrong.covariance(place, at)), wrong.amplitude.square().expand(9))
        assert float((moments[0] - mean).abs().max()) > 0.01
        assert float((moments[1] - variance).abs().max()) > 0.01
        assert abs(float(posterior.log_evidence() - evidence)) > 0.1


def test_a_batch_is_its_members(history: tuple[Tensor, Tensor]) -> None:
    place, value = history
    kernels = [kernel(length=length) for length in (0.2, 0.4, 0.9)]
    batch = Kernel(torch.stack([k.lengthscale for k in kernels]), torch.full((3,), 1.2).double(), MATERN_52)
    posterior = condition(batch.covariance(place, place), NOISE**2, value)
    for i, k in enumerate(kernels):
        single = condition(k.covariance(place, place), NOISE**2, value)
        for part, other in zip(posterior.at(torch.tensor(i)), single, strict=True):
            torch.testing.assert_close(part, other)


def test_the_evidence_of_a_prefix_is_a_partial_sum(history: tuple[Tensor, Tensor]) -> None:
    place, value = history
    k = kernel()
    posterior = condition(k.covariance(place, place), NOISE**2, value)
    gains = log_density(posterior.white, posterior.root.diagonal())
    for t in range(len(place) + 1):
        torch.testing.assert_close(gains[:t].sum(), appended(k, place[:t], value[:t]).log_evidence())


def test_the_root_of_every_noise_level() -> None:
    place = torch.linspace(0, 1, 4).double()[:, None]
    covariance = kernel().covariance(place, place)
    variance = torch.tensor([0.1, 0.5]).double()
    root = noisy_root(covariance, variance)
    for i in range(2):
        torch.testing.assert_close(root[i] @ root[i].mT, covariance + variance[i] * torch.eye(4).double())


def test_before_the_first_observation_there_is_the_prior() -> None:
    prior = no_observations(2, 3)
    rows = prior.whiten(torch.zeros(2, 3, 0, 5).double())
    mean, variance = prior.predict(rows, torch.full((5,), 1.44).double())
    torch.testing.assert_close(mean, torch.zeros(2, 3, 5).double())
    torch.testing.assert_close(variance, torch.full((2, 3, 5), 1.44).double())
    torch.testing.assert_close(prior.log_evidence(), torch.zeros(2, 3).double())
