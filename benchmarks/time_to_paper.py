"""How long from a cold start to the paper's own figures: binary search, d = 6, all four cells, one core.

    python benchmarks/time_to_paper.py --budgets 15 25 40 60

For each budget (seconds of training) a fresh process imports the library, trains one model for all cells,
calibrates it on 8,192 held-out episodes and saves it; the whole of that is timed. The model is then measured
on fresh tasks: it has arrived when every cell has accuracy >= 0.90 with at most the paper's queries.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import cicpe

CELLS = [
    cell
    for cell in json.loads((Path(__file__).parent / "targets.json").read_text())["cells"]
    if (cell["problem"], cell["dim"]) == ("binary-search", 6)
]
EPISODES, SEED = 4000, 31


def cold_start(seconds: float, seed: int, out: Path) -> float:
    """Wall-clock seconds of a whole process that trains and calibrates."""
    code = (
        "import sys, torch; torch.set_num_threads(1); import cicpe; "
        "cicpe.train('binary-search', minutes=float(sys.argv[1]) / 60, seed=int(sys.argv[2]), out=sys.argv[3], "
        "calibration_episodes=8192, checkpoint_seconds=1e9)"
    )
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code, str(seconds), str(seed), str(out)], check=True)
    return time.perf_counter() - began


def measure(out: Path) -> list[dict[str, float]]:
    model, rows = cicpe.load(out), []
    for cell in CELLS:
        where = {"epsilon": cell["epsilon"], "noise": cell["noise"], "paper": cell["paper_best_queries"]}
        try:
            result = cicpe.evaluate(
                model, epsilon=cell["epsilon"], delta=0.1, noise=cell["noise"], episodes=EPISODES, seed=SEED
            )
        except cicpe.InvalidInput:
            rows.append(where | {"accuracy": 0.0, "queries": float("inf")})
            continue
        rows.append(where | {"accuracy": result.accuracy, "queries": result.mean_queries})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budgets", type=float, nargs="+", default=[15, 25, 40, 60])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("docs/results/time-to-paper.md"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        "# Time to the paper's own figures",
        "",
        f"`python benchmarks/time_to_paper.py --budgets {' '.join(f'{b:g}' for b in args.budgets)}` on "
        f"{time.strftime('%Y-%m-%d')} ({platform.machine()}, one thread): binary search, d = 6; one model for all four "
        f"cells; {EPISODES} fresh tasks per cell (seed {SEED}), delta 0.1. *Seconds* is the wall-clock of the whole process: "
        "import, training, calibration, saving. The paper trains 12 GPU hours per cell.",
        "",
        "| budget | seed | seconds | "
        + " | ".join(f"eps {c['epsilon']}, p {c['noise']} (paper {c['paper_best_queries']})" for c in CELLS)
        + " | all four reached |",
        "|---|---|---|" + "---|" * (len(CELLS) + 1),
    ]
    for budget in args.budgets:
        for seed in args.seeds:
            with tempfile.TemporaryDirectory() as folder:
                took = cold_start(budget, seed, Path(folder) / "model")
                rows = measure(Path(folder) / "model")
            arrived = all(row["accuracy"] >= 0.9 and row["queries"] <= row["paper"] for row in rows)
            print(budget, seed, round(took, 1), json.dumps(rows), arrived, flush=True)
            cells = " | ".join(
                "refused" if row["accuracy"] == 0 else f"{row['queries']:.1f} at {row['accuracy']:.3f}" for row in rows
            )
            lines.append(f"| {budget:g} s | {seed} | {took:.0f} | {cells} | {'yes' if arrived else 'no'} |")
    args.out.write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
