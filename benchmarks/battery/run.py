"""The battery: default training on families that nobody tuned for, beside exact Bayes.

    python benchmarks/battery/run.py train dose source --seed 0      # five minutes of one core per family, then 2,000 tasks
    python benchmarks/battery/run.py reference dose source           # exact Bayes on the same number of tasks
    python benchmarks/battery/run.py page                            # writes docs/results/battery.md from what was measured

Budgets are minutes that this process has a core, not minutes of the clock on the wall (``--wall`` for those), so that a
machine that does other work at the same time gives the figures of a quiet one. ``slow-ramp`` sleeps, so it needs ``--wall``.

Names are those of ``families.cases``; without any, all are taken. Results are kept in benchmarks/results/battery.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CLOCK = "wall" if "--wall" in sys.argv else "processor"
if CLOCK == "processor":
    time.perf_counter = time.process_time  # before anything else reads the time

import torch  # noqa: E402
from families import Case, Family, cases  # noqa: E402
from reference import ExactBayes  # noqa: E402

import cicpe  # noqa: E402
from cicpe.episodes.table import EpisodeTable, RecordSettings, tabulate, tabulate_agent  # noqa: E402
from cicpe.errors import CicpeError  # noqa: E402
from cicpe.problems import TaskBatch  # noqa: E402
from cicpe.scoring import needed  # noqa: E402
from cicpe.statistics import clopper_pearson  # noqa: E402
from cicpe.training.callbacks import TrainingCallback  # noqa: E402

ROOT = Path(__file__).parent.parent.parent
RESULTS, PAGE = ROOT / "benchmarks" / "results" / "battery", ROOT / "docs" / "results" / "battery.md"
COMMIT = subprocess.run(
    ["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True
).stdout.strip()
"""That the code is of, as it was when the run began."""
DELTA, FRESH = 0.1, 40_000
"""Delta of every cell; the seed of the fresh tasks."""
CLOSE, FAR = 1.15, 1.4
"""Queries beside those of exact Bayes: what three quarters of the cells are to keep, and what all are."""
FEW_QUERIES = 60
"""Queries of exact Bayes up to which no cell is to be refused."""


def written(name: str, data: dict[str, Any]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n")


def train(name: str, case: Case, seed: int, minutes: float, tasks: int) -> None:
    """Default training and its figures at both epsilons."""
    lines: list[str] = []
    stages: dict[str, float] = {}
    began = time.perf_counter()

    def chosen(reasons: tuple[str, ...]) -> None:
        lines.extend(reasons)
        print("  ", *reasons, flush=True)

    def calibrating(share: float) -> None:
        stages.setdefault("fit", time.perf_counter() - began)

    callback = TrainingCallback(on_choice=chosen, on_calibration=calibrating)
    model = cicpe.train(case.problem, epsilon=case.epsilons, minutes=minutes, seed=seed, callback=callback)
    seconds = time.perf_counter() - began
    cells = [cell(model, case, epsilon, tasks) for epsilon in case.epsilons]
    written(
        f"{name}-{seed}",
        {
            "family": name,
            "seed": seed,
            "minutes": minutes,
            "clock": CLOCK,
            "seconds": {"fit": stages.get("fit", seconds), "all": seconds},
            "recipe": model.description.recipe,
            "belief": model.description.training.describe(),
            "horizon": model.description.horizon,
            "calibration_episodes": model.calibration.episodes,
            "race": lines,
            "cells": cells,
            "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "load": os.getloadavg()[0],
            "commit": COMMIT,
        },
    )
    print(name, f"{seconds:.0f} s", model.description.recipe, cells, flush=True)


def cell(model: cicpe.Model, case: Case, epsilon: float, tasks: int) -> dict[str, Any]:
    """The figures at one epsilon, or why it was refused."""
    began = time.process_time()
    try:
        result = cicpe.evaluate(model, epsilon=epsilon, delta=DELTA, episodes=tasks, seed=FRESH, problem=case.problem)
    except CicpeError as error:
        return {"epsilon": epsilon, "refused": str(error)}
    spent = time.process_time() - began
    return {
        "epsilon": epsilon,
        "tasks": tasks,
        "accuracy": result.accuracy,
        "accuracy_ci": list(result.accuracy_ci),
        "queries": result.mean_queries,
        "queries_ci": list(result.mean_queries_ci),
        "truncated": result.truncated,
        "milliseconds_per_query": 1000 * spent / max(1.0, tasks * result.mean_queries),
    }


def reference(name: str, case: Case, tasks: int) -> None:
    """Exact Bayes on fresh tasks: the least confidence at which it is accurate, and the queries that this takes."""
    rows = []
    for epsilon in case.epsilons:
        began = time.process_time()
        table, draws = exact_table(case, epsilon, tasks)
        rows.append(least(table, epsilon) | {"effective_draws": draws, "seconds": time.process_time() - began})
        print(name, rows[-1], flush=True)
    written(f"{name}-reference", {"family": name, "tasks": tasks, "cells": rows, "commit": COMMIT})


def exact_table(case: Case, epsilon: float, tasks: int) -> tuple[EpisodeTable, float | None]:
    """What exact Bayes believed after every query, and the least effective number of draws where it has any."""
    if not isinstance(case.reference, Family):
        agent = case.reference(epsilon)
        seen = tabulate_agent(agent, case.problem, tasks, agent.horizon, FRESH + 1)
        nothing = torch.zeros(tasks, 0)
        length = torch.full((tasks,), agent.horizon)
        return EpisodeTable(
            seen.loss_BT[None], nothing, seen.confidence_BT[None], {}, seen.std_BT[..., None], length
        ), None
    belief = ExactBayes(case.reference, case.reference.horizon, epsilon)
    rng = torch.Generator().manual_seed(FRESH + 1)
    settings = RecordSettings((epsilon,), certain=0.97)
    parts = [
        tabulate(belief, TaskBatch.draw(case.reference, min(64, tasks - first), rng), settings, rng)
        for first in range(0, tasks, 64)
    ]
    return EpisodeTable.joined(parts), belief.least[0]


def least(table: EpisodeTable, epsilon: float) -> dict[str, Any]:
    """The queries of the least threshold at which the posterior expects an accuracy of 1 - DELTA, and what came of it.

    Whether a task succeeds is a toss of a coin, and where curves are flat a few tosses move the threshold, and with it the
    queries, by a third. The posterior is exact, so its mean confidence is the accuracy without the tosses; that both
    agree is measured on all tasks.
    """
    expected = needed(table, epsilon, table.loss.shape[2] - 1, 1 - DELTA, by_confidence=True)
    success, n = table.loss[0] <= epsilon, table.loss.shape[1]
    last = int(success[:, -1].sum())
    return {
        "epsilon": epsilon,
        "reached": expected.confidence >= 1 - DELTA,
        "accuracy": None if math.isnan(expected.stopped_accuracy) else expected.stopped_accuracy,
        "queries": expected.queries,
        "final": last / n,
        "final_ci": [float(end) for end in clopper_pearson(last, n)],
    }


def page() -> None:
    """Writes the page from what was measured."""
    results = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    rows, inside, ratios = [], [], []
    for name, case in cases().items():
        known = results.get(f"{name}-reference", {"cells": [{}, {}]})["cells"]
        runs = [data for key, data in results.items() if data["family"] == name and not key.endswith("-reference")]
        for data in runs:
            for got, exact in zip(data["cells"], known, strict=True):
                row, verdict = line(name, case, data, got, exact)
                rows.append(row)
                inside.append(verdict)
                if "queries" in got and exact and exact["reached"]:
                    ratios.append(got["queries"] / exact["queries"])
    head = "| family | kind | seed, recipe | epsilon | tasks | accuracy (95 %) | queries | exact Bayes | ratio | |\n"
    head += "|---|---|---|---|---|---|---|---|---|---|"
    stages = [
        f"| {data['family']} | {data['seed']} | {data['seconds']['fit']:.0f} | {data['seconds']['all']:.0f} | "
        f"{data['calibration_episodes']} | {data['peak_megabytes']:.0f} | {data['load']:.1f} | {data['commit']} |"
        for key, data in results.items()
        if not key.endswith("-reference")
    ]
    kept = sum(inside)
    measured = {data["family"] for key, data in results.items() if not key.endswith("-reference")}
    left = [name for name in cases() if name not in measured]
    exact = [
        cell["accuracy"]
        for key, data in results.items()
        for cell in data["cells"]
        if key.endswith("-reference") and cell["reached"]
    ]
    PAGE.write_text(
        TEXT.format(
            exact_cells=len(exact),
            exact_accuracy=sum(exact) / max(1, len(exact)),
            kept=kept,
            cells=len(inside),
            missed=len(inside) - kept,
            compared=len(ratios),
            close=sum(ratio <= CLOSE for ratio in ratios),
            share=sum(ratio <= CLOSE for ratio in ratios) / max(1, len(ratios)),
            left=f"Not measured yet: {', '.join(left)}." if left else "All families are measured.",
            table="\n".join([head, *rows]),
            stages="\n".join(
                [
                    "| family | seed | seconds of race and fit | seconds in all | calibration episodes | peak MB | load | commit |",
                    "|---|---|---|---|---|---|---|---|",
                    *stages,
                ]
            ),
        )
    )


def line(name: str, case: Case, data: dict[str, Any], got: dict[str, Any], exact: dict[str, Any]) -> tuple[str, bool]:
    """A row of the table, and whether its cell is as good as asked for."""
    start = f"| {name} | {case.about} | {data['seed']}, {data['recipe']} | {got['epsilon']:g} |"
    reached = bool(exact) and exact["reached"]
    wanted = f"{exact['queries']:.1f} ({exact['accuracy']:.3f})" if reached else "not reached" if exact else "-"
    if "refused" in got:
        miss = not exact or (reached and exact["queries"] <= FEW_QUERIES)
        return f"{start} - | **refused** | - | {wanted} | - | {'miss' if miss else ''} |", not miss
    ratio = got["queries"] / exact["queries"] if reached else None
    low, high = got["accuracy_ci"]
    good = low >= 0.89 and (ratio is None or ratio <= FAR)
    shown = "-" if ratio is None else f"{ratio:.2f}"
    accuracy = f"{got['accuracy']:.3f} ({low:.3f}-{high:.3f})"
    return (
        f"{start} {got['tasks']} | {accuracy} | {got['queries']:.1f} | {wanted} | {shown} | {'' if good else 'miss'} |",
        good,
    )


TEXT = """# The battery: families that nobody tuned for

Default training, `cicpe.train(problem, epsilon=..., minutes=5)`, on small families of every kind
(`benchmarks/battery/families`), written as a user would write them. The agents learn from simulations alone, but
for those of the recipe `particles`, which were given the family's likelihood. Exact Bayes knows the likelihood and looks one
step ahead (`benchmarks/battery/reference.py`: sequential Monte Carlo). It stops where
its confidence reaches the threshold at which it expects an accuracy of 0.90, and the accuracy that came of it is in brackets:
where curves are flat, a threshold that is chosen by the success of a few hundred tasks would move its queries by a third. Over the
{exact_cells} cells where it reaches that, the accuracy that came of it is {exact_accuracy:.3f} on average. Delta is 0.1; every figure is on
fresh tasks that neither training nor calibration saw. Commits are named below: not all rows are of the same one.
What an agent is asked for on average falls with the number of queries ([decision 0016](../decisions/0016-what-is-asked-falls-with-the-queries.md)),
and exact Bayes has one threshold, so that an agent can need fewer.

A cell is a miss where the lower end of its 95 % interval is below 0.89, where it needs more than 1.4 times the queries of
exact Bayes, or where it was refused although exact Bayes needs at most 60: {missed} of {cells} are. Of the {compared} cells that can be compared with exact
Bayes, {close} need at most 1.15 times its queries ({share:.0%}). {left}

{table}

Time and memory. The load is that of the machine of two cores when the run ended: above 2, a run had less than a core.

{stages}

Made by `python benchmarks/battery/run.py train`, `... reference` and `... page`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=("train", "reference", "page"))
    parser.add_argument("names", nargs="*", help="families; all where none is named")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--wall", action="store_true", help="count minutes by the clock on the wall")
    args = parser.parse_args()
    torch.set_num_threads(1)
    known = cases()
    if unknown := set(args.names) - set(known):
        parser.error(f"{', '.join(sorted(unknown))}: no family of the battery; known are {', '.join(known)}")
    if args.job == "page":
        return page()
    for name in args.names or known:
        if args.job == "train":
            train(name, known[name], args.seed, args.minutes, args.tasks)
        else:
            reference(name, known[name], args.tasks)
    return None


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
