"""Races of the ready-made kinds of experiment against what a laboratory would use instead, on the same tasks and at the same accuracy.

    python benchmarks/laboratory.py                                     # all races; writes docs/results/laboratory.json and .md
    python benchmarks/laboratory.py --races resonance --tasks 500       # one race, at most so many tasks per method
    python benchmarks/laboratory.py --page                              # only the page, from the figures that there are

Every method plays held-out tasks past its stop; its threshold is the one that just reaches the accuracy that the experiment asks for, and is
then measured on fresh tasks. What was measured is kept part by part, so that an interrupted run goes on, and one with more tasks adds to it.
questplus and BoTorch come with the extras `races` and `baselines`.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rivals.exact import PointBayes
from rivals.exact_peak import SmoothPeakBayes
from rivals.quest import QuestPlusPlayer
from rivals.staircase import Staircase, by_reversals
from rivals.tuning import PlayedOn, ScoreOf, Tally, by_confidence, by_spread, choose_threshold, play_on
from torch import Tensor

import cicpe
from cicpe.baselines.regret_bounds import RegretBounds
from cicpe.episodes.play import Player, never, play
from cicpe.errors import CicpeError
from cicpe.experiments import Experiment
from cicpe.files import write_json
from cicpe.model import Model
from cicpe.problems import Problem, TaskBatch
from cicpe.streams import stream

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
ZOO = ROOT / "src" / "cicpe" / "zoo"
SEED = 60
"""Of the fresh tasks; the held-out ones have the next."""
DRAWN = 2000
"""Tasks that are drawn for a race; a method plays the first of them."""
PATIENCE = 4
"""How many times the experiment's limit a staircase may measure: it has no other way to be sure."""


class RaceSetting(NamedTuple):
    """One experiment, and where its model lies."""

    kind: str
    zoo: Path
    seed: int

    @property
    def experiment(self) -> Experiment:
        return Experiment.read(self.kind)

    @property
    def model(self) -> Model:
        return cicpe.load(str(self.zoo / self.kind))


@dataclass(frozen=True)
class Race:
    """The tasks of one experiment, and what counts as right."""

    setting: RaceSetting

    @cached_property
    def experiment(self) -> Experiment:
        return self.setting.experiment

    @cached_property
    def problem(self) -> Problem:
        return self.experiment.problem()

    @property
    def limit(self) -> int:
        return self.experiment.goal.at_most

    @property
    def epsilon(self) -> float:
        epsilon = self.problem.units.epsilon
        assert epsilon is not None
        return epsilon

    @property
    def sure(self) -> float:
        return self.experiment.goal.sure

    @cached_property
    def fresh(self) -> TaskBatch:
        return TaskBatch.draw(self.problem, DRAWN, stream(self.setting.seed, "comparison", "tasks"))

    @cached_property
    def held_out(self) -> TaskBatch:
        return TaskBatch.draw(self.problem, DRAWN, stream(self.setting.seed + 1, "comparison", "tasks"))

    @property
    def tolerance(self) -> float:
        """In the unit of the first thing that is sought."""
        return self.problem.units.answers[0].slope(0.0) * self.epsilon

    @property
    def goal(self) -> str:
        """What is asked for, in the experiment's units."""
        units = self.problem.units
        names = " and ".join(one.name for one in units.answers)
        return f"{names} within {units.tolerance_words(self.epsilon)}, at most {self.limit} measurements"

    def words(self, threshold: float, score: ScoreOf) -> str:
        """Where a method stops, as one would say it."""
        if not math.isfinite(threshold):
            return "the limit"
        if score is by_confidence:
            return f"probability {threshold:.3f}"
        if score is by_reversals:
            return f"{threshold:.0f} reversals"
        answer = self.problem.units.answers[0]
        return f"standard deviation {-threshold * answer.slope(0.0):.3g} {answer.unit}"


Makes = Callable[[Race], Player[Any]]


@dataclass(frozen=True)
class Method:
    """How a method plays, and how it is compared."""

    variants: dict[str, Makes]
    """Settings of its own; the best one on the held-out tasks is measured."""
    score: ScoreOf
    enough: Callable[[Race], float]
    """A score beyond which no threshold is looked for."""
    tuned_on: int
    tasks: int
    part: int = 500
    """Tasks that are played together, after which figures are kept."""
    fixed: dict[str, Callable[[Race], float]] = field(default_factory=dict)
    """Other thresholds that are measured on the way, by what they are called; one may be refused."""


def _surely(race: Race) -> float:
    return 0.97


def _as_it_ships(race: Race) -> float:
    """The confidence, as it is shown, at which a session of the ready-made model stops."""
    agent = race.setting.model.agent(race.epsilon, 1 - race.sure, stop="each")
    shown = agent.stops_at(agent.begin(race.fresh.context[:1]))
    assert shown is not None
    return float(shown[0])


def _narrowly(race: Race) -> float:
    return -0.4 * race.epsilon


def staircase(down: int, last_step: float) -> Makes:
    """A staircase whose last step is that share of the tolerance, with the shift that it needs on held-out tasks."""

    def make(race: Race) -> Staircase:
        step = last_step * race.tolerance
        plain = Staircase(race.problem, PATIENCE * race.limit, down, max(8 * step, race.tolerance), step)
        tasks = race.held_out
        *_, end = play(plain, tasks, stream(race.setting.seed + 1, "comparison", "shift"), ends=never)
        off = (end.proposal.recommendation - tasks.target)[:, 0].mean()
        shift = -float(off) * race.problem.units.answers[0].slope(0.0)
        return Staircase(plain.problem, plain.horizon, down, plain.first_step, step, shift=shift)

    return make


def _staircases(down: int) -> Method:
    variants = {f"last step {share:g} of the tolerance": staircase(down, share) for share in (0.25, 0.5, 1.0)}
    return Method(variants, by_reversals, lambda race: 200.0, DRAWN, DRAWN, DRAWN)


EXACT = Method(
    {"": lambda race: PointBayes(race.problem, race.epsilon, race.limit)}, by_confidence, _surely, DRAWN, DRAWN, 200
)
OURS = Method(
    {"": lambda race: race.setting.model.unstopped(race.epsilon)},
    by_confidence,
    _surely,
    600,
    1000,
    200,
    fixed={"as it ships": _as_it_ships},
)
QUEST = Method(
    {"": lambda race: QuestPlusPlayer(race.problem, race.experiment, race.limit)},
    by_spread,
    _narrowly,
    250,
    500,
    50,
)
RACES: dict[str, dict[str, Method]] = {
    "psychometric-2afc": {
        "ours": OURS,
        "exact Bayes": EXACT,
        "questplus": QUEST,
        "3-down-1-up staircase": _staircases(3),
    },
    "psychometric-yes-no": {
        "ours": OURS,
        "exact Bayes": EXACT,
        "questplus": QUEST,
        "1-down-1-up staircase": _staircases(1),
    },
    "resonance": {
        "ours": OURS,
        "exact Bayes": Method(
            {"": lambda race: PointBayes(race.problem, race.epsilon, race.limit, points=4096, draws=144, settings=71)},
            by_confidence,
            _surely,
            1000,
            1000,
            50,
        ),
        "sequential design": Method(
            {
                "": lambda race: PointBayes(
                    race.problem, race.epsilon, race.limit, "variance", points=4096, draws=144, settings=71
                )
            },
            by_spread,
            _narrowly,
            1000,
            1000,
            50,
        ),
    },
    "peak-2d": {
        "ours": OURS,
        "exact Bayes": Method(
            {
                "most of the peak explained": lambda race: SmoothPeakBayes(race.problem, race.epsilon, race.limit),
                "highest mean plus two deviations": lambda race: SmoothPeakBayes(
                    race.problem, race.epsilon, race.limit, rule="upper"
                ),
            },
            by_confidence,
            _surely,
            200,
            500,
            20,
        ),
        "GP-UCB": Method(
            {"": lambda race: RegretBounds(race.problem, race.epsilon, 1 - race.sure, race.limit)},
            by_confidence,
            _surely,
            150,
            300,
            10,
            fixed={"as it comes": lambda race: race.sure},
        ),
    },
}
WORDS = {
    "ours": "the ready-made model, its threshold chosen as for the others",
    "ours, as it ships": "the ready-made model with the stop rule and the calibrated threshold of a session (`each`)",
    "exact Bayes": "the posterior on a lattice with the true likelihood; stops at its own probability of success",
    "questplus": "the package questplus, its posterior's standard deviation as the stop",
    "3-down-1-up staircase": "mean of the reversals, less a constant shift from its level 0.794 to the one that is sought",
    "1-down-1-up staircase": "mean of the reversals",
    "sequential design": "the same posterior; measures where the predicted mean varies most, stops at the standard deviation",
    "GP-UCB": "BoTorch, hyperparameters fitted at every step, paths of its posterior; stops at a share of them",
}


class Sizes(NamedTuple):
    """Tasks per method at most; slow methods play fewer."""

    tasks: int
    tuned_on: int


def tune(race: Race, name: str, method: Method, tasks: int) -> dict[str, Any]:
    """The variant and the threshold that need the fewest measurements at the accuracy that is asked for, on held-out tasks."""
    rows = []
    for variant, make in method.variants.items():
        player = make(race)
        firsts = range(0, tasks, method.part)
        parts = [_played(race, player, method, race.held_out, first, tasks) for first in firsts]
        played = PlayedOn(*(torch.cat(column) for column in zip(*parts, strict=True)))
        threshold = choose_threshold(played, race.sure)
        ends = Tally()
        ends.add(*played.at(math.inf if threshold is None else threshold))
        rows.append(
            {
                "variant": variant,
                "reached": threshold is not None,
                "threshold": None if threshold is None or math.isinf(threshold) else threshold,
                "tuning": ends.figures(player.horizon),
                "horizon": player.horizon,
            }
        )
        print(race.setting.kind, name, rows[-1], flush=True)

    def worse(row: dict[str, Any]) -> tuple[bool, float]:
        """Those that reach the accuracy first, by their measurements; the others by how far they get."""
        return not row["reached"], row["tuning"]["measurements"] if row["reached"] else -row["tuning"]["accuracy"]

    return min(rows, key=worse)


def _played(
    race: Race,
    player: Player[Any],
    method: Method,
    tasks: TaskBatch,
    first: int,
    last: int,
    enough: float | None = None,
) -> PlayedOn:
    """One part of the tasks, played until a score; without one, until no threshold would be looked for."""
    rows = torch.arange(first, min(first + method.part, last))
    score = method.enough(race) if enough is None else enough
    rng = stream(race.setting.seed, "comparison", race.setting.kind, first, tasks is race.fresh)
    return play_on(player, tasks.select(rows), race.epsilon, method.score, score, rng)


class Kept:
    """The figures so far, by race and method."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.figures: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def row(self, kind: str, method: str) -> dict[str, Any]:
        found: dict[str, Any] = self.figures.setdefault("races", {}).setdefault(kind, {}).setdefault(method, {})
        return found

    def write(self) -> None:
        write_json(self.path, self.figures)


def measure(race: Race, name: str, method: Method, sizes: Sizes, kept: Kept) -> None:
    """Tunes a method where that was not done on so many tasks, and plays fresh ones up to a number of them."""
    row, start = kept.row(race.setting.kind, name), time.process_time()
    tuned_on, last = min(sizes.tuned_on, method.tuned_on), min(sizes.tasks, method.tasks)
    if row.get("tuning", {"tasks": 0})["tasks"] < tuned_on:
        tuned = tune(race, name, method, tuned_on)
        for words in (name, *(f"{name}, {words}" for words in method.fixed)):
            kept.row(race.setting.kind, words).clear()  # what another threshold has given
        row.update(tuned, tuning_seconds=time.process_time() - start)
        kept.write()
    threshold = math.inf if row["threshold"] is None else row["threshold"]
    thresholds = {name: threshold} | _fixed(race, name, method, kept)
    player: Player[Any] | None = None
    while (done := Tally(row.get("ends")).episodes) < last:
        player = player or method.variants[row["variant"]](race)
        start = time.process_time()
        played = _played(race, player, method, race.fresh, done, last, max(thresholds.values()))
        seconds = time.process_time() - start
        for words, value in thresholds.items():
            own = kept.row(race.setting.kind, words)
            _add(own, *played.at(value), player.horizon)
            own["stops_at"] = race.words(value, method.score)
        row["processor_seconds"] = row.get("processor_seconds", 0.0) + seconds
        print(race.setting.kind, name, {key: row[key] for key in ("tasks", "accuracy", "measurements")}, flush=True)
        kept.write()


def _fixed(race: Race, name: str, method: Method, kept: Kept) -> dict[str, float]:
    """The other thresholds of a method, by the names of their rows; what refuses one is kept in its place."""
    found = {}
    for words, threshold in method.fixed.items():
        try:
            found[f"{name}, {words}"] = threshold(race)
        except CicpeError as error:
            kept.row(race.setting.kind, f"{name}, {words}")["refused"] = str(error)
    return found


def _add(row: dict[str, Any], measurements: Tensor, success: Tensor, horizon: int) -> None:
    ends = Tally(row.get("ends"))
    ends.add(measurements, success)
    row["ends"] = ends.to_json()
    row.update(ends.figures(horizon))


def main() -> None:
    """Runs the races that were asked for, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--races", nargs="+", choices=list(RACES), default=list(RACES))
    parser.add_argument("--methods", nargs="+", help="of these races; all where not given")
    parser.add_argument("--tasks", type=int, default=DRAWN, help="per method, at most; slow methods play fewer")
    parser.add_argument("--tuned-on", type=int, default=DRAWN, help="held-out tasks per method, at most, likewise")
    parser.add_argument("--seed", type=int, default=SEED, help="of the fresh tasks; the held-out ones have the next")
    parser.add_argument("--zoo", type=Path, default=ZOO, help="the folder of the ready-made models")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where laboratory.json and laboratory.md are")
    parser.add_argument("--page", action="store_true", help="only the page, from the figures that there are")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    kept = Kept(asked.out / "laboratory.json")
    if kept.figures.setdefault("seed", asked.seed) != asked.seed:
        parser.error(f"--seed must be {kept.figures['seed']}, which {kept.path} was measured with; got {asked.seed}")
    for kind in [] if asked.page else asked.races:
        race = Race(RaceSetting(kind, asked.zoo, asked.seed))
        for name, method in RACES[kind].items():
            if asked.methods is None or name in asked.methods:
                measure(race, name, method, Sizes(asked.tasks, asked.tuned_on), kept)
    (asked.out / "laboratory.md").write_text(page(kept.figures, asked.zoo), encoding="utf-8")


def entry(row: dict[str, Any]) -> str:
    """Stop, accuracy, measurements, tasks and how many went to the limit, as cells of a table."""
    if "refused" in row:
        return f"refused: {row['refused']} | | | | |"
    if "tasks" not in row:
        return "not measured | | | | |"
    accuracy, measurements = row["accuracy_ci"], row["measurements_ci"]
    reached = "" if row.get("reached", True) else " (short of it on held-out tasks too)"
    return (
        f"{row['stops_at']}{reached} | {row['accuracy']:.3f} ({accuracy[0]:.3f} to {accuracy[1]:.3f}) | "
        f"{row['measurements']:.1f} ({measurements[0]:.1f} to {measurements[1]:.1f}) | {row['tasks']:,} | "
        f"{row['at_the_limit']:.1%} |"
    )


def names_of(kind: str) -> list[str]:
    """The rows of a race, in order."""
    names = []
    for name, method in RACES[kind].items():
        names += [f"{name}, {words}" for words in method.fixed] + [name]
    return names


def race_table(figures: dict[str, Any]) -> str:
    """All races in one table."""
    lines = [
        "| experiment | method | stops at | accuracy | measurements | tasks | at its limit |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in RACES:
        rows = figures.get("races", {}).get(kind, {})
        lines += [f"| {kind} | {name} | {entry(rows.get(name, {}))}" for name in names_of(kind)]
    return "\n".join(lines)


def verdicts(figures: dict[str, Any]) -> str:
    """In words, race by race: our measurements over those of the others, and whose accuracy is short of what was asked for."""
    lines = []
    for kind in RACES:
        rows = figures.get("races", {}).get(kind, {})
        measured = {name: rows[name] for name in names_of(kind) if "tasks" in rows.get(name, {})}
        if "ours" not in measured:
            continue
        ratios = [
            f"{measured['ours']['measurements'] / row['measurements']:.2f} of {name}"
            for name, row in measured.items()
            if not name.startswith("ours")
        ]
        sure = Experiment.read(kind).goal.sure
        short = [name for name, row in measured.items() if row["accuracy_ci"][1] < sure]
        missed = f" Below {sure:g} beyond chance: {'; '.join(short)}." if short else ""
        lines.append(f"- {kind}: ours makes {', '.join(ratios)}.{missed}")
    return "\n".join(lines)


def tuned_on(figures: dict[str, Any]) -> str:
    """From how few to how many held-out tasks thresholds were chosen on."""
    rows = [row for race in figures.get("races", {}).values() for row in race.values()]
    counts = sorted(row["tuning"]["tasks"] for row in rows if "tuning" in row)
    return f"{counts[0]:,} to {counts[-1]:,}" if counts else "no"


def goals(zoo: Path, seed: int) -> str:
    return "\n".join(f"- *{kind}*: {Race(RaceSetting(kind, zoo, seed)).goal}." for kind in RACES)


def methods_words() -> str:
    return "\n".join(f"- *{name}*: {words}." for name, words in WORDS.items())


def models_words(zoo: Path) -> str:
    """Which recipe each model had, and how long it was trained."""
    known = []
    for kind in RACES:
        if (zoo / kind / "config.json").exists():
            about = cicpe.load(str(zoo / kind)).description
            known.append(f"{kind}: recipe `{about.recipe}`, {about.minutes:.1f} minutes")
    return "; ".join(known) or "none was there"


def bisection_table() -> str:
    """The rows of docs/results/bisection.json that answer the same question."""
    file = RESULTS / "bisection.json"
    race: dict[str, Any] = json.loads(file.read_text())["race"] if file.exists() else {}
    names = ("floor, rates known", "ours", "git_bayesect", "git_bayesect, our prior")
    lines = ["| commits | fails after / before | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    for cell, row in race.items():
        commits, after, before = cell.split()
        entries = [
            f"{row[name]['mean_runs']:.1f}; {row[name]['accuracy']:.3f}" if name in row else "not measured"
            for name in names
        ]
        lines.append(f"| {commits} | {after} / {before} | " + " | ".join(entries) + " |")
    return "\n".join(lines)


def page(figures: dict[str, Any], zoo: Path = ZOO) -> str:
    """The whole page."""
    seed = figures.get("seed", SEED)
    return TEXT.format(
        table=race_table(figures),
        verdicts=verdicts(figures),
        goals=goals(zoo, seed),
        methods=methods_words(),
        models=models_words(zoo),
        bisection=bisection_table(),
        tuned_on=tuned_on(figures),
        seed=seed,
        held_out=seed + 1,
        patience=PATIENCE,
    )


TEXT = """# In the laboratory

The ready-made kinds of experiment beside what a laboratory would use instead, on the same tasks, at the same accuracy: how many measurements until the answer is within the tolerance in 9 of 10 campaigns?

{table}

{verdicts}

Intervals are 95 %, exact for accuracies and normal for means. *At its limit* is the share of campaigns that never stopped by themselves. An entry that is not measured is measured when the command
is run again; `--tasks` and `--tuned-on` say on how many tasks, and what is there is added to.

## What is asked for

{goals}

## The methods

Each is at its best honest setting: its stop threshold is the one that just reaches 0.9 on held-out tasks (seed {held_out}; of the settings of its own that were tried, the best there), and is then measured on fresh ones
(seed {seed}), the first of the same 2,000 for every method. Thresholds were chosen on {tuned_on} tasks, so that an
accuracy may end up above or below 0.9 (the lowest threshold that still reaches it there is more often too low than too high); compare measurements with that in mind.

{methods}

Every method but the staircases is told all that the experiment file says: the form of the curve and the ranges of its unknowns. questplus has no logistic curve; for *psychometric-yes-no* it is given
a normal one of the same width. It was given the experiment's prior on its own grid, and its standard deviation is that of the setting at the level that is sought. A staircase may measure up to {patience} times the experiment's
limit, since it has no other way to become sure; its step is the best of three. *GP-UCB, as it comes* stops at 0.9 of its paths, as the rule says, without any tuning.

Our models: {models} ([how they were trained](../how-to/ready-made.md)).

## Flaky tests

`cicpe bisect` beside git_bayesect at a confidence of 0.95: mean runs, and the share that named the right commit. These are the figures of [the page on bisection](bisection.md), which has their intervals and their command.

{bisection}

Made by `python benchmarks/laboratory.py` (`pip install 'cicpe[races,baselines]'`).
"""

if __name__ == "__main__":
    main()
