"""The stop keeps its word on simulated bisections, and the tests of it would notice one that does not."""

import numpy as np
import pytest
from scipy.stats import binom

from cicpe.bisection.belief import CulpritBelief
from cicpe.bisection.rates import BetaShape, RatePrior
from cicpe.bisection.rules import expected_entropy
from cicpe.bisection.simulate import BisectionEnd, BisectionOutcomes, FlakyTasks, forecast, play_bisections

CONFIDENCE, ALPHA = 0.9, 1e-3
SURE_OF_ITSELF = CulpritBelief(15, RatePrior(BetaShape(1, 200), BetaShape(200, 1)))
"""The negative control: a belief that takes every failure for a proof."""


def tasks_of_the_prior(belief: CulpritBelief, n: int) -> FlakyTasks:
    rng = np.random.default_rng(3)
    before, after = belief.rates.before, belief.rates.after
    low, high = rng.beta(before.fails, before.passes, 20 * n), rng.beta(after.fails, after.passes, 20 * n)
    low, high = low[high > low][:n], high[high > low][:n]
    culprit = np.where(rng.random(n) < belief.nothing, 0, rng.integers(1, belief.n_commits + 1, n))
    same = rng.beta(after.fails, after.passes, n)
    return FlakyTasks(culprit, np.where(culprit == 0, same, low), np.where(culprit == 0, same, high))


def refuted(outcomes: BisectionOutcomes, tasks: FlakyTasks) -> bool:
    """Whether the share of right answers, of those that stopped, refutes the confidence by an exact binomial test."""
    stopped = outcomes.answer >= 0
    right = int((outcomes.answer == tasks.culprit)[stopped].sum())
    return bool(binom.cdf(right, int(stopped.sum()), CONFIDENCE) < ALPHA)


@pytest.mark.parametrize("n_commits", [1, 2, 15])
def test_of_tasks_from_the_prior_as_many_stops_are_right_as_stated(n_commits: int) -> None:
    belief = CulpritBelief(n_commits)
    tasks = tasks_of_the_prior(belief, 300)
    outcomes = play_bisections(belief, expected_entropy, tasks, BisectionEnd(CONFIDENCE, 150), seed=4)
    assert (outcomes.answer >= 0).mean() > 0.6
    assert not refuted(outcomes, tasks)


def test_a_stop_that_is_too_sure_is_noticed() -> None:
    tasks = tasks_of_the_prior(CulpritBelief(15), 300)
    outcomes = play_bisections(SURE_OF_ITSELF, expected_entropy, tasks, BisectionEnd(CONFIDENCE, 150), seed=4)
    assert refuted(outcomes, tasks)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 1.0])
def test_where_the_rates_are_equal_no_commit_is_blamed(rate: float) -> None:
    belief = CulpritBelief(15)
    none = FlakyTasks(np.zeros(100, dtype=np.int64), np.full(100, rate), np.full(100, rate))
    blamed = play_bisections(belief, expected_entropy, none, BisectionEnd(0.95, 150), seed=5).answer > 0
    assert blamed.mean() <= 0.08
    control = play_bisections(SURE_OF_ITSELF, expected_entropy, none, BisectionEnd(0.95, 150), seed=5).answer > 0
    assert rate != 0.5 or control.mean() > 0.3


def test_a_test_that_always_tells_is_bisected() -> None:
    tasks = FlakyTasks(np.arange(1, 33), np.zeros(32), np.ones(32))
    outcomes = play_bisections(CulpritBelief(32), expected_entropy, tasks, BisectionEnd(0.95, 100), seed=6)
    assert (outcomes.answer == tasks.culprit).all()
    assert outcomes.runs.max() <= 16


def test_the_cap_is_kept_and_its_bisections_are_unanswered() -> None:
    tasks = FlakyTasks(np.full(20, 9), np.full(20, 0.2), np.full(20, 0.3))
    outcomes = play_bisections(CulpritBelief(15), expected_entropy, tasks, BisectionEnd(0.99, 7), seed=7)
    assert (outcomes.runs == 7).all()
    assert (outcomes.answer == -1).all()


def test_a_forecast_is_about_right() -> None:
    """Drawn from the prior, half of all bisections end within the median, and half between the ends."""
    belief = CulpritBelief(15)
    middle, low, high = forecast(belief, belief.begin(), BisectionEnd(0.9, 150), np.ones(16, dtype=bool))
    runs = play_bisections(
        belief, expected_entropy, tasks_of_the_prior(belief, 200), BisectionEnd(0.9, 150), seed=8
    ).runs
    assert 0.2 < (runs <= middle).mean() < 0.8
    assert 0.2 < ((runs >= low) & (runs <= high)).mean() < 0.85
