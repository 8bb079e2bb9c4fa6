"""How far along a run is, and what follows from it: learning rate, exploration, horizon."""

import math

from cicpe.beliefs.budget import Budget as Budget


def learning_rate(peak: float, progress: float, warmup: float = 0.02) -> float:
    """A short linear rise, then a cosine down to 1 % of the peak."""
    if progress < warmup:
        return peak * (0.1 + 0.9 * progress / warmup)
    return peak * (0.01 + 0.99 * (1 + math.cos(math.pi * progress)) / 2)


SATURATED_SUCCESS = 0.985
"""Success at the smallest epsilon with which a horizon is long enough."""
LEAST_SUCCESS = 0.97
"""Success at the horizon below which it is too short."""


def adapted_horizon(horizon: int, limit: int, success: list[float], before: float) -> int:
    """The horizon to go on with, from the success rate at every prefix for the smallest epsilon.

    Where success saturates early, a third more than that time is enough. Where it falls short, more time
    is what is missing only if success still rises towards the horizon and training has stopped raising it
    there since the last snapshot (``before``). Otherwise it is training that is missing, and longer episodes
    would leave less of it.
    """
    saturated = next((t for t, rate in enumerate(success) if rate >= SATURATED_SUCCESS), None)
    if saturated is not None:
        return max(4, min(horizon, math.ceil(1.3 * saturated) + 3))
    rising = success[-1] >= success[int(0.8 * horizon)] + 0.01 and success[-1] >= max(success) - 0.01
    if rising and success[-1] < min(LEAST_SUCCESS, before + 0.03):
        return max(horizon, min(limit, math.ceil(1.25 * horizon)))
    return horizon
