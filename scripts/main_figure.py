"""The paper's main figure: every method for which docs/results has figures, at the hardest cell of each family."""

import json
from typing import Any

import numpy as np
from actor_agents import PAPER, actor_label
from copper_page import BUDGETS, by_seed
from figure_parts import DELTA, RESULTS, Drawn
from reproduce_page import fixed_budget

from cicpe import zoo
from cicpe.baselines.published import published
from cicpe.evaluation.bootstrap import Mean, bootstrap_mean
from cicpe.plots.methods import MethodRow, plot_benchmarks

CELLS = (
    ("binary-search", 20, 0.1, 0.05),
    ("best-arm", 15, 0.005, 0.0025),
    ("ackley", 5, 0.1, 0.05),
    ("gp-max", 1, 0.15, 0.075),
)
"""Problem, dimension, epsilon and noise."""
EPSILON = 0.15
"""Of copper."""
SAME = PAPER | {
    "track-and-stop": "LT&S round-robin",
    "tpe": "TPE",
    "cma-es": "CMA-ES",
    "gp-logei": "GP-logEI",
    "gp-logei-botorch": "GP-logEI",
    "gp-ucb": "GP-UCB",
    "uniform-bins": "Uniform bin",
    "uniform-top": "Uniform top 5%",
}
"""A method of ours -> the paper's name of it."""


def rows_at(file: str, cell: tuple[str, int, float, float]) -> list[dict[str, Any]]:
    """The rows of a file of results that are of a cell."""
    content = json.loads((RESULTS / f"{file}.json").read_text())
    rows = content if isinstance(content, list) else content["rows"]
    return [row for row in rows if (row["problem"], row["dim"], row["epsilon"], row["noise"]) == cell]


def from_row(label: str, group: Any, row: dict[str, Any], paper: dict[str, Any], name: str) -> MethodRow:
    """A measured method, with the paper's figures of the one of that name taken out of ``paper``."""
    theirs = paper.pop(SAME.get(name, ""), (None, None))
    intervals = tuple(row["accuracy_ci"]), tuple(row["mean_queries_ci"])
    return MethodRow(label, group, row["accuracy"], intervals[0], row["mean_queries"], intervals[1], *theirs)


def synthetic(cell: tuple[str, int, float, float]) -> tuple[list[MethodRow], set[int]]:
    """The methods at a cell, ours first and the paper's own last, and on how many tasks ours were measured."""
    paper = {name: tuple(figures) for name, figures in published(*cell).methods.items()}
    (ours,) = rows_at(cell[0], cell)
    model = f"{cell[0]}-{cell[1]}d"
    training = json.loads((zoo.folder(model) / "config.json").read_text())["training"]
    knows, rule = training.get("likelihood") == "exact", training["actor"]
    methods = [from_row(model, "reference" if knows else "ours", ours["confidence"], paper, rule)]
    tasks = {ours["confidence"]["episodes"]}
    if "accuracy" in ours["bellman"]:
        methods.append(from_row("the same, Bellman rule", "ours", ours["bellman"], paper, ""))
    for row in rows_at("actors", cell):
        if (row["actor"], row["recipe"]) != (rule, "fast"):  # that is the zoo's model, which comes first
            methods.append(from_row(actor_label(row), "ours", row, paper, row["actor"]))
            tasks.add(row["episodes"])
    for name, row in rows_at("references", cell)[0]["references"].items():
        methods.append(from_row(name, "reference" if name.startswith("reference") else "baseline", row, paper, name))
        tasks.add(row["tasks"])
    for row in baselines_at(cell):
        methods.append(from_row(row["method"], "baseline", fixed_budget(row), paper, row["method"]))
        tasks.add(row["tasks"])
    return methods + [MethodRow.published(name, *figures) for name, figures in paper.items()], tasks


def baselines_at(cell: tuple[str, int, float, float]) -> list[dict[str, Any]]:
    """Methods without a stop rule at the paper's budget."""
    there = (RESULTS / "baselines.json").exists()
    return [row for row in rows_at("baselines", cell) if row["whose"] == "paper"] if there else []


def copper() -> list[MethodRow]:
    """Held-out regions; methods that cannot stop have the paper's budget."""
    figures = json.loads((RESULTS / "copper.json").read_text())
    paper = {name: tuple(values) for name, values in published("geochem", 2, EPSILON, 0.0).methods.items()}
    ours = [row for row in figures["ours-distance"] if row["epsilon"] == EPSILON and row["part"] == "held-out"]
    right = bootstrap_mean(np.array(by_seed(ours, lambda row: [float(x <= EPSILON) for x in row["loss"]])))
    methods = [
        drawn(
            "geochem, five splits",
            "ours",
            right,
            bootstrap_mean(np.array(by_seed(ours, lambda r: r["queries"]))),
            paper,
        )
    ]
    stopped = [row for row in figures["regret-bounds"] if row["epsilon"] == EPSILON]
    right = bootstrap_mean(np.array([[[float(x <= EPSILON) for x in row["loss"]] for row in stopped]]))
    queries = bootstrap_mean(np.array([[row["queries"] for row in stopped]]))
    methods.append(drawn("regret bounds", "baseline", right, queries, paper))
    for name in ("tpe", "cma-es", "gp-logei", "gp-ucb"):
        budget = BUDGETS[EPSILON]
        ends = [[float(line[min(budget, len(line) - 1)] <= EPSILON) for line in row["losses"]] for row in figures[name]]
        methods.append(drawn(name, "baseline", bootstrap_mean(np.array([ends])), Mean(budget, budget, budget), paper))
    return methods + [MethodRow.published(name, *values) for name, values in paper.items()]


def drawn(name: str, group: Any, accuracy: Mean, queries: Mean, paper: dict[str, Any]) -> MethodRow:
    theirs = paper.pop(SAME.get(name, ""), (None, None))
    return MethodRow(name, group, accuracy.value, accuracy.interval, queries.value, queries.interval, *theirs)


def measure_main() -> dict[str, Any]:
    """Benchmark -> its methods, and on how many tasks they were measured."""
    benchmarks, counts = {}, set()
    for cell in CELLS:
        problem, dim, epsilon, noise = cell
        benchmarks[f"{problem}, d = {dim}, epsilon {epsilon:g}, noise {noise:g}"], tasks = synthetic(cell)
        counts |= tasks
    benchmarks[f"copper, held-out regions, epsilon {EPSILON:g}"] = copper()
    return {"benchmarks": benchmarks, "tasks": sorted(counts)}


def draw_main(figures: dict[str, Any]) -> Drawn:
    counts = figures["tasks"]
    caption = (
        "Accuracy and mean queries at the hardest cell and the largest dimension of each family, from the files of docs/results "
        f"(n = {counts[0]:,} to {counts[-1]:,} tasks per row, seeds on the pages of each family; copper: 35 regions, 12 trajectories each of ours). "
        "Diamonds are the paper's figures, beside ours with the same rule for queries, and in rows of their own where nobody measured the method "
        "here. Weights are foreign where they have hardly learned from such histories (the page of actors says more). The paper's baselines had "
        "budgets and no stop rule: they have an accuracy alone; ours of the same name have its budgets. Its copper regions are others. `ackley-5d` knows the likelihood, as references do."
    )
    return Drawn(
        plot_benchmarks(figures["benchmarks"], goal=1 - DELTA, title=f"Hardest cells, delta {DELTA:g}"), caption
    )
