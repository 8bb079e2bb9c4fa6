"""Two workers against one: calibration of ackley-3d, evaluation of gp-max-1d, and a sweep of eight short runs.

    python benchmarks/parallel.py          # writes docs/results/parallel.md; both cores have to be quiet
    python benchmarks/parallel.py --only evaluation   # one of the three; the page keeps the rows of the others
    python benchmarks/parallel.py --small  # seconds to a few minutes, to see that it works; writes nothing

Times are wall-clock, and medians where a study is done several times, with one and with two workers in turn: what a
virtual machine gets of its processor changes within a minute. Workers are started before (their start is given apart: each
imports PyTorch once, and stays for the next study). The figures of both are compared to the last digit, and a difference
ends the benchmark. What was measured is kept in docs/results/parallel.json.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import cicpe
from cicpe.parallel import Executor

OUT = Path(__file__).parent.parent / "docs" / "results"
PAGE, KEPT = OUT / "parallel.md", OUT / "parallel.json"
GOAL = 1.8
JOBS = (1, 2)


class Sizes(NamedTuple):
    calibration: int
    evaluation: int
    updates: int

    repeats: dict[str, int]
    """How often a study is done, where that is not once."""


FULL = Sizes(1024, 40_960, 150, {"evaluation": 7})
SMALL = Sizes(128, 8192, 6, {})


def calibrate(jobs: int, sizes: Sizes) -> Any:
    model = cicpe.load("ackley-3d")
    return cicpe.recalibrate(model, episodes=sizes.calibration, executor=Executor(jobs)).calibration.model_dump_json()


def evaluate(jobs: int, sizes: Sizes) -> Any:
    model = cicpe.load("gp-max-1d")
    found = cicpe.evaluate(model, epsilon=0.2, delta=0.1, episodes=sizes.evaluation, executor=Executor(jobs))
    return found._replace(seconds=0.0, outcomes=None), found.outcomes.loss.tolist()  # type: ignore[arg-type]


def sweep(jobs: int, sizes: Sizes) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        train = {"noise": 0.1, "epsilon": [0.2, 0.4], "updates": sizes.updates, "calibration-episodes": 2048}
        asked = {
            "problem": "binary-search",
            "out": f"{folder}/out",
            "cells": [{"epsilon": 0.4, "delta": 0.3}],
            "episodes": 4000,
            "train": train,
            "product": {"dim": [1, 2], "seed": [0, 1, 2, 3]},
        }
        file = Path(folder) / "sweep.json"
        file.write_text(json.dumps(asked))
        command = [sys.executable, "-m", "cicpe", "sweep", str(file), "--jobs", str(jobs), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows = json.loads(done.stdout)["rows"]
    return [{key: value for key, value in row.items() if key not in ("minutes", "seconds")} for row in rows]


STUDIES: dict[str, tuple[Callable[[int, Sizes], Any], str]] = {
    "calibration of ackley-3d": (calibrate, "{0.calibration:,} held-out episodes"),
    "evaluation of gp-max-1d": (evaluate, "{0.evaluation:,} fresh tasks"),
    "sweep of 8 runs": (sweep, "binary search, d = 1 and 2, four seeds, {0.updates} updates, 4,000 fresh tasks each"),
}


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def measured(name: str, sizes: Sizes) -> dict[str, Any]:
    """The seconds of a study with one and with two workers."""
    study, words = STUDIES[name]
    repeats = sizes.repeats.get(name.split()[0], 1)
    seconds: dict[int, list[float]] = {jobs: [] for jobs in JOBS}
    figures = set()
    for _ in range(repeats):
        for jobs in JOBS:
            spent, found = timed(partial(study, jobs, sizes))
            seconds[jobs].append(spent)
            figures.add(str(found))
    assert len(figures) == 1, f"{name}: the figures depend on the number of workers"
    one, two = (statistics.median(seconds[jobs]) for jobs in JOBS)
    return {
        "study": name,
        "size": words.format(sizes),
        "repeats": repeats,
        "one": one,
        "two": two,
        "date": str(date.today()),
    }


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    ratio = row["one"] / row["two"]
    return (
        f"| {row['study']} | {row['size']} | {row['repeats']} | {row['one']:.1f} s | {row['two']:.1f} s | {ratio:.2f} | "
        f"{'yes' if ratio >= GOAL else 'no'} | {row['date']} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", choices=[name.split()[0] for name in STUDIES])
    args = parser.parse_args()
    sizes = SMALL if args.small else FULL
    start, _ = timed(lambda: list(Executor(2).map(_imported, range(4))))
    print(f"start of two workers: {start:.1f} s", flush=True)
    kept = {row["study"]: row for row in json.loads(KEPT.read_text())} if KEPT.exists() else {}
    for name in STUDIES:
        if args.only in (None, name.split()[0]):
            kept[name] = measured(name, sizes)
            print(line(kept[name]), flush=True)
    if not args.small:
        rows = [kept[name] for name in STUDIES if name in kept]
        KEPT.write_text(json.dumps(rows, indent=1) + "\n")
        PAGE.write_text(page(start, [line(row) for row in rows]))


def _imported(item: int) -> int:
    cicpe.load("gp-max-1d")
    return item


def page(start: float, rows: list[str]) -> str:
    cores = len(os.sched_getaffinity(0))
    lines = [
        "# Two workers against one",
        "",
        f"`python benchmarks/parallel.py` ({platform.machine()}, {cores} cores, one thread per worker). Wall-clock, with workers",
        "that run already, and medians where a study was done several times, with one worker and with two in turn; a sweep is the",
        "whole command, imports included. The figures with one and with two workers were the same to the last digit. The goal",
        f"is {GOAL} times.",
        "",
        "| study | size | times | one | two | times as fast | reached | date |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        f"To start two workers took {start:.1f} s: each imports PyTorch once, and stays for the next study.",
        "",
        "What else was checked, by tests: the same figures with 1, 2 and 3 workers for every study that plays episodes",
        "(`tests/test_parallel_studies.py`); a worker that is killed in the middle changes nothing (`tests/test_parallel.py`); a",
        "real Ray cluster of two nodes with their own folders gives the figures of one process, and a sweep there finishes though",
        "one node is killed in the middle (`tests/test_ray_cluster.py`).",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
