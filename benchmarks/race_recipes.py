"""A race between the recipes `fast` and `paper` on one cell of the paper, for processor time on one core.

    python benchmarks/race_recipes.py --minutes 2 --limit 20                       # binary search
    python benchmarks/race_recipes.py --minutes 1 --limit 20 --family best-arm

Both train on one cell alone, the setting of one of the paper's own runs. After `--minutes` of `fast` it is measured:
accuracy on fresh tasks as a function of the mean number of queries (by moving the stop threshold, or stopping after so
many, whichever is better). `paper` trains for `--limit` minutes and is looked at on the way: the same, and what it does
by its own Bellman rule at its present cost, without a calibration. The page has a section per family; a run writes its
own, and keeps the others.
"""

import argparse
import json
import platform
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cicpe.agents.belief_agent import BeliefAgent
from cicpe.agents.stop_rules import STOP_RULES, first_passages
from cicpe.calibration.thresholds import CalibrationRun
from cicpe.episodes.table import RecordSettings
from cicpe.evaluation.evaluate import Evaluation, evaluate_agent
from cicpe.problems import make_problem
from cicpe.training.base import AnyTrainer
from cicpe.training.config import PaperConfig
from cicpe.training.recipes import choose
from cicpe.training.run import freeze
from cicpe.training.schedule import Budget
from cicpe.training.trainers import make_trainer as trainer_of

EPISODES, LOOKED_AT, SEED, LAST_SEED, SPREAD_SEED = 4000, 1000, 77, 78, 79
"""Fresh tasks of a measurement, and of a look on the way; seeds of the measurements, of the last one, and of the tasks
on which the spread of queries is chosen."""
WANTED, MOST_QUERIES = (0.89, 0.93), 1.15
"""What the own rule has to reach: accuracy, and queries as a multiple of the paper's."""
LOOKS = 12


@dataclass(frozen=True)
class Cell:
    """A cell of the paper's tables."""

    family: str
    dim: int
    epsilon: float
    noise: float
    paper: tuple[float, float]
    """Accuracy and queries of the paper's C-ICPE-TS there."""
    best: float
    """The fewest queries of its actors."""
    queries: tuple[float, ...]
    """Mean numbers of queries at which accuracies are compared; the paper's fewest is one of them."""
    actor: str = "ts"
    """The actor of `paper`."""
    settings: tuple[tuple[str, Any], ...] = ()
    """What else is set for `paper`."""


CELLS = {
    "binary-search": Cell("binary-search", 6, 0.2, 0.05, (0.904, 11.1), 10.4, (6.0, 8.0, 10.4, 13.0, 16.0, 20.0)),
    # Uniform queries are the best ones here, as the paper says, and the easiest to learn inference from.
    "best-arm": Cell(
        "best-arm", 5, 0.02, 0.005, (0.939, 7.3), 7.3, (4.0, 5.0, 6.0, 7.3, 9.0, 12.0), "uniform", (("horizon", 14),)
    ),
}


def make_trainer(cell: Cell, recipe: str, minutes: float, seed: int) -> AnyTrainer:
    problem = make_problem(cell.family, dim=cell.dim, noise=cell.noise)
    changes: dict[str, Any] = {"epsilon": (cell.epsilon, cell.epsilon)}
    if recipe == "paper":
        changes |= dict(cell.settings)
    config = choose(recipe, problem, cell.actor if recipe == "paper" else None).config.model_copy(update=changes)
    # CPU seconds of one thread: what a quiet core would need, whatever else the machine is doing.
    return trainer_of(problem, config, Budget(minutes=minutes), seed, clock=time.process_time)


# Measurements.


def measure(trainer: AnyTrainer, cell: Cell) -> dict[str, Any]:
    """Accuracy against mean queries over all confidence thresholds, at the best spread of queries."""
    spreads = tuple(dict.fromkeys(trainer.trained_config.calibration.query_spreads))
    scores = [_curve(trainer, cell, spread, LOOKED_AT, SPREAD_SEED)[0][str(cell.best)] for spread in spreads]
    spread = spreads[int(np.argmax(scores))]
    accuracies, enough = _curve(trainer, cell, spread, EPISODES, SEED)
    return _facts(trainer) | {"spread": spread, "accuracy_at_queries": accuracies, "queries_at_0.90": enough}


def _facts(trainer: AnyTrainer) -> dict[str, Any]:
    facts: dict[str, Any] = {"seconds": round(trainer.at.seconds, 1), "updates": trainer.at.update}
    if isinstance(trainer.config, PaperConfig):
        facts |= {"cost": trainer.at.cost, "moves": trainer.at.dual_started, "horizon": trainer.at.horizon}
    return facts


def _curve(
    trainer: AnyTrainer, cell: Cell, spread: float, episodes: int, seed: int
) -> tuple[dict[str, float], float | None]:
    """Accuracy at some mean numbers of queries, and the fewest with which it is 0.90."""
    settings = RecordSettings((cell.epsilon,), spread)
    records = CalibrationRun(freeze(trainer).belief, trainer.problem, settings).play(episodes, seed)
    success = records.loss[0] <= cell.epsilon
    rows = torch.arange(episodes)
    stops = first_passages(records.confidence[0], STOP_RULES["confidence"].thresholds(None))
    curve = sorted((float(s.float().mean()), float(success[rows, s].float().mean())) for s in stops)
    queries, accuracy = (np.array(column) for column in zip(*curve, strict=True))
    at = {str(q): round(_accuracy_at(q, queries, accuracy, success), 4) for q in cell.queries}
    return at, _first_reaching(queries, accuracy, 0.90)


def _accuracy_at(q: float, queries: np.ndarray, accuracy: np.ndarray, success: Tensor) -> float:
    """The better of stopping by confidence, at a threshold that gives q queries on average, and after q queries."""
    after = np.interp(q, np.arange(success.shape[1]), success.float().mean(dim=0).numpy())
    by_confidence = np.interp(q, queries, accuracy) if queries[0] <= q <= queries[-1] else 0.0
    return float(max(after, by_confidence))


def _first_reaching(queries: np.ndarray, accuracy: np.ndarray, level: float) -> float | None:
    reached = np.nonzero(accuracy >= level)[0]
    return round(float(queries[reached[0]]), 2) if len(reached) else None


def own_stop(trainer: AnyTrainer, cell: Cell, episodes: int, seed: int) -> dict[str, Any]:
    """What the published agent does by its own Bellman rule at its present cost, as `stop="own"` of a model does."""
    config = trainer.trained_config
    assert isinstance(config, PaperConfig)
    plan = config.calibration
    assert len(plan.query_spreads) == 1, "nothing is left to a calibration"
    assert config.own_stop is not None
    threshold = partial(_everywhere, config.own_stop.cost)
    rule, spread = STOP_RULES["own"], plan.query_spreads[0]
    belief, epsilon = freeze(trainer).belief, cell.epsilon
    agent = BeliefAgent(belief, rule, threshold, epsilon, epsilon, spread, plan.minimum_time)
    result: Evaluation = evaluate_agent(agent, trainer.problem, epsilon, episodes, seed)
    names = ("episodes", "accuracy", "accuracy_ci", "mean_queries", "mean_queries_ci", "truncated")
    return {name: getattr(result, name) for name in names}


def _everywhere(cost: float, context: Tensor) -> Tensor:
    return torch.full((len(context),), cost)


# The race.


def trained_fast(cell: Cell, minutes: float, seed: int) -> dict[str, Any]:
    trainer = make_trainer(cell, "fast", minutes, seed)
    while trainer.progress < 1:
        trainer.iterate()
    return measure(trainer, cell)


def looks_at_paper(cell: Cell, limit: float, seed: int) -> Iterator[dict[str, Any]]:
    """What the published recipe has reached from time to time; the last look is a measurement on fresh tasks."""
    trainer = make_trainer(cell, "paper", limit, seed)
    for k in range(1, LOOKS + 1):
        trainer.resume_clock()
        while trainer.progress < (1 if k == LOOKS else k / LOOKS):
            trainer.iterate()
        last = k == LOOKS
        own = own_stop(trainer, cell, EPISODES if last else LOOKED_AT, LAST_SEED if last else SEED)
        yield measure(trainer, cell) | {"own": own}


def race(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The result so far, after every look."""
    cell = CELLS[asked.family]
    result: dict[str, Any] = {
        "cell": {name: getattr(cell, name) for name in ("dim", "epsilon", "noise")},
        "command": f"python benchmarks/race_recipes.py --minutes {asked.minutes:g} --limit {asked.limit:g} "
        f"--seed {asked.seed} --family {asked.family}",
        "commit": subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True
        ).stdout.strip(),
        "date": time.strftime("%Y-%m-%d"),
        "hardware": f"{platform.machine()}, one thread, torch {torch.__version__}",
        "minutes": asked.minutes,
        "limit": asked.limit,
        "fast": trained_fast(cell, asked.minutes, asked.seed),
        "paper": [],
    }
    print(json.dumps({"fast": result["fast"]}), flush=True)
    for look in looks_at_paper(cell, asked.limit, asked.seed):
        print(json.dumps({"paper": look}), flush=True)
        result["paper"].append(look)
        yield result


# The page.


def page(races: dict[str, dict[str, Any]]) -> str:
    lines = [
        "# The race of the recipes",
        "",
        "Written by `python benchmarks/race_recipes.py`: the recipe `fast` and the published one, each trained on one cell of the paper "
        "alone, by processor time on one thread, one seed. Accuracies at equal mean numbers of queries are of the confidence threshold "
        f"that gives them, or of a stop after so many, whichever is better, on {EPISODES} fresh tasks (standard error 0.005 near 0.9). "
        f"The published recipe's own rule is its Bellman comparison at its present cost, without a calibration: on {LOOKED_AT} tasks on "
        f"the way (seed {SEED}, standard error 0.01) and on {EPISODES} others at the end (seed {LAST_SEED}).",
    ]
    for family, result in races.items():
        lines += ["", *section(CELLS[family], result)]
    return "\n".join([*lines, ""])


def section(cell: Cell, result: dict[str, Any]) -> Iterator[str]:
    yield f"## {cell.family}, d = {cell.dim}, epsilon {cell.epsilon:g}, noise {cell.noise:g}"
    yield ""
    yield (
        f"Made by `{result['command']}` on {result['date']} at {result['commit']} ({result['hardware']}). The paper has {cell.paper[0]:g} "
        f"with {cell.paper[1]:g} queries (C-ICPE-TS) and {cell.best:g} at best. `paper` has the actor `{cell.actor}`"
        + "".join(f", `{name}` {value}" for name, value in cell.settings)
        + "."
    )
    yield ""
    columns = [f"acc. at {q:g}" for q in cell.queries]
    heads = ["recipe", "after", "updates", *columns, "queries for 0.90", "own rule: accuracy", "queries", "cost"]
    yield "| " + " | ".join(heads) + " |"
    yield "|---" * len(heads) + "|"
    for name, look in [("fast", result["fast"]), *(("paper", look) for look in result["paper"])]:
        yield "| " + " | ".join(row(cell, name, look)) + " |"
    yield ""
    yield verdict(cell, result)
    yield ""
    yield caught_up(cell, result)


def row(cell: Cell, name: str, look: dict[str, Any]) -> list[str]:
    at, enough, own = look["accuracy_at_queries"], look["queries_at_0.90"], look.get("own")
    cells = [
        name,
        f"{look['seconds'] / 60:.1f} min",
        str(look["updates"]),
        *(f"{at[str(q)]:.3f}" for q in cell.queries),
    ]
    cells.append("not reached" if enough is None else f"{enough:.1f}")
    if own is None:
        return [*cells, "", "", ""]
    cost = f"{look['cost']:.4f}" if look["moves"] else f"{look['cost']:.4f}, waits"
    return [*cells, f"{own['accuracy']:.3f}", f"{own['mean_queries']:.1f}", cost]


def verdict(cell: Cell, result: dict[str, Any]) -> str:
    """Whether the own rule has reached what it has to, in words."""
    if not result["paper"]:
        return "The published recipe has not been looked at."
    look = result["paper"][-1]
    own, most = look["own"], MOST_QUERIES * cell.best
    done = "at the end" if len(result["paper"]) == LOOKS else "so far, in a run that was not finished"
    low, high = own["accuracy_ci"]
    few, many = own["mean_queries_ci"]
    reached = WANTED[0] <= own["accuracy"] <= WANTED[1] and own["mean_queries"] <= most
    return (
        f"By its own rule the published recipe has, {done}, accuracy {own['accuracy']:.3f} ({low:.3f} to {high:.3f}) with "
        f"{own['mean_queries']:.2f} queries ({few:.2f} to {many:.2f}; {own['truncated']:.1%} truncated at {look['horizon']}) on "
        f"{own['episodes']} tasks. Asked for were {WANTED[0]} to {WANTED[1]} with at most {most:.1f} ({MOST_QUERIES} times the paper's "
        f"fewest): **{'reached' if reached else 'missed'}**."
    )


def caught_up(cell: Cell, result: dict[str, Any]) -> str:
    """When the published recipe had, at equal queries, what ours has."""
    at, minutes = str(cell.best), result["minutes"]
    goal = result["fast"]["accuracy_at_queries"][at]
    times = [look["seconds"] / 60 for look in result["paper"] if look["accuracy_at_queries"][at] >= goal]
    ours = f"the accuracy that `fast` has after {minutes:g} minutes (at {cell.best:g} queries)"
    if times:
        return f"`paper` reached {ours} after {times[0]:.1f} minutes at the latest: {times[0] / minutes:.1f} times as long."
    return f"`paper` did not reach, within {result['limit']:g} minutes, {ours}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=list(CELLS), default="binary-search")
    parser.add_argument("--minutes", type=float, default=2.0, help="of `fast`")
    parser.add_argument("--limit", type=float, default=20.0, help="minutes of `paper`")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("docs/results/race-recipes"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    file = asked.out.with_suffix(".json")
    for result in race(asked):
        kept = (
            json.loads(file.read_text()).get("races", {}) if file.exists() else {}
        )  # another family may run beside it
        races = {
            family: (kept | {asked.family: result})[family]
            for family in CELLS
            if family in kept or family == asked.family
        }
        file.write_text(json.dumps({"races": races}, indent=1) + "\n")
        asked.out.with_suffix(".md").write_text(page(races))


if __name__ == "__main__":
    main()
