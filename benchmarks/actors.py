"""The paper's four actors on its 46 cells: one model per family, dimension and actor, conditioned on epsilon and noise.

    python benchmarks/actors.py                          # trains what is missing under runs/actors, measures, writes the page
    python benchmarks/actors.py --family binary-search --dim 6 --actor ts --minutes 20
    python benchmarks/actors.py --family gp-max --actor acquisition        # one of ours, beside the paper's
    python benchmarks/actors.py --page                   # only writes the page again, from docs/results/actors.json

It resumes: a finished model is not trained again, one that was interrupted goes on from its checkpoint, and the page
keeps the figures of all others. Every model is measured on the same fresh tasks in the cells of its family. Where a
model is not reliable enough to stop by itself, the page says what it reaches with every query that it may make.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import cicpe
from cicpe.agents.base import Agent
from cicpe.baselines.published import published
from cicpe.evaluation.evaluate import evaluate_agent
from cicpe.problems import Problem

ROOT = Path(__file__).parent.parent
RUNS, OUT = ROOT / "runs" / "actors", ROOT / "docs" / "results"
CELLS = json.loads((ROOT / "src" / "cicpe" / "baselines" / "published.json").read_text())["cells"]
PAPER = {"ts": "C-ICPE-TS", "ttps": "C-ICPE-TTPS", "td3": "C-ICPE-TD3", "uniform": "C-ICPE-uniform"}
"""The paper's actors, and what its tables call them."""
APART = {"gp-max": ("td3", "uniform"), "geochem": ("ts", "ttps", "td3", "uniform")}
"""Families that not all of the paper's actors apply to."""
SETTINGS: dict[str, dict[str, Any]] = {
    # Every prefix looks at all others: a horizon that grows would leave less training to those that need it most.
    "ackley": {"horizon": 30, "adapt_horizon": False}
}
MINUTES, EPISODES, SEED, DELTA = 30.0, 2000, 30_000, 0.1
CLOSED_FORM = "regression"
"""The memory that rests on a closed-form regression."""


@dataclass(frozen=True)
class Run:
    """One model."""

    family: str
    dim: int
    actor: str
    recipe: str

    @property
    def folder(self) -> Path:
        return RUNS / f"{self.family}-{self.dim}d-{self.actor}-{self.recipe}"

    @property
    def cells(self) -> list[dict[str, Any]]:
        return [cell for cell in CELLS if (cell["problem"], cell["dim"]) == (self.family, self.dim)]

    def problem(self) -> Problem:
        """The family that it is trained on, over all noise levels of its cells."""
        if self.family == "geochem":
            return cicpe.make_problem("geochem", regions="train")
        noise = [cell["noise"] for cell in self.cells]
        return cicpe.make_problem(self.family, dim=self.dim, noise=(min(noise), max(noise)))

    def measured_on(self, model: cicpe.Model, noise: float) -> Problem:
        """The family that it is measured on: as it is trained; of copper, the resolvable regions that it has not seen."""
        if self.family == "geochem":
            unseen = {"regions": "held-out", "group": "resolvable", "draws": 0, "twins": 0, "augment": []}
            return model.tasks({"noise": noise}, cicpe.make_problem("geochem", **unseen))
        return model.tasks({"noise": noise})


def recipe_of(actor: str, asked: str | None) -> str:
    """The recipe that trains an actor: TD3 is the published one; the others read a posterior, whoever trained it."""
    return asked or ("paper" if actor == "td3" else "fast")


def runs(asked: argparse.Namespace) -> Iterator[Run]:
    """All models that are asked for, in the order of the paper."""
    for family, dim in dict.fromkeys((cell["problem"], cell["dim"]) for cell in CELLS):
        actors = APART.get(family, tuple(PAPER))
        wanted = [asked.actor] if asked.actor else actors
        if asked.family in (None, family) and asked.dim in (None, dim):
            yield from (Run(family, dim, actor, recipe_of(actor, asked.recipe)) for actor in wanted)


def trained(run: Run, asked: argparse.Namespace) -> cicpe.Model:
    """The model, trained now if it is not there yet."""
    if not (run.folder / "config.json").exists():
        epsilon = [cell["epsilon"] for cell in run.cells]
        settings = SETTINGS.get(run.family) if run.recipe == "fast" else None
        cicpe.train(
            run.problem(),
            epsilon=(min(epsilon), max(epsilon)),
            minutes=None if asked.updates else asked.minutes,
            updates=asked.updates,
            settings=settings,
            recipe=run.recipe,
            actor=run.actor,
            out=run.folder,
            resume=True,
            calibration_episodes=asked.calibration_episodes,
        )
        print(f"trained {run.folder.name}", flush=True)
    return cicpe.load(run.folder)


def agents(model: cicpe.Model, cell: dict[str, Any]) -> Iterator[tuple[str, Agent]]:
    """How a model stops: calibrated (or not at all, where no threshold was safe enough) and, where it has one, its own."""
    try:
        agent = model.agent(cell["epsilon"], DELTA)
        agent.begin(torch.full((1, len(model.description.context_names)), cell["noise"]))
        yield "calibrated", agent
    except cicpe.InvalidInput:
        yield "never", model.unstopped(cell["epsilon"])
    if model.description.training.own_stop is not None:
        yield "own", model.agent(cell["epsilon"], DELTA, "own")


def measured(run: Run, model: cicpe.Model, episodes: int) -> Iterator[dict[str, Any]]:
    """The figures of a model in the cells of its family."""
    about = model.description
    network = getattr(about.training, "network", None)
    for cell in run.cells:
        tasks = run.measured_on(model, cell["noise"])
        for stop, agent in agents(model, cell):
            result = evaluate_agent(agent, tasks, cell["epsilon"], episodes, SEED)
            yield {
                "problem": run.family,
                "dim": run.dim,
                "epsilon": cell["epsilon"],
                "noise": cell["noise"],
                "actor": run.actor,
                "recipe": run.recipe,
                "stop": stop,
                "memory": None if network is None else network.memory.kind,
                "minutes": about.minutes,
                "updates": about.updates,
                "episodes": episodes,
                "accuracy": result.accuracy,
                "accuracy_ci": result.accuracy_ci,
                "mean_queries": result.mean_queries,
                "mean_queries_ci": result.mean_queries_ci,
            }


# The page.


def paper_figures(row: dict[str, Any]) -> tuple[float | None, float | None]:
    """Accuracy and queries of the paper's actor of that name in that cell."""
    cell = published(row["problem"], row["dim"], row["epsilon"], row["noise"])
    name = PAPER.get(row["actor"])
    return (None, None) if cell is None or name not in cell.methods else cell.methods[name]


def misses(row: dict[str, Any]) -> str | None:
    """In what a row falls short: of accuracy 0.9, or of the paper's queries."""
    short = []
    if row["accuracy"] < 1 - DELTA:
        short.append(f"accuracy {row['accuracy']:.3f} is below {1 - DELTA:g}")
    if row["stop"] == "never":
        short.append("it does not stop by itself")
    queries = paper_figures(row)[1]
    if queries is not None and row["mean_queries"] > queries:
        short.append(f"{row['mean_queries']:.1f} queries are more than the paper's {queries:g}")
    return "; ".join(short) or None


def entry(row: dict[str, Any]) -> str:
    star = " *" if row["stop"] == "never" else ""
    accuracy, queries = paper_figures(row)
    beside = "" if queries is None else f" ({accuracy:.3f} / {queries:g})"
    text = f"{row['accuracy']:.3f} / {row['mean_queries']:.1f}{star}{beside}"
    return f"{text} **miss**" if misses(row) else text


def column(row: dict[str, Any]) -> str:
    """What heads the column of a model: its actor, how it was trained, and how it stops."""
    dagger = " †" if row["memory"] == CLOSED_FORM else ""
    own = ", own stop" if row["stop"] == "own" else ""
    return f"{row['actor']} ({row['recipe']}{own}, {row['memory']}{dagger}, {row['updates']} updates)"


def table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The cells of one family and dimension: a column per model."""
    columns = list(dict.fromkeys(column(row) for row in rows))
    yield "| (epsilon, noise) | " + " | ".join(columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for cell in dict.fromkeys((row["epsilon"], row["noise"]) for row in rows):
        own = {column(row): entry(row) for row in rows if (row["epsilon"], row["noise"]) == cell}
        yield f"| ({cell[0]:g}, {cell[1]:g}) | " + " | ".join(own.get(name, "") for name in columns) + " |"


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The results page, with every miss."""
    wanted = sum(len(APART.get(cell["problem"], tuple(PAPER))) for cell in CELLS)
    there = {(r["problem"], r["dim"], r["epsilon"], r["noise"], r["actor"]) for r in rows if r["actor"] in PAPER}
    lines = [
        "# Actors compared",
        "",
        f"Written by `python benchmarks/actors.py`: one model per family, dimension and actor, one seed, fresh tasks per cell, delta {DELTA:g}. "
        "Entries are *accuracy / mean queries (the paper's)*; a star means that no threshold was safe enough, and that the model made "
        "every query that it may make; † marks networks that rest on a closed-form regression. A *miss* falls short of accuracy "
        f"{1 - DELTA:g} or needs more queries than the paper's actor of that name. Of the paper's {wanted} combinations of cell and actor, "
        f"{len(there)} are measured.",
    ]
    for family, dim in dict.fromkeys((cell["problem"], cell["dim"]) for cell in CELLS):
        some = [row for row in rows if (row["problem"], row["dim"]) == (family, dim)]
        lines += ["", f"## {family}, d = {dim}", "", *(table(some) if some else ["Not measured yet."])]
    missed = [(row, short) for row in rows if (short := misses(row)) is not None]
    lines += ["", "## Misses", ""]
    lines += [
        f"- {row['problem']} d = {row['dim']} ({row['epsilon']:g}, {row['noise']:g}), {column(row)}: {short}."
        for row, short in missed
    ] or ["None."]
    notes = OUT / "notes" / "actors.md"
    return "\n".join([*lines, ""]) + ("\n" + notes.read_text() if notes.exists() else "")


def write(rows: list[dict[str, Any]]) -> None:
    """Keeps the figures, and writes the page from them."""
    order = list(dict.fromkeys((cell["problem"], cell["dim"]) for cell in CELLS))
    rows.sort(key=lambda row: order.index((row["problem"], row["dim"])))
    (OUT / "actors.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    (OUT / "actors.md").write_text(page(rows))


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=list(dict.fromkeys(cell["problem"] for cell in CELLS)))
    parser.add_argument("--dim", type=int)
    parser.add_argument("--actor", help="one of the paper's or of ours; all of the paper's by default")
    parser.add_argument("--recipe", choices=["fast", "paper"], help="paper for td3 and fast for others by default")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of training and calibration, per model")
    parser.add_argument("--updates", type=int, help="in place of minutes")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="fresh tasks per cell")
    parser.add_argument("--calibration-episodes", type=int, default=8192)
    parser.add_argument("--page", action="store_true", help="train and measure nothing")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    asked = arguments(words)
    torch.set_num_threads(1)
    file = OUT / "actors.json"
    rows = json.loads(file.read_text())["rows"] if file.exists() else []
    for run in () if asked.page else runs(asked):
        key = (run.family, run.dim, run.actor, run.recipe)
        figures = list(measured(run, trained(run, asked), asked.episodes))
        rows = [row for row in rows if (row["problem"], row["dim"], row["actor"], row["recipe"]) != key] + figures
        print("\n".join(json.dumps(row) for row in figures), flush=True)
        write(rows)
    write(rows)


if __name__ == "__main__":
    main()
