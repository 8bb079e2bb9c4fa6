"""The mixture martingale: its formula, its mean under the null, its error rates, its budgets and its lower bound."""

import math
import time

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from cicpe.certification.martingale import (
    alternatives,
    back_loaded_budgets,
    first_crossing,
    log_martingale,
    log_path,
    success_lower_bound,
)
from cicpe.errors import InvalidInput

ALPHA = 0.05


def coins(p: float, models: int, episodes: int, seed: int = 0) -> npt.NDArray[np.bool_]:
    return np.random.default_rng(seed).random((models, episodes)) < p


def certified(p: float, models: int, episodes: int, null: float = 0.9, seed: int = 0) -> float:
    """Share of simulated models with success probability ``p`` that are certified."""
    crossed = first_crossing(log_path(coins(p, models, episodes, seed), null), ALPHA)
    return float((crossed > 0).mean())


def test_the_grid_is_the_papers_at_nine_tenths_and_scales_with_delta() -> None:
    assert alternatives(0.9) == pytest.approx([0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99])
    grid = alternatives(0.99)
    assert (1 - grid) / 0.01 == pytest.approx((1 - alternatives(0.9)) / 0.1)
    for bad in (0.0, 1.0, math.nan):
        with pytest.raises(InvalidInput, match="null"):
            alternatives(bad)


@pytest.mark.parametrize("null", [0.6, 0.9, 0.99])
def test_the_path_is_the_mixture_written_out(null: float) -> None:
    outcomes = coins(0.93, 1, 60, seed=3)[0]
    expected = []
    for t in range(1, 61):
        won = int(outcomes[:t].sum())
        terms = [(r / null) ** won * ((1 - r) / (1 - null)) ** (t - won) for r in alternatives(null)]
        expected.append(math.log(sum(terms) / 9))
    assert log_path(outcomes, null) == pytest.approx(expected, abs=1e-10)


def test_a_hundred_thousand_episodes_neither_overflow_nor_underflow() -> None:
    assert log_path(np.ones(100_000), 0.5)[-1] > 60_000
    assert log_path(np.zeros(100_000), 0.5)[-1] < -10_000
    assert np.isfinite(log_path(np.zeros(100_000), 0.99)).all()


@pytest.mark.parametrize("null", [0.7, 0.9])
@pytest.mark.parametrize("episodes", [1, 5, 40])
def test_under_the_null_it_is_a_martingale_exactly(null: float, episodes: int) -> None:
    """E[M_n] = sum over the number of successes: 1 at p = q, less below, more above (the negative control)."""
    won = np.arange(episodes + 1)
    value = np.exp(log_martingale(won, episodes, null))

    def mean(p: float) -> float:
        return float((binom.pmf(won, episodes, p) * value).sum())

    assert mean(null) == pytest.approx(1, abs=1e-10)
    assert mean(null - 0.05) < 1
    assert mean(null + 0.05) > 1


def test_its_simulated_mean_is_one_within_monte_carlo_error() -> None:
    final = np.exp(log_path(coins(0.9, 40_000, 20, seed=1), 0.9)[:, -1])
    assert abs(final.mean() - 1) < 4 * final.std() / len(final) ** 0.5


def test_no_more_false_certificates_than_alpha_at_exactly_the_null() -> None:
    """400 models at 0.90, 4,000 episodes each. The tolerance: a rate of alpha exceeds it once in 1,000 times."""
    most = binom.ppf(0.999, 400, ALPHA) / 400
    began = time.perf_counter()
    rate = certified(0.9, 400, 4000)
    assert time.perf_counter() - began < 3
    assert rate <= most


def test_looking_every_time_without_a_martingale_fails_that_test() -> None:
    """The negative control: an exact binomial test at level alpha, looked at after every episode."""
    won = np.cumsum(coins(0.9, 400, 2000), axis=1)
    looks = np.arange(20, 2000)
    p_values = binom.sf(won[:, looks] - 1, looks + 1, 0.9)
    assert (p_values <= ALPHA).any(axis=1).mean() > binom.ppf(0.999, 400, ALPHA) / 400


def test_power_and_refusal() -> None:
    assert certified(0.88, 100, 20_000, seed=2) <= 0.05
    assert certified(0.95, 400, 2000, seed=3) >= 0.99
    assert certified(0.91, 100, 20_000, seed=4) >= 0.8
    assert certified(0.995, 400, 4000, null=0.99, seed=5) >= 0.8


def test_the_first_crossing_is_the_first() -> None:
    path = np.log(np.array([[1.0, 19.9, 20.1, 3.0, 30.0], [1.0, 2.0, 3.0, 4.0, 5.0], [21.0, 1.0, 1.0, 1.0, 1.0]]))
    assert first_crossing(path, 0.05).tolist() == [3, 0, 1]
    with pytest.raises(InvalidInput, match="alpha"):
        first_crossing(path, 0.0)


# --- the lower bound --------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "seed"), [(0.95, 0), (0.9, 1), (0.85, 2), (0.99, 3)])
def test_the_lower_bound_is_the_test_inverted(p: float, seed: int) -> None:
    outcomes = coins(p, 1, 800, seed)[0]
    bound = success_lower_bound(outcomes, ALPHA)
    assert log_path(outcomes, bound - 1e-6).max() >= math.log(20)
    assert log_path(outcomes, bound + 1e-6).max() < math.log(20)


def test_the_lower_bound_holds_when_one_stops_at_the_best_moment() -> None:
    """Stopping where the bound is highest is what a running maximum does; it may fail with probability alpha."""
    p, failures = 0.9, 0
    for outcomes in coins(p, 300, 1500, seed=7):
        failures += success_lower_bound(outcomes, ALPHA) >= p
    assert failures / 300 <= binom.ppf(0.999, 300, ALPHA) / 300


def test_the_lower_bound_at_the_ends() -> None:
    assert success_lower_bound(np.zeros(50), ALPHA) == 0
    assert 0.99 < success_lower_bound(np.ones(2000), ALPHA) < 1
    assert success_lower_bound(np.zeros(0), ALPHA) == 0


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.floats(0.05, 0.94))
def test_the_evidence_falls_as_the_null_value_grows(outcomes: list[bool], null: float) -> None:
    assert (log_path(outcomes, null) >= log_path(outcomes, null + 0.05) - 1e-9).all()


# --- budgets ----------------------------------------------------------------------------------------


@given(st.floats(1e-6, 0.5), st.integers(1, 200), st.floats(1.0, 20.0))
def test_budgets_sum_to_alpha_and_rise(alpha: float, checks: int, growth: float) -> None:
    budgets = back_loaded_budgets(alpha, checks, growth)
    assert len(budgets) == checks
    assert math.fsum(budgets) == pytest.approx(alpha, rel=1e-12)
    assert list(budgets) == sorted(budgets)


def test_budgets_are_the_papers() -> None:
    assert back_loaded_budgets(0.05, 4, growth=1.0) == pytest.approx([0.0125] * 4)
    gamma, checks = 2.0, 6
    expected = [0.05 * (gamma - 1) * gamma ** (m - 1) / (gamma**checks - 1) for m in range(1, checks + 1)]
    assert back_loaded_budgets(0.05, checks, gamma) == pytest.approx(expected)
    for bad in ({"checks": 0}, {"growth": 0.5}, {"alpha": 1.5}):
        with pytest.raises(InvalidInput, match=next(iter(bad))):
            back_loaded_budgets(**({"alpha": 0.05, "checks": 3} | bad))  # type: ignore[arg-type]


def test_a_budget_over_checkpoints_holds_for_all_of_them_together() -> None:
    """Ten checkpoints at exactly 0.90: a run with any false certificate is as rare as alpha."""
    outcomes = coins(0.9, 4000, 1500, seed=9)
    wrong = np.zeros(400, dtype=bool)
    for k, alpha in enumerate(back_loaded_budgets(ALPHA, 10)):
        wrong |= first_crossing(log_path(outcomes[k * 400 : (k + 1) * 400], 0.9), alpha) > 0
    assert wrong.mean() <= binom.ppf(0.999, 400, ALPHA) / 400
