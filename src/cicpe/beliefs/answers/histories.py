"""Simulated observations to learn from: any queries will do, since the likelihood is conditional on what is hidden.

Shapes: B tasks, T observations of each, Q query, V place, Y observation, C context.
"""

import math
import time
from dataclasses import dataclass, field
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.beliefs.answers.hidden import Nuisance
from cicpe.beliefs.answers.query_scale import QueryScale
from cicpe.problems.base import Problem, TaskBatch

NEAREST = 0.02
"""Queries about a place are normal, with a spread from this (log-uniformly) to 1 in unit coordinates."""
POOLED = 100_000
"""Observations that are kept to be shown again, where simulating is slow."""
FIRST = 32
"""Tasks of the first batch, by which it is known how long simulating takes."""
JUDGING = 8
"""Where histories are few, one of so many is kept to judge by."""
AT_ONCE = 0.5
"""Seconds of simulating at a time."""


class Histories(NamedTuple):
    """Queries and observations of tasks whose answer is known."""

    query_BTQ: Float[Tensor, "B T Q"]
    """In unit coordinates."""
    observation_BTY: Float[Tensor, "B T Y"]
    place_BV: Float[Tensor, "B V"]
    """The answer in unit coordinates, then the nuisance where it can be read."""
    context_BC: Float[Tensor, "B C"]

    def rows(self, index: Tensor) -> "Histories":
        """The histories at ``index``."""
        return Histories(*(part[index] for part in self))

    def joined(self, other: "Histories") -> "Histories":
        """These and others of the same length."""
        return Histories(*(torch.cat(pair) for pair in zip(self, other, strict=True)))


def places_of(tasks: TaskBatch, nuisance: Nuisance | None) -> Float[Tensor, "B V"]:
    """The places of tasks."""
    answer = tasks.problem.answer_space.to_unit(tasks.target)
    return answer if nuisance is None else torch.cat([answer, nuisance.read(tasks.task)], dim=1)


def simulate(
    problem: Problem,
    n: int,
    steps: int,
    rng: Generator,
    nuisance: Nuisance | None = None,
    scale: QueryScale | None = None,
) -> Histories:
    """Histories of uniform queries, of queries near the answer, and of queries about one random place.

    Queries near the answer are made where query and answer have as many coordinates, which is when a query may be a
    place in the answer's space.

    Args:
        problem: The family.
        n: How many tasks.
        steps: Observations of each.
        rng: Draws everything.
        nuisance: Reads what else is hidden.
        scale: Of queries; even where it is not given.

    Returns:
        The histories.
    """
    tasks = TaskBatch.draw(problem, n, rng)
    space = problem.query_space
    scale = scale or QueryScale(space)
    unit = space.to_unit(space.sample(n * steps, rng)).view(n, steps, -1)
    comparable = space.dim == problem.answer_space.dim
    centre = space.to_unit(space.sample(n, rng))[:, None]
    if comparable:
        near = problem.answer_space.to_unit(tasks.target)[:, None]
        centre = torch.where(torch.rand((n, 1, 1), generator=rng) < 0.75, near, centre)
    reach = torch.exp(math.log(NEAREST) * torch.rand((n, steps, 1), generator=rng))
    local = centre + reach * torch.randn(unit.shape, generator=rng)
    # Some histories are uniform, some local, most are a mixture of both.
    share = torch.rand((n, 1, 1), generator=rng) * (1.2 if comparable else 0.6) - 0.2
    unit = torch.where(torch.rand((n, steps, 1), generator=rng) < share, local, unit)
    query = space.project(scale.from_unit(unit))
    many = tasks.select(torch.arange(n).repeat_interleave(steps))
    observation = many.observe(query.flatten(0, 1), rng).view(n, steps, -1)
    return Histories(scale.to_unit(query), observation, places_of(tasks, nuisance), tasks.context)


@final
@dataclass
class HistoryPool:
    """Gives batches of histories: fresh ones, and, where simulating is slow, earlier ones again."""

    problem: Problem
    steps: int
    rng: Generator
    nuisance: Nuisance | None = None
    scale: QueryScale | None = None
    timed: bool = True
    """Whether earlier histories may be shown again where simulating is slow; else nothing depends on a clock."""
    kept: Histories | None = None
    seconds: float = 0.0
    """Spent on simulating."""
    simulated: int = 0
    """Tasks that were simulated."""
    began: float = field(default_factory=lambda: time.perf_counter())

    def batch(self, n: int) -> Histories:
        """``n`` histories, fresh ones as long as simulating takes no more than half of the time."""
        if not self.timed:
            return simulate(self.problem, n, self.steps, self.rng, self.nuisance, self.scale)
        spare = 0.5 * (time.perf_counter() - self.began) - self.seconds
        if self.kept is None or spare > 0:
            affordable = n if not self.simulated else math.ceil(AT_ONCE * self.simulated / max(self.seconds, 1e-9))
            fresh = self._fresh(min(n, FIRST if self.kept is None else affordable))
            if len(fresh.place_BV) == n:
                return fresh
        assert self.kept is not None
        return self.kept.rows(torch.randint(len(self.kept.place_BV), (n,), generator=self.rng))

    def affordable(self, seconds: float) -> float:
        """How many tasks can be simulated in a time; all where that is not limited."""
        if not self.timed:
            return math.inf
        if not self.simulated:
            self._fresh(FIRST)
        return seconds * self.simulated / max(self.seconds, 1e-9)

    def simulate_more(self) -> None:
        """Simulates for a moment, and keeps what comes of it."""
        self._fresh(max(1, int(self.affordable(AT_ONCE))))

    def known(self) -> tuple[Histories, Histories]:
        """All histories that are kept, to learn from and to judge by; the latter stay so as more are simulated."""
        assert self.kept is not None
        place = torch.arange(len(self.kept.place_BV))
        judging = place % JUDGING == JUDGING - 1
        return self.kept.rows(place[~judging]), self.kept.rows(place[judging])

    def _fresh(self, n: int) -> Histories:
        start = time.perf_counter()
        fresh = simulate(self.problem, n, self.steps, self.rng, self.nuisance, self.scale)
        self.seconds += time.perf_counter() - start
        self.simulated += n
        if self.kept is None:
            self.kept = fresh
        elif len(self.kept.place_BV) < POOLED // self.steps:
            self.kept = self.kept.joined(fresh)
        return fresh
