"""What a batch of tasks takes and returns, and how it refuses what a broken problem says."""

import re
from typing import Any

import pytest
import torch

from broken_problems import (
    FlatContext,
    FloatInSample,
    Line,
    NanObserve,
    NanTarget,
    NarrowTarget,
    NoReturnObserve,
    ScalarObserve,
    ShortSample,
    WideLoss,
    use,
)
from cicpe.errors import ProblemError
from cicpe.problems import Problem, TaskBatch
from cicpe.problems.base import Task
from cicpe.problems.binary_search import BinarySearch
from small_runs import make_rng


def test_hidden_tasks_take_many_answers_a_task() -> None:
    for problem in (Line(), BinarySearch(dim=2)):
        tasks = TaskBatch.draw(problem, 5, make_rng())
        answers = torch.rand((5, 3, 4, 2), generator=make_rng(1))
        loss = tasks.loss(answers)
        assert loss.shape == (5, 3, 4)
        assert torch.allclose(loss[:, 1, 2], tasks.loss(answers[:, 1, 2]))


def test_hidden_tasks_may_be_none_at_all() -> None:
    for problem in (Line(), BinarySearch(dim=2)):
        nobody = TaskBatch.draw(problem, 4, make_rng()).select(torch.zeros(4, dtype=torch.bool))
        assert len(nobody) == 0
        assert nobody.loss(torch.zeros(0, 2)).shape == (0,)
        assert nobody.loss(torch.zeros(0, 3, 2)).shape == (0, 3)


def test_hidden_tasks_select_keeps_task_context_and_target_together() -> None:
    tasks = TaskBatch.draw(Line(), 6, make_rng())
    some = tasks.select(torch.tensor([4, 1]))
    assert torch.equal(some.target, some.task["target"])
    assert torch.equal(some.context[:, 0], some.task["scale"])
    assert torch.equal(some.target, tasks.target[[4, 1]])


def test_hidden_tasks_read_numpy_and_double_precision() -> None:
    class Loose(Line):
        def context(self, task: Task) -> Any:
            return task["scale"][:, None].double().numpy()

        def target(self, task: Task) -> Any:
            return task["target"].tolist()

    tasks = TaskBatch.draw(Loose(), 3, make_rng())
    assert tasks.context.dtype == tasks.target.dtype == torch.float32


def test_observation_dim_is_found_by_looking() -> None:
    assert Line().observation_dim == 1
    assert BinarySearch(dim=4).observation_dim == 4


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (ShortSample, "sample(8, rng) must return tensors whose first dimension is 8; found [1, 8]"),
        (FloatInSample, "sample returned an unusable batch"),
        (NarrowTarget, "target returned shape (8, 1); expected (8, 2)"),
        (NanTarget, "target returned [nan, nan] for task 0; every value must be finite"),
        (FlatContext, "context returned shape (8,); expected (8, 1)"),
        (ScalarObserve, "observe returned shape (); expected (8, 1)"),
        (NanObserve, "observe returned [nan] for task 2 at query [0.0]; every value must be finite"),
        (NoReturnObserve, "observe returned None; expected a tensor"),
        (WideLoss, "loss returned shape (8, 2); expected (8,)"),
    ],
)
def test_hidden_tasks_refuse_what_is_broken(broken: type[Problem], message: str) -> None:
    query = torch.full((8, 1), 0.3)
    query[2] = 0.0
    with pytest.raises(ProblemError, match=re.escape(message)):
        use(broken(), query)
