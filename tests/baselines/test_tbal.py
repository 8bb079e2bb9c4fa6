"""T-BAL: its plan, and that query by query it is what it is by averages."""

import math

import pytest
import torch

from bowls import MILD, make_agent
from cicpe.baselines.tbal import TBAL, Plan, estimate_constants, localise, plan_for
from cicpe.episodes.outcomes import run_episodes
from cicpe.errors import InvalidInput
from cicpe.problems import TaskBatch
from cicpe.problems.gp_argmax import GPArgmax


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
        make_agent("t-bal", GPArgmax(0.05), epsilon=0.01)
    with pytest.raises(InvalidInput, match="one noise level"):
        plan_for(GPArgmax(), 0.01, 0.1)
