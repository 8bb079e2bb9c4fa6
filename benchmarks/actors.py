"""The paper's four actors on its 46 cells: models conditioned on epsilon and noise, per family and dimension.

    python benchmarks/actors.py                          # makes what is missing under runs/actors, measures, writes the page
    python benchmarks/actors.py --family best-arm --actor ts ttps uniform  # on the zoo's weights: nothing is trained
    python benchmarks/actors.py --family binary-search --dim 6 --actor uniform --weights own --minutes 20
    python benchmarks/actors.py --family ackley --dim 3 --recipe answers --minutes 30    # one learned likelihood for all four
    python benchmarks/actors.py --family gp-max --actor acquisition        # one of ours, beside the paper's
    python benchmarks/actors.py --page                   # only writes the page again, from docs/results/actors.json

TS, TTPS and uniform queries share weights where there are some to share (``actor_models.py``); TD3 is trained apart, but
for the recipe answers, where its actor learns on the shared posterior for a part of the minutes. It resumes: a finished
model is not made again, one whose training was interrupted goes on from its checkpoint, and the page keeps the figures
of all others. Every model is measured on the same fresh tasks in the cells of its family. Where a
model is not reliable enough to stop by itself, the page says what it reaches with every query that it may make.
Minutes are those that this process has a core.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

time.perf_counter = time.process_time  # before anything else reads the time

import torch  # noqa: E402
from actor_models import APART, CELLS, OWN, PAPER, ROOT, ActorBudget, Run, agents, model_of, recipe_of, run_for  # noqa: E402
from actors_page import model_key, page  # noqa: E402
from copper_rows import copper_rows  # noqa: E402

import cicpe  # noqa: E402
from cicpe.evaluation.evaluate import evaluate_agent  # noqa: E402

OUT = ROOT / "docs" / "results"
EPISODES, SEED = 2000, 30_000
USUAL = ActorBudget()


def runs(asked: argparse.Namespace) -> Iterator[Run]:
    """All models that are asked for, in the order of the paper."""
    for family, dim in dict.fromkeys((cell["problem"], cell["dim"]) for cell in CELLS):
        if asked.family not in (None, family) or asked.dim not in (None, dim):
            continue
        usual = APART.get(family, tuple(PAPER))
        if asked.recipe == "answers" and "ts" not in usual:  # queries are no answers
            usual = tuple(actor for actor in usual if actor != "td3")
        for actor in asked.actor or usual:
            yield run_for(family, dim, actor, recipe_of(actor, asked.recipe), asked.weights != OWN)


def curve(run: Run) -> list[list[float]]:
    """Updates, accuracy and queries at the looks that a network took at itself while it was trained."""
    log = run.folder / "log.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() and not run.is_shared else []
    return [[line["update"], line["accuracy"], line["queries"]] for line in lines if line.get("look")]


def measured(run: Run, model: cicpe.Model, episodes: int) -> Iterator[dict[str, Any]]:
    """The figures of a model in the cells of its family."""
    about = model.description
    network = getattr(about.training, "network", None)
    for cell in run.cells:
        tasks = run.measured_on(model, cell["noise"])
        for stop, agent in agents(model, cell["epsilon"], cell["noise"]):
            result = evaluate_agent(agent, tasks, cell["epsilon"], episodes, SEED)
            yield {
                "problem": run.family,
                "dim": run.dim,
                "epsilon": cell["epsilon"],
                "noise": cell["noise"],
                "actor": run.actor,
                "recipe": run.recipe,
                "weights": run.weights,
                "stop": stop,
                "memory": None if network is None else network.memory.kind,
                "minutes": about.minutes,
                "updates": about.updates,
                "horizon": about.horizon,
                "episodes": episodes,
                "accuracy": result.accuracy,
                "accuracy_ci": result.accuracy_ci,
                "mean_queries": result.mean_queries,
                "mean_queries_ci": result.mean_queries_ci,
                "curve": curve(run),
            }


def write(rows: list[dict[str, Any]]) -> None:
    """Keeps the figures, and writes the page from them: the paper's actors in its order, and then ours."""
    copper = list(copper_rows(OUT / "copper.json"))  # trained and measured by scripts/copper.py
    rows = [row for row in rows if not copper or row["problem"] != "geochem"] + copper
    order, actors = list(dict.fromkeys((cell["problem"], cell["dim"]) for cell in CELLS)), list(PAPER)
    rank = {actor: i for i, actor in enumerate(actors)}
    rows.sort(key=lambda row: (order.index((row["problem"], row["dim"])), rank.get(row["actor"], len(actors))))
    notes = OUT / "notes" / "actors.md"
    (OUT / "actors.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    (OUT / "actors.md").write_text(page(rows, notes.read_text() if notes.exists() else ""))


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=list(dict.fromkeys(cell["problem"] for cell in CELLS)))
    parser.add_argument("--dim", type=int)
    parser.add_argument("--actor", nargs="+", help="some of the paper's or of ours; all of the paper's by default")
    recipes = ["fast", "paper", "answers"]
    parser.add_argument("--recipe", choices=recipes, help="paper for td3 and fast for others by default")
    whose = (
        "shared (the default): ts, ttps and uniform on those of the zoo, or of one learned likelihood; own: train each"
    )
    parser.add_argument("--weights", choices=["shared", OWN], default="shared", help=whose)
    limit = "of training and calibration, per model; of calibration alone, where a likelihood is shared"
    parser.add_argument("--minutes", type=float, default=USUAL.minutes, help=limit)
    parser.add_argument("--updates", type=int, help="in place of minutes")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="fresh tasks per cell")
    parser.add_argument("--calibration-episodes", type=int, default=USUAL.calibration_episodes)
    parser.add_argument("--page", action="store_true", help="train and measure nothing")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    asked = arguments(words)
    torch.set_num_threads(1)
    file = OUT / "actors.json"
    rows = json.loads(file.read_text())["rows"] if file.exists() else []
    budget = ActorBudget(asked.minutes, asked.updates, asked.calibration_episodes)
    for run in () if asked.page else runs(asked):
        figures = list(measured(run, model_of(run, budget), asked.episodes))
        again = {model_key(row) for row in figures}
        rows = [row for row in rows if model_key(row) not in again] + figures
        print("\n".join(json.dumps(row) for row in figures), flush=True)
        write(rows)
    write(rows)


if __name__ == "__main__":
    main()
