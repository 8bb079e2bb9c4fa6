"""Trains, measures and writes a page of docs/results: every cell of a family beside the paper and exact Bayes.

    python scripts/results.py train binary-search            # trains the zoo's models of the family, one core each
    python scripts/results.py calibrate binary-search        # chooses their stop thresholds anew, on fresh episodes
    python scripts/results.py alarm binary-search            # fits their alarms: do histories look like the prior's?
    python scripts/results.py page binary-search             # measures every cell on fresh tasks and writes the page
    python scripts/results.py write binary-search            # writes the page again from the figures it has
    python scripts/results.py readme                         # puts the summary of all pages into README.md

`train` goes through the command line that users have; `page` through the library. Cells, the paper's
figures and the goals come from benchmarks/targets.json.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

import cicpe
from cicpe import zoo
from cicpe.api import fit_alarm, recalibrate
from cicpe.model import Model

ROOT = Path(__file__).parent.parent
TARGETS = ROOT / "benchmarks" / "targets.json"
ZOO = ROOT / "src" / "cicpe" / "zoo"
MODEL_FILES = ("config.json", "weights.safetensors", "calibration.json", "card.md", "alarm.json", "alarm.safetensors")
MINUTES = {
    ("binary-search", 6): 4,
    ("binary-search", 8): 4,
    ("binary-search", 10): 4,
    ("binary-search", 20): 8,
    ("best-arm", 5): 2,
    ("best-arm", 10): 2,
    ("best-arm", 15): 3,
    ("gp-max", 1): 5,
    ("gp-max", 2): 10,
    ("ackley", 3): 60,
    ("ackley", 4): 120,
    ("ackley", 5): 120,
}
"""Training budget of each zoo model, calibration included."""
RECIPES = {"binary-search": "fast", "best-arm": "fast", "gp-max": "fast", "ackley": "particles"}
"""What each family is trained by: networks from simulations alone, but for Ackley, whose particles are given the likelihood."""
HELD_OUT = {"ackley": 1200}
"""Episodes for the thresholds where an episode is costly: particles, which need no training."""
EPISODES = 4000
"""Fresh tasks per cell."""
SEED = 20_000
CALIBRATION_SEED = 1_000_003
STOPS = ("confidence", "bellman")


def cells(problem: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(TARGETS.read_text())["cells"] if cell["problem"] == problem]


def figures_of_others(row: dict[str, Any]) -> dict[str, Any]:
    """What others need in a measured cell, and the goal, as the file of targets has them now."""
    where = ("dim", "epsilon", "noise")
    (cell,) = [cell for cell in cells(row["problem"]) if all(cell[key] == row[key] for key in where)]
    return cell


def span(problem: str, dim: int, key: str) -> tuple[float, float]:
    values = [cell[key] for cell in cells(problem) if cell["dim"] == dim]
    return min(values), max(values)


def train_command(problem: str, dim: int, out: Path, seed: int = 0) -> list[str]:
    epsilon, noise = span(problem, dim, "epsilon"), span(problem, dim, "noise")
    return [
        *("cicpe", "train", problem, "--dim", str(dim), "--recipe", RECIPES[problem], "--out", str(out)),
        *("--epsilon", *map(str, epsilon), "--noise", *map(str, noise)),
        *("--minutes", str(MINUTES[problem, dim]), "--seed", str(seed), "--threads", "1"),
        *(("--calibration-episodes", str(HELD_OUT[problem])) if problem in HELD_OUT else ()),
    ]


def train(problem: str, dims: list[int]) -> None:
    for dim in dims:
        name = f"{problem}-{dim}d"
        run = ROOT / "runs" / "zoo" / name
        command = [sys.executable, "-m", "cicpe", *train_command(problem, dim, run)[1:], "--overwrite"]
        print(" ".join(train_command(problem, dim, run)), flush=True)
        subprocess.run(command, check=True)
        (ZOO / name).mkdir(parents=True, exist_ok=True)
        for file in MODEL_FILES:
            (ZOO / name / file).unlink(missing_ok=True)
            if (run / file).exists():
                shutil.copy2(run / file, ZOO / name / file)


def calibrate(problem: str, dims: list[int]) -> None:
    torch.set_num_threads(1)
    for dim in dims:
        name = f"{problem}-{dim}d"
        recalibrate(cicpe.load(name), episodes=HELD_OUT.get(problem, 32768), seed=CALIBRATION_SEED).save(ZOO / name)


def alarm(problem: str, dims: list[int]) -> None:
    torch.set_num_threads(1)
    for dim in dims:
        name = f"{problem}-{dim}d"
        began = time.perf_counter()
        fit_alarm(cicpe.load(name)).save(ZOO / name)
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)


def shown(family: str, dim: int) -> str:
    """What the zoo's model of a family was shown: simulations alone, or the likelihood too."""
    config = json.loads((zoo.folder(f"{family}-{dim}d") / "config.json").read_text())
    return "the likelihood" if config["training"].get("likelihood") == "exact" else "simulations"


def readme_table() -> str:
    """One line per family and dimension: the range of its cells' ratios, from the pages' own figures."""
    lines = [
        "| family | d | it was shown | cells | accuracy | queries, ratio to the paper's best | ratio to exact Bayes | minutes to train |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for family in sorted({cell["problem"] for cell in json.loads(TARGETS.read_text())["cells"]}):
        rows = json.loads((ROOT / "docs" / "results" / f"{family}.json").read_text())
        for dim in sorted({row["dim"] for row in rows}):
            some = [row for row in rows if row["dim"] == dim and "accuracy" in row["confidence"]]
            paper = [row["confidence"]["mean_queries"] / row["paper_best_queries"] for row in some]
            exact = [r["confidence"]["mean_queries"] / r["reference_queries"] for r in some if r["reference_queries"]]
            accuracy = [row["confidence"]["accuracy"] for row in some]
            lines.append(
                f"| [{some[0]['problem']}](docs/results/{some[0]['problem']}.md) | {dim} | {shown(family, dim)} | {len(some)} | "
                f"{min(accuracy):.3f} to {max(accuracy):.3f} | {min(paper):.2f} to {max(paper):.2f} | "
                f"{f'{min(exact):.2f} to {max(exact):.2f}' if exact else 'not measured'} | {some[0]['minutes']:.1f} |"
            )
    return "\n".join(lines)


def readme() -> None:
    """Writes the table into the README, between its two marks."""
    path = ROOT / "README.md"
    before, _, rest = path.read_text().partition("<!-- results -->")
    _, _, after = rest.partition("<!-- /results -->")
    path.write_text(f"{before}<!-- results -->\n{readme_table()}\n<!-- /results -->{after}")


def measure(problem: str, dims: list[int]) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    rows = []
    for cell in cells(problem):
        if cell["dim"] not in dims:
            continue
        model = cicpe.load(f"{problem}-{cell['dim']}d")
        row = dict(cell, minutes=model.description.minutes, sha256=model.sha256)
        for stop in STOPS:
            row[stop] = measured(model, cell, stop)
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def measured(model: Model, cell: dict[str, Any], stop: str) -> dict[str, Any] | None:
    try:
        result = cicpe.evaluate(
            model,
            epsilon=cell["epsilon"],
            delta=cell["delta"],
            noise=cell["noise"],
            stop=stop,  # type: ignore[arg-type]
            episodes=EPISODES,
            seed=SEED,
        )
    except cicpe.InvalidInput as error:
        return {"refused": str(error)}
    return {key: value for key, value in result._asdict().items() if key != "outcomes"}


def page(problem: str, rows: list[dict[str, Any]]) -> str:
    dims = sorted({row["dim"] for row in rows})
    lines = [
        f"# {problem}: every cell",
        "",
        f"Written by `python scripts/results.py page {problem}` on {time.strftime('%Y-%m-%d')}: {tasks(rows)} fresh tasks per "
        f"cell (seed {SEED}), delta 0.1, one model per dimension for all its cells. Accuracy with its 95 % interval "
        "(Clopper-Pearson); queries are means with 95 % intervals. *Paper*: its best C-ICPE variant, one GPU run of 12 "
        "hours per cell. *Exact Bayes*: the strongest agent that knows the likelihood (`benchmarks/targets.json` says which; 1,000 to "
        "4,000 tasks). A ratio below 1 is fewer queries than theirs. The goal is 1.03 times exact Bayes"
        + (", and 1.1 times from simulations alone, which these models are not." if problem == "ackley" else "."),
        "",
        "| d | epsilon | noise | accuracy | queries | paper | ratio to paper | exact Bayes | ratio | goal | goal met |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(cell_line(row))
    if any("accuracy" in row["bellman"] for row in rows):
        lines += other_rule(rows)
    lines += ["", "## How they were trained", "", "On one core, calibration included:", "", "```"]
    for dim in dims:
        lines.append(" ".join(train_command(problem, dim, Path("DIR"))))
    lines += ["```", ""]
    lines += [
        f"Training ends with the choice of stop thresholds on held-out episodes; `python scripts/results.py calibrate {problem}` repeats that choice alone.",
        "",
    ]
    lines += ["| model | minutes (wall-clock) | weights sha256 |", "|---|---|---|"]
    for dim in dims:
        row = next(row for row in rows if row["dim"] == dim)
        lines.append(f"| {problem}-{dim}d | {row['minutes']:.1f} | {row['sha256'][:16]} |")
    return "\n".join([*lines, ""])


def other_rule(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "",
        "## The other stop rule",
        "",
        "The Bellman rule of the same models, its cost calibrated in the same way.",
        "",
        "| d | epsilon | noise | accuracy | queries | queries of the confidence rule |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        b, c = row["bellman"], row["confidence"]
        text = (
            "refused: not safe at this delta | " if "refused" in b else f"{b['accuracy']:.3f} | {b['mean_queries']:.2f}"
        )
        ours = f"{c['mean_queries']:.2f}" if "mean_queries" in c else "refused"
        lines.append(f"| {row['dim']} | {row['epsilon']} | {row['noise']} | {text} | {ours} |")
    return lines


def tasks(rows: list[dict[str, Any]]) -> str:
    """On how many tasks a cell was measured, by dimension where that differs."""
    by_dim = {row["dim"]: row["confidence"]["episodes"] for row in rows if "episodes" in row["confidence"]}
    if len(set(by_dim.values())) == 1:
        return f"{next(iter(by_dim.values())):,}"
    return ", ".join(f"{n:,} (d = {dim})" for dim, n in by_dim.items())


def cell_line(row: dict[str, Any]) -> str:
    c = row["confidence"]
    head = f"| {row['dim']} | {row['epsilon']} | {row['noise']} |"
    if "refused" in c:
        return f"{head} refused: {c['refused']} | | {row['paper_best_queries']} | | {row['reference_queries']} | | {row['goal_queries']} | no |"
    low, high = c["accuracy_ci"]
    q_low, q_high = c["mean_queries_ci"]
    queries = c["mean_queries"]
    reference = row["reference_queries"]
    is_reference = shown(row["problem"], row["dim"]) == "the likelihood"  # goals are for agents that do not know it
    is_met = queries <= row["goal_queries"] and c["accuracy"] >= 1 - row["delta"]
    met = "-" if is_reference else "yes" if is_met else "**no**"
    return (
        f"{head} {c['accuracy']:.3f} ({low:.3f}-{high:.3f}) | {queries:.2f} ({q_low:.2f}-{q_high:.2f}) | "
        f"{row['paper_best_queries']} | {queries / row['paper_best_queries']:.2f} | {reference or '?'} | "
        f"{f'{queries / reference:.2f}' if reference else '?'} | {row['goal_queries']} | {met} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["train", "calibrate", "alarm", "page", "write", "readme"])
    parser.add_argument("problem", nargs="?", default="binary-search")
    parser.add_argument("--dims", type=int, nargs="*")
    args = parser.parse_args()
    dims = args.dims or sorted({cell["dim"] for cell in cells(args.problem)})
    if args.action not in ("page", "write"):
        {
            "train": lambda: train(args.problem, dims),
            "calibrate": lambda: calibrate(args.problem, dims),
            "alarm": lambda: alarm(args.problem, dims),
            "readme": readme,
        }[args.action]()
        return
    out = ROOT / "docs" / "results"
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"{args.problem}.json"
    kept = [row for row in json.loads(file.read_text()) if row["dim"] not in dims] if file.exists() else []
    if args.action == "write":
        rows = [row | figures_of_others(row) for row in json.loads(file.read_text())]
    else:
        rows = sorted(kept + measure(args.problem, dims), key=lambda row: row["dim"])
    file.write_text(json.dumps(rows, indent=1) + "\n")
    notes = out / "notes" / f"{args.problem}.md"
    tail = "\n" + notes.read_text() if notes.exists() else ""
    (out / f"{args.problem}.md").write_text(page(args.problem, rows) + tail)


if __name__ == "__main__":
    main()
