"""The page of scripts/reproduce.py: the paper's tables cell by cell, ours beside them, and a line per claim."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import copper_page
from reproduce_claims import OPEN, claim_lines

from cicpe.baselines.published import OURS, Figures, published
from cicpe.evaluation.bootstrap import Mean

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
GPU_HOURS = 12
"""Of one run of the paper: one seed of one cell."""
PAPER_SEEDS = 3
WITHOUT_STOP = ("tpe", "cma-es", "gp-logei", "gp-logei-botorch", "gp-ucb", "uniform-bins", "uniform-top")
"""Baselines that make every query of a budget."""
OTHERS = "Other agents that were measured here, from docs/results:"
WHOSE = {"paper": "the paper's", "ours": "ours"}
"""Whose mean stopping time a budget is."""


class CellResult(NamedTuple):
    """One cell of a table, all seeds taken together."""

    problem: str
    dim: int
    epsilon: float
    noise: float
    delta: float
    seeds: int
    """Models that were asked, those that refused included."""
    refused: int
    """Models whose calibration has no safe threshold for this cell."""
    tasks: int
    trajectories: int
    accuracy: Mean | None
    """None where nothing was measured, or all have refused."""
    queries: Mean | None
    minutes: list[float]
    """Wall-clock of training, calibration included, of every model."""
    seconds: float
    """Wall-clock of all evaluations."""

    @property
    def key(self) -> tuple[str, int, float, float]:
        return self.problem, self.dim, self.epsilon, self.noise


def page(results: Sequence[CellResult]) -> str:
    """All of it, as Markdown."""
    lines = [
        "# The paper's tables, reproduced",
        "",
        f"Written by `make reproduce` (`python scripts/reproduce.py`) on {time.strftime('%Y-%m-%d')}. One model per family, dimension and seed "
        "serves all cells of its dimension. Protocol: "
        + protocol_words(results)
        + ". Intervals are 95 %, by the bootstrap over training "
        "seeds, then tasks, then trajectories (10,000 replicates). *Exact Bayes* is the strongest agent that knows the likelihood "
        "(`benchmarks/targets.json`).",
        "",
        *cost_lines(results),
    ]
    for family in dict.fromkeys(cell.problem for cell in results):
        lines += family_lines([cell for cell in results if cell.problem == family])
    lines += [*copper_lines()]
    lines += [
        "",
        "## The paper's claims",
        "",
        "From the tables above and the pages of docs/results.",
        "",
        *claim_lines(results),
    ]
    return "\n".join([*lines, ""])


def protocol_words(results: Sequence[CellResult]) -> str:
    """Seeds x tasks x trajectories, for every combination that occurs."""
    sizes = sorted({(cell.seeds, cell.tasks, cell.trajectories) for cell in results if cell.seeds}, reverse=True)
    words = []
    for size in sizes:
        families = dict.fromkeys(c.problem for c in results if (c.seeds, c.tasks, c.trajectories) == size)
        seeds, tasks, plays = size
        words.append(f"{seeds} x {tasks} x {plays} ({', '.join(families)})")
    return (
        f"{', '.join(words) or 'nothing measured yet'} seeds x tasks x trajectories per cell (the paper: 3 x 300 x 15)"
    )


# --- cost -----------------------------------------------------------------------------------------------------------


def cost_lines(results: Sequence[CellResult]) -> list[str]:
    """Core-hours of every family beside the GPU-hours that the paper states."""
    lines = [
        "## What it cost",
        "",
        "Wall-clock of one thread, calibration and evaluation included. The paper states 12 GPU-hours per run, and needs a run for every "
        "seed of every cell, for one actor.",
        "",
        "| family | models | core-hours: training | evaluation | the paper's GPU-hours |",
        "|---|---|---|---|---|",
    ]
    totals = [0.0, 0.0, 0.0]
    for family in dict.fromkeys(cell.problem for cell in results):
        own = [cell for cell in results if cell.problem == family and cell.seeds]
        models = {cell.dim: cell.minutes for cell in own}
        hours = [
            sum(map(sum, models.values())) / 60,
            sum(cell.seconds for cell in own) / 3600,
            GPU_HOURS * PAPER_SEEDS * len(own),
        ]
        totals = [total + part for total, part in zip(totals, hours, strict=True)]
        lines.append(
            f"| {family} | {sum(map(len, models.values()))} | {hours[0]:.2f} | {hours[1]:.2f} | {hours[2]:,.0f} |"
        )
    return [*lines, f"| all | | {totals[0]:.2f} | {totals[1]:.2f} | {totals[2]:,.0f} |"]


# --- the tables of a family -----------------------------------------------------------------------------------------


def family_lines(cells: Sequence[CellResult]) -> list[str]:
    """Accuracy, queries, and what else was measured at these cells."""
    methods = list(dict.fromkeys(name for cell in cells for name in paper_of(cell)))
    own_methods = [name for name in methods if name.startswith(OURS)]
    family = cells[0].problem
    lines = ["", f"## {family}", "", "Accuracy:", "", head(["ours", *methods])[0], head(["ours", *methods])[1]]
    for cell in cells:
        theirs = [number(paper_of(cell).get(name, Figures(None, None)).accuracy, 3) for name in methods]
        lines.append(f"| {at(cell)} | {ours_accuracy(cell)} | {' | '.join(theirs)} |")
    columns = ["ours", *own_methods, "ratio to the paper's best", "exact Bayes", "ratio", "goal met"]
    lines += ["", "Queries:", "", *head(columns)]
    lines += [f"| {at(cell)} | {' | '.join(query_cells(cell, own_methods))} |" for cell in cells]
    if any(is_reference(target_of(cell)) for cell in cells):
        lines += [
            "",
            "Here ours is given the likelihood, and is itself the exact-Bayes reference; the goal is one for agents that learn from simulations alone.",
        ]
    return [*lines, *others_lines(cells)]


def head(columns: Sequence[str]) -> list[str]:
    return [f"| d | epsilon | noise | {' | '.join(columns)} |", "|---" * (3 + len(columns)) + "|"]


def at(cell: CellResult) -> str:
    return f"{cell.dim} | {cell.epsilon:g} | {cell.noise:g}"


def paper_of(cell: CellResult) -> dict[str, Figures]:
    known = published(*cell.key)
    return {} if known is None else dict(known.methods)


def number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def with_interval(mean: Mean, digits: int) -> str:
    return f"{mean.value:.{digits}f} ({mean.low:.{digits}f}-{mean.high:.{digits}f})"


def ours_accuracy(cell: CellResult) -> str:
    """The accuracy, or why there is none; one below what was asked for is in bold."""
    if cell.accuracy is None:
        return "not measured" if cell.seeds == 0 else "**refused by every seed**"
    text = with_interval(cell.accuracy, 3)
    text = f"**{text}**" if cell.accuracy.value < 1 - cell.delta else text
    return text + (f", refused by {cell.refused} of {cell.seeds} seeds" if cell.refused else "")


def query_cells(cell: CellResult, methods: Sequence[str]) -> list[str]:
    theirs = [number(paper_of(cell).get(name, Figures(None, None)).queries, 1) for name in methods]
    known, target = published(*cell.key), target_of(cell)
    best = None if known is None else known.best.queries
    exact = target["reference_queries"] if target else None
    if cell.queries is None or cell.accuracy is None:
        return ["", *theirs, "", number(exact, 2), "", "no" if cell.seeds else ""]
    queries = cell.queries.value
    is_met = target is not None and queries <= target["goal_queries"] and cell.accuracy.value >= 1 - cell.delta
    ratios = ["" if of is None else f"{queries / of:.2f}" for of in (best, exact)]
    goal = "" if is_reference(target) else "yes" if is_met else "**no**"
    return [
        with_interval(cell.queries, 2),
        *theirs,
        ratios[0],
        number(exact, 2),
        ratios[1],
        goal,
    ]


def is_reference(target: dict[str, Any] | None) -> bool:
    """Whether ours is itself the agent that knows the likelihood, and the goal one for agents that do not."""
    return target is not None and "goal_is_for" in target


def target_of(cell: CellResult) -> dict[str, Any] | None:
    targets = json.loads((ROOT / "benchmarks" / "targets.json").read_text())["cells"]
    same = [t for t in targets if (t["problem"], t["dim"], t["epsilon"], t["noise"]) == cell.key]
    return same[0] if same else None


def copper_lines() -> list[str]:
    """The paper's two tables of copper, from the figures of docs/results/copper.md."""
    if not copper_page.FIGURES.exists():
        return []
    rows = [row for row in json.loads(copper_page.FIGURES.read_text())["ours-distance"] if row["part"] == "held-out"]
    lines = [
        "",
        "## copper",
        "",
        "Regions that no agent was trained on: ours are the resolvable ones of this data, 16 of the paper's are not in it, so the columns are of "
        "different regions. One seed; baselines and every group of regions are on [its page](results/copper.md).",
        "",
        "| epsilon | ours: accuracy | ours: queries | the paper's TS: accuracy | the paper's TD3: accuracy | the paper's best: queries |",
        "|---|---|---|---|---|---|",
    ]
    for epsilon in copper_page.EPSILONS:
        own = [row for row in rows if row["epsilon"] == epsilon and row["resolvable"]]
        right = copper_page.by_seed(own, lambda row, most=epsilon: [float(loss <= most) for loss in row["loss"]])
        queries = copper_page.by_seed(own, lambda row: row["queries"])
        paper = copper_page.PAPER[epsilon]
        lines.append(
            f"| {epsilon:g} | {copper_page.mean(right)} | {copper_page.mean(queries, 1)} | {paper['ts']:.3f} | {paper['td3']:.3f} | "
            f"{paper['queries']:g} |"
        )
    return lines


def others_lines(cells: Sequence[CellResult]) -> list[str]:
    """References, baselines and other actors that docs/results has figures of, at these cells."""
    rows = [(cell, row) for cell in cells for row in others_at(cell)]
    if not rows:
        return []
    lines = [
        "",
        OTHERS,
        "",
        *head(["agent", "tasks", "accuracy", "queries"]),
    ]
    for cell, (name, row) in rows:
        accuracy, queries = (
            Mean(row["accuracy"], *row["accuracy_ci"]),
            Mean(row["mean_queries"], *row["mean_queries_ci"]),
        )
        tasks = row.get("tasks", row.get("episodes"))
        lines.append(
            f"| {at(cell)} | {name} | {tasks:,} | {with_interval(accuracy, 3)} | {with_interval(queries, 2)} |"
        )
    return lines


def refreshed(text: str, cells: Sequence[CellResult]) -> str:
    """The page with all that comes from docs/results as it is there now; what models of a sweep did stays.

    Args:
        text: The page as it was written.
        cells: Every cell of the protocol, measured or not.

    Returns:
        The same page with other tables of other agents, and other claims where those can be checked without the models.
    """
    first, *sections = text.split("\n## ")
    for place, section in enumerate(sections):
        own = [cell for cell in cells if cell.problem == section.partition("\n")[0]]
        if own:
            measured = section.partition(f"\n{OTHERS}\n")[0].rstrip("\n")
            sections[place] = "\n".join([measured, *others_lines(own), ""])
    return with_new_claims("\n## ".join([first, *sections]))


def with_new_claims(text: str) -> str:
    """The page with a new line for every claim that takes no model to check."""
    lines = text.split("\n")
    for line in claim_lines([])[2:]:
        statement, verdict = line.split(" | ")[:2]
        if verdict != OPEN:
            lines = [line if old.startswith(f"{statement} | ") else old for old in lines]
    return "\n".join(lines)


def others_at(cell: CellResult) -> list[tuple[str, dict[str, Any]]]:
    """Agent -> its figures at a cell."""
    named: list[tuple[str, dict[str, Any]]] = []
    for row in json.loads((RESULTS / "references.json").read_text())["rows"]:
        if (row["problem"], row["dim"], row["epsilon"], row["noise"]) == cell.key:
            named += row["references"].items()
    for row in json.loads((RESULTS / "actors.json").read_text())["rows"]:
        if (row["problem"], row["dim"], row["epsilon"], row["noise"]) == cell.key:
            named.append((f"actor {row['actor']}, recipe {row['recipe']}", row))
    baselines = RESULTS / "baselines.json"
    for row in json.loads(baselines.read_text())["rows"] if baselines.exists() else []:
        if (row["problem"], row["dim"], row["epsilon"], row["noise"]) == cell.key:
            named.append((f"{row['method']}, budget {row['queries']} ({WHOSE[row['whose']]})", fixed_budget(row)))
    for file in sorted(RESULTS.glob("comparison-*.json")):
        study = json.loads(file.read_text())
        if (study["problem"], study["dim"], study["epsilon"], study["noise"]) == cell.key:
            known = {name for name, _ in named}
            named += [
                (f"{r['method']}, {budget(r)}", r) for r in study["rows"] if r["method"] not in known and is_baseline(r)
            ]
    return named


def fixed_budget(row: dict[str, Any]) -> dict[str, Any]:
    """The figures of a method that made every query of its budget."""
    return row | {"mean_queries": row["queries"], "mean_queries_ci": [row["queries"]] * 2}


def is_baseline(row: dict[str, Any]) -> bool:
    """Not one of the zoo's models, which have a page of their own."""
    return not row["method"][-2:-1].isdigit()


def budget(row: dict[str, Any]) -> str:
    """Whether it had a budget, as all of Optuna's and the estimates without a model have."""
    return f"budget {row['mean_queries']:.0f}" if row["method"] in WITHOUT_STOP else "own stop"
