"""The hidden numbers of a task that its answer and its context do not already say: the nuisance.

Whatever ``sample`` returns is flattened to numbers. Constant ones, known ones and those that another number or a
coordinate of the target gives are left out; every other is put on an even scale by its own quantiles. Where tasks can
be read like this, a network is fitted with the nuisance as an input, and inference ranges over it. Where no single
number gives a coordinate of the target, the target is a function of several: all numbers are kept then, inference
ranges over them, and the function is learned (``answer_map.py``). Where tasks cannot be read, the network has to
discover codes.

Shapes: n tasks, D numbers of the nuisance, S knots.
"""

from typing import final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.beliefs.numbers import flat_numbers, independent_numbers, is_one_of, is_told
from cicpe.problems.base import Problem, Task, TaskBatch

MOST_NUMBERS = 12
"""Tasks with more numbers than this, beside the answer, are not read."""
MOST_TOGETHER = 9
"""Hidden numbers, the answer's among them, that a cloud of points can follow."""
PILOT = 4000
"""Tasks that the scales are taken from."""
KNOTS = 257
EXACT = 1e-4
"""How far, in standard deviations, a number may be from a weighted sum that gives it."""
EDGE = 3**0.5
"""Numbers on an even scale lie in [-EDGE, EDGE], where they have variance one."""


@final
class Nuisance:
    """Reads the nuisance of tasks as numbers on an even scale."""

    def __init__(self, kept: list[int], knots_DS: Float[Tensor, "D S"], gives_answer: bool = False) -> None:
        self.kept, self.knots_DS, self.gives_answer = kept, knots_DS, gives_answer

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return len(self.kept)

    @classmethod
    def find(cls, problem: Problem, n: int, rng: Generator) -> "Nuisance | None":
        """The nuisance of a family.

        Args:
            problem: The family.
            n: Tasks to look at.
            rng: Draws them.

        Returns:
            None where tasks are no numbers, or too many; with ``gives_answer`` where the answer is a function of them.
        """
        tasks = TaskBatch.draw(problem, n, rng)
        numbers = flat_numbers(tasks.task)
        if numbers is None:
            return None
        target, context = tasks.target.double(), tasks.context.double()
        kept = independent_numbers(numbers, context)
        gives_answer = not all(is_one_of(goal, numbers[:, kept]) for goal in target.T if float(goal.std()) > 0)
        if not gives_answer:
            kept = [i for i in kept if not is_told(numbers[:, i], target)]
            kept = _not_sums(numbers, kept, torch.cat([target, context], dim=1))
        if len(kept) > MOST_NUMBERS:
            return None
        levels = torch.linspace(0, 1, KNOTS, dtype=torch.float64)
        knots = torch.quantile(numbers[:, kept], levels, dim=0).T.contiguous() if kept else torch.zeros(0, KNOTS)
        return cls(kept, knots, gives_answer)

    def coordinates(self, answer_dim: int) -> int:
        """How many coordinates inference ranges over.

        Args:
            answer_dim: Coordinates of the answer.

        Returns:
            Those of the answer and of the nuisance; of the nuisance alone, where it gives the answer.
        """
        return self.size + (0 if self.gives_answer else answer_dim)

    def read(self, task: Task) -> Float[Tensor, "n D"]:
        """The nuisance of tasks, each number between -EDGE and EDGE; of equal ones the middle rank."""
        numbers = flat_numbers(task)
        assert numbers is not None
        columns = []
        for column, knots in zip(numbers[:, self.kept].T.contiguous(), self.knots_DS, strict=True):
            left = torch.searchsorted(knots, column).clamp(1, KNOTS - 1)
            right = torch.searchsorted(knots, column, right=True).clamp(1, KNOTS - 1)
            width = (knots[left] - knots[left - 1]).clamp_min(1e-12)
            inside = left - 1 + ((column - knots[left - 1]) / width).clamp(0, 1)
            rank = torch.where(right > left, (left + right - 1) / 2.0, inside)
            columns.append(EDGE * (2 * rank / (KNOTS - 1) - 1))
        return torch.stack(columns, dim=1).float() if columns else torch.zeros(len(numbers), 0)


def _not_sums(numbers: Tensor, kept: list[int], told: Tensor) -> list[int]:
    """The numbers that are no weighted sum of what is told and of those before them, as the last of some shares is."""
    independent: list[int] = []
    for i in kept:
        before = torch.cat([torch.ones_like(told[:, :1]), told, numbers[:, independent]], dim=1)
        column = numbers[:, i : i + 1]
        left = column - before @ torch.linalg.lstsq(before, column, driver="gelsd").solution
        if float(left.abs().max()) > EXACT * float(column.std()):
            independent.append(i)
    return independent


def has_numbers(problem: Problem, seed: int = 0) -> bool:
    """Whether all that is hidden of a task is few enough numbers to be inferred together."""
    nuisance = Nuisance.find(problem, 512, torch.Generator().manual_seed(seed))
    return nuisance is not None and nuisance.coordinates(problem.answer_space.dim) <= MOST_TOGETHER
