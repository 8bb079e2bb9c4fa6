"""Baselines: conformance, what each must do on problems whose outcome is known, and who refuses what."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from cicpe.agents.base import Agent
from cicpe.baselines import base
from cicpe.baselines.base import History, best_observed, orientation
from cicpe.baselines.catalogue import METHODS, ComparisonSetting
from cicpe.baselines.gp_model import to_cube
from cicpe.baselines.max_value import UniformBins, UniformTop
from cicpe.baselines.published import published
from cicpe.baselines.tbal import TBAL, Constants, Plan, estimate_constants, localise, plan_for
from cicpe.baselines.track_and_stop import TrackAndStop
from cicpe.baselines.wrappers import RandomQueries, StopAt
from cicpe.episodes.outcomes import run_episodes
from cicpe.errors import InvalidInput
from cicpe.evaluation.evaluate import evaluate_agent
from cicpe.problems import Problem, TaskBatch
from cicpe.problems.ackley import Ackley
from cicpe.problems.best_arm import BestArm
from cicpe.problems.binary_search import BinarySearch
from cicpe.problems.gp_argmax import GPArgmax
from cicpe.problems.gp_max import GPMax
from cicpe.spaces import Box
from cicpe.testing.agents import check_agent
from cicpe.testing.problems import check_problem

MILD = Constants(radius=0.3, least_curvature=20.0, most_curvature=60.0, third=100.0, gap=0.5)


@dataclass(frozen=True)
class Bowl(Problem):
    """A quadratic bowl: the answer is where it is lowest (or, with ``sign`` 1, highest)."""

    sign: float = -1.0
    noise: float = 0.01
    query_space = Box([-2.0, 0.0], [1.0, 4.0])
    answer_space = Box([-2.0, 0.0], [1.0, 4.0])

    def sample(self, n: int, rng: Generator) -> Tensor:
        return self.query_space.sample(n, rng)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        noise = self.noise * torch.randn(len(query), generator=rng)
        return -self.sign * (query - task).square().sum(dim=-1) + noise

    def target(self, task: Tensor) -> Tensor:
        return task


class Decoy(Bowl):
    """The lower (or, with ``sign`` 1, the higher), the farther off; but for the target itself, which is best of all."""

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        squared = (query - task).square().sum(dim=-1)
        return self.sign * (squared + 30 * torch.exp(-100 * squared))


def made(name: str, problem: Problem, budget: int = 7, epsilon: float = 0.2) -> Agent:
    return METHODS[name].make(ComparisonSetting(problem, epsilon, 0.1, budget))


@pytest.mark.parametrize("name", ["tpe", "cma-es", "gp-logei", "gp-ucb", "regret-bounds"])
@pytest.mark.parametrize("problem", [Ackley(2, 0.05), GPMax(1, 0.05)], ids=["ackley", "gp-max"])
def test_optimisers_conform(name: str, problem: Problem) -> None:
    check_agent(made(name, problem), problem, n=2)


@pytest.mark.parametrize(
    ("agent", "problem"),
    [
        (UniformBins(GPMax(1, 0.1), 9), GPMax(1, 0.1)),
        (UniformBins(GPMax(2, 0.1), 20), GPMax(2, 0.1)),
        (UniformTop(GPMax(1, 0.1), 9), GPMax(1, 0.1)),
        (TrackAndStop(BestArm(4, 0.3), 0.1, 0.1, 5000), BestArm(4, 0.3)),
        (TrackAndStop(BestArm(4, 0.01), 0.1, 0.1, 5000, uniform=True), BestArm(4, 0.01)),
        (TBAL(Plan(MILD, 0.05, 0.1, 0.05)), GPArgmax(0.05)),
        (RandomQueries(TrackAndStop(BestArm(4, 0.3), 0.1, 0.1, 50), BestArm(4).query_space), BestArm(4, 0.3)),
        (StopAt(TrackAndStop(BestArm(4, 0.3), 0.1, 0.1, 50), 0.5), BestArm(4, 0.3)),
    ],
)
def test_the_others_conform(agent: Agent, problem: Problem) -> None:
    check_agent(agent, problem, n=6)


def test_gp_argmax_is_a_problem() -> None:
    check_problem(GPArgmax())
    task = GPArgmax(margin=0.1).sample(200, torch.Generator().manual_seed(0))
    place = GPArgmax(margin=0.1).target(task)
    assert float(place.min()) >= 0.1
    assert float(place.max()) <= 0.9


@pytest.mark.parametrize(
    ("problem", "sign"),
    [(Ackley(3, 0.1), 1), (BestArm(5, 0.01), 1), (GPMax(1, 0.1), 1), (GPArgmax(0.1), 1), (BinarySearch(2, 0.1), None)],
    ids=lambda value: type(value).__name__,
)
def test_orientation_of_the_families(problem: Problem, sign: int | None) -> None:
    assert orientation(problem) == sign


def test_orientation_comes_from_a_pilot() -> None:
    assert orientation(Bowl(sign=-1)) == -1
    assert orientation(Bowl(sign=1)) == 1
    assert orientation(Bowl(sign=0)) is None


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_pilot_asks_the_target(sign: int) -> None:
    assert orientation(Decoy(sign=sign)) == sign


@pytest.mark.parametrize("name", ["tpe", "cma-es", "gp-logei", "gp-ucb"])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_optimisers_do_better_than_chance(name: str, sign: float) -> None:
    """On a bowl either way up, and they take exactly their budget."""
    model = name.startswith("gp")
    problem, n, budget = Bowl(sign), 2 if model else 12, 12 if model else 40
    tasks = TaskBatch.draw(problem, n, torch.Generator().manual_seed(1))
    outcomes = run_episodes(made(name, problem, budget), tasks, torch.Generator().manual_seed(2))
    assert outcomes.queries.tolist() == [budget] * n
    assert bool(outcomes.stopped.all())
    # The best of n uniform queries is sqrt(3 / n) away on average, edges aside: 0.5 of 12, 0.27 of 40.
    assert float(outcomes.loss.mean()) < (0.35 if model else 0.24)


def test_cma_es_learns_from_what_it_saw() -> None:
    """The attributes that CMA-ES keeps in trials survive: later generations are better than the first."""
    problem = Bowl(1.0, 0.0)
    tasks = TaskBatch.draw(problem, 8, torch.Generator().manual_seed(3))
    agent, rng = made("cma-es", problem, 72), torch.Generator().manual_seed(4)
    state = agent.begin(tasks.context)
    for _ in range(72):
        query = agent.propose(state, rng).query[:, 0]
        state = agent.update(state, query, tasks.observe(query, rng))
    value = state.history.observation_BTY[..., 0]
    assert float(value[:, -12:].mean()) > float(value[:, :12].mean()) / 4


def test_the_best_observed_is_recommended() -> None:
    query = torch.tensor([[[0.1], [0.5], [0.9]]])
    history = History(torch.zeros(1, 1), query, torch.tensor([[[1.0], [3.0], [2.0]]]))
    assert best_observed(GPArgmax(), history, 1).item() == pytest.approx(0.5)
    assert best_observed(GPArgmax(), history, -1).item() == pytest.approx(0.1)
    assert best_observed(GPMax(), history, 1).item() == pytest.approx(3.0)
    assert best_observed(GPMax(), history, -1).item() == pytest.approx(1.0)


def test_max_value_baselines_by_hand() -> None:
    value = torch.tensor([1.0, 5.0, 2.0, 3.0, 1.0, 6.0, 0.0]).view(1, -1, 1)
    history = History(torch.zeros(1, 1), torch.rand(1, 7, 1), value)
    rng = torch.Generator().manual_seed(0)
    # ceil(sqrt(7)) = 3 bins in turn: averages of (1, 3, 0), (5, 1) and (2, 6).
    assert UniformBins(GPMax(), 7).propose(history, rng).recommendation.item() == pytest.approx(4.0)
    assert UniformTop(GPMax(), 7).propose(history, rng).recommendation.item() == pytest.approx(5.0)
    many = History(torch.zeros(1, 1), torch.rand(1, 40, 1), torch.arange(40.0).view(1, -1, 1) / 10)
    assert UniformTop(GPMax(), 40).propose(many, rng).recommendation.item() == pytest.approx(3.85)
    third = UniformBins(GPMax(), 7).propose(History(history[0], history[1][:, :2], value[:, :2]), rng).query[:, 0]
    assert 2 / 3 <= third.item() <= 1


@pytest.mark.parametrize("dim", [5, 10, 15])
@pytest.mark.parametrize(("epsilon", "noise"), [(0.02, 0.005), (0.02, 0.01), (0.005, 0.00125), (0.005, 0.0025)])
@pytest.mark.parametrize("uniform", [False, True])
def test_track_and_stop_takes_d_queries_on_the_papers_cells(
    dim: int, epsilon: float, noise: float, uniform: bool
) -> None:
    problem = BestArm(dim, noise)
    result = evaluate_agent(TrackAndStop(problem, epsilon, 0.1, 1000, uniform), problem, epsilon, 300, seed=0)
    assert set(result.outcomes.queries.tolist()) == {dim}
    assert result.accuracy == 1.0


def test_track_and_stop_needs_many_rounds_in_noise() -> None:
    problem = BestArm(5, 0.3)
    result = evaluate_agent(TrackAndStop(problem, 0.02, 0.1, 5000), problem, 0.02, 50, seed=0)
    assert result.accuracy >= 0.9
    assert result.truncated == 0
    assert result.mean_queries > 50 * 5


def test_track_and_stop_by_its_formulas() -> None:
    agent = TrackAndStop(BestArm(2, 0.2), 0.1, 0.05, 100)
    state = agent.begin(torch.tensor([[0.2]]))._replace(
        count_BD=torch.tensor([[40.0, 30.0]]).double(), total_BD=torch.tensor([[24.0, 24.0]]).double()
    )
    proposal = agent.propose(state, torch.Generator())
    ratio, half_log_det = 30 * 1.0 * 0.1, 0.5 * math.log(41 * 31)
    beta = 2 * 0.04 * (half_log_det + math.log(1 / 0.05))
    assert bool(proposal.stop[0]) == (ratio >= beta)
    assert float(proposal.confidence[0]) == pytest.approx(1 - math.exp(half_log_det - ratio / 0.08), abs=1e-6)
    torch.testing.assert_close(proposal.recommendation, torch.tensor([[0.6, 0.8]]))


def test_tbal_plan_by_its_formulas() -> None:
    plan = Plan(MILD, radius=0.05, delta=0.1, noise=0.05)
    h = min(0.3 / 8, math.sqrt(3 * 0.5 / 120))
    assert len(plan.places) == math.ceil(1 / (2 * h))
    assert float((plan.places[0] - 0).abs()) <= h
    assert plan.each == math.ceil(128 * 0.0025 / 0.25 * math.log(2 * len(plan.places) / 0.025))
    assert len(plan.ascent) == math.ceil(4 * 60 / (3 * 20) * math.log(0.3 / 0.1))
    apart = min(0.3 / 8, math.sqrt(3 * 20 * 0.15 / 400))
    count = math.ceil(64 * 0.0025 / (20 * 0.15 * apart) ** 2 * math.log(2 * len(plan.ascent) / 0.025))
    assert plan.ascent[0] == (pytest.approx(apart), count)


def test_tbal_query_by_query_is_tbal_by_averages() -> None:
    """Without noise both ways are deterministic and the same."""
    problem = GPArgmax(0.0)
    plan = Plan(MILD, radius=0.05, delta=0.1, noise=0.02)
    tasks = TaskBatch.draw(problem, 20, torch.Generator().manual_seed(0))
    outcomes = run_episodes(TBAL(plan), tasks, torch.Generator().manual_seed(0))
    assert set(outcomes.queries.tolist()) == {plan.queries}
    averaged = localise(plan, tasks, torch.Generator().manual_seed(1))
    torch.testing.assert_close(outcomes.recommendation, averaged, atol=1e-3, rtol=0)


def test_tbal_keeps_its_promise() -> None:
    problem = GPArgmax(0.05)
    constants = estimate_constants(problem, 0.05, draws=1000)
    assert 0 < constants.radius <= problem.margin
    assert constants.least_curvature < constants.most_curvature
    tasks = TaskBatch.draw(problem, 200, torch.Generator().manual_seed(5))
    answer = localise(Plan(constants, 0.005, 0.1, 0.05), tasks, torch.Generator().manual_seed(6))
    assert float((tasks.loss(answer) <= 0.005).float().mean()) >= 0.9


def test_tbal_refuses_a_plan_that_nobody_can_play() -> None:
    with pytest.raises(InvalidInput, match="at most"):
        made("t-bal", GPArgmax(0.05), epsilon=0.01)
    with pytest.raises(InvalidInput, match="one noise level"):
        plan_for(GPArgmax(), 0.01, 0.1)


def test_regret_bounds_stop_by_themselves() -> None:
    problem = GPMax(1, 0.05)
    result = evaluate_agent(made("regret-bounds", problem, 10), problem, 0.2, 4, seed=0)
    assert result.truncated < 1
    assert 5 <= result.mean_queries < 35


@pytest.mark.parametrize("name", METHODS)
def test_every_method_refuses_what_it_does_not_suit(name: str) -> None:
    with pytest.raises(InvalidInput):
        made(name, Bowl(0.0))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = base.importlib.import_module

    def absent(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == "optuna":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(base.importlib, "import_module", absent)
    with pytest.raises(InvalidInput, match=r"cicpe\[baselines\]"):
        made("tpe", Ackley(2, 0.1))


def test_random_queries_keep_the_rest() -> None:
    agent = TrackAndStop(BestArm(3, 0.1), 0.1, 0.1, 20)
    random = RandomQueries(agent, BestArm(3).query_space)
    state = agent.begin(torch.full((5, 1), 0.1))
    ours, theirs = (one.propose(state, torch.Generator().manual_seed(0)) for one in (agent, random))
    assert not torch.equal(ours.query, theirs.query)
    assert torch.equal(ours.confidence, theirs.confidence)
    assert random.horizon == 20


def test_published_figures() -> None:
    cell = published("ackley", 3, 0.2, 0.05)
    assert cell is not None
    assert cell.methods["TPE"].accuracy == 0.098
    assert cell.methods["TPE"].queries is None
    assert cell.best.queries == 14.9
    assert cell.reference_queries == 6.3
    assert published("ackley", 3, 0.21, 0.05) is None


def test_the_global_generators_are_left_alone() -> None:
    problem = Ackley(2, 0.05)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    for name in ("tpe", "gp-ucb"):
        evaluate_agent(made(name, problem), problem, 0.2, 1, seed=0)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()  # noqa: NPY002


@pytest.mark.parametrize("name", ["gp-ucb", "regret-bounds"])
@pytest.mark.parametrize("problem", [Bowl(), GPMax(1, 0.05)], ids=["plane", "line"])
def test_the_first_queries_of_an_episode_are_one_sobol_sequence(name: str, problem: Problem) -> None:
    """Of four points, each quarter of an axis holds one; four independent points do so in one episode of ten."""
    agent, rng = made(name, problem, budget=20), torch.Generator().manual_seed(3)
    state, queries = agent.begin(torch.zeros(64, 1)), []
    for _ in range(5):
        queries.append(agent.propose(state, rng).query[:, 0])
        state = agent.update(state, queries[-1], torch.zeros(64, 1))
    cube = to_cube(problem.query_space, torch.stack(queries, dim=1))
    assert evenly_spread(cube[:, :4])
    sobol = torch.quasirandom.SobolEngine(cube.shape[-1]).draw(5, dtype=torch.float64)
    shifted = (cube[:, :1] * 2**30).long() ^ (sobol * 2**30).long()
    torch.testing.assert_close(cube, shifted / 2**30, rtol=0, atol=1e-6, check_dtype=False)
    assert float(cube[:, 0].std(dim=0).min()) > 0.2  # every episode has its own shift
    assert not evenly_spread(torch.rand(cube[:, :4].shape, generator=rng))


def evenly_spread(cube: Tensor) -> bool:
    """Whether in every episode, along every axis, each quarter holds one of four points."""
    return bool(((4 * cube).long().sort(dim=1).values == torch.arange(4)[:, None]).all())
