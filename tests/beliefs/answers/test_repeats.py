"""What repeated observations show of the noise, and what heads make of entries that depend on each other."""

import math

import pytest
import torch
from torch import Generator, Tensor

from cicpe.beliefs.answers.heads import BinaryHead, CategoricalHead, LogisticMixtureHead, NormalHead
from cicpe.beliefs.answers.joint_heads import Heads
from cicpe.beliefs.answers.repeats import CLEAR, entries_depend, excess, noise_is_a_share, observe_repeatedly
from cicpe.problems import Problem
from cicpe.spaces import Box


class TwoGauges(Problem):
    """Two readings of a number, with noise of their own and a drift that they may share."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])

    def __init__(self, drift: float, noise: float = 0.1) -> None:
        self.drift, self.noise = drift, noise

    def sample(self, n: int, rng: Generator) -> Tensor:
        return torch.rand((n, 1), generator=rng)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        drift, *noise = torch.randn((3, len(query)), generator=rng)
        shared = self.drift * drift
        return torch.stack([task[:, 0] + shared + self.noise * noise[0], shared + self.noise * noise[1]], dim=-1)

    def target(self, task: Tensor) -> Tensor:
        return task


@pytest.mark.parametrize("seed", range(5))
def test_a_shared_drift_is_seen_and_independent_noise_is_not(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    assert entries_depend(observe_repeatedly(TwoGauges(drift=0.1), rng))
    assert not entries_depend(observe_repeatedly(TwoGauges(drift=0.0), rng))


@pytest.mark.parametrize("p", [0.02, 0.2, 0.5])
def test_rare_values_are_no_dependence(p: float) -> None:
    rng = torch.Generator().manual_seed(0)
    coins = (torch.rand((512, 8, 6), generator=rng) < p).float()
    assert excess(coins) < CLEAR


def test_a_sign_that_differs_between_queries_is_seen() -> None:
    rng = torch.Generator().manual_seed(0)
    first, second = torch.randn((2, 512, 8), generator=rng)
    sign = torch.randint(2, (512, 1), generator=rng) * 2.0 - 1
    seen = torch.stack([first, 0.7 * sign * first + 0.7 * second], dim=-1)
    assert abs(float(torch.corrcoef(seen.flatten(0, 1).T)[0, 1])) < 0.05
    assert excess(seen) > CLEAR


def test_one_category_of_several_as_zeros_and_ones_is_seen() -> None:
    rng = torch.Generator().manual_seed(0)
    chosen = torch.multinomial(torch.tensor([0.5, 0.3, 0.2]), 512 * 8, replacement=True, generator=rng)
    assert excess(torch.nn.functional.one_hot(chosen, 3).float().view(512, 8, 3)) > CLEAR


def test_entries_without_noise_depend_on_nothing() -> None:
    task = torch.rand((512, 1, 1), generator=torch.Generator().manual_seed(0))
    assert excess(task.expand(-1, 8, 3)) < CLEAR


@pytest.mark.parametrize("pairs", [16, 512])
def test_noise_that_is_a_share_of_the_reading_is_told_from_noise_of_one_size(pairs: int) -> None:
    rng = torch.Generator().manual_seed(0)
    level = torch.exp(1.5 * torch.randn((pairs, 1), generator=rng)).expand(-1, 8)
    noise = torch.randn((pairs, 8), generator=rng)
    waiting = -level * torch.rand((pairs, 8), generator=rng).log()
    far_from_zero = 100 + level.clamp_max(10) + noise
    photons = 50 * level.clamp_max(20) + (50 * level.clamp_max(20)).sqrt() * noise.clamp_min(-3)
    entries = [level * (0.15 * noise).exp(), waiting, far_from_zero, photons.clamp_min(1e-3), level + noise, level]
    shares = noise_is_a_share(torch.stack(entries, dim=-1))
    # Neither of one size nor a share: as the square root, it is left on an even scale. Nothing is said of the others.
    assert shares == (True, True, False, False, None, None)


def test_coupled_gaussian_entries_are_a_gaussian_of_any_covariance() -> None:
    mean, root = torch.tensor([0.3, -0.5, 1.0]), torch.tensor([[0.5, 0.0, 0.0], [0.9, 0.3, 0.0], [-0.4, 0.2, 0.7]])
    exact = torch.distributions.MultivariateNormal(mean, scale_tril=root)
    # y_3 given those before it: a weight for each residual, as one for the last and one for their mean.
    unit = root / root.diagonal()
    inverse = torch.linalg.inv(unit)
    on_first, on_second = float(-inverse[2, 0]), float(-inverse[2, 1])
    weights = torch.tensor([float(-inverse[1, 0]), on_second - on_first, 2 * on_first])
    own = torch.stack([mean, root.diagonal().log()], dim=-1).flatten()
    heads = Heads((NormalHead(),) * 3, coupled=True)
    seen = exact.sample((50,))
    torch.testing.assert_close(
        heads.log_probability(torch.cat([own, weights]), seen), exact.log_prob(seen), rtol=1e-4, atol=1e-4
    )


MIXED = Heads(
    (
        BinaryHead(low=0.0, high=1.0),
        CategoricalHead(values=(0.0, 1.0, 2.0)),
        LogisticMixtureHead(whole=True, transform="root", centre=2.0, spread=1.0),
    ),
    coupled=True,
)


def test_coupled_probabilities_add_up_to_one() -> None:
    parameters = 0.7 * torch.randn(MIXED.parameters, generator=torch.Generator().manual_seed(0))
    outcomes = torch.cartesian_prod(torch.arange(2.0), torch.arange(3.0), torch.arange(3000.0))
    log_p = MIXED.log_probability(parameters.expand(len(outcomes), -1), outcomes)
    assert float(log_p.double().exp().sum()) == pytest.approx(1.0, abs=2e-3)


def test_coupled_draws_follow_the_probabilities() -> None:
    n, rng = 60_000, torch.Generator().manual_seed(1)
    heads = Heads(MIXED.heads[:2], coupled=True)
    parameters = torch.tensor([0.4, 0.2, -0.3, 0.1, 1.5])
    drawn = heads.draw(heads.settled(parameters).expand(n, -1).T, torch.rand((n, 2, 2), generator=rng))
    outcomes = heads.listed
    assert outcomes is not None
    p = heads.log_probability(parameters.expand(len(outcomes), -1), outcomes).exp()
    seen = torch.bincount(heads.listed_place(drawn), minlength=len(outcomes)) / n
    assert float(p.sum()) == pytest.approx(1.0, abs=1e-5)
    assert float((seen - p).abs().max()) < 5 * math.sqrt(0.25 / n)
    apart = Heads(heads.heads)
    alone = apart.log_probability(parameters[:-1].expand(len(outcomes), -1), outcomes).exp()
    assert float((alone - p).abs().max()) > 0.05  # the weight counts


def test_settled_parameters_of_coupled_heads_give_the_same_probabilities() -> None:
    parameters = torch.randn((4, 50, MIXED.parameters), generator=torch.Generator().manual_seed(0))
    encoded = MIXED.encode(torch.tensor([[0.0, 1.0, 3.0], [1.0, 2.0, 0.0], [1.0, 0.0, 7.0], [0.0, 0.0, 1.0]]))[:, None]
    settled = MIXED.settled(parameters).movedim(-1, 0)
    torch.testing.assert_close(
        MIXED.settled_log_probability(settled, encoded), MIXED.log_probability(parameters, encoded)
    )
