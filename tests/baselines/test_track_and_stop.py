"""Track-and-stop: its formulas, and the queries that it takes."""

import math

import pytest
import torch

from cicpe.baselines.track_and_stop import TrackAndStop
from cicpe.evaluation.evaluate import evaluate_agent
from cicpe.problems.best_arm import BestArm


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
