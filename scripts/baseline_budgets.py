"""Baselines without a stop rule at the paper's budgets and at ours: docs/results/baselines.md.

    python scripts/baseline_budgets.py                                   # TPE and CMA-ES, uniform estimates: 500 tasks per cell
    python scripts/baseline_budgets.py --method gp-logei-botorch gp-ucb --tasks 100   # Gaussian processes: some minutes per family
    python scripts/baseline_budgets.py --write                           # only writes the page, from what there is

An optimiser that cannot stop does the same whatever its budget is. So it plays the tasks of a noise level once, up to the
largest budget, and what it would have recommended is read at every budget and epsilon. Uniform bins depend on the budget, and are
played for each. What was measured is kept in docs/results/baselines.json; the same command again goes on.
"""

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

import cicpe
from cicpe.baselines.catalogue import METHODS, ComparisonSetting
from cicpe.baselines.published import published
from cicpe.episodes.table import tabulate_agent
from cicpe.parallel import Executor
from cicpe.statistics import clopper_pearson

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
KEPT = RESULTS / "baselines.json"
SEED, DELTA, TASKS = 31_000, 0.1, 500
FAMILIES = {"ackley": ("tpe", "cma-es"), "gp-max": ("tpe", "cma-es", "uniform-bins", "uniform-top")}
"""The families of the paper with such baselines, and the methods that are quick enough for all tasks."""
GAUSSIAN_PROCESSES = ("gp-logei-botorch", "gp-ucb")
"""Slower ones: some milliseconds per query where hundreds of tasks are played together. Optuna's own gp-logei is slower still."""
BY_BUDGET = ("uniform-bins",)
"""Methods whose queries depend on their budget."""


class Budget(NamedTuple):
    """So many queries in one cell."""

    problem: str
    dim: int
    noise: float
    epsilon: float
    queries: int
    whose: str
    """The paper's mean stopping time of its best actor, or that of our model of the zoo; both rounded up."""


def budgets(family: str) -> Iterator[Budget]:
    """The paper's budget and ours, in every cell of a family."""
    for cell in json.loads((RESULTS / f"{family}.json").read_text()):
        at = family, cell["dim"], cell["noise"], cell["epsilon"]
        for whose, queries in (
            ("paper", cell["paper_best_queries"]),
            ("ours", cell["confidence"]["mean_queries"]),
        ):
            yield Budget(*at, math.ceil(queries), whose)


def plays(method: str, chosen: Sequence[Budget]) -> Iterator[list[Budget]]:
    """The budgets that one play serves: those of a dimension and noise level, or each alone."""
    for key in dict.fromkeys(_play_of(method, budget) for budget in chosen):
        yield [budget for budget in chosen if _play_of(method, budget) == key]


def _play_of(method: str, budget: Budget) -> tuple[float, ...]:
    alone = (budget.queries,) if method in BY_BUDGET else ()
    return (budget.dim, budget.noise, *alone)


def measured(method: str, served: Sequence[Budget], tasks: int, executor: Executor) -> list[dict[str, Any]]:
    """Plays the tasks once, and reads the accuracy at every budget."""
    first, most = served[0], max(budget.queries for budget in served)
    problem = cicpe.make_problem(first.problem, dim=first.dim, noise=first.noise)
    agent = METHODS[method].make(ComparisonSetting(problem, first.epsilon, DELTA, most))
    table = tabulate_agent(agent, problem, tasks, most, SEED, executor=executor)
    rows = []
    for budget in served:
        right = int((table.loss_BT[:, budget.queries] <= budget.epsilon).sum())
        low, high = clopper_pearson(right, tasks)
        rows.append(
            budget._asdict()
            | {"method": method, "tasks": tasks, "accuracy": right / tasks, "accuracy_ci": [float(low), float(high)]}
        )
    return rows


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """What one row is kept for each of."""
    return tuple(row[name] for name in ("problem", "dim", "epsilon", "noise", "whose", "method"))


def is_kept(rows: Sequence[dict[str, Any]], method: str, budget: Budget, tasks: int) -> bool:
    """Whether a budget was measured before, on as many tasks or more."""
    wanted = key_of(budget._asdict() | {"method": method})
    return any(key_of(row) == wanted and row["queries"] == budget.queries and row["tasks"] >= tasks for row in rows)


def kept_rows() -> list[dict[str, Any]]:
    """What was measured before."""
    rows: list[dict[str, Any]] = json.loads(KEPT.read_text())["rows"] if KEPT.exists() else []
    return rows


def keep(fresh: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Writes new rows beside what is kept by now: another process may measure other methods."""
    replaced = {key_of(row) for row in fresh}
    rows = [row for row in kept_rows() if key_of(row) not in replaced] + list(fresh)
    KEPT.write_text(json.dumps({"seed": SEED, "rows": rows}, indent=1) + "\n")
    return rows


# --- the page -------------------------------------------------------------------------------------------------------


def page(rows: Sequence[dict[str, Any]]) -> str:
    """All rows, cell by cell, with the paper's figure beside each of its budget."""
    lines = [
        "# Baselines at two budgets",
        "",
        "Optimisers and estimates without a stop rule, given as many queries as the paper's best actor needs on average, and as many as "
        "our model of the zoo does (both rounded up). Accuracy is the share of fresh tasks whose recommendation is within epsilon, "
        f"with its 95 % interval (Clopper-Pearson), seed {SEED}. In brackets, the paper's figure for the method, at its own budget. "
        "TPE makes three random queries first, not Optuna's ten. The Gaussian processes (Matern kernel, hyperparameters fitted at every "
        "query) are BoTorch's, a batch of tasks in one model; they begin with three (logEI) and five (UCB) queries of a Sobol design. "
        "The paper's GP-logEI is Optuna's. Written by `python scripts/baseline_budgets.py`; n is given where there are fewer than "
        f"{TASKS} tasks.",
    ]
    for family in dict.fromkeys(row["problem"] for row in rows):
        own = [row for row in rows if row["problem"] == family]
        lines += ["", f"## {family}", "", *family_table(own)]
    return "\n".join([*lines, ""])


def family_table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A row per cell and budget, a column per method."""
    methods = [name for name in METHODS if any(row["method"] == name for row in rows)]
    yield f"| d | epsilon | noise | budget | {' | '.join(methods)} |"
    yield "|---" * (4 + len(methods)) + "|"
    places = dict.fromkeys((r["dim"], r["epsilon"], r["noise"], r["whose"], r["queries"]) for r in rows)
    for place in sorted(places, key=lambda at: (at[0], -at[1], at[2], at[3] == "ours")):
        own = {r["method"]: r for r in rows if (r["dim"], r["epsilon"], r["noise"], r["whose"], r["queries"]) == place}
        dim, epsilon, noise, whose, queries = place
        of = "the paper's" if whose == "paper" else "ours"
        entries = [entry(own[name]) if name in own else "" for name in methods]
        yield f"| {dim} | {epsilon:g} | {noise:g} | {queries}, {of} | {' | '.join(entries)} |"


def entry(row: dict[str, Any]) -> str:
    low, high = row["accuracy_ci"]
    cell = published(row["problem"], row["dim"], row["epsilon"], row["noise"])
    name = METHODS[row["method"]].published
    theirs = None if cell is None or name not in cell.methods else cell.methods[name].accuracy
    beside = f" [{theirs:.3f}]" if theirs is not None and row["whose"] == "paper" else ""
    few = "" if row["tasks"] == TASKS else f", n = {row['tasks']}"
    return f"{row['accuracy']:.3f} ({low:.3f}-{high:.3f}{few}){beside}"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", nargs="*", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--dim", nargs="*", type=int)
    parser.add_argument("--method", nargs="*", choices=["gp-logei", *GAUSSIAN_PROCESSES, *FAMILIES["gp-max"]])
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="play nothing")
    args = parser.parse_args(words)
    torch.set_num_threads(1)
    rows = kept_rows()
    for family in [] if args.write else args.family:
        chosen = [budget for budget in budgets(family) if args.dim is None or budget.dim in args.dim]
        for method in args.method or FAMILIES[family]:
            missing = [budget for budget in chosen if not is_kept(rows, method, budget, args.tasks)]
            for served in plays(method, missing):
                fresh = measured(method, served, args.tasks, Executor(args.jobs))
                print(*(json.dumps(row) for row in fresh), sep="\n", flush=True)
                rows = keep(fresh)
    (RESULTS / "baselines.md").write_text(page(rows))


if __name__ == "__main__":
    main()
