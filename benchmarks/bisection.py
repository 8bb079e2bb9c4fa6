"""Flaky bisection: our stop beside the program git_bayesect, a floor with known rates, and other rules for the next commit.

    python benchmarks/bisection.py            # about an hour on one core; writes docs/results/bisection.json and .md
    python benchmarks/bisection.py --page     # only the page, from the figures that there are

A cell is a number of commits (the good one and the bad one included) and two failure rates. The culprit is uniform among the commits after
the good one. Every method gets the same culprits, stops at a posterior probability of 0.95, and is charged one run per run.
git_bayesect (the extra `races`) is driven in-process: its own ``select``, ``record`` and ``distribution``, as its command ``run``
calls them. Figures are kept per cell and method, so that an interrupted run goes on.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cicpe.bisection.belief import CulpritBelief, CulpritPosterior, RateMeans
from cicpe.bisection.rates import BetaShape, RatePrior
from cicpe.bisection.rules import expected_entropy
from cicpe.bisection.simulate import BisectionEnd, BisectionOutcomes, FlakyTasks, play_bisections
from cicpe.files import write_json
from cicpe.statistics import clopper_pearson

RESULTS = Path(__file__).parent.parent / "docs" / "results"
RATES = ((1.0, 0.0), (0.9, 0.05), (0.5, 0.0), (0.5, 0.05), (0.3, 0.1))
SIZES = (64, 256)
CONFIDENCE, CAP, SEED = 0.95, 3000, 20
JEFFREYS = RatePrior(BetaShape(0.5, 0.5), BetaShape(0.5, 0.5), ordered=False)
OURS = CulpritBelief(2)
"""The defaults."""


class Cell(NamedTuple):
    commits: int
    after: float
    before: float

    @property
    def name(self) -> str:
        return f"{self.commits} {self.after:g} {self.before:g}"


def tasks_of(cell: Cell, episodes: int, seed: int = SEED) -> FlakyTasks:
    culprit = np.random.default_rng(seed).integers(1, cell.commits, episodes)
    return FlakyTasks(culprit, np.full(episodes, cell.before), np.full(episodes, cell.after))


class KnownState(NamedTuple):
    log_weight: np.ndarray


class KnownRates:
    """The floor: the same belief where the two rates are known, and that there is a culprit."""

    def __init__(self, cell: Cell) -> None:
        self.n_commits, self.before, self.after = cell.commits - 1, cell.before, cell.after

    def begin(self, batch: int) -> KnownState:
        return KnownState(np.full((batch, self.n_commits), -math.log(self.n_commits)))

    def update(self, state: KnownState, position: np.ndarray, failed: np.ndarray) -> KnownState:
        rate = np.where(np.arange(1, self.n_commits + 1) <= position[:, None], self.after, self.before)
        likelihood = np.where(failed[:, None], rate, 1 - rate)
        return KnownState(state.log_weight + np.log(np.maximum(likelihood, 1e-300)))

    def posterior(self, state: KnownState) -> CulpritPosterior:
        weight = np.exp(state.log_weight - state.log_weight.max(axis=1, keepdims=True))
        return CulpritPosterior(weight / weight.sum(axis=1, keepdims=True), np.zeros(len(weight)))

    def means(self, state: KnownState) -> RateMeans:
        ones = np.ones_like(state.log_weight)
        return RateMeans(self.before * ones, self.after * ones, np.zeros(len(ones)))


def theirs(cell: Cell, episodes: int, shapes: dict[str, float], oldest: float | None) -> BisectionOutcomes:
    """git_bayesect as its command ``run`` drives it; index 0 is the newest commit, and the oldest means that nothing changed."""
    from git_bayesect import Bisector

    tasks, rng = tasks_of(cell, episodes), np.random.default_rng(SEED + 1)
    runs, answer = np.full(episodes, CAP), np.full(episodes, -1)
    last = cell.commits - 1
    for episode in range(episodes):
        weights = np.ones(cell.commits)
        if oldest is not None:
            weights[:last], weights[last] = (1 - oldest) / last, oldest
        bisector = Bisector(weights, **shapes)
        task = FlakyTasks(*(part[episode : episode + 1] for part in tasks))
        for n_runs in range(1, CAP + 1):
            index = bisector.select()
            bisector.record(index, bool(task.run(np.array([last - index]), rng)[0]))
            if bisector.distribution.max() >= CONFIDENCE:
                runs[episode], answer[episode] = n_runs, last - int(bisector.distribution.argmax())
                break
    return BisectionOutcomes(runs, answer)


def ours(
    belief: Any, cell: Cell, episodes: int, rule: Callable[..., Any] = expected_entropy, cap: int = CAP
) -> BisectionOutcomes:
    return play_bisections(belief, rule, tasks_of(cell, episodes), BisectionEnd(CONFIDENCE, cap), SEED + 1)


def distance_from_half(belief: CulpritBelief, state: Any) -> np.ndarray:
    """Posterior bisection: how far the probability that the culprit is at or before a commit is from one half."""
    culprit = belief.posterior(state).culprit
    before = np.concatenate([np.zeros((len(culprit), 1)), np.cumsum(culprit, axis=1)], axis=1)
    return np.abs(before / culprit.sum(axis=1, keepdims=True) - 0.5)


def remaining_runs(belief: CulpritBelief, state: Any) -> np.ndarray:
    """Lookahead on the expected remaining runs: entropy over what one run tells with the rates as they will then be estimated.

    The estimate of runs is the usual one of noisy search, H / C, with C the information of a run at even odds. Both outcomes of a run at
    every commit are tried in full, so the rule is slow.
    """
    size, n = state.log_weight.shape[0], belief.n_commits
    price = np.empty((size, n + 1))
    chance = expected_failure(belief, state)
    for position in range(n + 1):
        at, total = np.full(size, position), 0.0
        for failed in (True, False):
            after = belief.update(state, at, np.full(size, failed))
            culprit, nothing = belief.posterior(after)
            entropy = -(culprit * np.log(np.maximum(culprit, 1e-300))).sum(axis=1) - nothing * np.log(
                np.maximum(nothing, 1e-300)
            )
            means = belief.means(after)
            told = ((culprit * information_per_run(means.before, means.after)).sum(axis=1)).clip(1e-4)
            total = total + (chance[:, position] if failed else 1 - chance[:, position]) * entropy / told
        price[:, position] = total
    return price


def expected_failure(belief: CulpritBelief, state: Any) -> np.ndarray:
    culprit, nothing = belief.posterior(state)
    means = belief.means(state)
    after, before = (
        np.cumsum(culprit * means.after, axis=1),
        np.cumsum((culprit * means.before)[:, ::-1], axis=1)[:, ::-1],
    )
    none = np.zeros((len(culprit), 1))
    return (
        np.concatenate([none, after], axis=1) + np.concatenate([before, none], axis=1) + (nothing * means.same)[:, None]
    )


def information_per_run(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    def entropy(p: np.ndarray) -> np.ndarray:
        return -p * np.log(np.maximum(p, 1e-300)) - (1 - p) * np.log(np.maximum(1 - p, 1e-300))

    return entropy((before + after) / 2) - (entropy(before) + entropy(after)) / 2


def with_prior(shape: BetaShape, cell: Cell, episodes: int) -> BisectionOutcomes:
    belief = CulpritBelief(cell.commits - 1, RatePrior(before=shape))
    tasks = tasks_of(cell, episodes, PRIOR_SEED)
    return play_bisections(belief, expected_entropy, tasks, BisectionEnd(CONFIDENCE, CAP), PRIOR_SEED + 1)


def figures(cell: Cell, episodes: int, outcomes: BisectionOutcomes, seconds: float, seed: int = SEED) -> dict[str, Any]:
    culprit = tasks_of(cell, episodes, seed).culprit
    right = int((outcomes.answer == culprit).sum())
    low, high = clopper_pearson(right, episodes)
    half = 1.96 * float(outcomes.runs.std(ddof=1)) / math.sqrt(episodes)
    mean = float(outcomes.runs.mean())
    return {
        "episodes": episodes,
        "accuracy": right / episodes,
        "accuracy_ci": [float(low), float(high)],
        "mean_runs": mean,
        "mean_runs_ci": [mean - half, mean + half],
        "median_runs": float(np.median(outcomes.runs)),
        "said_nothing_changed": int((outcomes.answer == 0).sum()),
        "capped": int((outcomes.answer == -1).sum()),
        "processor_seconds_per_run": seconds / float(outcomes.runs.sum()),
    }


METHODS: dict[str, Callable[[Cell, int], BisectionOutcomes]] = {
    "floor, rates known": lambda cell, n: ours(KnownRates(cell), cell, n),
    "ours": lambda cell, n: ours(CulpritBelief(cell.commits - 1), cell, n),
    "ours, their prior": lambda cell, n: ours(CulpritBelief(cell.commits - 1, JEFFREYS, 1 / cell.commits), cell, n),
    "git_bayesect": lambda cell, n: theirs(cell, n, {}, None),
    "git_bayesect, our prior": lambda cell, n: theirs(
        cell,
        n,
        {
            "alpha_new": OURS.rates.after.fails,
            "beta_new": OURS.rates.after.passes,
            "alpha_old": OURS.rates.before.fails,
            "beta_old": OURS.rates.before.passes,
        },
        OURS.nothing,
    ),
}
RULES = {"entropy": expected_entropy, "half": distance_from_half, "remaining": remaining_runs}
RULE_CELLS = [Cell(16, after, before) for after, before in RATES[:4]]
RULE_EPISODES, RULE_CAP = 100, 150
PRIORS = {
    f"before Beta({one.fails:g}, {one.passes:g})": one
    for one in (
        OURS.rates.before,
        BetaShape(0.5, 2),
        BetaShape(0.5, 0.5),
        BetaShape(1, 4),
        BetaShape(1, 1),
    )
}
PRIOR_EPISODES, PRIOR_SEED = 400, 41
EQUAL = (0.02, 0.2, 0.5, 0.9)
EQUAL_CAP = 400


def measure(kept: dict[str, Any], path: Path, episodes: int) -> None:
    def keep(
        part: str, cell: Cell, method: str, play: Callable[[], BisectionOutcomes], n: int, seed: int = SEED
    ) -> None:
        row = kept.setdefault(part, {}).setdefault(cell.name, {})
        if method in row:
            return
        start = time.process_time()
        row[method] = figures(cell, n, play(), time.process_time() - start, seed)
        print(part, cell.name, method, row[method]["mean_runs"], row[method]["accuracy"], flush=True)
        write_json(path, kept)

    kept["settings"] = {"confidence": CONFIDENCE, "cap": CAP, "seed": SEED}
    for cell in RULE_CELLS:
        for name, rule in RULES.items():
            belief = CulpritBelief(cell.commits - 1)
            keep("rules", cell, name, partial(ours, belief, cell, RULE_EPISODES, rule, RULE_CAP), RULE_EPISODES)
    for rate in EQUAL:
        cell = Cell(64, rate, rate)
        none = FlakyTasks(np.zeros(episodes, dtype=np.int64), np.full(episodes, rate), np.full(episodes, rate))
        play = partial(
            play_bisections, CulpritBelief(63), expected_entropy, none, BisectionEnd(CONFIDENCE, EQUAL_CAP), SEED
        )
        keep("equal", cell, "ours", play, episodes)
    for after, before in RATES:
        cell = Cell(64, after, before)
        for name, shape in PRIORS.items():
            play = partial(with_prior, shape, cell, PRIOR_EPISODES)
            keep("priors", cell, name, play, PRIOR_EPISODES, PRIOR_SEED)
    cells = [Cell(commits, after, before) for after, before in RATES for commits in SIZES]
    for methods in (list(METHODS)[:3], list(METHODS)[3:]):
        for cell in cells:
            for name in methods:
                # Their decisions cannot be made together for many bisections, and the last row is long.
                n = (
                    episodes // 3
                    if name.startswith("git_bayesect") and (cell.after, cell.before) == RATES[-1]
                    else episodes
                )
                keep("race", cell, name, partial(METHODS[name], cell, n), n)


def entry(found: dict[str, Any] | None) -> str:
    if found is None:
        return "not measured"
    runs, accuracy = found["mean_runs_ci"], found["accuracy_ci"]
    capped = f", {found['capped']} capped" if found["capped"] else ""
    capped += f", {found['episodes']} episodes" if found["episodes"] != 300 else ""
    return f"{found['mean_runs']:.1f} ({runs[0]:.1f} to {runs[1]:.1f}); {found['accuracy']:.3f} ({accuracy[0]:.3f} to {accuracy[1]:.3f}){capped}"


def table(kept: dict[str, Any], part: str, methods: list[str]) -> str:
    lines = ["| commits | fails after / before | " + " | ".join(methods) + " |", "|---" * (len(methods) + 2) + "|"]
    for name, row in kept.get(part, {}).items():
        commits, after, before = name.split()
        lines.append(
            f"| {commits} | {after} / {before} | " + " | ".join(entry(row.get(method)) for method in methods) + " |"
        )
    return "\n".join(lines)


def prior_table(kept: dict[str, Any]) -> str:
    """Runs as a multiple of the default's, and accuracy."""
    names = list(PRIORS)
    lines = ["| fails after / before | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for cell, row in kept.get("priors", {}).items():
        _, after, before = cell.split()
        usual = row[names[0]]["mean_runs"]
        entries = [
            f"{row[name]['mean_runs'] / usual:.2f}; {row[name]['accuracy']:.3f}" if name in row else "not measured"
            for name in names
        ]
        lines.append(f"| {after} / {before} | " + " | ".join(entries) + " |")
    return "\n".join(lines)


def equal_table(kept: dict[str, Any]) -> str:
    lines = [
        "| failure rate | episodes | named a culprit | said that nothing changed | still going at the cap |",
        "|---|---|---|---|---|",
    ]
    for name, row in kept.get("equal", {}).items():
        found = row["ours"]
        said, capped, n = found["said_nothing_changed"], found["capped"], found["episodes"]
        lines.append(f"| {name.split()[1]} | {n} | {(n - said - capped) / n:.3f} | {said / n:.3f} | {capped / n:.3f} |")
    return "\n".join(lines)


def ratios(kept: dict[str, Any]) -> str:
    """Our runs over git_bayesect's, where both were measured, and where its accuracy or ours is below what was asked."""
    lines = []
    for name, row in kept.get("race", {}).items():
        commits, after, before = name.split()
        short = [method for method in row if row[method]["accuracy"] < CONFIDENCE]
        parts = [f"accuracy below {CONFIDENCE:g}: {'; '.join(short)}"] if short else []
        for other, words in (("git_bayesect", "as it comes"), ("git_bayesect, our prior", "where it has our prior")):
            if other in row:
                parts.append(f"ours makes {row['ours']['mean_runs'] / row[other]['mean_runs']:.2f} of its runs {words}")
        if parts:
            lines.append(f"- {commits} commits, {after} / {before}: {'; '.join(parts)}.")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--episodes", type=int, default=300)
    args = parser.parse_args()
    path = RESULTS / "bisection.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    if not args.page:
        measure(kept, path, args.episodes)
    prior = OURS.rates
    text = TEXT.format(
        race=table(kept, "race", list(METHODS)),
        ratios=ratios(kept),
        rules=table(kept, "rules", list(RULES)),
        equal=equal_table(kept),
        priors=prior_table(kept),
        prior_episodes=PRIOR_EPISODES,
        prior_seed=PRIOR_SEED,
        half=100 * 1.96 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / PRIOR_EPISODES),
        before=f"Beta({prior.before.fails:g}, {prior.before.passes:g})",
        after=f"Beta({prior.after.fails:g}, {prior.after.passes:g})",
        nothing=OURS.nothing,
        seed=SEED,
        cap=CAP,
        equal_cap=EQUAL_CAP,
        rule_cap=RULE_CAP,
    )
    (RESULTS / "bisection.md").write_text(text)


TEXT = """# Flaky bisection

How many runs of a flaky test it takes to name the commit that made it fail more often, at a confidence of 0.95. `cicpe bisect` is described in
[the how-to](../how-to/bisect.md).

## Beside git_bayesect

300 bisections per entry where no other number is said. Entries are mean runs, with a 95 % interval of the mean, and the share of bisections that named the right commit, with an exact 95 % interval. The good and the bad commit count among the
commits; the culprit is uniform among those after the good one, the same for every method. Rates are fixed per row, which is harder than what the
posterior promises (an average over its prior), so an accuracy may lie below 0.95.

- *floor, rates known*: exact Bayes that is told both failure rates and that there is a culprit, with the same rule for the next commit.
- *ours*: the defaults of `cicpe bisect`: before {before}, after {after}, after > before, and {nothing:g} that nothing changed.
  These were chosen among six priors by such races at 64 commits with other seeds.
- *ours, their prior*: our belief with the prior of git_bayesect 1.2 (both rates Beta(0.5, 0.5), no order, every commit alike, the oldest meaning that nothing changed). The posterior and the rule are then the same
  as its own, in other arithmetic, and so is the outcome, up to the order of random numbers.
- *git_bayesect*: version 1.2 as it comes. *git_bayesect, our prior*: with our two Beta priors and our probability that nothing changed; that after > before cannot be said to it.

{race}

{ratios}

Where git_bayesect has our prior, the two differ little: what is gained over it as it comes is gained by the prior. An entry that is not measured is measured when the command is run again.

## The rule for the next commit

With our prior: the least expected entropy of the culprit; the commit nearest to the posterior's median; the least expected remaining runs (entropy over what a run tells with the rates as they
would then be estimated). 16 commits; at most {rule_cap} runs, after which a bisection counts as wrong. The first is the one that is used.

{rules}

## Other priors

Other priors of the rate before, all else as it is: runs as a multiple of the default's, and the share of bisections that named the right commit. 64 commits, {prior_episodes} bisections per entry
(an accuracy of 0.95 has an interval of about ±{half:.1f} per cent), seed {prior_seed}.

{priors}

At rates that lie close together the default names a wrong commit more often than is stated, and so do the others, as far as so many bisections can tell: a prior that gives the rate before more room gains a
per cent or two there at most, and costs more runs where the test seldom failed before, which is the usual case. None is right everywhere for 5 per cent more runs, so the default stays. Where you know that the two rates
lie close together, ask for a higher `--confidence`.

## Rates that are equal

Where the test fails as often before as after, no commit is to blame. 64 commits, at most {equal_cap} runs:

{equal}

Seed {seed}; at most {cap} runs in the race. Made by `python benchmarks/bisection.py`.
"""

if __name__ == "__main__":
    main()
