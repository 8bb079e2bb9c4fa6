"""Frozen agents under other priors, with the theory's bounds: the zoo's models, and the paper's actors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from actor_agents import actors_at, in_paper_order, words_on_actors
from figure_parts import DELTA, HARDEST, SEED, Drawn, counted, played

from cicpe.agents.base import Agent
from cicpe.evaluation.robustness import PROFILE_FACTOR, robustness
from cicpe.plots.heat import plot_robustness
from cicpe.problems import Problem
from cicpe.reporting.robustness_panels import robustness_panels

PRIORS = {
    "binary-search-6d": (None, 500),
    "binary-search-20d": (None, 500),
    "best-arm-15d": (None, 500),
    "gp-max-1d": (None, 500),
    "gp-max-1d-lengthscale": ("lengthscale", 500),
    "ackley-5d": (None, 60),
    "geochem-2d": (None, 100),
}
"""Figure -> the number of a task that is shifted (None: its target), and tasks per cell of the grid."""
ACTOR_PRIORS: dict[str, int | None] = {
    "binary-search-20d": None,
    "best-arm-15d": None,
    "gp-max-1d-lengthscale": None,
    "ackley-5d": 12,
    "geochem-2d": 60,
}
"""Figures that there are per actor too, and tasks per cell where they are fewer than for one agent."""
BY_LENGTH = "-lengthscale"


def under_priors(agent: Agent, problem: Problem, epsilon: float, figure: str, tasks: int | None) -> dict[str, Any]:
    """Accuracy and queries on the grid of priors, and the bounds of both."""
    field, usual = PRIORS[figure]
    study = robustness(agent, problem, epsilon, DELTA, tasks or usual, SEED, field)
    alphas, betas, panels = robustness_panels(study, bounds=True)
    kept = [
        [name, *(None if part is None else np.round(part, 4).tolist() for part in parts)] for name, *parts in panels
    ]
    return {"alphas": alphas, "betas": betas, "panels": kept, "shifted": study.shifted, "tasks": tasks or usual}


def measure_priors(figure: str, tasks: int | None) -> dict[str, Any]:
    return under_priors(*played(figure.removesuffix(BY_LENGTH)), figure, tasks)


def measure_actor_priors(figure: str, tasks: int | None) -> dict[str, Any]:
    """Family and dimension -> actor -> what it does under the priors."""
    name = figure.removesuffix(BY_LENGTH)
    return {
        name: {
            actor: under_priors(one.agent, one.family_tasks, one.epsilon, figure, tasks or ACTOR_PRIORS[figure])
            | one.facts
            for actor, one in actors_at(name)
        }
    }


def panels_of(study: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What is kept, as arrays: accuracy, queries, and the bounds of both."""
    return [
        (heading, *(None if part is None else np.array(part) for part in parts)) for heading, *parts in study["panels"]
    ]


def title_of(figure: str, shifted: str) -> str:
    name = figure.removesuffix(BY_LENGTH)
    epsilon, noise = HARDEST[name]
    return f"{name}: epsilon {epsilon:g}, noise {noise:g}, delta {DELTA:g}; shifted: {shifted}"


def draw_priors(figure: str, study: dict[str, Any]) -> Drawn:
    panels, title = panels_of(study), title_of(figure, study["shifted"])
    drawn = plot_robustness(study["alphas"], study["betas"], panels, title=title)
    caption = (
        f"The frozen agent under Beta priors, n = {study['tasks']:,} tasks per cell, seed {SEED}, with 95 % intervals; the training "
        "prior is boxed. Below, what the theory promises from measurements under the training prior alone "
        f"(n = {PROFILE_FACTOR * study['tasks']:,} tasks, each played twice): the best of its bounds in each cell. "
    ) + words_on_bounds(panels)
    return Drawn(drawn, caption)


def draw_actor_priors(figure: str, by_name: dict[str, Any]) -> Drawn:
    """A row per actor: its accuracy, and the lower bound of that. All rows have the same colours."""
    ((name, actors),) = by_name.items()
    actors = {actor: actors[actor] for actor in in_paper_order(actors)}
    panels = {actor: panels_of(study) for actor, study in actors.items()}
    rows = [(f"{actor}: {heading}", *parts) for actor, own in panels.items() for heading, *parts in (own[0], own[2])]
    lowest = min(float(own[0][1].min()) for own in panels.values())
    first = next(iter(actors.values()))
    drawn = plot_robustness(
        first["alphas"],
        first["betas"],
        rows,  # type: ignore[arg-type]
        scales=[(lowest, 1.0), (0.0, 1.0)] * len(actors),
        title=title_of(figure, first["shifted"]),
    )
    tasks = {study["tasks"] for study in actors.values()}
    caption = (
        f"The frozen actors under Beta priors, n = {counted(tasks)} tasks per cell, seed {SEED}, with 95 % intervals; the training prior "
        "is boxed. On the right, the accuracy that the theory promises from measurements under the training prior alone "
        f"(n = {counted({PROFILE_FACTOR * n for n in tasks})} tasks, each played twice): the best of its bounds in each cell. "
    )
    sentences = [f"{actor}: {words_on_queries(own)} {words_on_bounds(own)}" for actor, own in panels.items()]
    return Drawn(drawn, caption + " ".join([*sentences, words_on_actors({name: actors})]))


def words_on_queries(panels: Sequence[tuple[Any, ...]]) -> str:
    """How the mean queries differ between the priors."""
    queries = panels[1][1]
    return f"{queries.min():.1f} to {queries.max():.1f} mean queries."


def words_on_bounds(panels: Sequence[tuple[Any, ...]]) -> str:
    """In how many cells the lower bound of the accuracy says something, and whether any cell is below it."""
    (_, accuracy, low, high), (_, promised, _, _) = panels[0], panels[2]
    informative, below = int((promised >= 0.5).sum()), int((high < promised).sum())
    worst = np.unravel_index(int(accuracy.argmin()), accuracy.shape)
    return (
        f"The lower bound of the accuracy is 0.5 or more in {informative} of {promised.size} cells; in {below} the measured accuracy is "
        f"below it by more than its interval. The lowest accuracy is {accuracy[worst]:.2f} ({low[worst]:.2f}-{high[worst]:.2f})."
    )
