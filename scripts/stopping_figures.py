"""When episodes stop, and how far the posterior has narrowed by then: the zoo's models, and the paper's actors."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from actor_agents import PAPER, actors_at, in_paper_order, words_on_actors
from figure_parts import DELTA, EPISODES, HARDEST, SEED, Drawn, counted, played

from cicpe.agents.base import Agent
from cicpe.episodes.table import tabulate_agent
from cicpe.evaluation.evaluate import evaluate_agent
from cicpe.evaluation.reliability import Curve, spread, survival
from cicpe.plots.bands import StoppingCurves, plot_stopping
from cicpe.problems import Problem
from cicpe.problems.geochem import Geochem

COSTLY_TASKS = {"ackley": 200, "geochem": 200}
"""Tasks per curve where an episode is costly."""
ACTOR_TASKS = {"ackley": 60, "geochem": 100}
"""The same per actor."""
ACTOR_DIMENSIONS = {"ackley": (3, 5)}
"""The dimensions that are played per actor unless others are asked for, where not all are."""
OURS = ("ucb",)
"""The rule of the zoo's models where it is none of the paper's."""
WIDE = 5
"""How many times the queries of one actor another must take for a logarithmic scale."""


def tasks_of(family: str, tasks: int | None) -> int:
    """Tasks per curve: as asked for, or as many as suit the family."""
    return tasks or COSTLY_TASKS.get(family, EPISODES)


def stopping(agent: Agent, problem: Problem, epsilon: float, tasks: int) -> dict[str, Any]:
    """The survival curve, and the posterior's spread had every episode gone on for half as long again."""
    result = evaluate_agent(agent, problem, epsilon, tasks, SEED)
    longest = float(torch.quantile(result.outcomes.queries.double(), 0.95))
    steps = min(agent.horizon, math.ceil(1.5 * longest))
    beliefs = tabulate_agent(agent, problem, tasks // 2, steps, SEED + 1)
    return {
        "survival": rounded(survival(result.outcomes.queries)),
        "spread": rounded(spread(beliefs)),
        "median": result.median_queries,
        "tasks": tasks,
    }


def rounded(curve: Curve) -> list[list[float]]:
    return [np.round(part, 5).tolist() for part in curve]


def models_of(family: str) -> dict[str, str]:
    """The dimensions of a family, and what their models are called."""
    return {f"d = {name.split('-')[-1][:-1]}": name for name in HARDEST if name.startswith(family)}


def measure_family(family: str, tasks: int | None) -> dict[str, Any]:
    return {label: stopping(*played(name), tasks_of(family, tasks)) for label, name in models_of(family).items()}


def measure_copper(tasks: int | None) -> dict[str, Any]:
    """On tasks as in training, and on the regions of the survey that were held out."""
    agent, problem, epsilon = played("geochem-2d")
    assert isinstance(problem, Geochem)
    many = tasks_of("geochem", tasks)
    curves = {"as in training": stopping(agent, problem, epsilon, many)}
    held_out = problem.as_surveyed("held-out")
    return curves | {f"{len(held_out.entries)} held-out regions": stopping(agent, held_out, epsilon, many)}


def measure_actors(family: str, tasks: int | None, dims: Sequence[int] | None = None) -> dict[str, Any]:
    """Dimension -> actor -> its curves."""
    labels = {f"d = {dim}" for dim in dims or ACTOR_DIMENSIONS.get(family, ())}
    many = tasks or ACTOR_TASKS.get(family, EPISODES)
    by_dimension = {
        label: {
            actor: stopping(one.agent, one.problem, one.epsilon, many) | one.facts
            for actor, one in actors_at(name, OURS)
        }
        for label, name in models_of(family).items()
        if not labels or label in labels
    }
    return {label: actors for label, actors in by_dimension.items() if actors}


def stopping_curves(curves: Mapping[str, Any]) -> StoppingCurves:
    """What is kept of some agents, as arrays."""
    survivals, spreads = (
        {label: tuple(np.array(part) for part in curve[key]) for label, curve in curves.items()}
        for key in ("survival", "spread")
    )
    return StoppingCurves(survivals, spreads, {label: curve["median"] for label, curve in curves.items()})  # type: ignore[arg-type]


def cell_of(family: str) -> str:
    """The hardest cell of a family, in words."""
    epsilon, noise = next(cell for name, cell in HARDEST.items() if name.startswith(family))
    return f"{family}: epsilon {epsilon:g}, noise {noise:g}, delta {DELTA:g}"


def words_on_tasks(tasks: set[int]) -> str:
    """What both halves of the figure show, and on how many tasks."""
    return (
        f"How long episodes last (n = {counted(tasks)} tasks per curve, seed {SEED}), and the posterior's standard deviation, averaged "
        f"over the coordinates of the answer, had every episode gone on (n = {counted({n // 2 for n in tasks})}, seed {SEED + 1})."
    )


def draw_stopping(family: str, curves: dict[str, Any]) -> Drawn:
    caption = words_on_tasks({curve["tasks"] for curve in curves.values()})
    return Drawn(plot_stopping({"": stopping_curves(curves)}, title=cell_of(family)), caption)


def draw_actors(family: str, by_dimension: dict[str, Any]) -> Drawn:
    ordered = {
        label: {actor: by_dimension[label][actor] for actor in in_paper_order(by_dimension[label])}
        for label in models_of(family)
        if label in by_dimension
    }
    rows = {label: stopping_curves(actors) for label, actors in ordered.items()}
    is_wide = any(max(row.median_stop.values()) > WIDE * min(row.median_stop.values()) for row in rows.values())
    tasks = {curve["tasks"] for actors in ordered.values() for curve in actors.values()}
    caption = f"{words_on_tasks(tasks)} {words_on_actors(ordered)}"
    return Drawn(
        plot_stopping(rows, order=[*PAPER, *OURS], log_queries=is_wide, title=f"{cell_of(family)}, by actor"), caption
    )
