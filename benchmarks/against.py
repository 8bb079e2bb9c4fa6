"""The same work by two versions of the code: is the newer one slower?

    git worktree add ../before COMMIT
    python benchmarks/against.py ../before/src                   # all cases, ten rounds
    python benchmarks/against.py ../before/src --case particles  # one of them
    python benchmarks/against.py ../before/src --rounds 0        # only count operators: nothing that a busy machine changes

Each version works in a process of its own, and the two take turns, first one and then the other first; so a busy machine
slows both alike. The table has the median over rounds of the ratio of processor times, with the range of the middle
half, and the operators of PyTorch that the work takes, which are the same on every machine. It uses names that both
versions have.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import cicpe
from cicpe.problems import make_problem
from cicpe.training.loop import Trainer
from cicpe.training.recipes import choose
from cicpe.training.schedule import Budget

HERE = Path(__file__).resolve()
STEPS = 8
"""Observations of a history."""


def training(name: str, **options: int) -> Callable[[], object]:
    """An iteration of the fast recipe at a fixed size."""
    problem = make_problem(name, **options)
    sizes = {"adapt_horizon": False, "horizon": 20, "first_batch": 64, "batch": 64}
    config: Any = choose("fast", problem).config.model_copy(update=sizes)
    trainer = Trainer(problem, config, Budget(updates=10**9))
    return trainer.iterate


def calibration(name: str) -> Callable[[], object]:
    """A calibration on few episodes (the choice of a query spread takes as many as ever)."""
    model = cicpe.load(name)
    return lambda: cicpe.recalibrate(model, episodes=100)


def campaign(name: str) -> Callable[[], object]:
    """A campaign on a fixed history: both versions see the same observations, whatever they would have asked."""
    model, rng = cicpe.load(name), torch.Generator().manual_seed(0)
    problem, epsilon = model.problem, model.calibration.epsilons[-1]
    queries = problem.query_space.sample(STEPS, rng)
    if name == "geochem-2d":  # whose tasks are a survey that is not everywhere
        observations = (3 * queries).sin().sum(dim=-1, keepdim=True)
    else:
        task = problem.sample(1, rng)
        observations = torch.stack([problem.observe(task, query[None], rng).flatten() for query in queries])
    history = list(zip(queries.tolist(), observations.tolist(), strict=True))

    def attach_all() -> None:
        session = model.session(epsilon=epsilon, delta=0.1)
        for query, observation in history:
            session.attach(query, observation)

    return attach_all


CASES: dict[str, tuple[Callable[[], Callable[[], object]], int]] = {
    "training, binary search d = 6": (lambda: training("binary-search", dim=6), 4),
    "training, gp-max d = 1": (lambda: training("gp-max"), 2),
    "calibration, binary search d = 6": (lambda: calibration("binary-search-6d"), 1),
    "campaign, binary search d = 6 (axis)": (lambda: campaign("binary-search-6d"), 8),
    "campaign, gp-max d = 1 (regression)": (lambda: campaign("gp-max-1d"), 8),
    "campaign, Ackley d = 3 (particles)": (lambda: campaign("ackley-3d"), 2),
    "campaign, geochem d = 2 (functions)": (lambda: campaign("geochem-2d"), 2),
}
"""Name -> what makes the work, and how often it is done per round."""


class Operators(TorchDispatchMode):
    """Counts what PyTorch is asked to compute."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return function(*args, **(kwargs or {}))


def work(case: str) -> None:
    """The process of one version: answers each line on its standard input with a figure."""
    torch.set_num_threads(1)
    make, times = CASES[case]
    unit = make()
    unit()
    for line in sys.stdin:
        if line.strip() == "count":
            with Operators() as operators:
                unit()
            print(operators.count, flush=True)
            continue
        began = time.process_time()
        for _ in range(times):
            unit()
        print((time.process_time() - began) / times, flush=True)


class Version:
    """A version of the code at work on one case."""

    def __init__(self, source: Path, case: str) -> None:
        environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(HERE), str(source), "--work", case]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, what: str) -> float:
        """One figure: the seconds of a round (``time``), or the operators of a unit of work (``count``)."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(what, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def compare(before: Path, case: str, rounds: int) -> dict[str, Any]:
    """Both versions on one case, in turn."""
    versions = [Version(before, case), Version(Path(cicpe.__file__).parents[1], case)]
    counts = [int(version.ask("count")) for version in versions]
    ratios, seconds = [], []
    for k in range(rounds):
        took = {version: version.ask("time") for version in (versions if k % 2 else versions[::-1])}
        old, new = (took[version] for version in versions)
        ratios.append(new / old)
        seconds.append(new)
    for version in versions:
        version.close()
    row: dict[str, Any] = {"case": case, "operators": counts, "operators ratio": round(counts[1] / counts[0], 3)}
    if rounds >= 2:
        low, middle, high = statistics.quantiles(ratios, n=4)
        row |= {"ratio": round(middle, 3), "middle half": [round(low, 3), round(high, 3)]}
        row["milliseconds"] = round(1000 * statistics.median(seconds), 2)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the folder of source code of the older version")
    parser.add_argument("--case", default="", help="only cases with this in their names")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work is not None:
        work(args.work)
        return
    for case in CASES:
        if args.case in case:
            print(json.dumps(compare(args.before.resolve(), case, args.rounds)), flush=True)


if __name__ == "__main__":
    main()
