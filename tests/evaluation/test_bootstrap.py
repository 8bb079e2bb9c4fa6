"""The three-level bootstrap against SciPy, against closed forms, and against a wrong one."""

import time

import numpy as np
import pytest
from scipy import stats

from cicpe.errors import InvalidInput
from cicpe.evaluation.bootstrap import bootstrap_mean, paired_difference, replicate_means


def test_one_level_agrees_with_scipy() -> None:
    values = np.random.default_rng(0).gamma(2.0, size=200)
    ours = bootstrap_mean(values[None, :, None], replicates=20_000)
    theirs = stats.bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=1).confidence_interval
    width = theirs.high - theirs.low
    assert ours.value == pytest.approx(values.mean())
    assert ours.low == pytest.approx(theirs.low, abs=0.03 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.03 * width)


@pytest.mark.parametrize("shape", [(6, 1, 1), (1, 40, 1), (1, 1, 30), (5, 30, 8)])
def test_the_variance_is_that_of_resampling_every_level(shape: tuple[int, int, int]) -> None:
    """Var = V_seed/S + V_task/(S N) + V_trajectory/(S N R), each the variance of what is drawn at its level."""
    rng = np.random.default_rng(2)
    seeds, tasks, _ = shape
    values = rng.normal(size=(seeds, 1, 1)) + rng.normal(size=(seeds, tasks, 1)) + rng.normal(size=shape)
    by_task = values.mean(axis=2)
    expected = (
        by_task.mean(axis=1).var() / seeds
        + by_task.var(axis=1).mean() / (seeds * tasks)
        + values.var(axis=2).mean() / values.size
    )
    found = replicate_means(values, 20_000, rng).var()
    assert found == pytest.approx(expected, rel=0.06)


def test_ignoring_the_levels_would_be_too_narrow() -> None:
    """The negative control: as one flat sample, trajectories of a task look like so many tasks."""
    rng = np.random.default_rng(3)
    values = np.broadcast_to(rng.normal(size=(1, 50, 1)), (1, 50, 20))
    nested, flat = bootstrap_mean(values), bootstrap_mean(values.reshape(1, -1, 1))
    assert (nested.high - nested.low) > 3 * (flat.high - flat.low)


def test_pairs_cancel_what_tasks_share() -> None:
    rng = np.random.default_rng(4)
    task = 10 * rng.normal(size=(1, 100, 1))
    ours, theirs = task + rng.normal(size=task.shape), task + 1 + rng.normal(size=task.shape)
    paired = paired_difference(ours, theirs)
    assert paired.high < 0
    assert paired.high - paired.low < 0.2 * (bootstrap_mean(ours).high - bootstrap_mean(ours).low)


def test_the_papers_size_takes_seconds() -> None:
    values = np.random.default_rng(5).random((3, 300, 15))
    began = time.perf_counter()
    bootstrap_mean(values, replicates=2000)
    assert time.perf_counter() - began < 4


@pytest.mark.parametrize("values", [np.zeros((2, 3)), np.zeros((1, 0, 1)), np.full((1, 2, 1), np.nan)])
def test_bad_values_are_refused(values: np.ndarray) -> None:
    with pytest.raises(InvalidInput, match="values"):
        bootstrap_mean(values)


def test_pairs_must_match() -> None:
    with pytest.raises(InvalidInput, match="same tasks"):
        paired_difference(np.zeros((1, 3, 1)), np.zeros((1, 4, 1)))
