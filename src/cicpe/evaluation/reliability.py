"""What figures of an agent show: how long episodes last, how beliefs narrow, and whether confidence is earned."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cicpe.episodes.table import AgentTable
from cicpe.statistics import clopper_pearson
from cicpe.streams import stream

Floats = npt.NDArray[np.float64]
BINS = 10
EVEN = tuple(np.linspace(0, 1, BINS + 1)[1:-1].tolist())
"""Borders of bins of equal width."""


class Curve(NamedTuple):
    """A line over t = 0, 1, ... and the edges of its band."""

    value: Floats
    low: Floats
    high: Floats


class Reliability(NamedTuple):
    """Confidence beside the share of successes, in bins of the confidence from the least sure up."""

    confidence: tuple[float, ...]
    accuracy: tuple[float, ...]
    low: tuple[float, ...]
    """Lower ends of the accuracy's exact 95 % intervals."""
    high: tuple[float, ...]
    sizes: tuple[int, ...]
    """Episodes in each bin."""
    error: float
    """Expected calibration error: the mean distance of confidence and accuracy, over episodes."""
    brier: float
    by_chance: float
    """The error that a perfect confidence would show with so many episodes, on average."""

    @property
    def columns(self) -> tuple[Floats, ...]:
        """Confidence, accuracy, the ends of its interval and the sizes of the bins, for figures."""
        return tuple(np.array(column, dtype=np.float64) for column in self[:5])


def survival(queries: Int[Tensor, " episode"]) -> Curve:
    """P(tau > t) for t = 0 ... max tau, with the exact binomial 95 % interval at every t."""
    n, last = len(queries), int(queries.max())
    alive = (queries[:, None] > torch.arange(last + 1)).sum(dim=0).numpy()
    return Curve(alive / n, *clopper_pearson(alive, n))


def spread(beliefs: AgentTable) -> Curve:
    """The median posterior standard deviation over episodes after every query, and the middle 80 % of it."""
    low, middle, high = np.quantile(beliefs.std_BT.double().numpy(), [0.1, 0.5, 0.9], axis=0)
    return Curve(middle, low, high)


def at_random_times(
    beliefs: AgentTable, epsilon: float, seed: int
) -> tuple[Float[Tensor, " episode"], Bool[Tensor, " episode"]]:
    """Confidence and success of every episode after a random number of queries: one pair each, so independent."""
    episodes, prefixes = beliefs.loss_BT.shape
    when = torch.randint(prefixes, (episodes, 1), generator=stream(seed, "table", "when"))
    return beliefs.confidence_BT.gather(1, when)[:, 0], beliefs.loss_BT.gather(1, when)[:, 0] <= epsilon


def reliability(
    confidence: Float[Tensor, " n"],
    success: Bool[Tensor, " n"],
    bins: int = BINS,
    borders: Sequence[float] | None = None,
) -> Reliability:
    """Confidence against success, in bins.

    Args:
        confidence: Of each episode.
        success: Whether it was right.
        bins: How many bins of about equal size, at most; equal confidences share one.
        borders: Confidences between bins, in place of equal sizes. Bins that are empty are left out.

    Returns:
        The table, with its calibration error.
    """
    order = confidence.argsort()
    sure, right = confidence[order].double(), success[order].double()
    n = len(sure)
    if borders is None:
        places = np.linspace(0, n, min(bins, n) + 1).round().astype(int)[1:-1]
        between = sure[torch.from_numpy(places)]
    else:
        between = torch.tensor(borders, dtype=torch.float64)
    # A bin begins with the first of equal confidences.
    starts = sorted(({0} | set(torch.searchsorted(sure, between).tolist())) - {n})
    parts = [slice(a, b) for a, b in zip(starts, [*starts[1:], n], strict=True)]
    shown, sizes = [float(sure[part].mean()) for part in parts], [part.stop - part.start for part in parts]
    correct = np.array([float(right[part].sum()) for part in parts])
    accuracy = (correct / sizes).tolist()
    low, high = clopper_pearson(correct, np.array(sizes))
    error = sum(size * abs(a - b) for size, a, b in zip(sizes, shown, accuracy, strict=True)) / n
    # The mean distance of a share of n from its expectation p is about sqrt(2 p (1 - p) / (pi n)).
    chance = sum(size * math.sqrt(2 * p * (1 - p) / (math.pi * size)) for size, p in zip(sizes, shown, strict=True)) / n
    brier = float((sure - right).square().mean())
    ends = tuple(low.tolist()), tuple(high.tolist())
    return Reliability(tuple(shown), tuple(accuracy), *ends, tuple(sizes), error, brier, chance)
