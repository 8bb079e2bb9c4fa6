"""Comparisons: common tasks and noise, the rows, and the command."""

import json
from typing import Any, NamedTuple

import pytest
import torch
from torch import Generator, Tensor

import cicpe
from cicpe.agents.base import Agent, Proposal
from cicpe.errors import InvalidInput
from cicpe.evaluation.compare import CommonTasks, play_with_common_noise
from cicpe.problems import TaskBatch, make_problem
from cicpe.problems.best_arm import BestArm
from cicpe.reporting.comparison import compare, names
from commands import Run

ROW = [*("method", "accuracy", "accuracy_ci", "mean_queries", "mean_queries_ci", "seconds_per_query")]


class Memory(NamedTuple):
    number_B: Tensor
    seen_BT: Tensor


class Patient(Agent):
    """Queries one direction, remembers what came back; episode i stops after i % ``patience`` + 1 queries."""

    horizon = 8

    def __init__(self, patience: int, draws: int) -> None:
        self.patience, self.draws = patience, draws
        self.ended: dict[int, list[float]] = {}

    def begin(self, context: Tensor) -> Memory:
        return Memory(torch.arange(len(context)), torch.zeros(len(context), 0))

    def propose(self, state: Memory, rng: Generator) -> Proposal:
        batch, steps = state.seen_BT.shape
        torch.rand(self.draws, generator=rng)
        stop = steps > state.number_B % self.patience
        for number, row in zip(state.number_B.tolist(), state.seen_BT.tolist(), strict=True):
            self.ended[number] = row
        direction = torch.eye(3)[0].expand(batch, -1)
        return Proposal(direction[:, None], stop, direction, torch.zeros(batch), torch.zeros(batch, 3))

    def update(self, state: Memory, query: Tensor, observation: Tensor) -> Memory:
        return Memory(state.number_B, torch.cat([state.seen_BT, observation], dim=1))


def test_noise_is_common_whoever_stops_when() -> None:
    """Two agents that ask the same see the same, however long others stay and however much chance they use."""
    hidden = TaskBatch.draw(BestArm(3, 0.5), 12, torch.Generator().manual_seed(0))
    one, two = Patient(5, draws=0), Patient(3, draws=7)
    first = play_with_common_noise(one, hidden, 12, seed=4)
    few = hidden.select(torch.arange(7))
    second = play_with_common_noise(two, few, 12, seed=4)
    assert first.queries.tolist() == [i % 5 + 1 for i in range(12)]
    assert second.queries.tolist() == [i % 3 + 1 for i in range(7)]
    for number in range(7):
        shared = min(len(one.ended[number]), len(two.ended[number]))
        assert one.ended[number][:shared] == two.ended[number][:shared]
    assert one.ended[4][0] != one.ended[4][1]
    other = Patient(5, draws=0)
    play_with_common_noise(other, hidden, 12, seed=5)
    assert other.ended[0] != one.ended[0]


def test_trajectories_of_a_task_share_the_task_and_not_the_noise() -> None:
    common = CommonTasks.draw(BestArm(3, 0.5), 4, seed=0, trajectories=3)
    assert len(common.batch) == 12
    assert torch.equal(common.batch.target[0], common.batch.target[2])
    assert not torch.equal(common.batch.target[0], common.batch.target[3])
    agent = Patient(1, draws=0)
    played = common.play(agent, 0.1, tasks=2)
    assert tuple(played.success.shape) == (2, 3)
    assert played.seconds_per_query > 0
    low, high = played.accuracy.interval
    assert low <= played.accuracy.value <= high


def test_differences_are_paired() -> None:
    result = compare(
        BestArm(5, 0.01), epsilon=0.02, methods=["cicpe", "track-and-stop"], tasks=200, trajectories=2, seed=3
    )
    ours, theirs = result.rows
    assert ours.versus_ours is None
    assert theirs.versus_ours is not None
    accuracy = theirs.played.accuracy.value - ours.played.accuracy.value
    assert theirs.versus_ours["accuracy"][0] == pytest.approx(accuracy)
    low, high = theirs.versus_ours["accuracy"][1:]
    assert low <= accuracy <= high
    assert result.budget == 5
    assert theirs.paper.queries == 5.0


def test_a_model_that_is_named_plays_other_tasks_of_its_family() -> None:
    """The zoo's own is found without a name, and the same with it; one of another shape, or noise, is refused."""
    problem, model = BestArm(5, 0.01), cicpe.load("best-arm-5d")
    found, named = (
        compare(problem, epsilon=0.02, methods=["cicpe"], tasks=60, models=models) for models in (None, {"mine": model})
    )
    assert [row.method for row in (*found.rows, *named.rows)] == ["best-arm-5d", "mine"]
    assert named.rows[0].played.queries.equal(found.rows[0].played.queries)
    assert (named.budget, named.budget_from) == (found.budget, "the mean of mine, rounded up")
    for other, words in (
        (BestArm(10, 0.01), "query_space"),
        (make_problem("gp-max", noise=0.05), "a model of gp-max"),
        (BestArm(5, 0.5), "trained for"),
    ):
        with pytest.raises(InvalidInput, match=words):
            compare(other, epsilon=0.02, methods=["cicpe"], tasks=4, models={"mine": model})


@pytest.mark.slow
def test_references_stop_at_the_same_accuracy() -> None:
    result = compare(
        BestArm(5, 0.01), epsilon=0.02, methods=["reference-conjugate", "random"], tasks=300, seed=1, budget=2
    )
    rows = {row.method: row.played for row in result.rows}
    for row in rows.values():
        assert row.accuracy.value > 0.85
    assert rows["reference-conjugate"].mean_queries.value < 5
    assert set(rows) == {"reference-conjugate", "random"}


def test_what_does_not_apply_is_said() -> None:
    result = compare(make_problem("binary-search", dim=6, noise=0.05), epsilon=0.2, methods=["cicpe", "tpe"], tasks=50)
    assert [row.method for row in result.rows] == ["binary-search-6d"]
    assert set(result.left_out) == {"tpe"}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"methods": ["magic"]}, "methods"),
        ({"methods": ["track-and-stop"]}, "methods"),
        ({"tasks": 0}, "tasks"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"budget": 0}, "budget"),
    ],
)
def test_bad_input_is_refused(wrong: dict[str, Any], field: str) -> None:
    settings: dict[str, Any] = {"epsilon": 0.2, "methods": ["cicpe"], "tasks": 10} | wrong
    with pytest.raises(InvalidInput, match=field):
        compare(make_problem("binary-search", dim=6, noise=0.05), **settings)


def test_a_budget_is_needed_where_nothing_says_it() -> None:
    with pytest.raises(InvalidInput, match="budget"):
        compare(make_problem("ackley", dim=2, noise=0.3), epsilon=0.37, methods=["tpe"], tasks=2)


BEST_ARM = ["compare", "best-arm", "--dim", "5", "--epsilon", "0.02", "--noise", "0.01"]


def test_the_command_prints_json(run: Run) -> None:
    done = run(*BEST_ARM, "--methods", "cicpe,track-and-stop", "--episodes", "60", "--json")
    assert done.code == 0
    result = json.loads(done.out)
    assert [row["method"] for row in result["rows"]] == ["best-arm-5d", "track-and-stop"]
    for row in result["rows"]:
        assert all(key in row for key in ROW)
        assert row["tasks"] == 60
    assert result["rows"][1]["accuracy"] == 1.0
    assert result["rows"][1]["mean_queries_ci"] == [5.0, 5.0]
    assert result["reference_queries"] == 5.0
    assert "track-and-stop: 60 tasks" in done.err


def test_the_command_prints_a_table(run: Run) -> None:
    done = run(*BEST_ARM, "--methods", "track-and-stop,tpe", "--episodes", "20", "--budget", "9")
    assert done.code == 0
    assert "budget of methods that cannot stop: 9 (as given)" in done.out
    assert "tpe: problem must be one whose queries lie in a box" in done.out
    assert "1.000" in done.out


def test_slow_methods_play_fewer_tasks(run: Run) -> None:
    where = ["compare", "ackley", "--dim", "2", "--epsilon", "0.2", "--noise", "0.1", "--budget", "2"]
    done = run(*where, "--methods", "tpe", "--json")
    assert json.loads(done.out)["rows"][0]["tasks"] == 300
    assert "tpe: 300 tasks" in done.err


def test_the_command_refuses_unknown_methods(run: Run) -> None:
    done = run(*BEST_ARM, "--methods", "magic")
    assert done.code == 2
    assert done.out == ""
    assert all(name in done.err for name in names())
