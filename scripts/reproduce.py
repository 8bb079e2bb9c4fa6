"""Trains and measures the paper's tables by the paper's protocol, and writes them with ours beside: docs/RESULTS.md.

    python scripts/reproduce.py                                    # everything: about 25 core-hours
    python scripts/reproduce.py --family best-arm gp-max --jobs 2  # without Ackley all of it takes two core-hours
    python scripts/reproduce.py --family binary-search --dim 6     # one dimension
    python scripts/reproduce.py --seeds 1 --minutes 1 --tasks 20 --trajectories 3 --family best-arm --dim 5   # a trial
    python scripts/reproduce.py --write                            # only writes the page, from what there is
    python scripts/reproduce.py --others                           # only what comes from docs/results: baselines, references, claims

What is trained is in scripts/reproduce.toml: every family and dimension is a sweep (`cicpe sweep`) over seeds, in a
folder of its own under runs/reproduce. The same command again goes on: a model that is trained and a cell that is
measured are not done again. Where no seed was trained, the page has the zoo's one model, and says so. With --minutes models are others, so they have folders of their own, and the page goes
beside them unless --page says where.
"""

import argparse
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import reproduce_page
from reproduce_page import CellResult

from cicpe.evaluation.bootstrap import Mean
from cicpe.reporting.sweep_results import SweepResults, SweepRow, sweep_groups

ROOT = Path(__file__).parent.parent
PROTOCOL = ROOT / "scripts" / "reproduce.toml"
RUNS, PAGE = ROOT / "runs" / "reproduce", ROOT / "docs" / "RESULTS.md"
RESULTS = ROOT / "docs" / "results"


class Sweep(NamedTuple):
    """One family and dimension: where its runs are, and the file that `cicpe sweep` reads."""

    family: str
    dim: int
    folder: Path
    content: dict[str, Any]

    @property
    def results(self) -> Path:
        return self.folder / "results.sqlite"


def sweeps(args: argparse.Namespace, protocol: dict[str, Any]) -> list[Sweep]:
    """Every sweep that was asked for."""
    chosen = []
    for family, about in protocol["families"].items():
        for dim, minutes in about["minutes"].items():
            if (args.family and family not in args.family) or (args.dim and int(dim) not in args.dim):
                continue
            name = f"{family}-{dim}d" + ("" if args.minutes is None else f"-{args.minutes:g}-minutes")
            train = {
                "dim": int(dim),
                "minutes": args.minutes or minutes,
                "epsilon": about["epsilon"],
                "noise": about["noise"],
            }
            train |= {key: about[key] for key in ("recipe", "calibration-episodes") if key in about}
            content = {
                "problem": family,
                "out": str(args.out / name),
                "cells": [{"epsilon": e, "delta": protocol["delta"], "noise": noise} for e, noise in about["cells"]],
                "episodes": args.tasks,
                "trajectories": args.trajectories,
                "train": train,
                "product": {"seed": list(range(args.seeds))},
            }
            chosen.append(Sweep(family, int(dim), args.out / name, content))
    return chosen


def run(sweep: Sweep, jobs: int) -> None:
    """Trains and measures what is missing. A run that fails is said by `cicpe sweep`, and the others go on."""
    sweep.folder.mkdir(parents=True, exist_ok=True)
    file = sweep.folder / "sweep.json"
    file.write_text(json.dumps(sweep.content, indent=1) + "\n")
    print(f"{sweep.family}, d = {sweep.dim}: cicpe sweep {file}", flush=True)
    subprocess.run([sys.executable, "-m", "cicpe", "sweep", str(file), "--jobs", str(jobs)], check=False)


def measured(sweep: Sweep) -> list[CellResult]:
    """The cells of a sweep, seeds taken together; only what was measured at the size that was asked for.

    Nothing where the sweep was never begun.
    """
    if not sweep.results.exists():
        return []
    wanted = (sweep.content["episodes"], sweep.content["trajectories"])
    rows = [row for row in SweepResults(sweep.results).rows() if asked_size(row) == wanted]
    return [cell_result(sweep, *cell, rows) for cell in cells_of(sweep)]


def cells_of(sweep: Sweep) -> list[tuple[float, float]]:
    """Epsilon and noise of every cell."""
    return [(cell["epsilon"], cell["noise"]) for cell in sweep.content["cells"]]


def of_the_zoo(sweep: Sweep) -> list[CellResult]:
    """The cells of a dimension as the zoo's one model does them, in place of seeds that were not trained.

    Every task is played once, so the interval is of tasks alone.
    """
    file = RESULTS / f"{sweep.family}.json"
    rows = json.loads(file.read_text()) if file.exists() else []
    return [
        CellResult(
            problem=sweep.family,
            dim=sweep.dim,
            epsilon=row["epsilon"],
            noise=row["noise"],
            delta=row["delta"],
            seeds=1,
            refused=0,
            tasks=row["confidence"]["episodes"],
            trajectories=1,
            accuracy=Mean(row["confidence"]["accuracy"], *row["confidence"]["accuracy_ci"]),
            queries=Mean(row["confidence"]["mean_queries"], *row["confidence"]["mean_queries_ci"]),
            minutes=[row["minutes"]],
            seconds=row["confidence"]["seconds"],
        )
        for row in rows
        if row["dim"] == sweep.dim
    ]


def asked_size(row: SweepRow) -> tuple[int, int]:
    asked = json.loads(row.row["asked"])
    return asked["episodes"], asked.get("trajectories", 1)


def cell_result(sweep: Sweep, epsilon: float, noise: float, rows: list[SweepRow]) -> CellResult:
    own = [row for row in rows if (row.cell[0], row.cell[2]) == (epsilon, noise)]
    groups = sweep_groups(own)
    accuracy, queries = (groups[0].accuracy, groups[0].queries) if groups else (None, None)
    return CellResult(
        problem=sweep.family,
        dim=sweep.dim,
        epsilon=epsilon,
        noise=noise,
        delta=sweep.content["cells"][0]["delta"],
        seeds=len(own),
        refused=sum(row.row["refused"] is not None for row in own),
        tasks=sweep.content["episodes"],
        trajectories=sweep.content["trajectories"],
        accuracy=accuracy and Mean(*accuracy),
        queries=queries and Mean(*queries),
        minutes=[float(row.row["minutes"]) for row in own],
        seconds=sum(float(row.row.get("seconds", 0.0)) for row in own),
    )


def arguments(words: list[str] | None, protocol: dict[str, Any]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", nargs="*", choices=list(protocol["families"]))
    parser.add_argument("--dim", nargs="*", type=int)
    parser.add_argument("--seeds", type=int, default=protocol["seeds"])
    parser.add_argument("--minutes", type=float, help="of training, in place of the protocol's")
    parser.add_argument("--tasks", type=int, default=protocol["tasks"])
    parser.add_argument("--trajectories", type=int, default=protocol["trajectories"])
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, one thread each")
    parser.add_argument("--out", type=Path, default=RUNS, help="a folder for all models and results")
    parser.add_argument(
        "--page", type=Path, help="where the page goes; docs/RESULTS.md, or OUT/RESULTS.md with --minutes"
    )
    parser.add_argument("--write", action="store_true", help="train and measure nothing")
    parser.add_argument("--others", action="store_true", help="change nothing of the page but what docs/results says")
    args = parser.parse_args(words)
    args.out = args.out.resolve()
    args.page = args.page or (PAGE if args.minutes is None else args.out / "RESULTS.md")
    return args


def main(words: list[str] | None = None) -> None:
    protocol = tomllib.loads(PROTOCOL.read_text())
    args = arguments(words, protocol)
    chosen = sweeps(args, protocol)
    if not chosen:
        raise SystemExit("no family has that dimension: see scripts/reproduce.toml")
    if args.others:
        cells = [cell_result(sweep, *cell, []) for sweep in chosen for cell in cells_of(sweep)]
        args.page.write_text(reproduce_page.refreshed(args.page.read_text(), cells))
        return
    for sweep in [] if args.write else chosen:
        run(sweep, args.jobs)
    results = [cell for sweep in chosen for cell in measured(sweep) or of_the_zoo(sweep)]
    page = reproduce_page.page(results)
    args.page.parent.mkdir(parents=True, exist_ok=True)
    args.page.write_text(page)
    print("\n".join(reproduce_page.cost_lines(results)))
    print(f"written: {args.page}")


if __name__ == "__main__":
    main()
