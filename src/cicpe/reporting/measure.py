"""Everything that a report of a model shows, measured: plain records, nothing drawn."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from cicpe.agents.base import Agent
from cicpe.baselines.published import PublishedCell, published
from cicpe.episodes.table import tabulate_agent
from cicpe.episodes.trace import Trace, trace_episode
from cicpe.errors import InvalidInput, ModelError
from cicpe.evaluation.evaluate import Evaluation, evaluate_agent
from cicpe.evaluation.reliability import (
    EVEN,
    Curve,
    Floats,
    Reliability,
    at_random_times,
    reliability,
    spread,
    survival,
)
from cicpe.evaluation.robustness import Robustness, robustness
from cicpe.files import read_file
from cicpe.model import Model
from cicpe.parallel import HERE, Executor
from cicpe.problems import Problem, TaskBatch
from cicpe.problems.gp_max import GPMax
from cicpe.spaces import Box
from cicpe.streams import stream

SHIFTS = (0.5, 1.0, 3.0)
"""Values of alpha and beta in a report's small grid."""
EXAMPLES = 4
BEYOND = 5
"""Queries past the stop that examples show."""
SIDE = 101
"""Grid points along each side of a field that is drawn."""


class Setting(NamedTuple):
    """What a report is about."""

    epsilon: float
    delta: float
    noise: float | None
    """None: the range that the model was trained for, or a problem without noise."""
    episodes: int
    seed: int


class FieldPicture(NamedTuple):
    """A task in the plane, on an even grid of the query space: side x side, the first coordinate first."""

    value: Floats
    """What would be observed without noise."""
    loss: Floats
    """The loss of each point as an answer."""


class Example(NamedTuple):
    """One episode, and where the task can be drawn, the function behind it."""

    trace: Trace
    path: Floats | None
    """Values of the function on an even grid of [0, 1]."""
    field: FieldPicture | None = None


class Curves(NamedTuple):
    """A training run's own record."""

    minutes: Floats
    accuracy: Floats
    queries: Floats
    update: Floats
    losses: dict[str, Floats]


class Measured(NamedTuple):
    """All of it."""

    setting: Setting
    result: Evaluation
    published: PublishedCell | None
    survival: Curve
    spread: Curve
    belief_episodes: int
    reliability: Reliability
    examples: list[Example]
    robustness: Robustness | None


def default_setting(
    model: Model,
    epsilon: float | None,
    delta: float,
    noise: float | None,
    episodes: int,
    seed: int,
    problem: Problem | None = None,
) -> Setting:
    """Fills in what was not said: the largest epsilon that the model was calibrated for, and the tasks' usual noise."""
    about = model.description
    context = about.default_context if problem is None else problem.default_context()
    if noise is None and "noise" in about.context_names and context is not None:
        noise = context[list(about.context_names).index("noise")]
    if episodes < 2:
        raise InvalidInput("episodes", episodes, "a whole number of at least 2")
    return Setting(model.calibration.epsilons[-1] if epsilon is None else epsilon, delta, noise, episodes, seed)


def measure(
    model: Model,
    setting: Setting,
    with_robustness: bool,
    problem: Problem | None = None,
    executor: Executor = HERE,
) -> Measured:
    """Plays the model's agent: to its stop, past it, on a few tasks step by step, and under other priors if asked.

    Tasks are those of ``problem``; of the model's own, where none is given.
    """
    problem = model.tasks({} if setting.noise is None else {"noise": setting.noise}, problem)
    agent = model.agent(setting.epsilon, setting.delta)
    result = evaluate_agent(agent, problem, setting.epsilon, setting.episodes, setting.seed, executor)
    steps = min(agent.horizon, math.ceil(1.5 * float(torch.quantile(result.outcomes.queries.double(), 0.95))))
    beliefs = tabulate_agent(agent, problem, setting.episodes, steps, setting.seed + 1, executor=executor)
    about, shifted = model.description, None
    if with_robustness:
        shifted = robustness(
            agent,
            problem,
            setting.epsilon,
            setting.delta,
            setting.episodes,
            setting.seed + 3,
            grid=SHIFTS,
            executor=executor,
        )
    dim = problem.query_space.dim
    return Measured(
        setting=setting,
        result=result,
        published=None if setting.noise is None else published(about.problem, dim, setting.epsilon, setting.noise),
        survival=survival(result.outcomes.queries),
        spread=spread(beliefs),
        belief_episodes=len(beliefs.loss_BT),
        reliability=reliability(*at_random_times(beliefs, setting.epsilon, setting.seed + 1), borders=EVEN),
        examples=play_examples(agent, problem, EXAMPLES, setting.seed + 2),
        robustness=shifted,
    )


def play_examples(agent: Agent, problem: Problem, count: int, seed: int) -> list[Example]:
    """Episodes step by step, on the first tasks of a seed: they are not chosen."""
    return [_example(agent, problem, stream(seed + i, "examples")) for i in range(count)]


def _example(agent: Agent, problem: Problem, rng: torch.Generator) -> Example:
    tasks = TaskBatch.draw(problem, 1, rng)
    trace = trace_episode(agent, tasks, rng, BEYOND)
    one_variable = isinstance(problem, GPMax) and problem.dim == 1
    return Example(trace, tasks.task.values[0].numpy() if one_variable else None, field_of(tasks))


def field_of(tasks: TaskBatch) -> FieldPicture | None:
    """A single task as a field, if queries are answers in a plane, one number is observed, and without noise.

    A task that says its ``noise`` is looked at without it. Where two looks still differ, there is no field.
    """
    problem = tasks.problem
    space = problem.query_space
    if not isinstance(space, Box) or space.dim != 2 or space != problem.answer_space or problem.observation_dim != 1:
        return None
    line = torch.linspace(-1, 1, SIDE)
    place = space.project(space.from_unit(torch.cartesian_prod(line, line)))
    many = _without_noise(tasks).select(torch.zeros(len(place), dtype=torch.long))
    first, second = (many.observe(place, torch.Generator().manual_seed(seed))[:, 0] for seed in (0, 1))
    if not torch.equal(first, second):
        return None
    return FieldPicture(first.view(SIDE, SIDE).double().numpy(), many.loss(place).view(SIDE, SIDE).double().numpy())


def _without_noise(tasks: TaskBatch) -> TaskBatch:
    task = tasks.task
    if "noise" not in getattr(task, "_fields", ()):
        return tasks
    return replace(tasks, task=task._replace(noise=torch.zeros_like(task.noise)))


def training_curves(folder: Path, points: int = 400) -> Curves | None:
    """The record of a run in its folder's ``log.jsonl``, thinned to some points; None where there is none."""
    file = folder / "log.jsonl"
    if not file.exists():
        return None
    try:
        return _curves(file, points)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{file} cannot be read as the record of a run: {type(error).__name__}: {error}") from None


def _curves(file: Path, points: int) -> Curves | None:
    lines = [json.loads(line) for line in read_file(file).splitlines() if line.strip()]
    looks = [line for line in lines if line.get("look")]
    steps = [line for line in lines if not line.get("look")]
    if not looks or not steps:
        return None
    steps = steps[:: max(1, len(steps) // points)]
    names = [name for name in steps[0] if name != "update" and any(step[name] for step in steps)]
    return Curves(
        minutes=_column(looks, "seconds") / 60,
        accuracy=_column(looks, "accuracy"),
        queries=_column(looks, "queries"),
        update=_column(steps, "update"),
        losses={name: _column(steps, name) for name in names},
    )


def _column(rows: Sequence[dict[str, Any]], name: str) -> Floats:
    return np.array([row[name] for row in rows], dtype=np.float64)
