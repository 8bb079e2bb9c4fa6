"""Small statistics that several packages share."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

Counts = int | npt.NDArray[np.integer] | npt.NDArray[np.floating]


def clopper_pearson(
    successes: Counts, n: Counts, tail: float = 0.025
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Exact bounds of binomial proportions: each is wrong with probability ``tail`` at most.

    Args:
        successes: How many, from 0 to ``n``.
        n: Of how many; broadcast with ``successes``.
        tail: Probability that the lower bound is too high, and that the upper one is too low.

    Returns:
        The lower and the upper bounds, in the shape of the counts. Together they hold with probability 1 - 2 tail.
    """
    from scipy.special import betaincinv  # only here: telling a session a number needs no SciPy

    k, total = np.broadcast_arrays(np.asarray(successes, dtype=np.float64), np.asarray(n, dtype=np.float64))
    none, every = k == 0, k == total
    low = betaincinv(np.where(none, 1, k), total - k + 1, tail)
    high = betaincinv(k + 1, np.where(every, 1, total - k), 1 - tail)
    return np.where(none, 0.0, low), np.where(every, 1.0, high)


def log_uniform(low: float, high: float, n: int, rng: Generator) -> Float[Tensor, " n"]:
    """Positive numbers that are uniform in their logarithm.

    Args:
        low: The least.
        high: The largest.
        n: How many.
        rng: Draws them.

    Returns:
        ``n`` numbers.
    """
    return low * (high / low) ** torch.rand(n, generator=rng)


def log_grid(low: float, high: float, points: int) -> tuple[float, ...]:
    """Positive numbers that are evenly spaced in their logarithm.

    Args:
        low: The first.
        high: The last.
        points: How many.

    Returns:
        ``points`` numbers, both ends exact; a single one where the ends are equal.
    """
    if low == high:
        return (low,)
    grid = np.exp(np.linspace(np.log(low), np.log(high), points))
    return (low, *map(float, grid[1:-1]), high)


def sobol_points(n: int, dim: int, seed: int) -> Float[Tensor, "n dim"]:
    """The first points of one scrambled Sobol sequence.

    Args:
        n: How many.
        dim: Coordinates of a point.
        seed: Seeds the scrambling.

    Returns:
        Points in [0, 1)^dim, ``n x dim``, in double precision.
    """
    engine: Any = torch.quasirandom.SobolEngine
    points: Tensor = engine(dim, scramble=True, seed=seed).draw(n, dtype=torch.float64)
    return points


RUN, MANY_POINTS = 16, 4096
"""Points that are added up together where so many are drawn from."""


def systematic(weight_BN: Float[Tensor, "batch point"], n: int, offset: float) -> Int[Tensor, "batch {n}"]:
    """Systematic draws in proportion to weights, which need not add up to one.

    Args:
        weight_BN: Weights of every episode's points.
        n: How many draws.
        offset: Where the comb of the draws begins, from 0 to 1.

    Returns:
        The places of the drawn points, in rising order.
    """
    points = weight_BN.shape[-1]
    if points % RUN or points < MANY_POINTS:
        cumulative = weight_BN.double().cumsum(dim=-1)
        return torch.searchsorted(cumulative, _comb(cumulative, n, offset)).clamp_max(points - 1)
    # Of many points, first the run of them and then the one in it.
    run_BRN = weight_BN.reshape(len(weight_BN), points // RUN, RUN)
    cumulative = (run_BRN @ torch.ones(RUN, dtype=weight_BN.dtype)).double().cumsum(dim=-1)
    comb = _comb(cumulative, n, offset)
    run = torch.searchsorted(cumulative, comb).clamp_max(points // RUN - 1)
    before = torch.nn.functional.pad(cumulative, (1, 0)).gather(1, run)
    within = run_BRN[torch.arange(len(run))[:, None], run].double().cumsum(dim=-1)
    inside = (within < (comb - before)[..., None]).sum(dim=-1).clamp_max(RUN - 1)
    return run * RUN + inside


def _comb(cumulative_BN: Tensor, n: int, offset: float) -> Tensor:
    """Even steps through the whole weight."""
    return ((torch.arange(n, dtype=torch.float64) + offset) / n * cumulative_BN[:, -1:]).contiguous()


ROUNDING = 1e-6
"""How far apart, relative to their size, two scores may be that another processor could put in another order."""


def first_of_best(score_BK: Float[Tensor, "batch candidate"]) -> Int[Tensor, " batch"]:
    """The first candidate that no other is better than beyond rounding.

    Symmetric candidates have the same score up to its last digits, in which processors differ. Were the highest
    taken, every machine would make another choice.

    Args:
        score_BK: Scores; the higher, the better.

    Returns:
        Its place.
    """
    slack_B1 = ROUNDING * score_BK.abs().amax(dim=-1, keepdim=True)
    return (score_BK >= score_BK.amax(dim=-1, keepdim=True) - slack_B1).int().argmax(dim=-1)


def weighted_std(
    weight_BN: Float[Tensor, "batch point"], value_BNX: Float[Tensor, "batch point value"]
) -> Float[Tensor, "batch value"]:
    """The standard deviation of weighted points, by coordinate.

    Args:
        weight_BN: The weight of each point; they sum to 1.
        value_BNX: The points.

    Returns:
        In single precision, however exact the weights are.
    """
    weight_BN1 = weight_BN[..., None].float()
    mean = (weight_BN1 * value_BNX).sum(dim=1, keepdim=True)
    return (weight_BN1 * (value_BNX - mean).square()).sum(dim=1).clamp_min(0).sqrt()


def effective_size(log_weight_BN: Float[Tensor, "*batch point"]) -> Float[Tensor, "*batch"]:
    """(sum w)^2 / sum w^2, between 1 and the number of points."""
    weight_BN = torch.exp(log_weight_BN.double() - log_weight_BN.amax(dim=-1, keepdim=True))
    length_B: Tensor = torch.linalg.vector_norm(weight_BN, dim=-1)
    return (weight_BN.sum(dim=-1) / length_B).square()


def tempering_step(
    log_weight_BN: Float[Tensor, "batch point"], left_B: Float[Tensor, " batch"], floor: float
) -> Float[Tensor, " batch"]:
    """The largest power of the weights, up to ``left_B``, that keeps the effective size at ``floor``: by bisection."""
    relative_BN, left_B = (log_weight_BN - log_weight_BN.amax(dim=-1, keepdim=True)).double(), left_B.double()

    def holds(power_B: Tensor) -> Tensor:
        weight_BN = (relative_BN * power_B[:, None]).exp_()
        length_B: Tensor = torch.linalg.vector_norm(weight_BN, dim=-1)
        return weight_BN.sum(dim=-1) >= math.sqrt(floor) * length_B

    enough = holds(left_B)
    if bool(enough.all()):
        return left_B
    # Of the logarithm: with many precise observations the first power is far below a thousandth.
    low, high = torch.full_like(left_B, math.log(1e-9)), left_B.log()
    for _ in range(12):
        middle = (low + high) / 2
        ok = holds(middle.exp())
        low, high = torch.where(ok, middle, low), torch.where(ok, high, middle)
    return torch.where(enough, left_B, low.exp().minimum(left_B))


def highest_mass_interval(
    value_BK: Float[Tensor, "batch draw"], weight_BK: Float[Tensor, "batch draw"], epsilon: float
) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
    """The interval of length 2 epsilon that holds most of the weight of some draws.

    Args:
        value_BK: The draws.
        weight_BK: Their weights, which sum to one.
        epsilon: Half the length of the interval.

    Returns:
        Its middle, and the weight inside.
    """
    value, order = value_BK.sort(dim=1)
    below = torch.nn.functional.pad(weight_BK.gather(1, order).cumsum(dim=1), (1, 0))
    end = torch.searchsorted(value.contiguous(), (value + 2 * epsilon).contiguous(), right=True)
    inside = below.gather(1, end) - below[:, :-1]
    confidence, start = inside.max(dim=1, keepdim=True)
    last = value.gather(1, end.gather(1, start) - 1)
    # Of all intervals that hold these draws, the middle one.
    return ((value.gather(1, start) + last) / 2)[:, 0], confidence[:, 0]
