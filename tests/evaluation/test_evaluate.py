"""Tasks that are played several times: plays of one task follow each other, and intervals know that they are alike."""

from dataclasses import dataclass

import pytest
import torch
from torch import Generator, Tensor

from cicpe.agents.base import Agent, Proposal
from cicpe.errors import InvalidInput
from cicpe.evaluation.evaluate import evaluate_agent, proportion_interval
from cicpe.problems.binary_search import BinarySearch


@dataclass(frozen=True)
class Middle(Agent):
    """It answers by the first observation, the sign of the target: alike in all plays where nothing is flipped."""

    horizon: int = 3

    def begin(self, context: Tensor) -> Tensor:
        return torch.zeros(len(context), 2)

    def propose(self, state: Tensor, rng: Generator) -> Proposal:
        sign, asked = state[:, :1], state[:, 1] > 0
        return Proposal(torch.zeros(len(state), 1, 1), asked, sign / 2, asked.float(), sign.abs())

    def update(self, state: Tensor, query: Tensor, observation: Tensor) -> Tensor:
        return torch.cat([observation, torch.ones(len(state), 1)], dim=1)


def test_plays_of_a_task_follow_each_other_and_are_alike() -> None:
    result = evaluate_agent(Middle(), BinarySearch(1, noise=0.0), 0.3, 200, seed=1, trajectories=5)
    assert (result.episodes, result.trajectories, len(result.outcomes.loss)) == (1000, 5, 1000)
    loss = result.outcomes.loss.view(200, 5)
    assert torch.equal(loss, loss[:, :1].expand(-1, 5))
    assert len(loss[:, 0].unique()) > 150
    assert "tasks 200" in repr(result) or "200" in repr(result)


def test_the_interval_is_that_of_tasks_and_not_of_plays() -> None:
    result = evaluate_agent(Middle(), BinarySearch(1, noise=0.0), 0.3, 200, seed=1, trajectories=5)
    correct = round(200 * result.accuracy)
    low, high = result.accuracy_ci
    of_tasks, of_plays = proportion_interval(correct, 200), proportion_interval(5 * correct, 1000)
    assert high - low == pytest.approx(of_tasks[1] - of_tasks[0], rel=0.15)
    assert high - low > 1.8 * (of_plays[1] - of_plays[0])


def test_one_play_of_a_task_is_what_it_was() -> None:
    usual = evaluate_agent(Middle(), BinarySearch(1, noise=0.2), 0.3, 300, seed=2)
    again = evaluate_agent(Middle(), BinarySearch(1, noise=0.2), 0.3, 300, seed=2, trajectories=1)
    assert torch.equal(usual.outcomes.loss, again.outcomes.loss)
    assert usual.accuracy_ci == proportion_interval(round(300 * usual.accuracy), 300)
    with pytest.raises(InvalidInput, match="trajectories"):
        evaluate_agent(Middle(), BinarySearch(1), 0.3, 10, seed=0, trajectories=0)
