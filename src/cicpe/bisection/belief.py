"""Exact Bayes for the culprit: which commit changed the failure rate, with both rates unknown.

The commits are a chain: 0 is the good one, ``n_commits`` the bad one, and the culprit is one of 1 to ``n_commits``. A
run at commit i fails with the rate *after* where the culprit is at most i, and with the rate *before* otherwise. There
may be no culprit at all: then every run fails with the same rate, and the prior says how likely that is.

For each culprit the rates have independent Beta posteriors with shapes (a, b) after and (c, d) before, restricted to
after > before where the prior says so. With g = P(after > before) and h = B(a + c, b + d) / (B(a, b) B(c, d)),

    g(a + 1) = g + h / a,   g(b + 1) = g - h / b,   g(c + 1) = g - h / c,   g(d + 1) = g + h / d,

so that a run moves everything by a few arithmetic operations, without an integral. The evidence of a run is the
predictive probability of its outcome: of a failure after, for instance, ``a / (a + b) (1 + h / (a g))``.

NumPy alone, so that a command starts at once, and batched, so that many simulated bisections are played together. The
interface is that of every belief (begin, update, read), but its queries and answers are commits, not points of a box.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from cicpe.bisection.rates import USUAL_RATES, Numbers, RatePrior, log_order_probability, log_overlap
from cicpe.errors import InvalidInput

Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

RELIABLE = 1e-5
"""Below this, sums and differences have cost P(after > before) its digits, and it is integrated anew."""


class CulpritState(NamedTuple):
    """What some runs have shown, ``batch x commit`` where nothing else is said; entry j is of the culprit j + 1."""

    after_fails: Numbers
    after_passes: Numbers
    before_fails: Numbers
    before_passes: Numbers
    log_order: Numbers
    """Logarithm of P(after > before), of the unrestricted posterior."""
    log_overlap: Numbers
    log_weight: Numbers
    """Logarithm of prior times evidence."""
    same_fails: Numbers
    """Shapes of the one rate where there is no culprit, per bisection."""
    same_passes: Numbers
    log_nothing: Numbers
    """Logarithm of prior times evidence where there is no culprit, per bisection."""


class CulpritPosterior(NamedTuple):
    """Probabilities: they add up to one."""

    culprit: Numbers
    """``batch x commit``; entry j is of the culprit j + 1."""
    nothing: Numbers
    """Per bisection, that no commit changed the rate."""


class RateMeans(NamedTuple):
    """Expected failure rates of the next run, given the culprit."""

    before: Numbers
    after: Numbers
    same: Numbers
    """Where there is no culprit, per bisection."""


@final
@dataclass(frozen=True)
class CulpritBelief:
    """The belief in where the culprit is, for a chain of commits and a prior."""

    n_commits: int
    """Commits after the good one, up to the bad one: each may be the culprit."""
    rates: RatePrior = USUAL_RATES
    nothing: float = 0.05
    """Probability, before the first run, that no commit of the chain changed the rate."""

    def __post_init__(self) -> None:
        if self.n_commits < 1:
            raise InvalidInput("commits", self.n_commits, "at least 1 from good to bad")
        if not 0 <= self.nothing < 1:
            raise InvalidInput("nothing", self.nothing, "a probability from 0 to below 1")

    def begin(self, batch: int = 1) -> CulpritState:
        """The state before the first run."""
        shape = (batch, self.n_commits)
        after, before = self.rates.after, self.rates.before
        a, b, c, d = (np.full(shape, value) for value in (after.fails, after.passes, before.fails, before.passes))
        log_order, overlap = 0.0, -math.inf
        if self.rates.ordered:
            log_order = float(log_order_probability(a[0, :1], b[0, :1], c[0, :1], d[0, :1])[0])
            overlap = log_overlap(after, before)
        return CulpritState(
            a,
            b,
            c,
            d,
            np.full(shape, log_order),
            np.full(shape, overlap),
            np.full(shape, math.log((1 - self.nothing) / self.n_commits)),
            np.full(batch, after.fails),
            np.full(batch, after.passes),
            np.full(batch, math.log(self.nothing) if self.nothing else -math.inf),
        )

    def update(self, state: CulpritState, position: Positions, failed: Flags) -> CulpritState:
        """The state after one more run in each bisection.

        Args:
            state: The state so far.
            position: Where each was run, from 0 (good) to ``n_commits`` (bad).
            failed: Whether it failed.

        Returns:
            The new state; the old one is as it was.
        """
        a, b, c, d, log_order, log_overlap_now = state[:6]
        is_after = np.arange(1, self.n_commits + 1) <= position[:, None]
        is_fail = failed[:, None]
        own = np.where(is_after, np.where(is_fail, a, b), np.where(is_fail, c, d))
        both = np.where(is_fail, a + c, b + d)
        own_total = np.where(is_after, a + b, c + d)
        towards = np.where(is_after == is_fail, 1.0, -1.0)
        change = np.log1p(np.maximum(towards * np.exp(log_overlap_now - log_order) / own, -1 + 1e-15))
        moved = CulpritState(
            a + (is_after & is_fail),
            b + (is_after & ~is_fail),
            c + (~is_after & is_fail),
            d + (~is_after & ~is_fail),
            log_order + change,
            log_overlap_now + np.log(both * own_total / ((a + b + c + d) * own)),
            state.log_weight + np.log(own / own_total) + change,
            state.same_fails + failed,
            state.same_passes + ~failed,
            state.log_nothing
            + np.log(np.where(failed, state.same_fails, state.same_passes) / (state.same_fails + state.same_passes)),
        )
        return _integrated_anew(moved)

    def posterior(self, state: CulpritState) -> CulpritPosterior:
        """The probability of every culprit, and that there is none."""
        largest = np.maximum(state.log_weight.max(axis=1), state.log_nothing)
        culprit = np.exp(state.log_weight - largest[:, None])
        nothing = np.exp(state.log_nothing - largest)
        total = culprit.sum(axis=1) + nothing
        return CulpritPosterior(culprit / total[:, None], nothing / total)

    def means(self, state: CulpritState) -> RateMeans:
        """The failure rates that each culprit leads to expect."""
        a, b, c, d = state[:4]
        ratio = np.exp(state.log_overlap - state.log_order)
        after = a / (a + b) * (1 + ratio / a)
        before = np.maximum(c / (c + d) * (1 - ratio / c), 0.0)
        return RateMeans(before, after, state.same_fails / (state.same_fails + state.same_passes))


def _integrated_anew(state: CulpritState) -> CulpritState:
    """The state with every P(after > before) that differences have spoilt integrated anew."""
    row, column = np.nonzero(state.log_order < math.log(RELIABLE))
    if len(row) == 0:
        return state
    shapes = np.stack([shape[row, column] for shape in state[:4]])
    distinct, where = np.unique(shapes, axis=1, return_inverse=True)  # commits between two runs share their counts
    exact = log_order_probability(*distinct)[where.ravel()]
    log_order, log_weight = state.log_order.copy(), state.log_weight.copy()
    log_weight[row, column] += exact - log_order[row, column]
    log_order[row, column] = exact
    return state._replace(log_order=log_order, log_weight=log_weight)
