"""Contexts: numbers that an agent is told before its first query, such as a noise level.

What was calibrated at several values of them has to be looked up at others. ``ContextGrid`` says between which of its
points a context lies, and how near to each.
"""

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from cicpe.errors import InvalidInput
from cicpe.statistics import log_uniform

Noise = float | tuple[float, float]
NEAR = 1e-4
"""Share of a grid's length within which a context counts as lying on a knot."""
LEAST_SHARE = 0.25
"""Episodes of the smallest group of contexts, in those that it would have if all had as many."""


def noise_range(noise: Noise, upper: float = math.inf) -> tuple[float, float]:
    """Reads a level or a range of levels as (low, high), refusing what is out of bounds."""
    low, high = noise if isinstance(noise, tuple | list) else (noise, noise)
    if not (0 <= low <= high < upper) or not math.isfinite(high):
        bound = "" if math.isinf(upper) else f" below {upper:g}"
        raise InvalidInput("noise", noise, f"a number, or a low and a high one, from 0 up{bound}")
    return float(low), float(high)


def sample_noise(limits: tuple[float, float], n: int, rng: Generator) -> Float[Tensor, " n"]:
    """``n`` levels, uniform in their logarithm (in the level itself where the range starts at zero)."""
    low, high = limits
    if low == 0 or low == high:
        return low + torch.rand(n, generator=rng) * (high - low)
    return log_uniform(low, high, n, rng)


class Corners(NamedTuple):
    """The points of a grid between which each of a batch of contexts lies."""

    point: Int[Tensor, "batch corner"]
    weight: Float[Tensor, "batch corner"]
    """How near each is: the weights of linear interpolation."""


@final
@dataclass(frozen=True)
class ContextGrid:
    """Points of context space: every combination of a few values per context.

    A family without contexts, or one whose contexts never vary, has one point. Where contexts cannot be set to a value,
    a point stands for all those that lie between two edges.
    """

    knots: tuple[tuple[float, ...], ...]
    """Values of each context, rising; contexts beyond the last entry are not told apart."""
    edges: tuple[tuple[float, ...], ...] = ()
    """Where the values that a knot stands for end and those of the next begin; none where knots are single values."""

    @property
    def points(self) -> tuple[tuple[float, ...], ...]:
        """All combinations, the last context varying fastest."""
        return tuple(itertools.product(*self.knots))

    def __len__(self) -> int:
        return math.prod(len(values) for values in self.knots)

    def corners(self, context: Float[Tensor, "batch context"]) -> Corners:
        """Where contexts lie; beyond the ends of the grid, at its ends.

        Args:
            context: As an agent is told it.

        Returns:
            For every context, the grid points around it. A context on a knot has that point in every corner.
        """
        batch = len(context)
        point, weight = torch.zeros(batch, 1, dtype=torch.long), torch.ones(batch, 1, dtype=torch.float64)
        for column, values in enumerate(self.knots):
            if len(values) == 1:
                continue
            if self.edges:
                edges = torch.tensor(self.edges[column], dtype=torch.float64)
                own = torch.bucketize(context[:, column].double().contiguous(), edges)
                point = point * len(values) + own[:, None]
                continue
            below, above, share = _between(torch.tensor(values, dtype=torch.float64), context[:, column].double())
            sides = torch.stack([below, above], dim=1)
            shares = torch.stack([1 - share, share], dim=1)
            point = (point[:, :, None] * len(values) + sides[:, None]).flatten(1)
            weight = (weight[:, :, None] * shares[:, None]).flatten(1)
        return Corners(point, weight)

    def nearest(self, context: Float[Tensor, "batch context"]) -> Int[Tensor, " batch"]:
        """The point that is nearest to each context."""
        corners = self.corners(context)
        return corners.point.gather(1, corners.weight.argmax(dim=1, keepdim=True))[:, 0]


def _between(knots: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The knots below and above each value, and how far it is on the way from one to the other."""
    value = value.clamp(knots[0], knots[-1]).contiguous()
    slack = NEAR * (knots[-1] - knots[0])
    below = (torch.searchsorted(knots, value + slack, right=True) - 1).clamp(0, len(knots) - 1)
    above = torch.searchsorted(knots, value - slack).clamp(0, len(knots) - 1)
    gap = (knots[above] - knots[below]).clamp_min(1e-300)
    share = torch.where(above > below, (value - knots[below]) / gap, 0.0)
    return below, above, share


def rank_groups(context: Float[Tensor, "episode context"], n_knots: int) -> tuple[ContextGrid, list[Tensor]]:
    """Episodes grouped by the rank of their contexts, where a context cannot be set.

    Args:
        context: The contexts of the episodes.
        n_knots: How many groups per context that varies, at most: fewer where contexts depend on each other, or have
            few values, so that a group would have few episodes.

    Returns:
        A grid with a point per group, which stands for all contexts between its edges, and the episodes of each.
    """
    columns = [_edges(values.double(), n_knots) for values in context.unbind(dim=1)]
    parts = [
        torch.bucketize(values.double(), edges) for values, edges in zip(context.unbind(dim=1), columns, strict=True)
    ]
    group = torch.zeros(len(context), dtype=torch.long)
    knots: list[tuple[float, ...]] = []
    for values, part, edges in zip(context.unbind(dim=1), parts, columns, strict=True):
        knots.append(tuple(float(values[part == i].median()) for i in range(len(edges) + 1)))
        group = group * (len(edges) + 1) + part
    ends = tuple(tuple(edges.tolist()) for edges in columns)
    grid = ContextGrid(tuple(knots), ends if any(ends) else ())
    groups = [(group == i).nonzero()[:, 0] for i in range(len(grid))]
    if n_knots > 1 and min(map(len, groups)) < LEAST_SHARE * len(context) / len(grid):
        return rank_groups(context, n_knots - 1)
    return grid, groups


def _edges(values: Float[Tensor, " episode"], n_groups: int) -> Float[Tensor, " edge"]:
    """Between groups of about as many values: half way from the last of one to the first of the next."""
    ordered = values.sort().values
    edges = set()
    for i in range(1, n_groups):
        first = ordered[len(ordered) * i // n_groups]
        before = ordered[ordered < first]
        if len(before):
            edges.add(float((before[-1] + first) / 2))
    return torch.tensor(sorted(edges), dtype=torch.float64)


def knots_per_context(n_knots: int, contexts: int) -> int:
    """How many knots each of several contexts gets, so that the grid stays about as small as for one."""
    return n_knots if contexts <= 1 else max(2, round(n_knots ** (1 / contexts)) + (contexts == 2))
