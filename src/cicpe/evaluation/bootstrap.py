"""Intervals by the three-level bootstrap: training seeds, tasks, trajectories.

A replicate draws seeds with replacement, for each of them tasks, and for each of those trajectories. With one
seed and one trajectory it is the ordinary bootstrap over tasks.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cicpe.errors import InvalidInput

Values = npt.NDArray[np.float64]
ENTRIES = 2_000_000
"""Numbers that are drawn at once: it bounds the memory."""


class Mean(NamedTuple):
    """A mean with its interval."""

    value: float
    low: float
    high: float

    @property
    def interval(self) -> tuple[float, float]:
        """The two ends."""
        return self.low, self.high


def bootstrap_mean(values: npt.ArrayLike, replicates: int = 10_000, level: float = 0.95, seed: int = 0) -> Mean:
    """The mean of some values and its percentile interval, by a bootstrap over seeds, tasks and trajectories.

    Args:
        values: Finite numbers: seed x task x trajectory.
        replicates: How many resamples.
        level: Coverage of the interval.
        seed: Seeds the resampling.

    Returns:
        The mean with the ends of its interval.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 3 or array.size == 0 or not np.isfinite(array).all():
        raise InvalidInput("values", array.shape, "finite numbers, seed x task x trajectory")
    if replicates < 1 or not 0 < level < 1:
        raise InvalidInput("replicates, level", (replicates, level), "at least one, and a share below one")
    means = replicate_means(array, replicates, np.random.default_rng(seed))
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Mean(float(array.mean()), float(low), float(high))


def replicate_means(values: Values, replicates: int, rng: np.random.Generator) -> Values:
    """The mean of every replicate."""
    seeds, tasks, trajectories = values.shape
    many = max(1, ENTRIES // values.size)
    means = [
        _means(values, min(many, replicates - begin), rng, seeds, tasks, trajectories)
        for begin in range(0, replicates, many)
    ]
    return np.concatenate(means)


def _means(values: Values, count: int, rng: np.random.Generator, seeds: int, tasks: int, trajectories: int) -> Values:
    shape = (count, seeds, tasks, trajectories)
    seed = rng.integers(seeds, size=shape[:2], dtype=np.int32)[..., None, None]
    task = rng.integers(tasks, size=shape[:3], dtype=np.int32)[..., None]
    if trajectories == 1:
        return np.asarray(values[seed[..., 0], task[..., 0], 0].mean(axis=(1, 2)))
    flat = (seed * tasks + task) * trajectories + rng.integers(trajectories, size=shape, dtype=np.int32)
    return np.asarray(values.ravel().take(flat).reshape(count, -1).mean(axis=1))


def paired_difference(
    ours: npt.ArrayLike, theirs: npt.ArrayLike, replicates: int = 10_000, level: float = 0.95, seed: int = 0
) -> Mean:
    """Ours minus theirs on the same seeds, tasks and trajectories: what they share cancels."""
    a, b = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    if a.shape != b.shape:
        raise InvalidInput("theirs", b.shape, f"the shape of ours, {a.shape}: pairs are on the same tasks")
    return bootstrap_mean(a - b, replicates, level, seed)
