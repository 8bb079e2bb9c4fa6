"""What figures of an agent show: how long episodes last, how beliefs narrow, and whether confidence is earned."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor

from cicpe.episodes.table import AgentTable
from cicpe.statistics import clopper_pearson
from cicpe.streams import stream

Floats = npt.NDArray[np.float64]


class Curve(NamedTuple):
    """A line over t = 0, 1, ... and the edges of its band."""

    value: Floats
    low: Floats
    high: Floats


class ReliabilityBins(NamedTuple):
    """Confidence beside accuracy, in bins of the confidence; bins that are empty are left out."""

    confidence: Floats
    accuracy: Floats
    low: Floats
    high: Floats
    episodes: Floats
    """In each bin."""


def survival(queries: Int[Tensor, " episode"]) -> Curve:
    """P(tau > t) for t = 0 ... max tau, with the exact binomial 95 % interval at every t."""
    n, last = len(queries), int(queries.max())
    alive = (queries[:, None] > torch.arange(last + 1)).sum(dim=0).numpy()
    return Curve(alive / n, *clopper_pearson(alive, n))


def spread(beliefs: AgentTable) -> Curve:
    """The median posterior standard deviation over episodes after every query, and the middle 80 % of it."""
    low, middle, high = np.quantile(beliefs.std_BT.double().numpy(), [0.1, 0.5, 0.9], axis=0)
    return Curve(middle, low, high)


def reliability(beliefs: AgentTable, epsilon: float, seed: int, bins: int = 10) -> ReliabilityBins:
    """Confidence and success of every episode after a random number of queries: one pair each, so independent."""
    episodes, prefixes = beliefs.loss_BT.shape
    rng = stream(seed, "table", "when")
    when = torch.randint(prefixes, (episodes, 1), generator=rng)
    confidence = beliefs.confidence_BT.gather(1, when)[:, 0].double().numpy()
    right = (beliefs.loss_BT.gather(1, when)[:, 0] <= epsilon).numpy()
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    count = np.bincount(place, minlength=bins)
    some = count > 0
    correct = np.bincount(place, weights=right, minlength=bins)[some]
    mean = np.bincount(place, weights=confidence, minlength=bins)[some] / count[some]
    low, high = clopper_pearson(correct, count[some])
    return ReliabilityBins(mean, correct / count[some], low, high, count[some].astype(np.float64))
