"""Ackley from simulations alone: models of the belief ``answers`` beside particles that know the likelihood.

    python benchmarks/simulators.py train --dim 3 --minutes 14 --recalibrate 15   # into the zoo, as ackley-3d-simulator
    python benchmarks/simulators.py measure --dim 3 --tasks 2000                  # all cells of the paper at that dimension
    python benchmarks/simulators.py page                                          # docs/results/simulators.md

Minutes are those that this process has a core, so that a machine that does other work at the same time gives the models of
a quiet one. What was measured is kept in docs/results/simulators.json.
"""

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

time.perf_counter = time.process_time  # before anything else reads the time

import torch  # noqa: E402

import cicpe  # noqa: E402

ROOT = Path(__file__).parent.parent
ZOO, OUT = ROOT / "src" / "cicpe" / "zoo", ROOT / "docs" / "results"
KEPT = OUT / "simulators.json"
CELLS = json.loads((ROOT / "benchmarks" / "targets.json").read_text())["cells"]
DELTA, FRESH, NOISE, EPSILON = 0.1, 50_000, (0.025, 0.1), (0.1, 0.2)
RATIO = 1.1
"""Queries that are wanted at most, in those of particles that know the likelihood."""


def name(dim: int) -> str:
    return f"ackley-{dim}d-simulator"


def train(dim: int, minutes: float, recalibrate: float, seed: int) -> None:
    """A model of the zoo, which was shown simulated tasks and nothing else."""
    folder = ZOO / name(dim)
    problem = cicpe.make_problem("ackley", dim=dim, noise=NOISE)
    model = cicpe.train(problem, epsilon=EPSILON, minutes=minutes, recipe="answers", seed=seed)
    print(model.description.training.describe(), model.calibration.episodes, "episodes of calibration", flush=True)
    if recalibrate:
        model = cicpe.recalibrate(model, minutes=recalibrate)
        print(model.calibration.episodes, "episodes of calibration", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    model.save(folder)


def measure(dim: int, tasks: int) -> None:
    """Accuracy and queries in the cells of a dimension, for both models on the same tasks."""
    rows = json.loads(KEPT.read_text()) if KEPT.exists() else []
    for cell in [cell for cell in CELLS if (cell["problem"], cell["dim"]) == ("ackley", dim)]:
        for model_name in (name(dim), f"ackley-{dim}d"):
            row = measured(model_name, cell, tasks)
            print(row, flush=True)
            same = ("model", "epsilon", "noise")
            rows = [old for old in rows if any(old[key] != row[key] for key in same)] + [row]
            KEPT.write_text(json.dumps(rows, indent=1) + "\n")


def measured(model_name: str, cell: dict[str, Any], tasks: int) -> dict[str, Any]:
    """The figures of one model in one cell."""
    began = time.process_time()
    result = cicpe.evaluate(
        cicpe.load(model_name),
        epsilon=cell["epsilon"],
        delta=DELTA,
        noise=cell["noise"],
        episodes=tasks,
        seed=FRESH,
    )
    spent = time.process_time() - began
    return {
        "model": model_name,
        "dim": cell["dim"],
        "epsilon": cell["epsilon"],
        "noise": cell["noise"],
        "paper": cell["paper_best_queries"],
        "tasks": tasks,
        "accuracy": result.accuracy,
        "accuracy_ci": list(result.accuracy_ci),
        "queries": result.mean_queries,
        "queries_ci": list(result.mean_queries_ci),
        "milliseconds_per_query": 1000 * spent / max(1.0, tasks * result.mean_queries),
    }


def page() -> None:
    """Writes the page from what was measured."""
    rows = {(row["model"], row["epsilon"], row["noise"]): row for row in json.loads(KEPT.read_text())}
    lines = [line(row, rows) for row in rows.values() if row["model"] == name(row["dim"])]
    missed = sum("**miss**" in text for text in lines)
    table = "\n".join(sorted(lines))
    (OUT / "simulators.md").write_text(TEXT.format(table=table, cells=len(lines), missed=missed, seed=FRESH))


def line(row: dict[str, Any], rows: dict[tuple[str, float, float], dict[str, Any]]) -> str:
    """A row of the table."""
    knows = rows[f"ackley-{row['dim']}d", row["epsilon"], row["noise"]]
    ratio = row["queries"] / knows["queries"]
    good = row["accuracy"] >= 1 - DELTA and ratio <= RATIO
    low, high = row["accuracy_ci"]
    return (
        f"| {row['dim']} | {row['epsilon']:g}, {row['noise']:g} | {row['tasks']} | "
        f"{row['accuracy']:.3f} ({low:.3f} to {high:.3f}) | {row['queries']:.2f} | {knows['accuracy']:.3f} | "
        f"{knows['queries']:.2f} | {ratio:.2f} | {row['paper']:g} | {row['milliseconds_per_query']:.0f} | "
        f"{knows['milliseconds_per_query']:.0f} | {'' if good else '**miss**'} |"
    )


TEXT = """# Ackley from simulations alone

The models `ackley-Dd-simulator` learned the likelihood from simulated observations, and were never shown b, c or a formula; the
models `ackley-Dd` are particles that know it. Both on the same fresh tasks (seed {seed}), delta 0.1, the stop rule `average`,
95 % intervals. A cell is a miss where accuracy is below 0.9, or where it takes more than 1.1 times the queries of particles:
{missed} of {cells} are. The paper's figure is the best of its variants. Milliseconds are of processor time, all episodes
batched.

| d | epsilon, noise | tasks | accuracy | queries | accuracy, particles | queries, particles | ratio | paper | ms per query | ms, particles | |
|---|---|---|---|---|---|---|---|---|---|---|---|
{table}

Made by `python benchmarks/simulators.py train`, `... measure` and `... page`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=("train", "measure", "page"))
    parser.add_argument("--dim", type=int, choices=(3, 4, 5), default=3)
    parser.add_argument("--minutes", type=float, default=14.0, help="of training with its calibration and alarm")
    parser.add_argument("--recalibrate", type=float, default=15.0, help="minutes of a longer calibration; 0 for none")
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.job == "train":
        train(args.dim, args.minutes, args.recalibrate, args.seed)
    elif args.job == "measure":
        measure(args.dim, args.tasks)
    else:
        page()


if __name__ == "__main__":
    main()
