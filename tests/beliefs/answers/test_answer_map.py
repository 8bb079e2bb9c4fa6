"""The answer as a learned function of the hidden numbers."""

import pytest
import torch
from torch import Tensor

from cicpe.beliefs.answers.answer_map import AnswerMap
from cicpe.beliefs.answers.grid import GridSearch
from cicpe.beliefs.answers.heads import BinaryHead
from cicpe.beliefs.answers.joint_heads import Heads
from cicpe.beliefs.answers.model import AnswerModel
from cicpe.beliefs.answers.particles import ParticleSearch
from cicpe.beliefs.answers.prior import Prior
from cicpe.beliefs.answers.success import Success
from cicpe.spaces import Box

SPACE = Box([-2.0], [2.0])


def numbers(n: int, seed: int = 0) -> Tensor:
    """Two numbers on an even scale."""
    return (2 * torch.rand((n, 2), generator=torch.Generator().manual_seed(seed)) - 1) * 3**0.5


def product(numbers: Tensor) -> Tensor:
    return numbers[:, :1] * numbers[:, 1:] / 3


def larger(numbers: Tensor) -> Tensor:
    return torch.where(numbers[:, :1] > numbers[:, 1:], 0.5, -0.5)


def test_a_smooth_function_is_learned_and_a_random_one_is_not() -> None:
    known, rng = numbers(8000), torch.Generator().manual_seed(1)
    smooth = AnswerMap.learn(known, product(known), None, SPACE, rng)
    fresh = numbers(1000, seed=5)
    assert float((smooth(fresh) - product(fresh)).abs().mean()) < 0.02
    assert smooth.unexplained(known, product(known)) < 0.05
    noise = 2 * torch.rand((8000, 1), generator=rng) - 1
    assert AnswerMap.learn(known, noise, None, SPACE, rng).unexplained(known, noise) > 0.5


def test_sums_of_bell_shaped_numbers_are_learned_into_their_tails_and_up_to_where_they_are_clipped() -> None:
    known = numbers(12_000)
    scores = torch.special.ndtri((0.5 + known / (2 * 3**0.5)).clamp(1e-4, 1 - 1e-4))
    clipped = (0.5 * scores.sum(dim=1, keepdim=True)).clamp(-1, 1)
    assert 0.1 < float((clipped.abs() == 1).double().mean()) < 0.3
    learned = AnswerMap.learn(known, clipped, None, SPACE, torch.Generator().manual_seed(1))
    assert learned.unexplained(known, clipped) < 0.02
    far = (known.abs() > 1.6).any(dim=1)
    assert float((learned(known) - clipped)[far].abs().mean()) < 0.02


def test_of_a_finite_set_only_its_members_are_answers() -> None:
    known, values = numbers(8000), torch.tensor([[-0.5], [0.5]])
    chosen = AnswerMap.learn(known, larger(known), values, SPACE, torch.Generator().manual_seed(1))
    fresh = numbers(2000, seed=5)
    assert set(chosen(fresh).flatten().tolist()) == {-0.5, 0.5}
    assert float((chosen(fresh) == larger(fresh)).double().mean()) > 0.97


def test_answers_stay_in_their_space() -> None:
    known = numbers(2000)
    steep = AnswerMap.learn(known, product(known).clamp(-1, 1), None, SPACE, torch.Generator().manual_seed(1))
    assert float(steep(50 * known).abs().max()) <= 1.0


@pytest.fixture(scope="module")
def scattered() -> GridSearch:
    """A search over two numbers whose product is the answer."""
    known, rng = numbers(4000), torch.Generator().manual_seed(1)
    prior = Prior.learn(torch.cat([product(known), known], dim=1), SPACE, rng, gives_answer=True)
    heads = Heads((BinaryHead(low=0.0, high=1.0),))
    model = AnswerModel((SPACE, SPACE), heads, prior, 0, 0, Success(SPACE, learned=False), 16, rng)
    return GridSearch(model.requires_grad_(False), 128)


def test_scattered_points_have_the_prior_of_the_answer(scattered: GridSearch) -> None:
    state = scattered.begin(torch.zeros(1, 0))
    posterior = scattered.posterior(state)
    assert float(posterior.weight_BN.sum()) == pytest.approx(1.0)
    exact = product(numbers(100_000, seed=7))
    for quantile in (-0.5, -0.1, 0.0, 0.2, 0.6):
        ours = float(posterior.weight_BN[0, posterior.answer_BNX[0, :, 0] <= quantile].sum())
        assert ours == pytest.approx(float((exact <= quantile).double().mean()), abs=0.02)


def test_scattered_points_are_in_the_order_of_their_candidates(scattered: GridSearch) -> None:
    places = torch.arange(len(scattered.places_GV))
    candidate = scattered.candidate_of(places)
    assert bool((candidate.diff() >= 0).all())
    apart = scattered.places_GV[:, :1] - scattered.candidates_NX[candidate]
    low, high = scattered.candidates_NX.min(), scattered.candidates_NX.max()
    inside = (scattered.places_GV[:, 0] >= low) & (scattered.places_GV[:, 0] <= high)
    assert float(apart[inside].abs().max()) <= 0.51 * scattered.step


def test_particles_of_numbers_weigh_them_by_the_likelihood(scattered: GridSearch) -> None:
    """Particles and the scattered points are two ways to one posterior."""
    particles = ParticleSearch(scattered.model, 0.1)
    grid_state, state = scattered.begin(torch.zeros(1, 0)), particles.begin(torch.zeros(1, 0))
    rng = torch.Generator().manual_seed(2)
    for _ in range(6):
        query, seen = 2 * torch.rand((1, 1), generator=rng) - 1, torch.randint(2, (1, 1), generator=rng).float()
        parameters = scattered.settled_parameters(query, torch.zeros(1, 0))
        grid_state = scattered.observe(grid_state, scattered.likelihood(parameters, seen))
        state = particles.observe(state, query, seen)
    assert state.followed.cloud.unit_BNP.shape[-1] == 2
    means = []
    for posterior in (scattered.posterior(grid_state), particles.posterior(state)):
        means.append(float((posterior.weight_BN[0] * posterior.answer_BNX[0, :, 0]).sum()))
    assert means[1] == pytest.approx(means[0], abs=0.03)
