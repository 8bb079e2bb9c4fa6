"""The scale on which queries are compared and shown to a network: even, or logarithmic where that is what tells.

A concentration from 0.001 to 1000 may matter most below one, where an even scale has hardly any point. On the scale
of a coordinate with an *offset*, a share of its range that is far below the offset is even and one far above it
logarithmic. The offset is found by simulation: the one on whose scale the change of observations is spread most evenly.
Queries of a space that is the answers' own keep its scale, on which answers are compared.

Shapes: Q query, N tasks, K places along a coordinate, Y observation.
"""

import time
from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.problems.base import Problem, TaskBatch
from cicpe.spaces import Box, Interval, Space

EVEN = 0.0
"""The offset of a coordinate whose scale stays even."""
OFFSETS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
"""Those that are tried."""
PLACES, TASKS, FEWEST_TASKS = 17, 512, 64
"""Places along a coordinate, and tasks that are observed there, at most and at least."""
BETTER = 0.5
"""How much less concentrated, of what it is on an even scale, the change of observations has to be on another."""
CLEAR = 4.0
"""Standard errors by which observations have to change at all."""


@final
@dataclass(frozen=True)
class QueryScale:
    """Unit coordinates of queries."""

    space: Space
    offsets: tuple[float, ...] = ()
    """One per coordinate; none where all are even."""

    @cached_property
    def _curve(self) -> tuple[Tensor, Tensor, Tensor]:
        """Offsets (any positive ones for even coordinates), the logarithms that they divide by, and which are even."""
        offset = torch.tensor(self.offsets, dtype=torch.float64)
        even = offset == EVEN
        offset = torch.where(even, 1.0, offset)
        return offset, torch.log1p(1 / offset), even

    def to_unit(self, query: Float[Tensor, "*batch Q"]) -> Float[Tensor, "*batch Q"]:
        """Queries in unit coordinates."""
        unit = self.space.to_unit(query)
        if not self.offsets:
            return unit
        offset, logarithm, even = self._curve
        low, width = self._range
        share = ((query.double() - low) / width).clamp(0, 1)
        bent = 2 * torch.log1p(share / offset) / logarithm - 1
        return torch.where(even, unit.double(), bent).to(query)

    def from_unit(self, unit: Float[Tensor, "*batch Q"]) -> Float[Tensor, "*batch Q"]:
        """The inverse."""
        query = self.space.from_unit(unit)
        if not self.offsets:
            return query
        offset, logarithm, even = self._curve
        low, width = self._range
        share = offset * torch.expm1((1 + unit.double()) / 2 * logarithm)
        return torch.where(even, query.double(), low + width * share).to(unit)

    def sample(self, n: int, rng: Generator) -> Float[Tensor, "n Q"]:
        """Queries that are uniform on this scale."""
        drawn = self.space.sample(n, rng)
        return self.from_unit(self.space.to_unit(drawn)) if self.offsets else drawn

    @cached_property
    def _range(self) -> tuple[Tensor, Tensor]:
        ends = torch.tensor([[-1.0], [1.0]], dtype=torch.float64).expand(2, self.space.dim)
        low, high = self.space.project(2 * self.space.from_unit(ends) - self.space.from_unit(ends.flip(0)))
        return low, high - low

    @classmethod
    def find(cls, problem: Problem, rng: Generator, seconds: float | None = None) -> "QueryScale":
        """The scale on which what observations tell is spread most evenly.

        Args:
            problem: The family.
            rng: Draws tasks and observations.
            seconds: What it may take, about; where too few tasks fit, the scale stays even.

        Returns:
            The scale.
        """
        space = problem.query_space
        even = cls(space)
        if not isinstance(space, Box | Interval) or space == problem.answer_space:
            return even
        n = TASKS
        if seconds is not None:
            observations = 2 * PLACES * (1 + len(OFFSETS)) * space.dim
            n = min(TASKS, int(seconds / (observations * _seconds_per_observation(problem, rng))))
        if n < FEWEST_TASKS:
            return even
        offsets = tuple(_best_offset(problem, coordinate, n, rng) for coordinate in range(space.dim))
        return even if set(offsets) == {EVEN} else cls(space, offsets)


def _best_offset(problem: Problem, coordinate: int, n: int, rng: Generator) -> float:
    """The offset of a coordinate; even where none is clearly better."""
    seed = int(torch.randint(2**31, (), generator=rng))

    def concentration(offset: float) -> float | None:
        return _concentration(problem, coordinate, offset, n, torch.Generator().manual_seed(seed))

    usual = concentration(EVEN)
    if usual is None:
        return EVEN
    others = {offset: share for offset in OFFSETS if (share := concentration(offset)) is not None}
    best = min(others, key=lambda offset: others[offset], default=EVEN)
    return best if others.get(best, usual) < BETTER * usual else EVEN


def _concentration(problem: Problem, coordinate: int, offset: float, n: int, rng: Generator) -> float | None:
    """How much of the change of observations along a coordinate lies within few of its even steps, from 0 to 1.

    Observations are noisy, so the square of a change is the product of two that were observed independently. None where
    no change is clear.
    """
    space = problem.query_space
    scale = QueryScale(space, tuple(offset if i == coordinate else EVEN for i in range(space.dim)))
    tasks = TaskBatch.draw(problem, n, rng)
    unit_NKQ = space.to_unit(space.sample(n, rng))[:, None].repeat(1, PLACES, 1)
    unit_NKQ[..., coordinate] = torch.linspace(-1, 1, PLACES)
    query = space.project(scale.from_unit(unit_NKQ)).flatten(0, 1)
    many = tasks.select(torch.arange(n).repeat_interleave(PLACES))
    seen = torch.stack([many.observe(query, rng) for _ in range(2)])
    # Ranks: an observation that is far off counts no more than the next.
    rank = seen.flatten(0, 1).argsort(dim=0).argsort(dim=0).double().view_as(seen) / len(seen.flatten(0, 1))
    change = rank.view(2, n, PLACES, -1).diff(dim=2)
    square_NK = (change[0] * change[1]).sum(dim=-1)
    total_N = square_NK.sum(dim=1)
    if float(total_N.mean()) < CLEAR * float(total_N.std()) / n**0.5:
        return None
    share_K = square_NK.mean(dim=0).clamp_min(0)
    return float(share_K.square().sum() / share_K.sum().square().clamp_min(1e-12))


def _seconds_per_observation(problem: Problem, rng: Generator, n: int = 64) -> float:
    tasks = TaskBatch.draw(problem, n, rng)
    began = time.perf_counter()
    tasks.observe(problem.query_space.sample(n, rng), rng)
    return max((time.perf_counter() - began) / n, 1e-9)
