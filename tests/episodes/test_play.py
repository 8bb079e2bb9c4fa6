"""The one player: who is asked, when, and with which random numbers."""

from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from torch import Generator, Tensor

from cicpe.episodes.play import never, play
from cicpe.plates import LearnsFromPlates


class Said(NamedTuple):
    query: Tensor
    stop: Tensor


class State(NamedTuple):
    told: Tensor
    limit: Tensor


@dataclass(frozen=True)
class StopsAfter(LearnsFromPlates):
    """Asks for its own running sum, and stops once it has made as many observations as its context says."""

    horizon: int = 6
    plate: int = 1

    def begin(self, context: Tensor) -> State:
        return State(torch.zeros(len(context), 0), context[:, 0])

    def propose(self, state: State, rng: Generator) -> Said:
        total = state.told.sum(dim=1, keepdim=True)
        return Said(total[:, None].expand(-1, self.plate, -1), state.told.shape[1] >= state.limit)

    def update(self, state: State, query: Tensor, observation: Tensor) -> State:
        return state._replace(told=torch.cat([state.told, observation], dim=1))


@dataclass(frozen=True)
class Echo:
    """Answers with the number of the task plus the query, and counts what it was asked."""

    number: Tensor
    context: Tensor
    asked: list[int]

    def __len__(self) -> int:
        return len(self.number)

    def select(self, index: Tensor) -> "Echo":
        return Echo(self.number[index], self.context[index], self.asked)

    def observe(self, query: Tensor, rng: Generator) -> Tensor:
        self.asked.append(len(query))
        return self.number[:, None] + query


def echo(limits: list[float]) -> Echo:
    return Echo(torch.arange(len(limits), dtype=torch.float32), torch.tensor(limits)[:, None], [])


def rng() -> Generator:
    return torch.Generator().manual_seed(0)


def test_episodes_leave_when_they_stop_and_cost_nothing_more() -> None:
    tasks = echo([2.0, 0.0, 1.0, 9.0])
    steps = list(play(StopsAfter(horizon=3), tasks, rng()))
    assert [step.rows.tolist() for step in steps] == [[0, 1, 2, 3], [0, 2, 3], [0, 3], [3]]
    assert [step.rows[step.ends].tolist() for step in steps] == [[1], [2], [0], [3]]
    assert tasks.asked == [3, 2, 1]
    assert [step.time for step in steps] == [0, 1, 2, 3]


def test_observations_belong_to_the_episodes_that_go_on() -> None:
    steps = list(play(StopsAfter(horizon=3), echo([2.0, 0.0, 1.0, 9.0]), rng()))
    for step in steps[:-1]:
        assert step.observation is not None
        numbers = step.rows[~step.ends].float()
        assert torch.equal(step.observation[:, 0, 0], numbers + step.proposal.query[~step.ends, 0, 0])
    assert steps[-1].observation is None


def test_states_follow_their_rows() -> None:
    """After t observations an episode of task i was told i, 2i, 4i, ...: whatever left the batch before."""
    for step in play(StopsAfter(horizon=4), echo([4.0, 1.0, 3.0, 4.0]), rng()):
        for row, told in zip(step.rows.tolist(), step.state.told.tolist(), strict=True):
            assert told == [row * 2.0**t for t in range(step.time)]


def test_plates_count_by_their_queries_and_never_pass_the_last_one() -> None:
    tasks = echo([9.0, 2.0, 3.0])
    steps = list(play(StopsAfter(horizon=7, plate=3), tasks, rng()))
    assert [step.time for step in steps] == [0, 3, 6]
    assert [step.rows[step.ends].tolist() for step in steps] == [[], [1, 2], [0]]
    assert [None if step.observation is None else tuple(step.observation.shape) for step in steps] == [
        (3, 3, 1),
        (1, 3, 1),
        None,
    ]
    assert tasks.asked == [3, 3, 3, 1, 1, 1]


@pytest.mark.parametrize(("limit", "last"), [(None, 5), (2, 2), (99, 5), (0, 0)])
def test_never_goes_on_to_the_last_query(limit: int | None, last: int) -> None:
    steps = list(play(StopsAfter(horizon=5), echo([0.0, 0.0]), rng(), ends=never, limit=limit))
    assert [step.time for step in steps] == list(range(last + 1))
    assert bool(steps[-1].ends.all())
    assert not any(bool(step.ends.any()) for step in steps[:-1])


def test_the_caller_may_know_better_who_ends() -> None:
    def odd(rows: Tensor, said: Said) -> Tensor:
        return rows % 2 == 1

    steps = list(play(StopsAfter(horizon=2), echo([0.0] * 4), rng(), ends=odd))
    assert [step.rows.tolist() for step in steps] == [[0, 1, 2, 3], [0, 2], [0, 2]]
