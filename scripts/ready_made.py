"""Trains, certifies and measures the ready-made kinds of experiment, and writes docs/results/ready-made.md.

    python scripts/ready_made.py train certify measure page              # everything, for all kinds
    python scripts/ready_made.py train --kinds half-life --minutes 5      # one step, for some
    python scripts/ready_made.py certify measure --kinds peak-2d --tasks 500 --jobs 2   # a slow one

A kind is a template of ``cicpe.experiments``; its model goes to the zoo under the same name. What was measured is kept in
docs/results/ready-made.json, from which the page is written; the figures are docs/images/ready-made-NAME.png.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import torch

import cicpe
from cicpe.certification.certificate import LEDGER, append_certificate
from cicpe.cli.check import draw_experiments
from cicpe.experiments import Experiment, template_names
from cicpe.experiments.words import in_words

ROOT = Path(__file__).parent.parent
ZOO = ROOT / "src" / "cicpe" / "zoo"
OUT = ROOT / "docs" / "results"
SEED = 70_000
TASKS = 2000
MINUTES = 5.0


def train(kind: str, minutes: float) -> None:
    """The model of a kind, with the alarm that is fitted within the minutes, and without the log of its training."""
    folder = ZOO / kind
    cicpe.train(Experiment.read(kind), minutes=minutes, out=folder)
    (folder / "log.jsonl").unlink(missing_ok=True)
    shutil.rmtree(folder / "tensorboard", ignore_errors=True)


def certify(kind: str, executor: cicpe.Executor) -> None:
    """Its certificate at the tolerance and the confidence of its file."""
    model = cicpe.load(str(ZOO / kind))
    epsilon, delta = model.promise()
    certificate = cicpe.certify(model, epsilon=epsilon, delta=delta, stop="each", seed=SEED, executor=executor)
    append_certificate(ZOO / kind / LEDGER, certificate)
    print(kind, "certified" if certificate.certified else "NOT certified", flush=True)


def measure(kind: str, tasks: int, executor: cicpe.Executor) -> dict[str, Any]:
    """Accuracy and measurements on fresh tasks, with intervals."""
    model = cicpe.load(str(ZOO / kind))
    epsilon, delta = model.promise()
    result = cicpe.evaluate(
        model, epsilon=epsilon, delta=delta, stop="each", episodes=tasks, seed=SEED + 1, executor=executor
    )
    return {
        "kind": kind,
        "title": model.description.units.title,
        "within": model.description.units.tolerance_words(epsilon),
        "sure": round(1 - delta, 6),
        "accuracy": result.accuracy,
        "accuracy_ci": list(result.accuracy_ci),
        "mean_queries": result.mean_queries,
        "mean_queries_ci": list(result.mean_queries_ci),
        "truncated": result.truncated,
        "recipe": model.description.recipe,
        "minutes": model.description.minutes,
        "tasks": tasks,
        "seed": SEED + 1,
    }


def page(rows: list[dict[str, Any]]) -> str:
    """The table, and a section per kind."""
    lines = [
        "# Ready-made kinds of experiment",
        "",
        "Each model was trained by `python scripts/ready_made.py train`, certified by `... certify` (alpha 0.05) and measured by "
        f"`... measure` with the stop rule `each` on fresh tasks (seed {SEED + 1}; 95 % intervals). Recipe `particles` knows the "
        "likelihood, which an experiment file states; the others learned from simulations alone.",
        "",
        "| kind | for | within | sure | tasks | accuracy | measurements | at the limit | recipe | minutes |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        accuracy, queries = row["accuracy_ci"], row["mean_queries_ci"]
        miss = " (missed)" if row["accuracy"] < row["sure"] else ""
        lines.append(
            f"| {row['kind']} | {row['title']} | {row['within']} | {row['sure']:g} | {row['tasks']:,} | {row['accuracy']:.3f} "
            f"({accuracy[0]:.3f} to {accuracy[1]:.3f}){miss} | {row['mean_queries']:.1f} ({queries[0]:.1f} to {queries[1]:.1f}) | "
            f"{row['truncated']:.1%} | {row['recipe']} | {row['minutes']:.1f} |"
        )
    for row in rows:
        words = " ".join(in_words(Experiment.read(row["kind"])))
        lines += [
            "",
            f"## {row['kind']}",
            "",
            words,
            "",
            f"![Eight experiments](../images/ready-made-{row['kind']}.png)",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs the steps that were asked for, in this order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="+", choices=("train", "certify", "measure", "page"))
    parser.add_argument("--kinds", nargs="+", choices=template_names(), default=template_names())
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    executor = cicpe.Executor(jobs=asked.jobs)
    torch.set_num_threads(1)
    file = OUT / "ready-made.json"
    rows: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for kind in asked.kinds:
        if "train" in asked.steps:
            train(kind, asked.minutes)
        try:
            if "certify" in asked.steps:
                certify(kind, executor)
            if "measure" in asked.steps:
                rows[kind] = measure(kind, asked.tasks, executor)
                file.write_text(json.dumps(rows, indent=1) + "\n")
        except cicpe.CicpeError as refusal:
            print(f"{kind}: {refusal}", flush=True)
        if "page" in asked.steps:
            draw_experiments(Experiment.read(kind), ROOT / "docs" / "images" / f"ready-made-{kind}.png")
    if "page" in asked.steps:
        (OUT / "ready-made.md").write_text(page([rows[kind] for kind in sorted(rows)]), encoding="utf-8")


if __name__ == "__main__":
    main()
