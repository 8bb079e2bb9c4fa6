"""The reference for the place and the height of a maximum: its posterior against dense Gaussian-process algebra."""

import math

import pytest
import torch
from scipy.stats import ks_2samp
from torch import Generator, Tensor

from cicpe.baselines.references.gp_peak import GPPeak, batch_sizes
from cicpe.beliefs.functions.belief import FunctionBelief, FunctionConfig
from cicpe.errors import InvalidInput
from cicpe.gp.mixture import FLOOR, GPMixture
from cicpe.problems import TaskBatch
from cicpe.problems.binary_search import BinarySearch
from cicpe.problems.gp_argmax import GPArgmax
from cicpe.problems.gp_max import GPMax
from cicpe.testing import check_agent

NOISE = 0.3


def dense(place: Tensor, value: Tensor, grid: Tensor, lengthscale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance on the grid, and the log evidence, as in any textbook."""

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        return torch.exp(-0.5 * ((a[:, None] - b) / lengthscale).square())

    cover = kernel(place, place) + NOISE**2 * torch.eye(len(place), dtype=torch.float64)
    cross = torch.linalg.solve(cover, kernel(place, grid))
    mean, variance = value @ cross, 1 - (kernel(place, grid) * cross).sum(dim=0)
    evidence = -0.5 * (value @ torch.linalg.solve(cover, value)) - 0.5 * torch.logdet(cover)
    return mean, variance, evidence


def test_the_posterior_is_that_of_a_gaussian_process() -> None:
    agent = GPPeak(GPMax(1, NOISE), 0.1, horizon=9, lengthscales=3)
    index, value = torch.tensor([10, 200, 210, 400, 200]), torch.tensor([0.3, -1.0, -0.7, 1.2, -0.8])
    belief = agent.begin(torch.tensor([[NOISE]]))
    for i, y in zip(index, value, strict=True):
        belief = agent.average(belief, i[None], y[None], 1)
    basis, _ = agent._prior
    evidences = []
    for scale, lengthscale in enumerate((0.075, 0.125, 0.175)):
        mean, variance, evidence = dense(agent.place_G[index], value.double(), agent.place_G, lengthscale)
        torch.testing.assert_close(basis @ belief.mean_BLM[0, scale], mean, atol=1e-5, rtol=0)
        found = torch.einsum("gm,mn,gn->g", basis, belief.cover_BLMM[0, scale], basis)
        torch.testing.assert_close(found, variance, atol=1e-5, rtol=0)
        evidences.append(evidence)
    expected = torch.softmax(torch.stack(evidences), dim=0)
    torch.testing.assert_close(torch.softmax(belief.log_evidence_BL[0], dim=0), expected, atol=1e-5, rtol=0)


def test_an_average_says_as_much_as_its_observations() -> None:
    agent = GPPeak(GPArgmax(NOISE), 0.1, horizon=9)
    place, begin = torch.tensor([77]), agent.begin(torch.tensor([[NOISE]]))
    one_by_one = begin
    for y in (0.5, 0.9, 1.3):
        one_by_one = agent.average(one_by_one, place, torch.tensor([y]), 1)
    at_once = agent.average(begin, place, torch.tensor([0.9]), 3)
    torch.testing.assert_close(at_once.mean_BLM, one_by_one.mean_BLM, atol=1e-9, rtol=0)
    torch.testing.assert_close(at_once.cover_BLMM, one_by_one.cover_BLMM, atol=1e-9, rtol=0)


def test_draws_have_the_moments_of_the_belief() -> None:
    agent = GPPeak(GPMax(1, NOISE), 0.1, horizon=9, lengthscales=2, draws=4000)
    belief = agent.average(agent.begin(torch.tensor([[NOISE]])), torch.tensor([100]), torch.tensor([1.0]), 4)
    draws = agent.draw(belief, Generator().manual_seed(0))
    seen = draws.value_BSG[0, :, 100]
    gain = 1 / (1 + NOISE**2 / 4)
    assert float(seen.mean()) == pytest.approx(gain, abs=4 * (gain * NOISE**2 / 4 / 4000) ** 0.5)
    assert float(seen.var()) == pytest.approx(gain * NOISE**2 / 4, rel=0.1)


@pytest.mark.parametrize("problem", [GPMax(1, 0.1), GPArgmax(0.1)], ids=["value", "place"])
def test_it_is_an_agent_that_finds_what_it_is_asked_for(problem: GPMax | GPArgmax) -> None:
    agent = GPPeak(problem, 0.15, horizon=14, lengthscales=6, draws=128)
    check_agent(agent, problem, n=6)
    rng = Generator().manual_seed(1)
    tasks = TaskBatch.draw(problem, 40, rng)
    state = agent.begin(tasks.context)
    for _ in range(14):
        query = agent.propose(state, rng).query[:, 0]
        state = agent.update(state, query, tasks.observe(query, rng))
    last = agent.propose(state, rng)
    right = (tasks.loss(last.recommendation) <= 0.15).float().mean()
    assert float(right) >= 0.8
    assert float(last.confidence.mean()) == pytest.approx(float(right), abs=0.15)


@pytest.mark.parametrize(("lengthscale", "same"), [(0.125, True), (0.25, False)])
def test_a_belief_over_functions_draws_the_same_heights(lengthscale: float, same: bool) -> None:
    """Two ways to one posterior: eigenfunctions here, Matheron's rule there; and another prior is told apart."""
    problem, index, value = GPMax(1, NOISE), [30, 200, 260, 430], [0.3, -1.0, 1.4, 0.9]
    reference = GPPeak(problem, 0.1, horizon=9, lengthscales=1, draws=2000)
    mixture = GPMixture(3, 1, 0).requires_grad_(False)
    mixture.log_share_J[:2] = -50.0  # the third kind is the squared exponential
    mixture.log_scale_JQ.fill_(math.log(2 * lengthscale))  # unit coordinates are 2 wide
    mixture.log_wander_J.fill_(-20.0)
    mixture.log_noise_J.fill_(math.log(NOISE - FLOOR))
    config = FunctionConfig(answer="height", functions=2000, groups=1)
    belief = FunctionBelief(problem.query_space, problem.answer_space, mixture, 9, config)
    exact, state = reference.begin(torch.tensor([[NOISE]])), belief.begin(torch.zeros(1, 0))
    for i, y in zip(index, value, strict=True):
        exact = reference.average(exact, torch.tensor([i]), torch.tensor([y]), 1)
        state = belief.update(state, reference.place_G[i].float().view(1, 1), torch.tensor([[y]]))
    drawn = reference.draw(exact, Generator().manual_seed(0)).value_BSG[0].amax(dim=-1)
    found = belief.draw(state).height_BN[0]
    assert (ks_2samp(drawn.numpy(), found.numpy()).pvalue > 1e-3) == same


def test_it_refuses_other_problems() -> None:
    with pytest.raises(InvalidInput, match="gp_argmax"):
        GPPeak(BinarySearch(1), 0.1, horizon=9)


def test_batches_grow_with_what_was_spent() -> None:
    sizes = batch_sizes(1000.0)
    assert sizes[:8] == [1] * 8
    assert 1000 <= sum(sizes) <= 1250
    assert all(size <= max(1, sum(sizes[:i]) / 4) for i, size in enumerate(sizes))
