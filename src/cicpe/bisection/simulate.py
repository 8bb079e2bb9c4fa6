"""Bisections played on simulated flaky tests, many together: how often the stop is right, and after how many runs."""

from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from cicpe.bisection.belief import CulpritBelief, CulpritState, Flags, Positions
from cicpe.bisection.rates import Numbers
from cicpe.bisection.rules import Rule, cheapest, expected_entropy

FORECAST_SIZE, FORECAST_RUNS = 3000, 200
"""Commits times simulated bisections of a forecast, and their most runs, so that it takes a fraction of a second."""


class FlakyTasks(NamedTuple):
    """Hidden truths, one entry per bisection: the culprit (0: none) and the failure rates on both sides of it."""

    culprit: Positions
    before: Numbers
    after: Numbers

    def run(self, position: Positions, rng: np.random.Generator) -> Flags:
        """Runs every test once: whether it fails."""
        rate = np.where((self.culprit > 0) & (self.culprit <= position), self.after, self.before)
        return rng.random(len(rate)) < rate

    def take(self, which: Flags) -> "FlakyTasks":
        """Some of them."""
        return FlakyTasks(self.culprit[which], self.before[which], self.after[which])


class BisectionOutcomes(NamedTuple):
    """How simulated bisections ended, one entry each."""

    runs: Positions
    answer: Positions
    """The culprit that was named; 0 where it was said that there is none, -1 where the cap was reached."""


@final
@dataclass(frozen=True)
class BisectionEnd:
    """When a bisection ends: at a confidence, or at a number of runs."""

    confidence: float
    cap: int


def play_bisections(
    belief: CulpritBelief,
    rule: Rule,
    tasks: FlakyTasks,
    stop: BisectionEnd,
    seed: int,
    state: CulpritState | None = None,
    may_run: Flags | None = None,
) -> BisectionOutcomes:
    """Plays bisections to their stop: each ends where its own posterior reaches the confidence.

    Args:
        belief: The prior that all of them have.
        rule: Prices of the commits.
        tasks: The hidden truths.
        stop: When each ends.
        seed: Seeds the runs.
        state: What is known at the start, one entry per task; None for nothing.
        may_run: Flags of the commits that can be run, from 0 to ``n_commits``; None for all.

    Returns:
        Runs and answers, in the order of the tasks.
    """
    rng = np.random.default_rng(seed)
    size = len(tasks.culprit)
    runs, answer = np.full(size, stop.cap), np.full(size, -1)
    under_way = np.arange(size)
    state = belief.begin(size) if state is None else state
    for n_runs in range(stop.cap + 1):
        culprit, nothing = belief.posterior(state)
        absent = nothing >= stop.confidence
        ended = absent | (culprit.max(axis=1) >= stop.confidence)
        runs[under_way[ended]] = n_runs
        answer[under_way[ended]] = np.where(absent, 0, culprit.argmax(axis=1) + 1)[ended]
        if n_runs == stop.cap or bool(ended.all()):
            break
        under_way, tasks = under_way[~ended], tasks.take(~ended)
        state = type(state)(*(part[~ended] for part in state))
        position = cheapest(rule(belief, state), may_run)
        state = belief.update(state, position, tasks.run(position, rng))
    return BisectionOutcomes(runs, answer)


def forecast(
    belief: CulpritBelief, state: CulpritState, stop: BisectionEnd, may_run: Flags, seed: int = 0
) -> tuple[float, float, float]:
    """How many more runs to expect: bisections drawn from the posterior are played on to their end.

    Args:
        belief: The prior.
        state: What is known of the one bisection.
        stop: When it ends; the cap counts from here.
        may_run: Flags of the commits that can be run.
        seed: Seeds the draws.

    Returns:
        The median, and the lower and the upper quartile; at most ``FORECAST_RUNS``.
    """
    rng = np.random.default_rng(seed)
    size = int(np.clip(FORECAST_SIZE // belief.n_commits, 9, 33))
    tasks = _draw_tasks(belief, state, size, rng)
    copies = type(state)(*(np.repeat(part, size, axis=0) for part in state))
    within = BisectionEnd(stop.confidence, min(stop.cap, FORECAST_RUNS))
    runs = play_bisections(belief, expected_entropy, tasks, within, seed + 1, copies, may_run).runs
    low, middle, high = np.quantile(runs, [0.25, 0.5, 0.75])
    return float(middle), float(low), float(high)


def _draw_tasks(belief: CulpritBelief, state: CulpritState, size: int, rng: np.random.Generator) -> FlakyTasks:
    """Hidden truths from the posterior of one bisection."""
    posterior = belief.posterior(state)
    weight = np.append(posterior.culprit[0], posterior.nothing[0])
    index = rng.choice(len(weight), size, p=weight / weight.sum())
    nothing = index == belief.n_commits
    same = rng.beta(np.repeat(state.same_fails, size), np.repeat(state.same_passes, size))
    at = np.minimum(index, belief.n_commits - 1)
    a, b, c, d = (shape[0, at] for shape in state[:4])
    before, after = rng.beta(c, d), rng.beta(a, b)
    for _ in range(
        200 if belief.rates.ordered else 0
    ):  # by rejection; where the order is all but refuted, not for ever
        wrong = after <= before
        if not wrong.any():
            break
        before[wrong], after[wrong] = rng.beta(c[wrong], d[wrong]), rng.beta(a[wrong], b[wrong])
    return FlakyTasks(np.where(nothing, 0, index + 1), np.where(nothing, same, before), np.where(nothing, same, after))
