"""What can be seen of a problem by asking it a few questions: the facts that default choices rest on."""

import time
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from cicpe.errors import InvalidInput, ProblemError
from cicpe.problems.base import Problem, TaskBatch
from cicpe.problems.observations import Number, ObservationKind, ObservationKinds, find_kind, is_mirrored

TASKS = 64
QUERIES = 96
"""Random queries per task, or twelve per query dimension where that is more."""

SLOW = 5e-4
"""Seconds per observation above which fewer are made."""
TRIES, LONG = 5, 0.5
"""How often that is timed, unless it has taken this many seconds already."""
NEIGHBOURS = 8
"""Queries whose observations are averaged, to see a peak through noise."""

LEVEL_REPEATS = 16
"""Observations of every task at its target, to see whether they have one level."""
LEVEL_SHARE = 0.05
"""Share of a task's values on either side of a level that it crosses."""

RARELY = 0.002
"""Share of simulated values that may come twice, or equal a coordinate of their query, where values are continuous."""
KIND_TASKS, KIND_QUERIES = 1024, 8
"""Size of the pilot that finds plausible limits: tasks, and random queries per task; an eighth of both where slow."""


class Structure(NamedTuple):
    """Facts about a problem, from its spaces and from a pilot of random queries."""

    same_spaces: bool
    """Queries and answers share a space."""
    per_coordinate: bool
    """Query, observation and answer have one entry per coordinate."""
    scalar: bool
    """An observation is one number."""
    discrete: bool
    """Observations take few values: yes or no, counts, grades."""
    linear: bool
    """Within a task, a linear function of the query explains the observations."""
    target_is_best: bool
    """The target is the place of the largest observations (or, for a scalar answer, goes with their height)."""
    target_is_height: bool
    """The target is a number: the largest value itself."""
    loss_is_gap: bool
    """The loss of an answer is by how much its value falls short of the largest."""
    crossed_level: float | None = None
    """Observed at its target, every task has this value, but for noise, though it is neither the largest nor the
    smallest: the target is where a level is crossed."""


def structure_of(problem: Problem, seed: int = 0) -> Structure:
    """Looks at ``TASKS`` tasks through ``QUERIES`` random queries each."""
    rng = torch.Generator().manual_seed(seed)
    query_space, answer_space = problem.query_space, problem.answer_space
    same = query_space == answer_space
    scalar = problem.observation_dim == 1
    dims = {query_space.dim, problem.observation_dim, answer_space.dim}
    tasks, query, observation, again = _pilot(problem, rng)
    target = tasks.target
    discrete = len(set(observation[:8].flatten().tolist())) <= 16
    linear = (
        scalar
        and not discrete
        and _explained_by_a_plane(query_space.to_unit(query), observation[..., 0], again[..., 0])
    )
    best = scalar and not discrete and _target_is_best(problem, query, observation[..., 0], target, same)
    height = best and not same and _is_height(observation[..., 0], target[:, 0])
    gap = best and same and _loss_is_gap(problem, tasks, query, observation[..., 0])
    level = None
    if scalar and not discrete and same and not best:
        level = _crossed_level(tasks, observation[..., 0], again[..., 0], rng)
    return Structure(same, len(dims) == 1, scalar, discrete, linear, best, height, gap, level)


def _pilot(problem: Problem, rng: Generator) -> tuple[TaskBatch, Tensor, Tensor, Tensor]:
    """Tasks, random queries of them (tasks x queries x query), and two observations of each."""
    tasks = TaskBatch.draw(problem, TASKS, rng)
    each = max(QUERIES, 12 * problem.query_space.dim)
    if seconds_per_observation(tasks) > SLOW:
        tasks, each = tasks.select(torch.arange(TASKS // 4)), each // 3
    n = len(tasks)
    many = tasks.select(torch.arange(n).repeat_interleave(each))
    query = problem.query_space.sample(n * each, rng)
    first, second = many.observe(query, rng), many.observe(query, rng)
    return tasks, query.view(n, each, -1), first.view(n, each, -1), second.view(n, each, -1)


def observation_kinds(problem: Problem, seed: int = 0) -> ObservationKinds:
    """What an observation of a problem can be: as it declares, with what it leaves open from a pilot of simulations.

    The pilot observes random tasks at random queries, and at the target where that is a query too: random queries may
    all miss a narrow peak.

    Args:
        problem: The family.
        seed: Seeds the pilot.

    Returns:
        One kind per entry. A declaration that the simulations contradict is a ``ProblemError``.
    """
    rng = torch.Generator().manual_seed(seed)
    tasks, each = TaskBatch.draw(problem, KIND_TASKS, rng), KIND_QUERIES
    if seconds_per_observation(tasks) > SLOW:
        tasks, each = tasks.select(torch.arange(KIND_TASKS // 8)), 2
    many = tasks.select(torch.arange(len(tasks)).repeat_interleave(each))
    query = problem.query_space.sample(len(many), rng)
    seen = many.observe(query, rng)
    extremes = seen
    if problem.query_space == problem.answer_space:
        extremes = torch.cat([seen, tasks.observe(problem.query_space.project(tasks.target), rng)])
    settled = [
        _settled(problem, kind, entry)
        for kind, entry in zip(declared_kinds(problem, seen.shape[-1]), extremes.unbind(dim=-1), strict=True)
    ]
    return ObservationKinds(
        tuple(
            _watched(kind, entry, query) if isinstance(kind, Number) else kind
            for kind, entry in zip(settled, seen.unbind(dim=-1), strict=True)
        )
    )


def _watched(kind: Number, entry: Tensor, query: Tensor) -> Number:
    """A number, with what its values at random queries say of slips."""
    repeats = 1 - len(entry.unique()) / len(entry)  # type: ignore[no-untyped-call]
    echoes = float(((entry[:, None] - query).abs() <= 1e-5 * query.abs()).any(dim=1).double().mean())
    return replace(kind, mirrored=is_mirrored(entry), continuous=max(repeats, echoes) < RARELY)


def declared_kinds(problem: Problem, entries: int) -> tuple[ObservationKind | None, ...]:
    """What a problem itself says of each entry of its observations; None where it says nothing."""
    declared = problem.observation
    if declared is None or isinstance(declared, ObservationKind):
        return (declared,) * entries
    if not all(isinstance(kind, ObservationKind) for kind in declared) or len(declared) != entries:
        raise InvalidInput(
            "observation", declared, f"one kind such as Number(), or a tuple of {entries}, one per entry"
        )
    return tuple(declared)


def _settled(problem: Problem, kind: ObservationKind | None, entry: Tensor) -> ObservationKind:
    """The declared kind of an entry with its limits, or the one that was found."""
    if kind is None:
        kind = find_kind(entry)
    for value in (float(entry.min()), float(entry.max()), *entry[:256].tolist()):
        try:
            kind.read(value)
        except ValueError:
            name = type(problem).__name__
            raise ProblemError(f"{name}.observe returned {value:g}; {name}.observation says {kind.allowed}") from None
    return kind.within(float(entry.min()), float(entry.max()))


def seconds_per_observation(tasks: TaskBatch, n: int = 8) -> float:
    """How long one simulated observation takes, by ``n`` of them; the shortest of a few tries, on a busy machine."""
    rng, few = torch.Generator().manual_seed(0), tasks.select(torch.arange(n))
    query = tasks.problem.query_space.sample(n, rng)
    tries: list[float] = []
    while len(tries) < TRIES and sum(tries) < LONG:
        began = time.perf_counter()
        few.observe(query, rng)
        tries.append(time.perf_counter() - began)
    return min(tries) / n


def _explained_by_a_plane(query: Tensor, value: Tensor, again: Tensor) -> bool:
    """Whether a linear fit on half of the queries predicts the other half, but for noise: R^2 of 0.95 without it.

    How much is noise is known from the second observations. A fit of d numbers to n observations adds d / (n - d - 1)
    of it to the error.
    """
    half, dim = query.shape[1] // 2, query.shape[2]
    fit = torch.linalg.lstsq(query[:, :half], value[:, :half, None]).solution
    left = value[:, half:] - (query[:, half:] @ fit)[..., 0]
    noise = (value - again).square().mean() / 2
    signal = value[:, half:].square().mean() - noise
    error = left.square().mean() - noise * (1 + dim / (half - dim - 1))
    return bool(signal > 0) and bool(error < 0.05 * signal)


def _target_is_best(problem: Problem, query: Tensor, value: Tensor, target: Tensor, same: bool) -> bool:
    if not same:
        both = torch.stack([value.amax(dim=1), target[:, 0]])
        return target.shape[-1] == 1 and float(torch.corrcoef(both)[0, 1]) > 0.7
    # Single observations, and means over neighbours: noise may hide a peak from the one, its narrowness from the other.
    around = torch.cdist(query, query).topk(NEIGHBOURS, largest=False).indices
    smooth = value.gather(1, around.flatten(1)).view(around.shape).mean(dim=-1)
    anywhere = problem.answer_space.distance(query, target[:, None]).mean()
    rows = torch.arange(len(query))
    near = [problem.answer_space.distance(query[rows, y.argmax(dim=1)], target).mean() for y in (value, smooth)]
    return bool(min(near) < 0.75 * anywhere)


def _is_height(value: Tensor, target: Tensor) -> bool:
    """Whether the target is the largest of many observations, but for noise and for what lies between them."""
    error = (target - value.amax(dim=1)).abs().median()
    alike = target.std() / value.amax(dim=1).std()
    return bool(error < 0.5 * target.std()) and 0.67 < float(alike) < 1.5


def _crossed_level(tasks: TaskBatch, value: Tensor, again: Tensor, rng: Generator) -> float | None:
    """The value at every target, where it is the same but for noise and lies among the others of most tasks.

    A level is crossed, so that a good part of a task's values lies on either side of it; a smallest value is not.
    """
    repeats = LEVEL_REPEATS if seconds_per_observation(tasks) <= SLOW else 2
    many = tasks.select(torch.arange(len(tasks)).repeat_interleave(repeats))
    seen = many.observe(tasks.problem.query_space.project(many.target), rng).view(len(tasks), repeats)
    level, noise = float(seen.mean()), seen.var(dim=1).mean()
    apart = seen.mean(dim=1).var() - noise / repeats
    spread = value.var() - (value - again).square().mean() / 2
    below = ((value + again) / 2 < level).double().mean(dim=1)
    is_among = (below > LEVEL_SHARE) & (below < 1 - LEVEL_SHARE)
    is_level = bool(apart < 0.05 * spread) and float(is_among.double().mean()) > 0.5
    return level if is_level else None


def _loss_is_gap(problem: Problem, tasks: TaskBatch, query: Tensor, value: Tensor) -> bool:
    """Whether the losses of random answers are the largest observation less theirs, but for noise."""
    if problem.has_distance_loss:
        return False
    loss = tasks.loss(query)
    gap = value.amax(dim=1, keepdim=True) - value
    error = (loss - gap).abs().median()
    return bool(error < 0.25 * loss.std())
