"""Priors whose hidden numbers depend on each other in another way than those of a Gaussian copula."""

import math
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor

import cicpe
from cicpe.beliefs.answers.belief import AnswerBelief
from cicpe.beliefs.answers.config import AnswerBeliefConfig
from cicpe.beliefs.answers.grid import GridSearch
from cicpe.beliefs.answers.particles import ParticleSearch, latent_of, unit_of
from cicpe.beliefs.answers.tilt import Tilt
from cicpe.beliefs.base import FitRequest, FittedBelief
from cicpe.beliefs.budget import Budget
from cicpe.problems import Problem
from cicpe.spaces import Box
from cicpe.training.callbacks import TrainingCallback

RADIUS, WIDTH = 0.7, 0.1


@dataclass(frozen=True)
class Ring(Problem):
    """A place on a ring, by its distance from a chosen point."""

    query_space = Box([-1.0, -1.0], [1.0, 1.0])
    answer_space = Box([-1.0, -1.0], [1.0, 1.0])
    default_epsilon = (0.2, 0.4)
    horizon = 10

    def sample(self, n: int, rng: Generator) -> Tensor:
        angle = 2 * math.pi * torch.rand((n, 1), generator=rng)
        radius = RADIUS + WIDTH * (torch.rand((n, 1), generator=rng) - 0.5)
        return radius * torch.cat([angle.cos(), angle.sin()], dim=1)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        apart = torch.linalg.vector_norm(query - task, dim=1)
        return apart + 0.3 * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task


def same_sign(n: int, rng: Generator) -> Tensor:
    """Normal numbers of equal sign: each is normal, and so is the length of both."""
    first, second = torch.randn((2, n), generator=rng)
    return torch.stack([first, second.abs() * first.sign()], dim=1)


def test_the_ratio_of_numbers_of_equal_sign_is_two() -> None:
    rng = torch.Generator().manual_seed(0)
    tilt = Tilt.learn(same_sign(20_000, rng), rng)
    assert tilt is not None
    z = torch.randn((20_000, 2), generator=rng)
    ratio, same = tilt(z).exp(), z.prod(dim=1) > 0
    clear = z.abs().amin(dim=1) > 0.4
    assert float(ratio.mean()) == pytest.approx(1.0, abs=0.05)
    assert float(ratio[clear & same].median()) == pytest.approx(2.0, rel=0.1)
    assert float(ratio[clear & ~same].median()) < 0.1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("numbers", [1, 2, 6])
def test_independent_numbers_have_none(numbers: int, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    assert Tilt.learn(torch.randn((8000, numbers), generator=rng), rng) is None


@pytest.fixture(scope="module")
def ring() -> FittedBelief:
    config = AnswerBeliefConfig(epsilon=(0.2, 0.4), horizon=10)
    return config.fit(FitRequest(Ring(), Budget(updates=150), 0, TrainingCallback()))


def test_even_points_of_a_ring_are_draws_from_it(ring: FittedBelief) -> None:
    assert isinstance(ring.belief, AnswerBelief)
    search = ring.belief.search
    assert isinstance(search, GridSearch)
    assert search.is_scattered
    radius = torch.linalg.vector_norm(search.places_GV, dim=1)
    assert float((radius - RADIUS).abs().max()) <= WIDTH / 2 + 1e-5


def test_moves_of_particles_leave_the_ring_as_it_is(ring: FittedBelief) -> None:
    """A sampler without the tilt would follow the copula, of which little is near the ring."""
    (by_particles,) = ring.alternatives()
    assert isinstance(by_particles.belief, AnswerBelief)
    search = by_particles.belief.search
    assert isinstance(search, ParticleSearch)
    target = search.filter.target
    assert target.log_prior is not None
    rng = torch.Generator().manual_seed(0)
    unit = target.prior(4000, rng)
    at = target.log_prior(unit)
    for _ in range(60):
        asked = (unit + 0.3 * torch.randn(unit.shape, generator=rng)).clamp(-0.999, 0.999)
        value = target.log_prior(asked)
        accepted = torch.rand(len(unit), generator=rng).log() < value - at
        unit, at = torch.where(accepted[:, None], asked, unit), torch.where(accepted, value, at)

    def share_near(unit: Tensor) -> float:
        radius = torch.linalg.vector_norm(search._places(unit), dim=1)
        return float(((radius - RADIUS).abs() < WIDTH).double().mean())

    copula = 2 * torch.rand((4000, 2), generator=rng) - 1
    assert share_near(unit) > 0.8
    assert share_near(copula) < 0.5


def test_unit_coordinates_and_latent_ones_are_inverse() -> None:
    latent = torch.randn((100, 3), generator=torch.Generator().manual_seed(0)).clamp(-3, 3)
    torch.testing.assert_close(latent_of(unit_of(latent)), latent, rtol=1e-3, atol=1e-3)


def test_a_model_with_a_tilt_is_read_as_it_was_written(tmp_path: Path) -> None:
    model = cicpe.train(Ring(), recipe="answers", updates=60, calibration_episodes=100)
    assert model.description.training.tilted
    model.save(tmp_path / "ring")
    again = cicpe.load(tmp_path / "ring", problem=Ring())
    rng = torch.Generator().manual_seed(0)
    state = model.belief.begin(torch.zeros(2, 0))
    ours, theirs = (b.assess(state, (0.3,), rng.clone_state()) for b in (model.belief, again.belief))
    torch.testing.assert_close(ours.query, theirs.query)
    torch.testing.assert_close(ours.confidence, theirs.confidence)
