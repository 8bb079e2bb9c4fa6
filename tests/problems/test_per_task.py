"""Problems that are written one task at a time, in NumPy."""

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from broken_problems import use
from cicpe.errors import ProblemError
from cicpe.problems import TaskBatch
from cicpe.problems.per_task import PerTaskProblem
from cicpe.spaces import Box, Interval, Sphere
from cicpe.testing import check_problem
from small_runs import make_rng


@dataclass
class Peak:
    """A user's own task: any Python object."""

    place: np.ndarray
    height: float


class FindPeak(PerTaskProblem):
    """In plain NumPy."""

    query_space = Box([0.0, 0.0], [1.0, 1.0])
    answer_space = Box([0.0, 0.0], [1.0, 1.0])

    def sample_one(self, rng: np.random.Generator) -> Any:
        return Peak(rng.uniform(0, 1, size=2), rng.uniform(1, 2))

    def observe_one(self, task: Any, query: np.ndarray, rng: np.random.Generator) -> Any:
        return task.height - np.linalg.norm(query - task.place) + 0.1 * rng.normal()

    def target_one(self, task: Any) -> Any:
        return task.place


class FindHeight(FindPeak):
    """With its own loss, a context, two numbers an observation and a bare number as target."""

    answer_space = Interval(0.0, 4.0)  # type: ignore[assignment]
    context_names = ("half", "double")

    def observe_one(self, task: Any, query: np.ndarray, rng: np.random.Generator) -> Any:
        return [rng.normal(), float(query[0] > task.place[0])]

    def target_one(self, task: Any) -> Any:
        return task.height

    def loss_one(self, task: Any, answer: np.ndarray) -> Any:
        return (answer[0] - task.height) ** 2

    def context_one(self, task: Any) -> Any:
        return (task.height / 2, task.height * 2)


def test_per_task_problems_conform() -> None:
    check_problem(FindPeak())
    check_problem(FindHeight())


def test_per_task_shapes_and_values() -> None:
    tasks = TaskBatch.draw(FindHeight(), 5, make_rng())
    assert tasks.task.shape == (5,)
    height = torch.tensor([task.height for task in tasks.task], dtype=torch.float32)
    assert torch.allclose(tasks.target[:, 0], height)
    assert torch.allclose(tasks.context, torch.stack([height / 2, height * 2], 1))
    assert tasks.observe(torch.rand(5, 2), make_rng()).shape == (5, 2)
    answers = torch.rand((5, 3, 1), generator=make_rng(1))
    assert torch.allclose(tasks.loss(answers), (answers[..., 0] - height[:, None]) ** 2, atol=1e-5)
    assert FindHeight().observation_dim == 2


def test_per_task_loss_defaults_to_the_distance_of_the_answer_space() -> None:
    problem = FindPeak()
    assert problem.has_default_loss
    assert problem.has_distance_loss
    assert not FindHeight().has_distance_loss

    class Written(FindPeak):
        def loss_one(self, task: Any, answer: Any) -> float:
            return float(np.linalg.norm(answer - self.target_one(task)))

    assert not Written().has_default_loss
    assert Written().has_distance_loss, "it is measured, and not read off the methods that there are"
    tasks = TaskBatch.draw(problem, 5, make_rng())
    answers = torch.rand((5, 2), generator=make_rng(1))
    distance = (answers - tasks.target).norm(dim=-1)
    assert torch.allclose(tasks.loss(answers), distance)
    assert torch.allclose(problem.loss(tasks.task, answers), distance)
    one_by_one = [problem.loss_one(task, row.double().numpy()) for task, row in zip(tasks.task, answers, strict=True)]
    assert one_by_one == pytest.approx(distance.tolist(), abs=1e-6)


def test_per_task_randomness_comes_from_the_generator_and_moves_on() -> None:
    problem = FindPeak()
    first, again = (problem.target(problem.sample(3, make_rng(4))) for _ in range(2))
    assert torch.equal(first, again)
    rng = make_rng(4)
    one, two = problem.target(problem.sample(3, rng)), problem.target(problem.sample(3, rng))
    assert not torch.equal(one, two)
    task, query, rng = problem.sample(3, rng), torch.rand(3, 2), make_rng(5)
    assert not torch.equal(problem.observe(task, query, rng), problem.observe(task, query, rng))


def test_per_task_code_cannot_change_the_query() -> None:
    class Greedy(FindPeak):
        def observe_one(self, task: Any, query: np.ndarray, rng: np.random.Generator) -> Any:
            query[:] = 9
            return 0.0

    query = torch.zeros(2, 2)
    problem = Greedy()
    problem.observe(problem.sample(2, make_rng()), query, make_rng())
    assert query.abs().max() == 0


def test_the_suite_finds_a_change_inside_a_per_task_object() -> None:
    class Wearing(FindPeak):
        def observe_one(self, task: Any, query: np.ndarray, rng: np.random.Generator) -> Any:
            task.height -= 0.01
            return task.height

    with pytest.raises(ProblemError, match="found that it changed the task"):
        check_problem(Wearing())


def test_per_task_tasks_may_be_tensors_lists_or_none() -> None:
    for value in ([1.0, 2.0], np.zeros(3), None, "text", {"a": 1}):

        class Fixed(FindPeak):
            def sample_one(self, rng: np.random.Generator, value: Any = value) -> Any:
                return value

        task = Fixed().sample(3, make_rng())
        assert task.shape == (3,)
        assert task[2] is value


@pytest.mark.parametrize(
    ("method", "value", "message"),
    [
        ("target_one", 0.5, "target_one returned 0.5 for task 0; expected 2 numbers (a point of the answer space)"),
        ("target_one", [[0.1, 0.2]], "target_one returned [[0.1, 0.2]] for task 0; expected 2 numbers"),
        ("target_one", None, "target_one returned None for task 0; expected 2 numbers"),
        ("target_one", "here", "target_one returned 'here' for task 0; expected 2 numbers"),
        ("observe_one", [[1.0]], "observe_one returned [[1.0]] for task 0; expected numbers (as many for every task)"),
        ("observe_one", "loud", "observe_one returned 'loud' for task 0; expected numbers"),
        ("observe_one", math.nan, "observe returned [nan] for task 0 at query"),
        ("context_one", [1.0], "context_one returned [1.0] for task 0; expected 0 numbers (context_names is empty)"),
        ("loss_one", [1.0, 2.0], "loss_one returned [1.0, 2.0] for task 0; expected 1 number (the loss of one answer)"),
    ],
)
def test_per_task_nonsense_is_refused_by_name(method: str, value: Any, message: str) -> None:
    broken = type("Broken", (FindPeak,), {method: lambda self, *arguments: value})()
    with pytest.raises(ProblemError, match=re.escape(message)):
        use(broken, torch.zeros(3, 2))


def test_per_task_observations_of_different_lengths_are_refused() -> None:
    class Ragged(FindPeak):
        def observe_one(self, task: Any, query: np.ndarray, rng: np.random.Generator) -> Any:
            return [0.0] * (1 + int(query[0]))

    problem = Ragged()
    task = problem.sample(3, make_rng())
    with pytest.raises(ProblemError, match=r"returned \[0.0, 0.0\] for task 2; expected 1 number"):
        problem.observe(task, torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]]), make_rng())


def test_per_task_context_that_was_forgotten_is_named() -> None:
    class Forgetful(FindPeak):
        context_names = ("noise",)

    with pytest.raises(ProblemError, match=re.escape("context_one returned () for task 0; expected 1 number (noise)")):
        TaskBatch.draw(Forgetful(), 2, make_rng())


def test_sphere_answers_work_one_at_a_time() -> None:
    class FindDirection(FindPeak):
        answer_space = Sphere(2)  # type: ignore[assignment]

        def target_one(self, task: Any) -> Any:
            return task.place / np.linalg.norm(task.place)

    check_problem(FindDirection())
