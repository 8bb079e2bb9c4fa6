"""What can be seen of a problem by asking it a few questions: the facts that default choices rest on."""

from typing import NamedTuple

import torch
from torch import Generator, Tensor

from cicpe import trees
from cicpe.problems.base import HiddenTasks, Problem

TASKS = 64
QUERIES = 96
"""Random queries a task, or six per query dimension where that is more."""


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
    """The target is the place of the largest observations (or, for a scalar answer, their height)."""


def structure_of(problem: Problem, seed: int = 0) -> Structure:
    """Looks at ``TASKS`` tasks through ``QUERIES`` random queries each."""
    rng = torch.Generator().manual_seed(seed)
    query_space, answer_space = problem.query_space, problem.answer_space
    same = query_space == answer_space
    scalar = problem.observation_dim == 1
    dims = {query_space.dim, problem.observation_dim, answer_space.dim}
    query, observation, target = _pilot(problem, rng)
    discrete = len(set(observation[:8].flatten().tolist())) <= 16
    linear = scalar and not discrete and _explained_by_a_plane(query_space.to_unit(query), observation[..., 0])
    best = scalar and not discrete and _target_is_best(problem, query, observation[..., 0], target, same)
    return Structure(same, len(dims) == 1, scalar, discrete, linear, best)


def _pilot(problem: Problem, rng: Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Random queries (tasks x queries x query), their observations, and the targets."""
    hidden = HiddenTasks.draw(problem, TASKS, rng)
    each = max(QUERIES, 6 * problem.query_space.dim)
    rows = torch.arange(TASKS).repeat_interleave(each)
    many = HiddenTasks(problem, trees.select(hidden.task, rows), hidden.context[rows], hidden.target[rows])
    query = problem.query_space.sample(len(rows), rng)
    observation = many.observe(query, rng)
    return query.view(TASKS, each, -1), observation.view(TASKS, each, -1), hidden.target


def _explained_by_a_plane(query: Tensor, value: Tensor) -> bool:
    """Whether a linear fit on half of the queries predicts the other half (R^2 of 0.95 in the median task)."""
    half = query.shape[1] // 2
    fit = torch.linalg.lstsq(query[:, :half], value[:, :half, None]).solution
    left = value[:, half:] - (query[:, half:] @ fit)[..., 0]
    unexplained = left.square().mean(dim=1) / value[:, half:].square().mean(dim=1).clamp_min(1e-12)
    return bool(unexplained.median() < 0.05)


def _target_is_best(problem: Problem, query: Tensor, value: Tensor, target: Tensor, same: bool) -> bool:
    highest, place = value.max(dim=1)
    if not same:
        scalar = target.shape[-1] == 1
        return scalar and float(torch.corrcoef(torch.stack([highest, target[:, 0]]))[0, 1]) > 0.7
    best = query[torch.arange(len(query)), place]
    near = problem.answer_space.distance(best, target).mean()
    anywhere = problem.answer_space.distance(query, target[:, None]).mean()
    return bool(near < 0.75 * anywhere)
