"""The runner on an agent and a problem whose every outcome is known, and the intervals of an evaluation."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from scipy.stats import binom, binomtest, norm
from torch import Generator, Tensor

from cicpe.agents.base import Agent, Proposal
from cicpe.episodes.outcomes import join_outcomes, run_episodes
from cicpe.errors import InvalidInput, ProblemError
from cicpe.evaluation.evaluate import evaluate_agent, mean_interval, proportion_interval
from cicpe.problems import Problem, TaskBatch
from cicpe.spaces import Box


class Scripted(NamedTuple):
    number: Tensor
    stop_at: Tensor


class Script(Problem):
    """Task i is told when to stop, and every observation of it is i. Its target is i / 100."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])
    context_names = ("stop_at",)

    def __init__(self, stop_at: list[int]) -> None:
        self.stop_at = stop_at
        self.seen: list[list[int]] = []
        self.queries: list[list[float]] = []

    def sample(self, n: int, rng: Generator) -> Scripted:
        number = torch.arange(n)
        return Scripted(number, torch.tensor(self.stop_at)[number % len(self.stop_at)])

    def observe(self, task: Scripted, query: Tensor, rng: Generator) -> Tensor:
        self.seen.append(task.number.tolist())
        self.queries.append(query[:, 0].tolist())
        return task.number.float()

    def target(self, task: Scripted) -> Tensor:
        return task.number[:, None] / 100

    def context(self, task: Scripted) -> Tensor:
        return task.stop_at[:, None].float()


class State(NamedTuple):
    stop_at: Tensor
    time: Tensor
    total: Tensor


class FollowsTheScript(Agent):
    """Stops when its context says so. Recommends the mean of what it saw, / 100; queries time / 100."""

    def __init__(self, horizon: int) -> None:
        self.horizon = horizon
        self.observed: list[int] = []

    def begin(self, context: Tensor) -> Any:
        zeros = torch.zeros(len(context))
        return State(context[:, 0], zeros, zeros)

    def propose(self, state: Any, rng: Generator) -> Proposal:
        mean = (state.total / state.time.clamp_min(1))[:, None]
        confidence = 1 - 1 / (2 + state.time)
        return Proposal(state.time[:, None, None] / 100, state.time >= state.stop_at, mean / 100, confidence, mean * 0)

    def update(self, state: Any, query: Tensor, observation: Tensor) -> Any:
        self.observed.append(len(query))
        return State(state.stop_at, state.time + 1, state.total + observation[:, 0])


def play(stop_at: list[int], horizon: int) -> tuple[Script, FollowsTheScript, Any]:
    problem, agent = Script(stop_at), FollowsTheScript(horizon)
    rng = torch.Generator().manual_seed(0)
    return problem, agent, run_episodes(agent, TaskBatch.draw(problem, len(stop_at), rng), rng)


def test_every_episode_ends_when_it_should() -> None:
    _, _, outcomes = play([3, 0, 9, 5, 1, 4], horizon=5)
    assert outcomes.queries.tolist() == [3, 0, 5, 5, 1, 4]
    # Episode 2 ran out of time; episode 3 chose to stop, and did so at the horizon.
    assert outcomes.stopped.tolist() == [True, True, False, True, True, True]
    # Episode 1 stopped before it saw anything: its answer is 0, the others' is exact.
    assert outcomes.recommendation[:, 0].tolist() == pytest.approx([0.0, 0.0, 0.02, 0.03, 0.04, 0.05])
    assert outcomes.loss.tolist() == pytest.approx([0.0, 0.01, 0.0, 0.0, 0.0, 0.0])
    assert outcomes.confidence.tolist() == pytest.approx([1 - 1 / (2 + t) for t in (3, 0, 5, 5, 1, 4)])
    assert outcomes.context[:, 0].tolist() == [3, 0, 9, 5, 1, 4]
    assert outcomes.seconds > 0


def test_ended_episodes_see_no_more_observations() -> None:
    problem, agent, _ = play([3, 0, 9, 5, 1, 4], horizon=5)
    # Who is observed in step t: those that had not stopped before it.
    assert problem.seen == [[0, 2, 3, 4, 5], [0, 2, 3, 5], [0, 2, 3, 5], [2, 3, 5], [2, 3]]
    assert agent.observed == [5, 4, 4, 3, 2]
    assert problem.queries == [[pytest.approx(t / 100)] * k for t, k in enumerate(agent.observed)]


def test_all_may_stop_at_once_or_never() -> None:
    problem, _, outcomes = play([0, 0, 0], horizon=4)
    assert problem.seen == []
    assert outcomes.queries.tolist() == [0, 0, 0]
    assert outcomes.stopped.all()
    problem, _, outcomes = play([99, 99], horizon=4)
    assert problem.seen == [[0, 1]] * 4
    assert outcomes.queries.tolist() == [4, 4]
    assert not outcomes.stopped.any()


def test_a_batch_of_batches_is_one() -> None:
    parts = [play([3, 0], 5)[2], play([9], 5)[2]]
    joined = join_outcomes(parts)
    assert joined.queries.tolist() == [3, 0, 5]
    assert joined.stopped.tolist() == [True, True, False]
    assert joined.seconds == pytest.approx(parts[0].seconds + parts[1].seconds)


class BreaksLate(Script):
    def observe(self, task: Scripted, query: Tensor, rng: Generator) -> Tensor:
        value = super().observe(task, query, rng)
        return torch.where((task.number == 2) & (len(self.seen) == 3), float("nan"), value)


def test_a_broken_observation_names_the_problem_and_the_query() -> None:
    rng = torch.Generator().manual_seed(0)
    tasks = TaskBatch.draw(BreaksLate([9, 1, 9]), 3, rng)
    with pytest.raises(ProblemError, match=r"BreaksLate.observe returned \[nan\] for task 1 at query \[0.0199"):
        run_episodes(FollowsTheScript(5), tasks, rng)


# Evaluation.


def test_evaluation_counts_what_happened() -> None:
    problem = Script([3, 0, 9, 5])
    # Those that stop at 0 answer 0 where i / 100 is right: of 100, wrong are 5, 9, 13 ... (epsilon 0.03).
    found = evaluate_agent(FollowsTheScript(5), problem, epsilon=0.03, episodes=100, seed=0)
    wrong = sum(1 for i in range(100) if i % 4 == 1 and i / 100 > 0.03)
    assert found.accuracy == pytest.approx(1 - wrong / 100)
    assert found.accuracy_ci == proportion_interval(100 - wrong, 100)
    assert found.mean_queries == pytest.approx((3 + 0 + 5 + 5) / 4)
    assert found.truncated == pytest.approx(0.25)
    assert found.episodes == len(found.outcomes.loss) == 100
    queries = torch.tensor([3, 0, 5, 5] * 25)
    assert found.mean_queries_ci == pytest.approx(mean_interval(queries))
    assert found.median_queries == float(queries.median())


def test_evaluation_plays_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cicpe.episodes.blocks.BLOCK", 30)
    problem = Script([2])
    found = evaluate_agent(FollowsTheScript(5), problem, epsilon=0.1, episodes=100, seed=0)
    assert len(found.outcomes.loss) == 100
    assert [len(seen) for seen in problem.seen] == [30, 30, 30, 30, 30, 30, 10, 10]


@pytest.mark.parametrize(("field", "change"), [("episodes", {"episodes": 0}), ("epsilon", {"epsilon": 0.0})])
def test_evaluation_refuses(field: str, change: dict[str, Any]) -> None:
    given = {"epsilon": 0.1, "episodes": 10, "seed": 0} | change
    with pytest.raises(InvalidInput) as caught:
        evaluate_agent(FollowsTheScript(5), Script([1]), **given)
    assert caught.value.field == field


# Intervals.


@pytest.mark.parametrize("level", [0.95, 0.99])
@pytest.mark.parametrize(("successes", "n"), [(0, 1), (1, 1), (0, 10), (3, 10), (10, 10), (900, 1000), (3999, 4000)])
def test_proportion_interval_is_clopper_pearson(successes: int, n: int, level: float) -> None:
    expected = binomtest(successes, n).proportion_ci(level, method="exact")
    assert proportion_interval(successes, n, level) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("p", [0.5, 0.9, 0.99])
def test_proportion_interval_covers(p: float) -> None:
    def coverage(level: float) -> float:
        intervals = [proportion_interval(k, 50, level) for k in range(51)]
        return sum(binom.pmf(k, 50, p) for k, (low, high) in enumerate(intervals) if low <= p <= high)

    assert coverage(0.95) >= 0.95
    assert coverage(0.5) < 0.95


def test_mean_interval_is_the_normal_one() -> None:
    values = torch.tensor([3, 0, 9, 5, 1, 4])
    x = values.double().numpy()
    half = norm.ppf(0.975) * x.std(ddof=1) / np.sqrt(6)
    assert mean_interval(values) == pytest.approx((x.mean() - half, x.mean() + half), rel=1e-5)
    assert mean_interval(torch.tensor([7])) == (7.0, 7.0)
