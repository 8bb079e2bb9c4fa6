"""Which commit to run next: the one whose run is expected to leave the least entropy about the culprit.

A rule gives a price per commit from 0 (good) to the bad one, ``batch x (n_commits + 1)``; the cheapest is run next.
Other rules were measured and left out: ``docs/results/bisection.md``.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cicpe.bisection.belief import CulpritBelief, CulpritState, Flags, Positions
from cicpe.bisection.rates import Numbers

TINY = 1e-300


class Outlook(NamedTuple):
    """What a run at every commit would lead to, for one of its outcomes: ``batch x (n_commits + 1)``."""

    probability: Numbers
    """Of the outcome."""
    entropy: Numbers
    """Of the culprit after it, in nats."""


Rule = Callable[[CulpritBelief, CulpritState], Numbers]


def outlooks(belief: CulpritBelief, state: CulpritState) -> tuple[Outlook, Outlook]:
    """What a failure and a pass at every commit would lead to."""
    culprit, nothing = belief.posterior(state)
    means = belief.means(state)
    failure = _outlook(culprit * means.after, culprit * means.before, nothing * means.same)
    success = _outlook(culprit * (1 - means.after), culprit * (1 - means.before), nothing * (1 - means.same))
    return failure, success


def expected_entropy(belief: CulpritBelief, state: CulpritState) -> Numbers:
    """The entropy of the culprit that is to be expected after a run at each commit."""
    failure, success = outlooks(belief, state)
    return failure.probability * failure.entropy + success.probability * success.entropy


def cheapest(price: Numbers, may_run: Flags | None = None) -> Positions:
    """The commit with the lowest price in each row; of equal ones, the one nearest to the middle.

    Args:
        price: ``batch x (n_commits + 1)``.
        may_run: Flags of the commits that can be run; None for all.

    Returns:
        Positions, one per row.
    """
    if may_run is not None:
        price = np.where(may_run, price, np.inf)
    least = price.min(axis=1, keepdims=True)
    equal = price <= least + 1e-12 * np.maximum(1.0, np.abs(least))
    position = np.arange(price.shape[1])
    off_centre = np.abs(position - (price.shape[1] - 1) / 2)
    nearest: Positions = np.where(equal, off_centre, np.inf).argmin(axis=1)
    return nearest


def _outlook(after: Numbers, before: Numbers, nothing: Numbers) -> Outlook:
    """From the joint probabilities of the outcome and each culprit, on either side of the commit that is run."""
    probability = _before(after) + _from(before) + nothing[:, None]
    surprise = _before(_x_log_x(after)) + _from(_x_log_x(before)) + _x_log_x(nothing)[:, None]
    safe = np.maximum(probability, TINY)
    return Outlook(probability, np.maximum(np.log(safe) - surprise / safe, 0.0))


def _before(value: Numbers) -> Numbers:
    """Sums over the culprits at or before each commit."""
    return np.concatenate([np.zeros((len(value), 1)), np.cumsum(value, axis=1)], axis=1)


def _from(value: Numbers) -> Numbers:
    """Sums over the culprits after each commit."""
    return np.concatenate([np.cumsum(value[:, ::-1], axis=1)[:, ::-1], np.zeros((len(value), 1))], axis=1)


def _x_log_x(value: Numbers) -> Numbers:
    return value * np.log(np.maximum(value, TINY))
