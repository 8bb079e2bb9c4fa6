"""Another query in the place of one that cannot be made."""

import math

import torch
from torch import Generator, Tensor

from cicpe.spaces import Space

APART = 0.1
"""How far an open query keeps from every skipped one: a twentieth of the space's width, on average over coordinates."""
ATTEMPTS = 64
"""Places that are tried around a query; each time a little farther away."""


def elsewhere(space: Space, query_BQ: Tensor, avoid_SQ: Tensor, rng: Generator) -> Tensor:
    """The query itself where it is apart from what to avoid; otherwise the first place around it that is.

    Where none of the attempts is far enough, the farthest of them is taken.
    """
    wish_BQ, best_BQ, farthest = space.to_unit(query_BQ), query_BQ, -1.0
    apart = APART * math.sqrt(space.dim)
    for attempt in range(ATTEMPTS):
        gap = float(torch.linalg.vector_norm(space.to_unit(query_BQ) - avoid_SQ, dim=-1).min())
        if gap > farthest:
            best_BQ, farthest = query_BQ, gap
        if farthest >= apart:
            break
        direction_BQ = torch.randn(query_BQ.shape, generator=rng)
        direction_BQ = direction_BQ / torch.linalg.vector_norm(direction_BQ, dim=-1, keepdim=True)
        reach = apart * 1.1**attempt * (1 + float(torch.rand(1, generator=rng)))
        query_BQ = space.project(space.from_unit(wish_BQ + reach * direction_BQ))
    return best_BQ
