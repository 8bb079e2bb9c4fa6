"""Simulated histories to learn from: any queries will do, since the likelihood is conditional on the target.

Shapes: B histories, T steps, Q query, X answer, Y observation, C context.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from task_numbers import TaskNumbers
from torch import Generator, Tensor

from cicpe.problems.base import Problem, TaskBatch


class Histories(NamedTuple):
    """Queries and observations of tasks whose target is known."""

    query_BTQ: Float[Tensor, "B T Q"]
    observation_BTY: Float[Tensor, "B T Y"]
    target_BX: Float[Tensor, "B X"]
    context_BC: Float[Tensor, "B C"]
    nuisance_BD: Float[Tensor, "B D"]
    """What else is hidden, where a task's numbers can be read; else of width zero."""

    def rows(self, index: Tensor) -> "Histories":
        """The histories at ``index``."""
        return Histories(*(part[index] for part in self))

    def joined(self, other: "Histories") -> "Histories":
        """These and others of the same length."""
        return Histories(*(torch.cat([a, b]) for a, b in zip(self, other, strict=True)))


def simulate(problem: Problem, n: int, steps: int, rng: Generator, numbers: TaskNumbers | None = None) -> Histories:
    """``n`` histories of uniform queries, of queries near the target, and of queries about one random place.

    Queries near the target are made where query and answer have as
    many coordinates, which is when a query may be a place in the answer's space.
    """
    hidden = TaskBatch.draw(problem, n, rng)
    space = problem.query_space
    query_BTQ = space.sample(n * steps, rng).view(n, steps, -1)
    unit = space.to_unit(query_BTQ)
    comparable = space.dim == problem.answer_space.dim
    centre = space.to_unit(space.sample(n, rng))[:, None]
    if comparable:
        near = problem.answer_space.to_unit(hidden.target)[:, None]
        centre = torch.where(torch.rand((n, 1, 1), generator=rng) < 0.75, near, centre)
    reach = torch.exp(math.log(0.02) * torch.rand((n, steps, 1), generator=rng))
    local = centre + reach * torch.randn(unit.shape, generator=rng)
    # Some histories are uniform, some local, most a mixture.
    share = torch.rand((n, 1, 1), generator=rng) * (1.2 if comparable else 0.6) - 0.2
    unit = torch.where(torch.rand((n, steps, 1), generator=rng) < share, local, unit)
    query_BTQ = space.project(space.from_unit(unit))
    observed = observe_all(hidden, query_BTQ, rng)
    return Histories(query_BTQ, observed, hidden.target, hidden.context, nuisance_of(hidden, numbers))


def nuisance_of(hidden: TaskBatch, numbers: TaskNumbers | None) -> Float[Tensor, "B D"]:
    """What is hidden beside the target, where it can be read."""
    return torch.zeros(len(hidden), 0) if numbers is None else numbers.read(hidden.task)


def observe_all(hidden: TaskBatch, query_BTQ: Tensor, rng: Generator) -> Float[Tensor, "B T Y"]:
    """One observation of every query of every task."""
    n, steps = query_BTQ.shape[:2]
    many = hidden.select(torch.arange(n).repeat_interleave(steps))
    return many.observe(query_BTQ.flatten(0, 1), rng).view(n, steps, -1)
