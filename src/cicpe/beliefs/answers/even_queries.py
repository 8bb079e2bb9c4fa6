"""Queries spread evenly over a space, the same at every step, and the order in which they are compared.

One group of them is compared first, coarsely, and then those about the best. A table lies in these groups.

Shapes: A even queries in S groups of W, K near ones, G pairs of a grid, B episodes, M draws, P parameters, Q query.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cicpe.spaces import Space, Sphere
from cicpe.statistics import sobol_points

NEAREST = 9
"""Even queries of several coordinates about the best of a few that are compared next, that one among them."""


def even_points(space: Space, n: int, seed: int = 0) -> Float[Tensor, "n Q"]:
    """Points spread evenly over a space, in its unit coordinates."""
    if space.dim == 1:
        return -1 + 2 * (torch.arange(n)[:, None] + 0.5) / n
    if isinstance(space, Sphere):
        return space.sample(n, torch.Generator().manual_seed(seed))
    return sobol_points(n, space.dim, seed).float() * 2 - 1


@final
@dataclass(frozen=True)
class EvenQueries:
    """Even queries in unit coordinates."""

    space: Space
    many: int
    stride: int
    """How many groups there are; on a line, how far apart the queries of one are."""

    def __len__(self) -> int:
        return self.many

    @cached_property
    def points_AQ(self) -> Float[Tensor, "A Q"]:
        """All of them."""
        return even_points(self.space, self.many)

    @cached_property
    def near_AK(self) -> Int[Tensor, "A K"]:
        """Those about each of them, by their place among all."""
        even, stride = self.points_AQ, self.stride
        if self.space.dim == 1:
            return (torch.arange(len(even))[:, None] + torch.arange(1 - stride, stride)).clamp(0, len(even) - 1)
        apart = torch.cdist(even, even, compute_mode="donot_use_mm_for_euclid_dist")
        return apart.argsort(dim=1, stable=True)[:, :NEAREST]

    @cached_property
    def groups_SW(self) -> Int[Tensor, "S W"]:
        """Groups of them, each spread evenly; one of them is compared first. The last query may be repeated."""
        each = -(-self.many // self.stride)
        # On a line every fourth. Neighbours in a quasi-random sequence are far apart; every fourth of its points would
        # lie in one strip, and a block of it is spread over all of the space.
        place = torch.arange(self.stride * each)
        places = place.view(each, self.stride).T if self.space.dim == 1 else place.view(self.stride, each)
        return places.clamp_max(self.many - 1)

    @cached_property
    def places_2A(self) -> Int[Tensor, "2 A"]:
        """The group of every query, and its place in there."""
        places = torch.zeros(2, self.many, dtype=torch.long)
        for group, queries in enumerate(self.groups_SW):
            places[0, queries] = group
            places[1, queries.flip(0)] = torch.arange(len(queries)).flip(0)  # the first of one that is repeated
        return places

    def outlook(
        self,
        outlook_SGWP: Float[Tensor, "S G W P"],
        drawn_BM: Int[Tensor, "B M"],
        queries_BA: Int[Tensor, "B A"],
        group: int | None,
    ) -> Float[Tensor, "B M A P"]:
        """What a table says of some queries at draws.

        Args:
            outlook_SGWP: The table, in groups.
            drawn_BM: Pairs of the grid.
            queries_BA: Queries, by their place among all.
            group: Which group they are, where they are one.
        """
        if group is not None:
            return outlook_SGWP[group][drawn_BM]
        group_BA, place_BA = self.places_2A[:, queries_BA]
        return outlook_SGWP[group_BA[:, None], drawn_BM[:, :, None], place_BA[:, None]]
