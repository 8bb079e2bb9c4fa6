"""Tasks as numbers in a box, and back: what particles move in.

A problem may say itself what its parameters are (``parameter_space``, ``parameters`` and ``from_parameters``). Where it
does not, whatever its ``sample`` returns is read as numbers: those that the context or another number gives, and
constants, are left out, and the others are functions of coordinates that are even under the prior, by a copula of
simulated tasks. Moves that keep the even distribution then need no density of the prior.

Shapes: n tasks, A all numbers of a task, P those that are kept, C context.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe import trees
from cicpe.beliefs.copula import Copula
from cicpe.beliefs.numbers import flat_numbers, independent_numbers, is_told
from cicpe.problems.base import Problem, Task, TaskBatch
from cicpe.spaces import Box

DRAWS = 20_000
"""Simulated tasks that the copula is made of."""
FEW_VALUES = 32
"""A number with at most this many values takes no others."""
MOST_NUMBERS = 40
"""Tasks with more numbers than this are not read."""
MISFIT = 0.05
"""How far the numbers of tasks may be from a Gaussian copula, by ``Copula.misfit``."""
EDGE = 1e-6
"""Probability beyond which even coordinates are cut off."""


class Parametrisation(NamedTuple):
    """What particles are told of a problem's tasks."""

    space: Box
    prior: Callable[[int, Generator], Float[Tensor, "n parameter"]]
    """Draws parameters of the prior."""
    log_prior: Callable[[Float[Tensor, "n parameter"]], Float[Tensor, " n"]] | None
    """Their log density; None where it is the same everywhere."""
    task: Callable[[Float[Tensor, "n parameter"], Float[Tensor, "n context"]], Task]
    """The tasks of parameters and contexts."""
    broadcasts: bool
    """Whether parameters may have leading dimensions that broadcast."""


def parametrisation(problem: Problem) -> Parametrisation | None:
    """How a problem's tasks are parametrised.

    Args:
        problem: The family.

    Returns:
        Its own way, or that of the numbers of its tasks; None where tasks are more than numbers.
    """
    space = problem.parameter_space
    if space is None:
        return _of_numbers(problem)
    log_prior = None if type(problem).log_prior is Problem.log_prior else problem.log_prior

    def prior(n: int, rng: Generator) -> Tensor:
        return problem.parameters(problem.sample(n, rng))

    return Parametrisation(space, prior, log_prior, problem.from_parameters, problem.broadcasts)


def parameter_count(problem: Problem) -> float:
    """How many numbers particles would have to move in.

    Args:
        problem: The family.

    Returns:
        A whole number; infinity where tasks are more than numbers.
    """
    if problem.parameter_space is not None:
        return problem.parameter_space.dim
    numbers = TaskNumbers.read(problem, draws=256)
    return math.inf if numbers is None else numbers.size


def _of_numbers(problem: Problem) -> Parametrisation | None:
    numbers = TaskNumbers.read(problem)
    if numbers is None:
        return None
    p = numbers.size

    def prior(n: int, rng: Generator) -> Tensor:
        return 2 * torch.rand((n, p), generator=rng) - 1

    return Parametrisation(Box([-1.0] * p, [1.0] * p), prior, None, numbers.task, broadcasts=False)


@final
@dataclass(frozen=True)
class TaskNumbers:
    """The numbers of a problem's tasks, learned from simulated ones."""

    example: Task
    """A few tasks, for their shape."""
    kept: tuple[int, ...]
    """The numbers that are parameters."""
    all_nA: Float[Tensor, "n A"]
    """All numbers of simulated tasks."""
    context_nC: Float[Tensor, "n C"]

    @classmethod
    def read(cls, problem: Problem, draws: int = DRAWS, seed: int = 0) -> "TaskNumbers | None":
        """Looks at simulated tasks.

        Args:
            problem: The family.
            draws: How many tasks.
            seed: Seeds them.

        Returns:
            None where tasks are no tensors or arrays of numbers, or too many, or where a copula does not have their
            distribution: numbers of a fixed length, say.
        """
        tasks = TaskBatch.draw(problem, draws, torch.Generator().manual_seed(seed))
        try:
            arrays = all(isinstance(leaf, Tensor) or leaf.dtype.kind in "biuf" for leaf in trees.leaves(tasks.task))
        except TypeError:
            return None
        numbers = flat_numbers(tasks.task) if arrays else None
        if numbers is None or numbers.shape[1] > MOST_NUMBERS:
            return None
        context = tasks.context.double()
        kept = independent_numbers(numbers, context)
        if not kept:
            return None
        read = cls(trees.select(tasks.task, torch.arange(2)), tuple(kept), numbers, context)
        columns, rng = numbers[:, kept], torch.Generator().manual_seed(seed)
        return read if read.copula.misfit(columns, rng) < MISFIT + 1 / math.sqrt(draws) else None

    @property
    def size(self) -> int:
        """How many parameters there are."""
        return len(self.kept)

    @cached_property
    def copula(self) -> Copula:
        """Of the parameters."""
        return Copula.learn(self.all_nA[:, list(self.kept)], torch.Generator().manual_seed(1))

    @cached_property
    def _values(self) -> dict[int, Tensor]:
        """The values of numbers that take only a few."""
        columns = {i: self.all_nA[:, i].unique() for i in self.kept}  # type: ignore[no-untyped-call]
        return {i: values for i, values in columns.items() if len(values) <= FEW_VALUES}

    @cached_property
    def _sources(self) -> dict[int, tuple[Tensor, Tensor, int]]:
        """For every number that another one or a context gives: its knots, and the column that it is read from."""
        known = torch.cat([self.context_nC, self.all_nA[:, list(self.kept)]], dim=1)
        sources = {}
        for i, column in enumerate(self.all_nA.T):
            if i in self.kept or float(column.std()) == 0:
                continue
            source = next(j for j, other in enumerate(known.T) if is_told(column, other[:, None]))
            order = known[:, source].argsort(stable=True)
            sources[i] = (known[order, source].contiguous(), column[order], source)
        return sources

    def task(self, parameters: Float[Tensor, "n P"], context: Float[Tensor, "n C"]) -> Task:
        """The tasks of parameters between -1 and 1 and of contexts.

        Args:
            parameters: Even under the prior.
            context: What is known of each task.

        Returns:
            A batch of tasks, as ``sample`` returns them.
        """
        share = ((1 + parameters.double()) / 2).clamp(EDGE, 1 - EDGE)
        columns = self.copula.values(torch.special.ndtri(share)).double()
        numbers = self.all_nA[:1].repeat(len(parameters), 1)
        for i, column in zip(self.kept, columns.T, strict=True):
            numbers[:, i] = _nearest(self._values[i], column) if i in self._values else column
        known = torch.cat([context.double(), numbers[:, list(self.kept)]], dim=1)
        for i, (knots, values, source) in self._sources.items():
            numbers[:, i] = _interpolated(knots, values, known[:, source].contiguous())
        return self._unflattened(numbers)

    def _unflattened(self, numbers: Tensor) -> Task:
        begin = 0

        def leaf(like: Any) -> Any:
            nonlocal begin
            size = math.prod(like.shape[1:])
            part = numbers[:, begin : begin + size].reshape(len(numbers), *like.shape[1:])
            begin += size
            if isinstance(like, np.ndarray):
                whole = like.dtype.kind in "biu"
                return (part.round() if whole else part).numpy().astype(like.dtype)
            return (part if like.is_floating_point() else part.round()).to(like.dtype)

        return trees.map_leaves(leaf, self.example)


def _nearest(values: Tensor, column: Tensor) -> Tensor:
    return values[(column[:, None] - values).abs().argmin(dim=1)]


def _interpolated(knots: Tensor, values: Tensor, at: Tensor) -> Tensor:
    right = torch.searchsorted(knots, at).clamp(1, len(knots) - 1)
    low, high = knots[right - 1], knots[right]
    share = ((at - low) / (high - low).clamp_min(1e-30)).clamp(0, 1)
    return values[right - 1] + share * (values[right] - values[right - 1])
