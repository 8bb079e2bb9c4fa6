"""Evidence that an agent succeeds more often than 1 - delta: the mixture martingale, budgets, and a lower bound.

The null hypothesis is a success probability p of at most q = 1 - delta. After t fresh episodes with S successes,

    M_t = sum_l w_l (r_l / q)^S ((1 - r_l) / (1 - q))^(t - S),    M_0 = 1,

for alternatives q < r_l < 1 and weights w_l that were fixed beforehand. Under the null M is a nonnegative
supermartingale (at p = q a martingale), so by Ville's inequality it ever reaches 1 / alpha with probability at
most alpha. One may therefore look after every episode and accept at the first crossing. Everything is in
float64 and in log space.
"""

import math

import numpy as np
import numpy.typing as npt

from cicpe.errors import InvalidInput

Numbers = npt.NDArray[np.float64]
GAINS = tuple(k / 10 for k in range(1, 10))
"""Alternatives as shares of the way from q to 1: with q = 0.9 they are 0.91, 0.92, ... 0.99, all of equal weight."""


def check_probability(field: str, value: float) -> None:
    """Refuses what is not strictly between 0 and 1."""
    if not 0 < value < 1:
        raise InvalidInput(field, value, "a number between 0 and 1")


def alternatives(null: float) -> Numbers:
    """The grid r_l for a null value q: failure probabilities of 0.9 delta, 0.8 delta, ... 0.1 delta."""
    check_probability("null", null)
    return null + (1 - null) * np.array(GAINS)


def log_martingale(successes: npt.ArrayLike, episodes: npt.ArrayLike, null: float) -> Numbers:
    """log M after ``episodes`` with that many ``successes``: arrays of any one shape.

    Args:
        successes: How many episodes succeeded.
        episodes: How many were played.
        null: The success probability that is tested: 1 - delta.

    Returns:
        The logarithms, of the same shape; log(1 / alpha) rejects.
    """
    won = np.asarray(successes, dtype=np.float64)
    lost = np.asarray(episodes, dtype=np.float64) - won
    total = np.full(np.broadcast(won, lost).shape, -np.inf)
    for rate in alternatives(null):
        total = np.logaddexp(total, won * math.log(rate / null) + lost * math.log((1 - rate) / (1 - null)))
    return np.asarray(total - math.log(len(GAINS)))


def log_path(outcomes: npt.ArrayLike, null: float) -> Numbers:
    """log M_1 ... log M_n along the last axis, for successes and failures in the order in which they came."""
    won = np.cumsum(np.asarray(outcomes, dtype=np.float64), axis=-1)
    return log_martingale(won, np.arange(1, won.shape[-1] + 1), null)


def first_crossing(path: Numbers, alpha: float) -> npt.NDArray[np.int64]:
    """How many episodes it took to reach 1 / alpha, along the last axis; 0 where that never happened."""
    check_probability("alpha", alpha)
    crossed = path >= -math.log(alpha)
    return np.where(crossed.any(axis=-1), crossed.argmax(axis=-1) + 1, 0)


def success_lower_bound(outcomes: npt.ArrayLike, alpha: float) -> float:
    """The largest q such that the null p <= q is rejected at level ``alpha`` by one sequence of episodes.

    The test above, inverted over its null value. M_t falls as q grows (the gain of a success does, the loss of a
    failure stays), so the rejected values are all those below this one. The true p is rejected with probability
    at most alpha, however the number of episodes was decided: the bound holds at any stopping time. It is at
    least 1 - delta exactly where the test of 1 - delta crossed; after an early acceptance it is hardly above.

    Args:
        outcomes: Successes (true) and failures, in the order in which they came.
        alpha: The level.

    Returns:
        The bound, between 0 and 1.
    """
    won = np.cumsum(np.asarray(outcomes, dtype=np.float64))
    episodes = np.arange(1, len(won) + 1)

    def rejected(null: float) -> bool:
        return bool(np.any(log_martingale(won, episodes, null) >= -math.log(alpha)))

    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low


def back_loaded_budgets(alpha: float, checks: int, growth: float = 1.5) -> tuple[float, ...]:
    """alpha (g - 1) g^(m - 1) / (g^M - 1) for m = 1 ... M: later checkpoints, likely the better, get more.

    With growth 1 they are equal. The guarantee only needs that they sum to alpha.
    """
    check_probability("alpha", alpha)
    if checks < 1:
        raise InvalidInput("checks", checks, "a whole number of at least 1")
    if not 1 <= growth < math.inf:
        raise InvalidInput("growth", growth, "a number from 1 (uniform) up")
    # From the last down, so that nothing overflows.
    weights = growth ** -np.arange(checks - 1.0, -1.0, -1.0)
    return tuple((alpha * weights / weights.sum()).tolist())
