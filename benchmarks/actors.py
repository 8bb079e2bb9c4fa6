"""The paper's four actors (and ours) on every family: the same recipe, the same number of updates, one seed.

    python benchmarks/actors.py                      # trains what is missing under runs/actors, measures, writes the page
    python benchmarks/actors.py --family gp-max      # one family only; the page keeps the others

Every model is measured on the same fresh tasks in the cells of its family. Where a model is not reliable enough to
stop by itself, the table says what it reaches with every query that it may make.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

import cicpe
from cicpe.evaluation.evaluate import evaluate_agent

ROOT = Path(__file__).parent.parent
RUNS, OUT = ROOT / "runs" / "actors", ROOT / "docs" / "results"
TARGETS = json.loads((ROOT / "benchmarks" / "targets.json").read_text())["cells"]
PAPER = ("ts", "ttps", "td3", "uniform")
FAMILIES: dict[str, dict[str, Any]] = {
    "binary-search": {"dim": 6, "updates": 1200, "actors": (*PAPER, "search")},
    "best-arm": {"dim": 5, "updates": 400, "actors": (*PAPER, "ucb")},
    # Every prefix looks at all others: a horizon that grows would leave less training to those that need it most.
    "ackley": {"dim": 3, "updates": 1200, "actors": PAPER, "settings": {"horizon": 30, "adapt_horizon": False}},
    "gp-max": {"dim": 1, "updates": 300, "actors": ("td3", "uniform", "fts", "ucb")},
}
EPISODES, SEED = 2000, 30_000


def trained(family: str, actor: str) -> cicpe.Model:
    about = FAMILIES[family]
    dim = about["dim"]
    folder = RUNS / f"{family}-{dim}d-{actor}"
    if not (folder / "config.json").exists():
        cells = [cell for cell in TARGETS if cell["problem"] == family and cell["dim"] == dim]
        low, high = (tuple(f(cell[key] for cell in cells) for key in ("epsilon", "noise")) for f in (min, max))
        problem = cicpe.make_problem(family, dim=dim, noise=(low[1], high[1]))
        began = time.process_time()
        cicpe.train(
            problem,
            epsilon=(low[0], high[0]),
            updates=about["updates"],
            settings=about.get("settings"),
            recipe="fast",
            actor=actor,
            out=folder,
            resume=True,
            calibration_episodes=8192,
        )
        print(f"trained {folder.name}: {time.process_time() - began:.0f} s of CPU", flush=True)
    return cicpe.load(folder)


def measured(model: cicpe.Model, cell: dict[str, Any]) -> dict[str, Any]:
    tasks = model.tasks(cell["noise"])
    try:
        agent, by_itself = model.agent(cell["epsilon"], cell["delta"]), True
        agent.begin(torch.full((1, 1), cell["noise"]))
    except cicpe.InvalidInput:
        agent, by_itself = model.unstopped(cell["epsilon"]), False
    result = evaluate_agent(agent, tasks, cell["epsilon"], EPISODES, SEED)
    return {
        "accuracy": result.accuracy,
        "accuracy_ci": result.accuracy_ci,
        "mean_queries": result.mean_queries,
        "mean_queries_ci": result.mean_queries_ci,
        "stops_by_itself": by_itself,
    }


def page(rows: list[dict[str, Any]]) -> str:
    lines = [
        "# Actors compared",
        "",
        "Written by `python benchmarks/actors.py`: the recipe `fast` with each rule for queries, the same number of "
        f"updates, one seed, {EPISODES} fresh tasks per cell, delta 0.1. Entries are *accuracy / mean queries*; a star "
        "means that no threshold was safe enough, and that the model made every query that it may make.",
    ]
    for family in dict.fromkeys(row["problem"] for row in rows):
        some = [row for row in rows if row["problem"] == family]
        actors = list(dict.fromkeys(row["actor"] for row in some))
        cells = list(dict.fromkeys((row["epsilon"], row["noise"]) for row in some))
        about = FAMILIES[family]
        apart = "".join(f", {name} {value}" for name, value in about.get("settings", {}).items())
        lines += ["", f"## {family}, d = {about['dim']}, {about['updates']} updates{apart}", ""]
        lines += ["| (epsilon, noise) | " + " | ".join(actors) + " |", "|---" * (len(actors) + 1) + "|"]
        for cell in cells:
            entries = []
            for actor in actors:
                row = next(r for r in some if r["actor"] == actor and (r["epsilon"], r["noise"]) == cell)
                star = "" if row["stops_by_itself"] else " *"
                entries.append(f"{row['accuracy']:.3f} / {row['mean_queries']:.1f}{star}")
            lines.append(f"| ({cell[0]:g}, {cell[1]:g}) | " + " | ".join(entries) + " |")
    notes = OUT / "notes" / "actors.md"
    return "\n".join([*lines, ""]) + ("\n" + notes.read_text() if notes.exists() else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=list(FAMILIES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    file = OUT / "actors.json"
    rows = json.loads(file.read_text())["rows"] if file.exists() else []
    for family in [arguments.family] if arguments.family else FAMILIES:
        about = FAMILIES[family]
        rows = [row for row in rows if row["problem"] != family]
        for actor in about["actors"]:
            model = trained(family, actor)
            for cell in TARGETS:
                if cell["problem"] == family and cell["dim"] == about["dim"]:
                    key = {name: cell[name] for name in ("problem", "dim", "epsilon", "noise", "delta")}
                    rows.append({**key, "actor": actor, **measured(model, cell)})
                    print(json.dumps(rows[-1]), flush=True)
        rows.sort(key=lambda row: list(FAMILIES).index(row["problem"]))
        file.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
        (OUT / "actors.md").write_text(page(rows))


if __name__ == "__main__":
    main()
