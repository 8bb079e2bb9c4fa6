"""Ackley from simulations alone: models of the belief ``answers`` beside particles that know the likelihood.

    python benchmarks/simulators.py train --dim 3 --minutes 12        # learns the likelihood, for about half of that time
    python benchmarks/simulators.py calibrate --dim 3 --minutes 24    # thresholds anew, also of the zoo's model; it goes there
    python benchmarks/simulators.py measure --dim 3 --tasks 2000      # all cells of the paper at that dimension; --noise 0.1
    python benchmarks/simulators.py page                              # docs/results/simulators.md

Minutes are those that this process has a core, so that a machine that does other work at the same time gives the models of
a quiet one. What was measured is kept in docs/results/simulators.json; the figures of particles that know the likelihood are
those of docs/results/ackley.json (``scripts/results.py page ackley``).
"""

import argparse
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

time.perf_counter = time.process_time  # before anything else reads the time

import torch  # noqa: E402

import cicpe  # noqa: E402
from cicpe.episodes.blocks import blocks  # noqa: E402
from cicpe.episodes.table import EpisodeTable, RecordSettings, tabulate  # noqa: E402
from cicpe.evaluation.evaluate import mean_interval, proportion_interval  # noqa: E402
from cicpe.problems import TaskBatch  # noqa: E402
from cicpe.streams import block_stream, seed_for  # noqa: E402

ROOT = Path(__file__).parent.parent
ZOO, OUT = ROOT / "src" / "cicpe" / "zoo", ROOT / "docs" / "results"
LEARNED = ROOT / "runs"
"""Models before their calibration; git does not keep them."""
FEWEST_EPISODES, TOGETHER = 100, 64
"""Calibration episodes of a model that is calibrated later; episodes that are played together."""
KEPT = OUT / "simulators.json"
CELLS = json.loads((ROOT / "benchmarks" / "targets.json").read_text())["cells"]
DELTA, FRESH, NOISE, EPSILON = 0.1, 50_000, (0.025, 0.1), (0.1, 0.2)
RATIO = 1.1
"""Queries that are wanted at most, in those of particles that know the likelihood."""


def name(dim: int) -> str:
    return f"ackley-{dim}d-simulator"


def train(dim: int, minutes: float, seed: int) -> None:
    """A likelihood that was learned from simulated tasks and nothing else, with thresholds of a few episodes."""
    problem = cicpe.make_problem("ackley", dim=dim, noise=NOISE)
    model = cicpe.train(
        problem, epsilon=EPSILON, minutes=minutes, recipe="answers", seed=seed, calibration_episodes=FEWEST_EPISODES
    )
    print(model.description.training.describe(), flush=True)
    model.save(LEARNED / name(dim))


def calibrate(dim: int, minutes: float) -> None:
    """The learned model (or the zoo's, where none was learned here) with thresholds of as many episodes as fit."""
    learned = LEARNED / name(dim)
    model = cicpe.recalibrate(cicpe.load(str(learned) if learned.exists() else name(dim)), minutes=minutes)
    print(model.calibration.episodes, "episodes of calibration", flush=True)
    shutil.rmtree(ZOO / name(dim), ignore_errors=True)
    model.save(ZOO / name(dim))


def measure(dim: int, tasks: int, noises: Sequence[float]) -> None:
    """Accuracy and queries in the cells of a dimension; cells of one noise level are read off the same episodes."""
    model = cicpe.load(name(dim))
    cells = [cell for cell in CELLS if (cell["problem"], cell["dim"]) == ("ackley", dim)]
    for noise in noises or sorted({cell["noise"] for cell in cells}):
        new = measured(model, [cell for cell in cells if cell["noise"] == noise], noise, tasks)
        # Read when there is something to write: another process may measure another noise level meanwhile.
        rows = json.loads(KEPT.read_text()) if KEPT.exists() else []
        for row in new:
            print(row, flush=True)
            same = ("dim", "epsilon", "noise")
            rows = [old for old in rows if any(old[key] != row[key] for key in same)] + [row]
        KEPT.write_text(json.dumps(rows, indent=1) + "\n")


def measured(model: cicpe.Model, cells: list[dict[str, Any]], noise: float, tasks: int) -> list[dict[str, Any]]:
    """The figures of the cells of one noise level, whose epsilons are read off the same episodes."""
    began, problem = time.process_time(), model.tasks({"noise": noise})
    context, epsilons = torch.tensor([[noise]]), tuple(cell["epsilon"] for cell in cells)
    rule = model.calibration.rule("confidence")
    thresholds = [model.agent(epsilon, DELTA).threshold(context) for epsilon in epsilons]
    # Where what is asked falls with the queries, it is highest before the first.
    certain = max(float(rule.asked(threshold, torch.tensor([0]))) for threshold in thresholds)
    settings = RecordSettings(epsilons, model.calibration.query_spread, certain=certain)
    parts = []
    for block in blocks(tasks, TOGETHER):
        rng = block_stream(seed_for(FRESH, "evaluation"), block.number)
        parts.append(tabulate(model.belief, TaskBatch.draw(problem, block.size, rng), settings, rng))
    table, every = EpisodeTable.joined(parts), torch.arange(tasks)
    spent = time.process_time() - began
    rows = []
    for e, (cell, threshold) in enumerate(zip(cells, thresholds, strict=True)):
        stop = rule.stop_times(table, e, threshold)[0].minimum(table.length)
        correct = int((table.loss[e][every, stop] <= cell["epsilon"]).sum())
        rows.append(
            {
                "dim": cell["dim"],
                "epsilon": cell["epsilon"],
                "noise": noise,
                "paper": cell["paper_best_queries"],
                "tasks": tasks,
                "seed": FRESH,
                "accuracy": correct / tasks,
                "accuracy_ci": proportion_interval(correct, tasks),
                "queries": float(stop.double().mean()),
                "queries_ci": mean_interval(stop),
                "milliseconds_per_query": 1000 * spent / float(table.length.sum()),
                "calibration_episodes": model.calibration.episodes,
                "minutes_of_training": model.description.minutes,
            }
        )
    return rows


def page() -> None:
    """Writes the page from what was measured."""
    knows = {
        (row["dim"], row["epsilon"], row["noise"]): row["confidence"]
        for row in json.loads((OUT / "ackley.json").read_text())
    }
    kept = sorted(json.loads(KEPT.read_text()), key=lambda row: (row["dim"], -row["epsilon"], row["noise"]))
    lines = [line(row, knows[row["dim"], row["epsilon"], row["noise"]]) for row in kept]
    missed = sum("**miss**" in text for text in lines)
    missing = [f"d = {dim}" for dim in (3, 4, 5) if all(row["dim"] != dim for row in kept)]
    left = f" Not measured yet: {', '.join(missing)}." if missing else ""
    table = "\n".join(lines)
    (OUT / "simulators.md").write_text(TEXT.format(table=table, cells=len(lines), missed=missed, seed=FRESH, left=left))


def line(row: dict[str, Any], knows: dict[str, Any]) -> str:
    """A row of the table."""
    ratio = row["queries"] / knows["mean_queries"]
    good = row["accuracy"] >= 1 - DELTA and ratio <= RATIO
    low, high = row["accuracy_ci"]
    of_particles = 1000 * knows["seconds"] / (knows["episodes"] * knows["mean_queries"])
    return (
        f"| {row['dim']} | {row['epsilon']:g}, {row['noise']:g} | {row['tasks']} | "
        f"{row['accuracy']:.3f} ({low:.3f} to {high:.3f}) | {row['queries']:.2f} | {knows['accuracy']:.3f} | "
        f"{knows['mean_queries']:.2f} | {ratio:.2f} | {row['paper']:g} | {row['queries'] / row['paper']:.2f} | "
        f"{row['milliseconds_per_query']:.0f} | {of_particles:.0f} | {row['calibration_episodes']} | "
        f"{'' if good else '**miss**'} |"
    )


TEXT = """# Ackley from simulations alone

The models `ackley-Dd-simulator` learned the likelihood from simulated observations, and were never shown b, c or a formula; the
models `ackley-Dd` are particles that know it. The former are measured on fresh tasks (seed {seed}), at delta 0.1, with the stop rule
`confidence` and 95 % intervals; the latter on 4,000 others ([ackley.md](ackley.md)). Cells of one noise level are read off the same
episodes. A cell is a miss where accuracy is below 0.9, or where it takes more than 1.1 times the queries of particles: {missed} of
{cells} are. The paper's figure is the best of its variants. Milliseconds are per query of one episode, of processor time, all
episodes batched; those of the particles were measured on another day and another machine.{left}

| d | epsilon, noise | tasks | accuracy | queries | accuracy, particles | queries, particles | ratio | paper | ratio to the paper | ms per query | ms, particles | calibration episodes | |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
{table}

Made by `python benchmarks/simulators.py train`, `... calibrate`, `... measure` and `... page`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=("train", "calibrate", "measure", "page"))
    parser.add_argument("--dim", type=int, choices=(3, 4, 5), default=3)
    parser.add_argument("--minutes", type=float, default=12.0, help="of training, or of calibration")
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--noise", type=float, nargs="*", default=(), help="to measure at; the paper's where not given")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.job == "train":
        train(args.dim, args.minutes, args.seed)
    elif args.job == "calibrate":
        calibrate(args.dim, args.minutes)
    elif args.job == "measure":
        measure(args.dim, args.tasks, args.noise)
    else:
        page()


if __name__ == "__main__":
    main()
