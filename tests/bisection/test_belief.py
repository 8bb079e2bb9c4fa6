"""The posterior of the culprit: exact fractions for whole shapes, closed forms for others, and laws of probability."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cicpe.bisection.belief import CulpritBelief, CulpritState
from cicpe.bisection.rates import BetaShape, RatePrior, log_beta
from cicpe.bisection.rules import cheapest, expected_entropy
from cicpe.errors import InvalidInput
from exact_beta import beta_function, order_probability

Runs = list[tuple[int, bool]]


def after_runs(belief: CulpritBelief, runs: Runs) -> CulpritState:
    state = belief.begin()
    for position, failed in runs:
        state = belief.update(state, np.array([position]), np.array([failed]))
    return state


def counts(runs: Runs, culprit: int) -> tuple[int, int, int, int]:
    """Failures and passes from the culprit on, and before it."""
    return tuple(
        sum((position >= culprit) is late and failed is bad for position, failed in runs)
        for late in (True, False)
        for bad in (True, False)
    )  # type: ignore[return-value]


def exact_posterior(shapes: tuple[int, int, int, int], n: int, nothing: Fraction, runs: Runs) -> list[Fraction]:
    """Bayes' rule in fractions; the last entry is that there is no culprit."""

    def evidence(a: int, b: int, c: int, d: int) -> Fraction:
        return beta_function(a, b) * beta_function(c, d) * order_probability(a, b, c, d)

    weight = []
    for culprit in range(1, n + 1):
        now = [shape + count for shape, count in zip(shapes, counts(runs, culprit), strict=True)]
        weight.append((1 - nothing) / n * evidence(*now) / evidence(*shapes))
    fails = sum(failed for _, failed in runs)
    a, b = shapes[:2]
    weight.append(nothing * beta_function(a + fails, b + len(runs) - fails) / beta_function(a, b))
    return [one / sum(weight) for one in weight]


@settings(max_examples=60, deadline=None)
@given(
    shapes=st.tuples(*[st.integers(1, 4)] * 4),
    runs=st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30),
)
def test_the_posterior_is_bayes_rule_in_fractions(shapes: tuple[int, int, int, int], runs: Runs) -> None:
    a, b, c, d = shapes
    belief = CulpritBelief(5, RatePrior(BetaShape(c, d), BetaShape(a, b)), 0.125)
    posterior = belief.posterior(after_runs(belief, runs))
    exact = exact_posterior(shapes, 5, Fraction(1, 8), runs)
    assert np.append(posterior.culprit[0], posterior.nothing) == pytest.approx([float(one) for one in exact], abs=1e-9)


def test_a_history_that_refutes_the_order_keeps_its_digits() -> None:
    """The test fails before and passes after: every P(after > before) is tiny, and their ratios still decide."""
    runs = [(1, True)] * 60 + [(4, False)] * 60 + [(2, True), (3, False)] * 5
    belief = CulpritBelief(5, RatePrior(BetaShape(1, 1), BetaShape(1, 1)), 0.0)
    state = after_runs(belief, runs)
    exact = exact_posterior((1, 1, 1, 1), 5, Fraction(0), runs)
    assert float(state.log_order.min()) < math.log(1e-12)
    assert belief.posterior(state).culprit[0] == pytest.approx([float(one) for one in exact[:-1]], rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(runs=st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=60))
def test_without_an_order_it_is_beta_and_bernoulli(runs: Runs) -> None:
    shape = BetaShape(0.5, 0.5)
    belief = CulpritBelief(9, RatePrior(shape, shape, ordered=False), 0.1)
    log_weight = []
    for culprit in range(1, 10):
        f, p, g, q = counts(runs, culprit)
        log_weight.append(
            math.log(0.9 / 9) + sum(log_beta(0.5 + x, 0.5 + y) - log_beta(0.5, 0.5) for x, y in ((f, p), (g, q)))
        )
    fails = sum(failed for _, failed in runs)
    log_weight.append(math.log(0.1) + log_beta(0.5 + fails, 0.5 + len(runs) - fails) - log_beta(0.5, 0.5))
    weight = np.exp(np.array(log_weight) - max(log_weight))
    posterior = belief.posterior(after_runs(belief, runs))
    assert np.append(posterior.culprit[0], posterior.nothing) == pytest.approx(weight / weight.sum(), abs=1e-11)


def test_expected_rates_are_ratios_of_exact_integrals() -> None:
    runs = [(2, True), (2, False), (0, True), (4, True), (1, False)]
    belief = CulpritBelief(4, RatePrior(BetaShape(2, 3), BetaShape(1, 2)))
    means = belief.means(after_runs(belief, runs))

    def evidence(a: int, b: int, c: int, d: int) -> Fraction:
        return beta_function(a, b) * beta_function(c, d) * order_probability(a, b, c, d)

    for culprit in range(1, 5):
        a, b, c, d = (x + y for x, y in zip((1, 2, 2, 3), counts(runs, culprit), strict=True))
        whole = evidence(a, b, c, d)
        assert means.after[0, culprit - 1] == pytest.approx(float(evidence(a + 1, b, c, d) / whole), abs=1e-12)
        assert means.before[0, culprit - 1] == pytest.approx(float(evidence(a, b, c + 1, d) / whole), abs=1e-12)


def entropy(belief: CulpritBelief, state: CulpritState) -> float:
    posterior = belief.posterior(state)
    p = np.append(posterior.culprit[0], posterior.nothing)
    return float(-(p[p > 0] * np.log(p[p > 0])).sum())


@settings(max_examples=25, deadline=None)
@given(runs=st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=25))
def test_the_price_is_the_entropy_after_both_outcomes(runs: Runs) -> None:
    """The lookahead by sums agrees with making each run in both ways, and probabilities are a martingale."""
    belief = CulpritBelief(6)
    state = after_runs(belief, runs)
    now, means = belief.posterior(state), belief.means(state)
    price = expected_entropy(belief, state)[0]
    for position in range(7):
        is_after = np.arange(1, 7) <= position
        chance = float(
            now.culprit[0] @ np.where(is_after, means.after[0], means.before[0]) + now.nothing[0] * means.same[0]
        )
        at = np.array([position])
        failed, passed = (belief.update(state, at, np.array([outcome])) for outcome in (True, False))
        assert price[position] == pytest.approx(
            chance * entropy(belief, failed) + (1 - chance) * entropy(belief, passed), abs=1e-9
        )
        mixed = chance * belief.posterior(failed).culprit + (1 - chance) * belief.posterior(passed).culprit
        assert mixed[0] == pytest.approx(now.culprit[0], abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(runs=st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=25), seed=st.integers(0, 99))
def test_the_order_of_runs_does_not_matter_nor_the_company(runs: Runs, seed: int) -> None:
    belief = CulpritBelief(6)
    shuffled = [runs[i] for i in np.random.default_rng(seed).permutation(len(runs))]
    one, other = (belief.posterior(after_runs(belief, order)).culprit for order in (runs, shuffled))
    assert one == pytest.approx(other, abs=1e-9)
    together = belief.begin(2)
    for (i, f), (j, g) in zip(runs, shuffled, strict=True):
        together = belief.update(together, np.array([i, j]), np.array([f, g]))
    assert belief.posterior(together).culprit == pytest.approx(np.concatenate([one, other]), abs=1e-12)


def test_of_equal_prices_the_middle_one_is_run_and_a_skipped_one_never() -> None:
    assert cheapest(np.zeros((1, 7))).tolist() == [3]
    may_run = np.array([True, True, False, False, False, False, True])
    assert cheapest(np.zeros((1, 7)), may_run).tolist() == [1]


@pytest.mark.parametrize(("n", "nothing"), [(0, 0.1), (3, 1.0), (3, -0.1), (3, math.nan)])
def test_priors_that_cannot_be(n: int, nothing: float) -> None:
    with pytest.raises(InvalidInput, match="must be"):
        CulpritBelief(n, nothing=nothing)
