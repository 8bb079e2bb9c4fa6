"""Runs `cicpe compare` on one cell of each family and writes docs/results/comparison.md.

python scripts/comparisons.py              # all, about a quarter of an hour on one core
python scripts/comparisons.py gp-max-1d    # some
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
LINEAR = "track-and-stop,reference-conjugate"
COMPARISONS = {
    "binary-search-6d": ("binary-search", 6, 0.2, 0.1, "cicpe,random,reference-grid,reference-grid-mean"),
    "best-arm-5d": (
        *("best-arm", 5, 0.02, 0.01),
        "cicpe,random,track-and-stop,track-and-stop-uniform,reference-conjugate",
    ),
    "gp-max-1d": (*("gp-max", 1, 0.2, 0.1), "cicpe,random,tpe,cma-es,uniform-bins,uniform-top,reference-gp"),
    "ackley-3d": (*("ackley", 3, 0.2, 0.05), "cicpe,tpe,cma-es,gp-logei,gp-ucb --episodes 60"),
    "ackley-3d-15": (*("ackley", 3, 0.2, 0.05), "cicpe,tpe,cma-es,gp-logei,gp-ucb --episodes 40 --budget 15"),
    "gp-max-1d-20": (*("gp-max", 1, 0.2, 0.1), "cicpe,gp-logei,gp-ucb,reference-gp --episodes 30 --budget 20"),
    "best-arm-5d-noisy": (*("best-arm", 5, 0.05, 0.3), f"cicpe,{LINEAR} --model runs/best-arm-5d-noisy --episodes 300"),
    "best-arm-5d-noisy-fine": (*("best-arm", 5, 0.02, 0.3), f"{LINEAR} --episodes 300 --budget 100"),
}
"""Name -> problem, dimension, epsilon, noise, and the methods with what else is asked; the slowest are left out."""
TRAINED = {
    "runs/best-arm-5d-noisy": (
        *("cicpe", "train", "best-arm", "--dim", "5", "--epsilon", "0.02", "0.05", "--noise", "0.3"),
        *("--minutes", "8", "--seed", "0", "--threads", "1", "--out", "runs/best-arm-5d-noisy"),
    )
}
"""Models that are not in the zoo, trained where they are missing."""


def command(name: str) -> list[str]:
    problem, dim, epsilon, noise, methods = COMPARISONS[name]
    return [
        *("cicpe", "compare", problem, "--dim", str(dim), "--epsilon", str(epsilon), "--noise", str(noise)),
        *("--methods", *methods.split(), "--json"),
    ]


def page() -> str:
    lines = [
        "# Methods compared",
        "",
        "Our models, baselines and agents that know the likelihood, on the same tasks with the same noise; delta 0.1, "
        "95 % intervals. Methods that cannot stop get our mean number of queries, rounded up. TPE and GP-logEI "
        "make three random queries first, not Optuna's ten. Milliseconds are wall-clock of "
        "one episode alone and of all tasks in one batch, the simulator's share included, on a machine that was not always "
        "idle: compare them within a table. Written by "
        "`python scripts/comparisons.py`; `cicpe report docs/results/comparison-NAME.json --out DIR` makes a page of "
        "each.",
    ]
    for name in COMPARISONS:
        file = RESULTS / f"comparison-{name}.json"
        lines += section(name, file) if file.exists() else []
    return "\n".join([*lines, ""])


def section(name: str, file: Path) -> list[str]:
    comparison = json.loads(file.read_text())
    lines = ["", f"## {name}", ""]
    if (RESULTS.parent / "images" / f"comparison-{name}.png").exists():
        lines += [f"![{name}](../images/comparison-{name}.png)", ""]
    words = command(name)
    lines += ["```", *(" ".join(train) for out, train in TRAINED.items() if out in words), " ".join(words), "```", ""]
    lines += [
        "| method | tasks | accuracy | queries | ms per query, alone | in a batch | paper: accuracy | paper: queries |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in comparison["rows"]:
        low, high = row["accuracy_ci"]
        q_low, q_high = row["mean_queries_ci"]
        lines.append(
            f"| {row['method']} | {row['tasks']} | {row['accuracy']:.3f} ({low:.3f}-{high:.3f}) | "
            f"{row['mean_queries']:.2f} ({q_low:.2f}-{q_high:.2f}) | {1000 * row['seconds_per_query']:.2f} | "
            f"{1000 * row['batched_seconds_per_query']:.2f} | "
            f"{shown(row['paper_accuracy'])} | {shown(row['paper_queries'])} |"
        )
    lines += [""] if comparison["left_out"] else []
    return lines + [f"* {method}: left out, {why}." for method, why in comparison["left_out"].items()]


def shown(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="only write the page again")
    parser.add_argument("names", nargs="*", help=f"which, of {', '.join(COMPARISONS)}; all, if left out")
    args = parser.parse_args()
    if unknown := set(args.names) - set(COMPARISONS):
        parser.error(f"no comparison {sorted(unknown)[0]}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in [] if args.write else args.names or COMPARISONS:
        words = command(name)
        for out, train in TRAINED.items():
            if out in words and not (ROOT / out / "config.json").exists():
                subprocess.run([sys.executable, "-m", "cicpe", *train[1:]], check=True, cwd=ROOT)
        here = [sys.executable, "-m", "cicpe", *words[1:]]
        done = subprocess.run(here, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        (RESULTS / f"comparison-{name}.json").write_text(done.stdout)
    notes = RESULTS / "notes" / "comparison.md"
    (RESULTS / "comparison.md").write_text(page() + ("\n" + notes.read_text() if notes.exists() else ""))


if __name__ == "__main__":
    main()
