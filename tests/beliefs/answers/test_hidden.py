"""What is hidden of a task beside its answer: read from whatever ``sample`` returns."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from cicpe.beliefs.answers.hidden import EDGE, Nuisance, has_numbers
from cicpe.beliefs.numbers import flat_numbers
from cicpe.problems import Problem
from cicpe.problems.per_task import PerTaskProblem
from cicpe.spaces import Box


@dataclass(frozen=True)
class Line(Problem):
    """The zero of a line with a hidden slope and a known noise, in a shape of task that is given."""

    shape: str = "tensor"
    query_space = Box([-1.0], [1.0])
    answer_space = Box([-1.0], [1.0])
    context_names = ("noise",)

    def sample(self, n: int, rng: Generator) -> Any:
        zero, slope, noise = torch.rand((3, n), generator=rng)
        if self.shape == "dict":
            return {"zero": 2 * zero - 1, "more": (1 + slope, noise), "constant": torch.ones(n)}
        if self.shape == "sum":  # the answer is the sum of two numbers: neither can vary on its own
            return torch.stack([zero - 0.5, slope - 0.5, noise], dim=1)
        if self.shape == "twice":  # the slope, and its logarithm beside it
            return torch.stack([2 * zero - 1, 1 + slope, noise, (1 + slope).log()], dim=1)
        return torch.stack([2 * zero - 1, 1 + slope, noise], dim=1)

    def _numbers(self, task: Any) -> Tensor:
        if self.shape == "dict":
            return torch.stack([task["zero"], *task["more"]], dim=1)
        return task

    def observe(self, task: Any, query: Tensor, rng: Generator) -> Tensor:
        numbers = self._numbers(task)
        return numbers[:, 1] * (query[:, 0] - self.target(task)) + 0.1 * torch.randn(len(query), generator=rng)

    def target(self, task: Any) -> Tensor:
        numbers = self._numbers(task)
        if self.shape == "rounded":
            return (4 * numbers[:, 0]).round() / 4
        return numbers[:, 0] + numbers[:, 1] if self.shape == "sum" else numbers[:, 0]

    def context(self, task: Any) -> Tensor:
        return self._numbers(task)[:, 2:3]


@pytest.mark.parametrize("shape", ["tensor", "dict"])
def test_target_context_and_constants_are_left_out(shape: str) -> None:
    problem = Line(shape)
    nuisance = Nuisance.find(problem, 2000, torch.Generator().manual_seed(0))
    assert nuisance is not None
    assert nuisance.size == 1
    task = problem.sample(4000, torch.Generator().manual_seed(1))
    read = nuisance.read(task)
    slope = problem._numbers(task)[:, 1]
    assert read.abs().max() <= EDGE + 1e-6
    assert float(read.std()) == pytest.approx(1.0, abs=0.05)
    assert bool((read[slope.argsort(), 0].diff() >= 0).all())


def test_where_several_numbers_give_the_answer_all_of_them_are_kept() -> None:
    nuisance = Nuisance.find(Line("sum"), 2000, torch.Generator().manual_seed(0))
    assert nuisance is not None
    assert nuisance.gives_answer
    assert (nuisance.size, nuisance.coordinates(answer_dim=1)) == (2, 2)


def test_a_number_that_the_answer_rounds_is_not_the_answer() -> None:
    nuisance = Nuisance.find(Line("rounded"), 2000, torch.Generator().manual_seed(0))
    assert nuisance is not None
    assert nuisance.gives_answer


def test_a_number_that_another_one_gives_is_left_out() -> None:
    nuisance = Nuisance.find(Line("twice"), 2000, torch.Generator().manual_seed(0))
    assert nuisance is not None
    assert (nuisance.size, nuisance.gives_answer) == (1, False)


@dataclass(frozen=True)
class Shares(Problem):
    """Three shares that add up to one, two of which are asked for."""

    query_space = Box([0.0, 0.0], [1.0, 1.0])
    answer_space = Box([0.0, 0.0], [1.0, 1.0])

    def sample(self, n: int, rng: Generator) -> Tensor:
        parts = -torch.rand((n, 3), generator=rng).clamp_min(1e-9).log()
        return parts / parts.sum(dim=1, keepdim=True)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return (task[:, :2] * query).sum(dim=1)

    def target(self, task: Tensor) -> Tensor:
        return task[:, :2]


def test_what_is_left_of_a_whole_is_left_out() -> None:
    nuisance = Nuisance.find(Shares(), 2000, torch.Generator().manual_seed(0))
    assert nuisance is not None
    assert (nuisance.size, nuisance.gives_answer) == (0, False)


class Shape(Enum):
    """Kinds of a curve."""

    ROUND = "round"
    STEEP = "steep"


class Objects(PerTaskProblem):
    """A NumPy simulator whose tasks are objects, of numbers and something else."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])

    def __init__(self, *others: Callable[[np.random.Generator], Any]) -> None:
        self.others = others

    def sample_one(self, rng: np.random.Generator) -> Any:
        numbers = rng.uniform(), {"steep": rng.uniform(1, 2), "of": [1.0, rng.uniform()]}
        return (*numbers, *(other(rng) for other in self.others))

    def observe_one(self, task: Any, query: np.ndarray, rng: np.random.Generator) -> float:
        return float(task[1]["steep"] * (query[0] - task[0]))

    def target_one(self, task: Any) -> float:
        return float(task[0])


@pytest.mark.parametrize(
    ("others", "size"),
    [
        pytest.param((), 2, id="numbers"),
        pytest.param((lambda rng: "oak",), 2, id="a name that all have"),
        pytest.param((lambda rng: str(rng.choice(["oak", "elm", "ash"])),), 3, id="one of some names"),
        pytest.param((lambda rng: list(Shape)[rng.integers(2)],), 3, id="one of an enumeration"),
        pytest.param((lambda rng: rng,), None, id="something that has no numbers"),
    ],
)
def test_objects_of_numbers_and_names_are_read_and_others_are_not(
    others: tuple[Callable[[np.random.Generator], Any], ...], size: int | None
) -> None:
    problem = Objects(*others)
    nuisance = Nuisance.find(problem, 400, torch.Generator().manual_seed(0))
    assert (None if nuisance is None else nuisance.size) == size
    assert has_numbers(problem) == (size is not None)


def test_a_word_has_the_same_number_in_every_batch() -> None:
    first, second = flat_numbers({"a": np.array(["x", "y", "x"])}), flat_numbers({"a": np.array(["y", "z"])})
    assert first is not None
    assert second is not None
    assert first[0] == first[2] != first[1]
    assert second[0] == first[1]
    assert len({float(first[0]), float(first[1]), float(second[1])}) == 3


def test_numbers_that_are_not_finite_are_none() -> None:
    assert flat_numbers(torch.tensor([[1.0], [float("inf")]])) is None
    assert flat_numbers({"a": np.array([1 + 2j, 3.0])}) is None


def test_equal_values_share_the_middle_rank() -> None:
    @dataclass(frozen=True)
    class Kinds(Line):
        def sample(self, n: int, rng: Generator) -> Tensor:
            task = Line.sample(self, n, rng)
            task[:, 1] = torch.where(task[:, 1] < 1.5, 1.0, 2.0)
            return task

    nuisance = Nuisance.find(Kinds(), 2000, torch.Generator().manual_seed(0))
    assert nuisance is not None
    read = nuisance.read(Kinds().sample(500, torch.Generator().manual_seed(1)))
    assert sorted(set(read.flatten().tolist())) == pytest.approx([-EDGE / 2, EDGE / 2], abs=0.08)
