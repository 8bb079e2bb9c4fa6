"""Agents that know the likelihood, on every cell: how many queries would be enough? Writes docs/results/references.md.

    python scripts/references.py                     # every family; the page keeps what is not asked for
    python scripts/references.py best-arm gp-max     # some
    python scripts/references.py best-arm --methods track-and-stop      # one method; rows keep the others

Each reference stops at the confidence that gives accuracy 0.9 on held-out tasks, and is judged on fresh ones.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import cicpe
from cicpe.problems import make_problem
from cicpe.reporting.comparison import compare

ROOT = Path(__file__).parent.parent
OUT = ROOT / "docs" / "results"
CELLS = json.loads((ROOT / "benchmarks" / "targets.json").read_text())["cells"]
METHODS = {
    "binary-search": ("reference-grid", "reference-grid-mean"),
    "best-arm": ("reference-conjugate", "track-and-stop"),
    "gp-max": ("reference-gp",),
    "ackley": ("reference-particles",),
}
TASKS = {"binary-search": 1000, "best-arm": 2000, "gp-max": 500, "ackley": 50}
SEED = 60_000


def measured(cell: dict[str, Any], methods: Sequence[str]) -> dict[str, Any]:
    problem = make_problem(cell["problem"], dim=cell["dim"], noise=cell["noise"])
    # Room for twice the known figure, or for the goal where nobody knows one.
    budget = math.ceil(cell["reference_queries"] or cell["goal_queries"])
    about = {**cell, "tasks": TASKS[cell["problem"]]}
    try:
        result = compare(
            problem,
            epsilon=cell["epsilon"],
            delta=cell["delta"],
            methods=methods,
            tasks=TASKS[cell["problem"]],
            budget=budget,
            seed=SEED,
        )
    except cicpe.InvalidInput as error:  # none of the methods reaches the accuracy
        why = error.allowed.partition("(")[2].rstrip(")")
        return {**about, "references": {}, "left_out": dict.fromkeys(methods, why or error.allowed)}
    rows = {row.method: row.to_json() for row in result.rows}
    return {**about, "references": rows, "left_out": result.left_out}


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("problem", "dim", "epsilon", "noise"))


def page(rows: list[dict[str, Any]], ours: dict[tuple[Any, ...], float]) -> str:
    lines = [
        "# References: agents that know the likelihood",
        "",
        "Written by `python scripts/references.py`. Each is given a threshold that reaches accuracy 0.9 on held-out tasks "
        "and is judged on fresh ones; 95 % intervals. *Known* is the figure of `benchmarks/targets.json`, from small "
        "samples. *Ours* is the zoo's model for all cells of the dimension, from the pages of the families; its accuracy "
        "is above 0.9 by a margin that its threshold keeps, a reference's is not.",
        "",
        "| problem | d | epsilon | noise | reference | tasks | accuracy | queries | known | ratio to known | ours | ours / reference |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        key = key_of(row)
        head = f"| {row['problem']} | {row['dim']} | {row['epsilon']:g} | {row['noise']:g} |"
        for name, result in row["references"].items():
            low, high = result["accuracy_ci"]
            q_low, q_high = result["mean_queries_ci"]
            queries, known, mine = result["mean_queries"], row["reference_queries"], ours.get(key)
            lines.append(
                f"{head} {name} | {result['tasks']} | {result['accuracy']:.3f} ({low:.3f}-{high:.3f}) | "
                f"{queries:.2f} ({q_low:.2f}-{q_high:.2f}) | {known or '?'} | "
                f"{f'{queries / known:.2f}' if known else ''} | {f'{mine:.2f}' if mine else ''} | "
                f"{f'{mine / queries:.2f}' if mine else ''} |"
            )
        lines += [f"{head} {name} | left out: {why} | | | | | | |" for name, why in row["left_out"].items()]
    notes = OUT / "notes" / "references.md"
    return "\n".join([*lines, ""]) + ("\n" + notes.read_text() if notes.exists() else "")


def our_queries() -> dict[tuple[Any, ...], float]:
    """Mean queries of the zoo's models, by cell, from the pages' own figures."""
    result = {}
    for name in METHODS:
        file = OUT / f"{name}.json"
        for row in json.loads(file.read_text()) if file.exists() else []:
            if "mean_queries" in row["confidence"]:
                result[key_of(row)] = row["confidence"]["mean_queries"]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", help=f"which, of {', '.join(METHODS)}; all, if left out")
    parser.add_argument("--methods", nargs="*", help="only these")
    parser.add_argument("--write", action="store_true", help="only write the page again")
    arguments = parser.parse_args()
    if unknown := set(arguments.problems) - set(METHODS):
        parser.error(f"no references for {sorted(unknown)[0]}")
    torch.set_num_threads(1)
    file = OUT / "references.json"
    rows = json.loads(file.read_text())["rows"] if file.exists() else []
    for name in [] if arguments.write else (arguments.problems or METHODS):
        old = {key_of(row): row for row in rows if row["problem"] == name}
        rows = [row for row in rows if row["problem"] != name]
        for cell in (cell for cell in CELLS if cell["problem"] == name):
            row = measured(cell, arguments.methods or METHODS[name])
            if arguments.methods and key_of(cell) in old:
                for part in ("references", "left_out"):
                    row[part] = {**old[key_of(cell)][part], **row[part]}
            rows.append(row)
            print(json.dumps(row), flush=True)
        rows.sort(key=lambda row: list(METHODS).index(row["problem"]))
        file.write_text(json.dumps({"cicpe": cicpe.__version__, "rows": rows}, indent=1) + "\n")
    (OUT / "references.md").write_text(page(rows, our_queries()))


if __name__ == "__main__":
    main()
