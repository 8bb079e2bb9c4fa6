"""One-step lookahead on particles: which query's observation would tell most about the target.

Nothing is assumed of the problem but that observations can be simulated. Particles whose simulated
observations of a query are neighbours would remain neighbours in weight were that observation made, so
a particle and its neighbour are two draws from the posterior that the query leads to. A good query
makes the two agree on the target.
"""

from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from cicpe.spaces import Space

QueryRule = Literal["agreement", "entropy", "variance", "disagreement", "thompson", "greedy"]
LAGS = (1, 2, 3)
"""Which neighbours are compared."""
SAME = 8
"""Particles a kind of observation, on average, with which kinds may be laid out on a line."""


def candidate_queries(
    space: Space, n: int, target_BMX: Tensor | None, recommendation_BX: Tensor, rng: Generator
) -> Float[Tensor, "batch n query"]:
    """Candidates: particles' targets, points about the recommendation, and uniform ones."""
    batch = len(recommendation_BX)
    uniform = space.sample(n, rng).expand(batch, -1, -1)
    if target_BMX is None:
        return uniform
    third = n // 3
    targets = target_BMX[:, :third]
    # Particles differ from the recommendation by as much as is still unknown.
    difference = target_BMX[:, third : 2 * third] - recommendation_BX[:, None]
    length = 3 * torch.rand((difference.shape[1], 1), generator=rng)
    noise = torch.randn((difference.shape[1], difference.shape[2]), generator=rng)
    size = torch.linalg.vector_norm(difference, dim=-1, keepdim=True) / difference.shape[-1] ** 0.5
    about = space.project(recommendation_BX[:, None] + length * size * noise)
    rest = n - 1 - targets.shape[1] - about.shape[1]
    return torch.cat([recommendation_BX[:, None], targets, about, uniform[:, :rest]], dim=1)


def score_queries(
    rule: QueryRule,
    observed_BKMY: Float[Tensor, "batch query particle observation"],
    target_BMX: Float[Tensor, "batch particle answer"],
    epsilon: float,
) -> Float[Tensor, "batch query"]:
    """How much each query would tell, by simulated observations of every particle; more is better."""
    if rule == "disagreement":
        return observed_BKMY.var(dim=2).sum(dim=-1)
    squared = _neighbour_distances(observed_BKMY, target_BMX)
    if rule == "variance":
        return -squared.mean(dim=-1)
    if rule == "entropy":
        return -torch.log(squared + (0.1 * epsilon) ** 2).mean(dim=-1)
    return (1 / (1 + squared / epsilon**2)).mean(dim=-1)


def _neighbour_distances(observed_BKMY: Tensor, target_BMX: Tensor) -> Float[Tensor, "batch query pair"]:
    """Squared distances between the targets of particles with neighbouring observations."""
    batch, k, m, y = observed_BKMY.shape
    target_XBKM = target_BMX.permute(2, 0, 1)[:, :, None].expand(-1, -1, k, -1)

    def at(index_BKL: Tensor) -> Tensor:
        return target_XBKM.gather(-1, index_BKL.expand(len(target_XBKM), -1, -1, -1))

    line_BKM = observed_BKMY[..., 0] if y == 1 else _codes(observed_BKMY)
    if line_BKM is not None:
        sorted_XBKM = at(_order(line_BKM))
        pairs = [(sorted_XBKM[..., lag:] - sorted_XBKM[..., :-lag]).square().sum(dim=0) for lag in LAGS]
        return torch.cat(pairs, dim=-1)
    apart = torch.cdist(observed_BKMY.flatten(0, 1), observed_BKMY.flatten(0, 1)).view(batch, k, m, m)
    apart.diagonal(dim1=-2, dim2=-1).fill_(torch.inf)
    near_BKML = apart.topk(len(LAGS), dim=-1, largest=False).indices
    return (at(near_BKML.flatten(-2)) - target_XBKM.repeat_interleave(len(LAGS), dim=-1)).square().sum(dim=0)


def _order(line_BKM: Tensor) -> Int[Tensor, "batch query particle"]:
    """The stable order of single precision numbers: that of equal ones must not be the processor's.

    Sorts whole numbers, made of the bits of a number (in the order of their values) and of its place: no two are
    equal. NumPy sorts them twice as fast as it sorts stably, and far faster than torch.
    """
    bits = (line_BKM.numpy() + np.float32(0)).view(np.int32).astype(np.int64)  # zero has one sign
    key = np.where(bits < 0, bits ^ 0x7FFFFFFF, bits) << 32 | np.arange(line_BKM.shape[-1])
    key.sort(axis=-1)
    return torch.from_numpy(key & 0xFFFFFFFF)


def _codes(observed_BKMY: Tensor) -> Float[Tensor, "batch query particle"] | None:
    """Observations of a few entries with two values each as one number: equal ones are neighbours on a line.

    None where there are others, or so many kinds that most neighbours on the line would differ.
    """
    m, y = observed_BKMY.shape[2:]
    low, high = observed_BKMY.aminmax()
    upper = observed_BKMY == high
    if SAME * 2**y > m or not bool((upper | (observed_BKMY == low)).all()):
        return None
    return upper.float() @ (2.0 ** torch.arange(y))
