"""Our models, baselines and references on one problem, in one run: what ``cicpe compare`` prints."""

import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cicpe import zoo
from cicpe.agents.base import Agent
from cicpe.agents.belief_agent import BeliefAgent
from cicpe.baselines.catalogue import METHODS, ComparisonSetting
from cicpe.baselines.published import Figures, PublishedCell, published
from cicpe.baselines.wrappers import RandomQueries, StopAt
from cicpe.calibration.any_agent import choose_threshold
from cicpe.episodes.table import tabulate_agent
from cicpe.errors import InvalidInput
from cicpe.evaluation.compare import TOGETHER, CommonTasks, PlayedTasks
from cicpe.model import Model, load
from cicpe.parallel import HERE, Executor
from cicpe.problems import Problem, TaskBatch, spec_of

OURS, RANDOM = "cicpe", "random"
HELD_OUT = 1_000_003
"""Added to the seed for the tasks that thresholds are chosen on."""


class Row(NamedTuple):
    """One method."""

    method: str
    played: PlayedTasks
    paper: Figures
    """What the paper reports for it; for ours, its best variant."""
    versus_ours: dict[str, Any] | None
    """The paired differences, theirs minus ours, where one of ours was played."""

    def to_json(self) -> dict[str, Any]:
        """The row as it is printed."""
        accuracy, queries = self.played.accuracy, self.played.mean_queries
        return {
            "method": self.method,
            "tasks": len(self.played.queries),
            "accuracy": accuracy.value,
            "accuracy_ci": list(accuracy.interval),
            "mean_queries": queries.value,
            "mean_queries_ci": list(queries.interval),
            "seconds_per_query": self.played.seconds_per_query,
            "batched_seconds_per_query": self.played.batched_seconds_per_query,
            "truncated": float((~self.played.stopped).double().mean()),
            "paper_accuracy": self.paper.accuracy,
            "paper_queries": self.paper.queries,
            "versus_ours": self.versus_ours,
        }


class Comparison(NamedTuple):
    """All rows, the budget of those that cannot stop, and why the others are missing."""

    rows: list[Row]
    budget: int
    budget_from: str
    left_out: dict[str, str]
    reference_queries: float | None


def names() -> list[str]:
    """Every method."""
    return [OURS, RANDOM, *METHODS]


def compare(
    problem: Problem,
    *,
    epsilon: float,
    delta: float = 0.1,
    methods: Sequence[str] | None = None,
    tasks: int = 1000,
    trajectories: int = 1,
    budget: int | None = None,
    all_tasks: bool = False,
    seed: int = 0,
    models: Mapping[str, Model] | None = None,
    follow: Callable[[str], None] = lambda line: None,
    executor: Executor = HERE,
) -> Comparison:
    """Plays every method on the same tasks with the same noise.

    Args:
        problem: The family, at one noise level where it has noise.
        epsilon: How far off an answer may be.
        delta: How often it may be farther off.
        methods: Names (see ``names``); every method that applies, if left out.
        tasks: How many; slow methods play fewer, the first of them.
        trajectories: Episodes per task.
        budget: Queries of methods that cannot stop; our own mean, rounded up, if left out.
        all_tasks: Slow methods play all tasks too.
        seed: Seeds tasks, noise and agents.
        models: Ours, by names to print; those of the zoo that were trained for just this problem, if left out. Others
            have to be of the same family, with the same spaces, and know the context of these tasks.
        follow: Is told what happens.
        executor: Where tasks are played; the figures do not depend on it, times aside.

    Returns:
        One row per method, the budget of those that cannot stop, and why methods were left out.
    """
    wanted = list(methods) if methods is not None else names()
    for name in wanted:
        if name not in names():
            raise InvalidInput("methods", name, f"one of {', '.join(names())}, or all")
    for field, value in (("tasks", tasks), ("trajectories", trajectories), ("budget", budget)):
        if value is not None and value < 1:
            raise InvalidInput(field, value, "a whole number of at least 1")
    if not epsilon > 0:
        raise InvalidInput("epsilon", epsilon, "a positive number")
    common = CommonTasks.draw(problem, tasks, seed, trajectories)
    cell = _published(problem, epsilon)
    left_out: dict[str, str] = {}
    rows: list[Row] = []
    agents = {name: _given(model, common.batch, epsilon, delta) for name, model in (models or {}).items()}
    if not models and ({OURS, RANDOM} & set(wanted) or budget is None):
        agents = _ours(common.batch, epsilon, delta, left_out)
    for name, agent in agents.items():
        follow(f"{name}: {tasks} tasks")
        rows.append(Row(name, common.play(agent, epsilon, tasks, executor), cell.best, None))
    best = min(rows, key=lambda row: row.played.mean_queries.value, default=None)
    budget, origin = _budget(budget, best, cell)
    setting = ComparisonSetting(problem, epsilon, delta, budget)
    rows = rows if OURS in wanted else []
    if RANDOM in wanted and best is None:
        left_out[RANDOM] = left_out[OURS]
    elif RANDOM in wanted and best is not None:
        random = RandomQueries(agents[best.method], problem.query_space)
        paper = cell.methods.get("C-ICPE-uniform")
        _add(rows, RANDOM, random, common, setting, best, paper, 1000, tasks, left_out, follow, executor)
    for name in (name for name in wanted if name in METHODS):
        method = METHODS[name]
        try:
            method_agent = method.make(setting)
        except InvalidInput as error:
            left_out[name] = f"{error.field} must be {error.allowed}"
            continue
        some = tasks if method.tasks is None or all_tasks else min(tasks, method.tasks)
        paper = cell.methods.get(method.published or "")
        _add(
            rows, name, method_agent, common, setting, best, paper, method.calibration, some, left_out, follow, executor
        )
    if not rows:
        why = "; ".join(f"{name} {reason}" for name, reason in left_out.items())
        raise InvalidInput("methods", ", ".join(wanted), f"some that apply to this problem ({why})")
    asked = {name: why for name, why in left_out.items() if name not in names() or name in wanted}
    return Comparison(rows, budget, origin, asked, cell.reference_queries)


def _add(
    rows: list[Row],
    name: str,
    agent: Agent,
    common: CommonTasks,
    setting: ComparisonSetting,
    ours: Row | None,
    paper: Figures | None,
    calibration: int,
    tasks: int,
    left_out: dict[str, str],
    follow: Callable[[str], None],
    executor: Executor,
) -> None:
    """Chooses the method's threshold if it needs one, plays it and adds its row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        if calibration:
            follow(f"{name}: threshold chosen on {calibration} held-out tasks")
            held_out = common.seed + HELD_OUT
            beliefs = tabulate_agent(agent, setting.problem, calibration, agent.horizon, held_out, TOGETHER, executor)
            chosen = choose_threshold(beliefs, setting.epsilon, setting.delta)
            if chosen is None:
                left_out[name] = f"does not reach an accuracy of {1 - setting.delta:g} within {agent.horizon} queries"
                return
            agent = StopAt(agent, chosen.threshold)
        follow(f"{name}: {tasks} tasks")
        played = common.play(agent, setting.epsilon, tasks, executor)
    versus = None
    if ours is not None:
        accuracy, queries = played.minus(ours.played)
        versus = {"method": ours.method, "accuracy": list(accuracy), "queries": list(queries)}
    rows.append(Row(name, played, paper or Figures(None, None), versus))


def _published(problem: Problem, epsilon: float) -> PublishedCell:
    spec = spec_of(problem)
    noise = spec.options.get("noise")
    level = noise[1] if isinstance(noise, tuple | list) else noise
    cell = published(spec.name, problem.query_space.dim, epsilon, level) if isinstance(level, float) else None
    return cell or PublishedCell({}, None)


def _ours(hidden: TaskBatch, epsilon: float, delta: float, left_out: dict[str, str]) -> dict[str, BeliefAgent]:
    """The zoo's models for a problem, as agents, by their names."""
    agents = {}
    for name in zoo.names():
        about = json.loads((zoo.folder(name) / "config.json").read_text(encoding="utf-8"))
        if not _same_family(hidden.problem, about):
            continue
        try:
            agents[name] = _agent(load(name), hidden, epsilon, delta)
        except InvalidInput as error:
            left_out[name] = f"{error.field} must be {error.allowed}"
    if not agents:
        left_out[OURS] = "needs a model of the zoo for this problem, dimension, noise and epsilon"
    return agents


def _same_family(problem: Problem, about: dict[str, Any]) -> bool:
    """Whether a model's description names this problem with the same options, noise aside."""
    spec = spec_of(problem)
    options = {key: list(value) if isinstance(value, tuple) else value for key, value in spec.options.items()}
    same = {key: value for key, value in options.items() if key != "noise"}
    theirs = {key: value for key, value in about["problem_options"].items() if key != "noise"}
    return about["problem"] == spec.name and theirs == same


def _given(model: Model, hidden: TaskBatch, epsilon: float, delta: float) -> BeliefAgent:
    """A model that was asked for: tasks of its family may have other options, but not another shape."""
    spec, theirs = spec_of(hidden.problem), model.description.problem_spec
    misfit = model.misfit(hidden.problem) if spec.is_of(theirs) else f"a model of {spec.name}, and of its source"
    if misfit is not None:
        raise InvalidInput("model", theirs.name, misfit)
    return _agent(model, hidden, epsilon, delta)


def _agent(model: Model, hidden: TaskBatch, epsilon: float, delta: float) -> BeliefAgent:
    """The model's agent, if it was trained for the context of these tasks."""
    model.check_contexts(hidden.context)
    return model.agent(epsilon, delta)


def _budget(budget: int | None, ours: Row | None, cell: PublishedCell) -> tuple[int, str]:
    """The budget of methods that cannot stop, and where it comes from."""
    if budget is not None:
        return budget, "as given"
    if ours is not None:
        return max(1, math.ceil(ours.played.mean_queries.value)), f"the mean of {ours.method}, rounded up"
    if cell.best.queries is not None:
        return math.ceil(cell.best.queries), "the paper's best mean, rounded up"
    raise InvalidInput("budget", budget, "a whole number: the zoo has no model for this problem to take it from")
