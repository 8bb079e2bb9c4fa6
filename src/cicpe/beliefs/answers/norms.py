"""Losses that are a norm of the difference between answer and target, found by losses of simulated tasks.

Shapes: B losses, X answer.
"""

import itertools
from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

LossNorm = Literal["sum", "euclidean", "squared", "largest"]
"""Of weighted differences per coordinate: their sum, the root of the sum of squares, that sum itself, the largest."""
EXACT = 1e-3
"""By what share a norm may miss nearly all losses, for it to be the loss."""
MOST_MIXED = 4
"""Coordinates of which any may wrap; of more, all or none."""


def find_norm(apart_BX: Float[Tensor, "B X"], loss_B: Float[Tensor, " B"]) -> "Norm | None":
    """The norm that gives some losses, if there is one.

    Args:
        apart_BX: Answers less targets in unit coordinates.
        loss_B: Their losses, all above zero.

    Returns:
        The first that fits, of those without a coordinate that wraps and then of the others.
    """
    wraps = _wraps(apart_BX.shape[1])
    return next((norm for some in wraps for norm in _norms(apart_BX.abs(), loss_B, some)), None)


def _wraps(dim: int) -> Iterator[tuple[int, ...]]:
    """Which coordinates may wrap: none, all, or some of a few."""
    every = range(dim)
    sizes = every if dim <= MOST_MIXED else (0,)
    return itertools.chain(*(itertools.combinations(every, size) for size in sizes), [tuple(every)])


def _norms(apart_BX: Tensor, loss_B: Tensor, wraps: tuple[int, ...]) -> "Iterator[Norm]":
    """The norms that give some losses, where these coordinates wrap."""
    apart_BX = apart_BX.clone()
    apart_BX[:, list(wraps)] = apart_BX[:, list(wraps)].minimum(2 - apart_BX[:, list(wraps)])
    fitted = [
        Norm("sum", _weights(apart_BX, loss_B), wraps),
        Norm("euclidean", _weights(apart_BX.square(), loss_B.square()).clamp_min(0).sqrt(), wraps),
        Norm("squared", _weights(apart_BX.square(), loss_B).clamp_min(0).sqrt(), wraps),
        Norm("largest", (loss_B[:, None] / apart_BX.clamp_min(1e-12)).amin(dim=0), wraps),
    ]
    return (norm for norm in fitted if norm.gives(apart_BX, loss_B))


class Norm(NamedTuple):
    """A norm of weighted differences per coordinate."""

    norm: LossNorm
    weights_X: Tensor
    wraps: tuple[int, ...]

    def gives(self, apart_BX: Tensor, loss_B: Tensor) -> bool:
        """Whether these losses are this norm's."""
        weighted = apart_BX * self.weights_X
        match self.norm:
            case "sum":
                value = weighted.sum(dim=1)
            case "euclidean":
                value = torch.linalg.vector_norm(weighted, dim=1)
            case "squared":
                value = weighted.square().sum(dim=1)
            case "largest":
                value = weighted.amax(dim=1)
        missed = (value / loss_B - 1).abs()
        # Rounding is large where an answer is next to its target.
        return bool((missed < EXACT).double().mean() > 0.98) and bool((missed < 30 * EXACT).all())


def _weights(parts_BX: Tensor, whole_B: Tensor) -> Float[Tensor, " X"]:
    """What each part counts in a whole that is their weighted sum, by least squares of relative errors."""
    rows, ones = parts_BX / whole_B[:, None], torch.ones_like(whole_B)
    solution: Tensor = torch.linalg.lstsq(rows, ones[:, None], driver="gelsd").solution
    return solution[:, 0]
