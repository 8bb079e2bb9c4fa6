"""Agents that know the likelihood, against posteriors found another way."""

import math

import pytest
import torch
from scipy import integrate
from torch import Tensor

from cicpe.agents.base import Agent
from cicpe.baselines.base import History
from cicpe.baselines.references.conjugate import ConjugateRegression
from cicpe.baselines.references.gp_grid import GPGrid
from cicpe.baselines.references.grid import CELLS, GridReference, success
from cicpe.baselines.wrappers import StopAt
from cicpe.calibration.any_agent import choose_threshold
from cicpe.episodes.table import AgentTable, tabulate_agent
from cicpe.errors import InvalidInput
from cicpe.evaluation.evaluate import evaluate_agent
from cicpe.problems import Problem, TaskBatch
from cicpe.problems.best_arm import BestArm
from cicpe.problems.binary_search import BinarySearch
from cicpe.problems.gp_max import GPMax
from cicpe.testing.agents import check_agent

AGENTS: dict[str, tuple[Problem, Agent]] = {
    "grid": (BinarySearch(3, 0.1), GridReference(BinarySearch(3, 0.1), 0.2, 20)),
    "grid-mean": (BinarySearch(2, 0.0), GridReference(BinarySearch(2, 0.0), 0.2, 20, "mean")),
    "conjugate": (BestArm(4, 0.05), ConjugateRegression(BestArm(4, 0.05), 0.02, 12)),
    "gp": (GPMax(1, 0.05), GPGrid(GPMax(1, 0.05), 0.2, 10, lengthscales=4, points=64, paths=16)),
}


@pytest.mark.parametrize("name", AGENTS)
def test_conformance(name: str) -> None:
    problem, agent = AGENTS[name]
    check_agent(StopAt(agent, 0.9), problem, n=6)


@pytest.mark.parametrize("name", AGENTS)
def test_another_family_is_refused(name: str) -> None:
    problem, agent = AGENTS[name]
    other = GPMax(2, 0.1) if isinstance(problem, GPMax) else GPMax(1, 0.1)
    with pytest.raises(InvalidInput, match="problem"):
        type(agent)(other, 0.1, 10)  # type: ignore[call-arg]


def played(agent: Agent, problem: Problem, steps: int, n: int = 4) -> tuple[object, TaskBatch, Tensor, Tensor]:
    """The state after some steps, with the queries and the observations."""
    rng = torch.Generator().manual_seed(3)
    tasks = TaskBatch.draw(problem, n, rng)
    state, queries, observations = agent.begin(tasks.context), [], []
    for _ in range(steps):
        queries.append(agent.propose(state, rng).query[:, 0])
        observations.append(tasks.observe(queries[-1], rng))
        state = agent.update(state, queries[-1], observations[-1])
    return state, tasks, torch.stack(queries, dim=1), torch.stack(observations, dim=1)


def test_grid_is_bayes_rule_by_enumeration() -> None:
    problem = BinarySearch(2, 0.1)
    agent = GridReference(problem, 0.3, 20)
    state, _, query, observation = played(agent, problem, 6)
    centre = (torch.arange(CELLS) + 0.5) * 2 / CELLS - 1
    agree = (centre >= query[..., None]) == (observation > 0)[..., None]
    likelihood = torch.where(agree, 0.9, 0.1).double().prod(dim=1)
    expected = likelihood / likelihood.sum(dim=-1, keepdim=True)
    torch.testing.assert_close(state.probability_BDG, expected)  # type: ignore[attr-defined]


def test_grid_success_is_the_share_of_cells_in_the_ball() -> None:
    """Against the sum over all pairs of cells, each cut finer."""
    problem = BinarySearch(2, 0.1)
    agent = GridReference(problem, 0.3, 20)
    state, *_ = played(agent, problem, 5)
    p = state.probability_BDG  # type: ignore[attr-defined]
    centre = (torch.arange(CELLS, dtype=torch.float64) + 0.5) * 2 / CELLS - 1
    mean = p @ centre
    error = (centre - mean[..., None]).square()
    inside = (error[:, 0, :, None] + error[:, 1, None]) <= 0.3**2
    expected = (p[:, 0, :, None] * p[:, 1, None] * inside).sum(dim=(1, 2))
    torch.testing.assert_close(success(p, mean, 0.3), expected, atol=5e-3, rtol=0)


def test_conjugate_with_all_queried_is_von_mises_fisher() -> None:
    """Equal counts make the posterior von Mises-Fisher with kappa = n |m| / sigma^2."""
    problem = BestArm(3, 0.3)
    agent = ConjugateRegression(problem, 0.05, 20, draws=40_000)
    state, *_ = played(agent, problem, 9)
    found = agent.propose(state, torch.Generator()).confidence
    kappa = state.total_BD.norm(dim=-1) / 0.3**2  # type: ignore[attr-defined]
    # In three dimensions the density of the cosine is proportional to exp(kappa t).
    expected = (1 - torch.exp(-kappa * 0.05)) / (1 - torch.exp(-2 * kappa))
    torch.testing.assert_close(found.double(), expected, atol=0.02, rtol=0)


def test_conjugate_with_one_missing_is_a_coin_between_two_caps() -> None:
    """On the circle after one query: the density of the angle is exp(-(m - cos)^2 / (2 sigma^2)), twice."""
    problem, sigma = BestArm(2, 0.05), 0.05
    agent = ConjugateRegression(problem, 0.02, 20, draws=40_000)
    state = agent.begin(torch.tensor([[sigma]]))
    state = agent.update(state, torch.tensor([[1.0, 0.0]]), torch.tensor([[0.3]]))
    proposal = agent.propose(state, torch.Generator())

    def density(angle: float) -> float:
        return math.exp(-((0.3 - math.cos(angle)) ** 2) / (2 * sigma**2))

    answer = math.atan2(float(proposal.recommendation[0, 1]), float(proposal.recommendation[0, 0]))
    half = math.acos(1 - 0.02)
    inside = integrate.quad(density, answer - half, answer + half)[0]
    expected = inside / integrate.quad(density, -math.pi, math.pi, points=[-math.acos(0.3), math.acos(0.3)])[0]
    assert float(proposal.confidence[0]) == pytest.approx(expected, abs=0.02)


def test_gp_moments_are_those_of_a_mixture_of_gps() -> None:
    """Against the textbook formula with an explicit inverse."""
    problem = GPMax(1, 0.1)
    agent = GPGrid(problem, 0.2, 10, lengthscales=3, points=32, paths=8)
    place, value = torch.tensor([0.1, 0.45, 0.8]), torch.tensor([0.3, 1.2, -0.5])
    history = History(torch.tensor([[0.1]]), place.view(1, 3, 1), value.view(1, 3, 1))
    found = agent.posterior(history)
    x, y, grid = place.double(), value.double(), agent.place_G1[:, 0]
    means, seconds, logs = [], [], []
    for scale in agent.kernel_L1.lengthscale.flatten():
        cover = torch.exp(-0.5 * ((x[:, None] - x) / scale) ** 2) + 0.01 * torch.eye(3)
        cross = torch.exp(-0.5 * ((grid[:, None] - x) / scale) ** 2)
        mean = cross @ cover.inverse() @ y
        variance = 1 - (cross @ cover.inverse() * cross).sum(dim=1)
        means.append(mean)
        seconds.append(variance + mean.square())
        logs.append(torch.distributions.MultivariateNormal(torch.zeros(3).double(), cover).log_prob(y))
    weight = torch.softmax(torch.stack(logs), dim=0)
    mean = weight @ torch.stack(means)
    std = (weight @ torch.stack(seconds) - mean.square()).sqrt()
    torch.testing.assert_close(found.mean_BG[0], mean, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.std_BG[0], std, atol=1e-4, rtol=1e-3)


def test_gp_paths_pass_near_precise_observations() -> None:
    """With hardly any noise every draw of the maximum is at least the largest observation."""
    agent = GPGrid(GPMax(1, 0.001), 0.2, 10, lengthscales=3, points=64, paths=16)
    history = History(torch.tensor([[0.001]]), torch.tensor([[[0.25], [0.75]]]), torch.tensor([[[1.5], [0.0]]]))
    assert float(agent.posterior(history).maximum_BK.min()) > 1.49


def believed(loss: torch.Tensor, confidence: torch.Tensor) -> AgentTable:
    return AgentTable(loss, confidence, torch.zeros_like(loss), torch.zeros_like(loss, dtype=torch.bool))


def test_a_threshold_is_chosen_from_the_safest_down() -> None:
    """Success exactly where the confidence is high: the threshold lies just above the failures."""
    confidence = torch.linspace(0.3, 0.99, 70).expand(200, -1)
    loss = torch.where(confidence >= 0.8, 0.0, 1.0)
    cell = choose_threshold(believed(loss, confidence), 0.5, 0.1)
    assert cell is not None
    assert 0.78 < cell.threshold <= 0.81
    assert choose_threshold(believed(torch.ones(200, 70), confidence), 0.5, 0.1) is None


@pytest.mark.parametrize("name", AGENTS)
def test_confidence_is_the_share_of_successes(name: str) -> None:
    """Exact posteriors are calibrated on fresh tasks, at every prefix together."""
    problem, agent = AGENTS[name]
    epsilon = agent.epsilon  # type: ignore[attr-defined]
    prefixes = tabulate_agent(agent, problem, 300, agent.horizon, seed=11)
    middle = slice(2, 7)
    claimed = prefixes.confidence_BT[:, middle].mean(dim=1)
    succeeded = (prefixes.loss_BT[:, middle] <= epsilon).float().mean(dim=1)
    difference = claimed - succeeded
    # The coarse grid of length scales and of paths in the small GP costs it a little.
    slack = 0.03 if name == "gp" else 0.01
    assert abs(float(difference.mean())) < 3.3 * float(difference.std()) / math.sqrt(300) + slack


def test_a_wrong_likelihood_is_found_out() -> None:
    """The negative control of calibration: told too little noise, the agent is too sure."""
    agent = GridReference(BinarySearch(2, 0.02), 0.15, 15)
    problem = BinarySearch(2, 0.25)
    rng = torch.Generator().manual_seed(0)
    tasks = TaskBatch.draw(problem, 300, rng)
    state = agent.begin(torch.full((300, 1), 0.02))
    for _ in range(8):
        query = agent.propose(state, rng).query[:, 0]
        state = agent.update(state, query, tasks.observe(query, rng))
    proposal = agent.propose(state, rng)
    assert float(proposal.confidence.mean()) > float((tasks.loss(proposal.recommendation) <= 0.15).float().mean()) + 0.2


def test_the_reference_of_the_smallest_cell() -> None:
    """Binary search, d = 6, epsilon 0.2, noise 0.05: 7.9 queries at an accuracy of 0.9, +-10 %."""
    problem = BinarySearch(6, 0.05)
    agent = GridReference(problem, 0.2, 18)
    cell = choose_threshold(tabulate_agent(agent, problem, 400, agent.horizon, seed=1), 0.2, 0.1)
    assert cell is not None
    result = evaluate_agent(StopAt(agent, cell.threshold), problem, 0.2, 400, seed=2)
    assert result.accuracy > 0.86
    assert 7.1 < result.mean_queries < 8.8
