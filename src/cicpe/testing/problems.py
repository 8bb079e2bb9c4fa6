"""Conformance of a problem: all that the library relies on, with messages that say how to mend it.

In a user's own tests::

    def test_my_problem():
        check_problem(DoseFinding())
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from cicpe import trees
from cicpe.errors import InvalidInput, ProblemError
from cicpe.problems.base import Problem
from cicpe.problems.structure import observation_kinds
from cicpe.spaces import Space

TOLERANCE = 1e-4
"""How far the loss at the target may be from zero, and a target from its space (in unit coordinates)."""

Check = Callable[[Problem, int, int], Iterator[str]]


def check_problem(problem: Problem, n: int = 64, seed: int = 0) -> None:
    """Checks that a family of tasks keeps the promises that training and sessions rely on.

    Args:
        problem: The family to check.
        n: How many tasks to draw.
        seed: Seed of every generator that the checks use.

    Raises:
        ProblemError: Some checks failed. The message has a line for each: what was found, what was
            expected and how to mend it.
    """
    if n < 2:
        raise InvalidInput("n", n, "a whole number of at least 2")
    stages: tuple[tuple[Check, ...], ...] = (
        (_declarations,),
        (_batches,),
        (_repeatability, _observations, _kinds, _targets, _losses, _contexts, _likelihoods),
    )
    for stage in stages:  # a later stage needs what an earlier one checked
        lines: dict[str, None] = {}
        cause: BaseException | None = None
        for check in stage:
            try:
                for line in check(problem, n, seed):
                    lines[line] = None
            except _Raised as raised:
                lines[str(raised)] = None
                cause = cause or raised.__cause__
        if lines:
            count = "1 check" if len(lines) == 1 else f"{len(lines)} checks"
            listed = "\n".join(f"- {line}" for line in lines)
            raise ProblemError(f"{type(problem).__name__} failed {count}:\n{listed}") from cause


# The checks. Each yields a line for everything that is wrong.


def _declarations(problem: Problem, n: int, seed: int) -> Iterator[str]:
    for name in ("query_space", "answer_space"):
        space = getattr(problem, name, None)
        if not isinstance(space, Space):
            yield _line(problem, name, repr(space), "a cicpe space", "Set it on the class, e.g. Box([0.0], [1.0])")
    names = problem.context_names
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        mend = 'A single name needs a comma: context_names = ("noise",)'
        yield _line(problem, "context_names", repr(names), "a tuple of names", mend)
    if not isinstance(problem.horizon, int) or problem.horizon < 1:
        mend = "Set it to the most queries that an episode may take"
        yield _line(problem, "horizon", repr(problem.horizon), "a whole number of at least 1", mend)


def _batches(problem: Problem, n: int, seed: int) -> Iterator[str]:
    for count in (n, 1):
        method = f"sample({count}, rng)"
        task = _call(problem, "sample", count, _rng(seed))
        try:
            rows = {leaf.shape[0] if leaf.ndim else 0 for leaf in trees.leaves(task)}
        except TypeError as error:
            mend = "Return a tensor, or a tuple, dict or dataclass of tensors"
            yield _line(problem, method, str(error), "a batch of tasks", mend)
            return
        if rows != {count}:
            actual = f"first dimensions {sorted(rows)}" if rows else "no tensors"
            mend = f"Give every tensor in the task one row per task: {count} rows"
            yield _line(problem, method, actual, f"first dimension {count} everywhere", mend)


def _repeatability(problem: Problem, n: int, seed: int) -> Iterator[str]:
    task, repeated_task = _sample(problem, n, seed), _sample(problem, n, seed)
    mend = "Draw everything random from the rng argument: torch.rand(..., generator=rng)"
    if not _same(task, repeated_task):
        yield _line(problem, "sample", "other tasks from the same seed", "the same tasks", mend)
        return
    if _same(task, _sample(problem, n, seed + 1)):
        yield _line(problem, "sample", "the same tasks from two seeds", "different tasks", mend)
    query = problem.query_space.sample(n, _rng(seed))
    passed_query = query.clone()
    first = _numbers(problem, "observe", _call(problem, "observe", task, passed_query, _rng(seed)))
    again = _numbers(problem, "observe", _call(problem, "observe", repeated_task, query.clone(), _rng(seed)))
    if not _same(first, again):
        yield _line(problem, "observe", "other observations from the same seed", "the same observations", mend)
    if not _same(_sample(problem, n, seed), task):
        mend = "Work on a copy: no += or [...] = on what belongs to the task"
        yield _line(problem, "observe", "that it changed the task", "a task that stays as it was", mend)
    if not _same(query, passed_query):
        mend = "Work on a copy: query = query.clone()"
        yield _line(problem, "observe", "that it changed the query", "a query that stays as it was", mend)


def _observations(problem: Problem, n: int, seed: int) -> Iterator[str]:
    task = _sample(problem, n, seed)
    queries = [problem.query_space.sample(n, _rng(seed)), *_edges(problem.query_space, n, seed)]
    width: int | None = None
    for task_q, query in [*((task, query) for query in queries), (trees.select(task, _row(0)), queries[0][:1])]:
        value = _columns(_numbers(problem, "observe", _call(problem, "observe", task_q, query.clone(), _rng(seed))))
        rows = len(query)
        if value.ndim != 2 or len(value) != rows:
            mend = "Return one row per task, in the order of the tasks"
            yield _line(problem, "observe", f"shape {_shape(value)}", f"shape ({rows},) or ({rows}, observation)", mend)
            return
        width = width or value.shape[1]
        if value.shape[1] != width or not width:
            mend = "Every observation must have the same count of numbers, at least one"
            yield _line(problem, "observe", f"shape {_shape(value)}", f"shape ({rows}, {width or 1})", mend)
            return
        bad = ~torch.isfinite(value).all(dim=1)
        if bad.any():
            row = int(bad.nonzero()[0])
            actual = f"{value[row].tolist()} for task {row} at query {_round(query[row])}"
            mend = "Look for a division by zero or a logarithm of zero there, at the edge of the query space perhaps"
            yield _line(problem, "observe", actual, "finite numbers on the whole query space", mend)
            return


def _kinds(problem: Problem, n: int, seed: int) -> Iterator[str]:
    if problem.observation is None:
        return
    try:
        observation_kinds(problem, seed)
    except InvalidInput as error:
        mend = "Declare one kind such as cicpe.YesNo(), or a tuple with one per entry"
        yield _line(problem, "observation", repr(error.value), error.allowed, mend)
    except ProblemError as error:
        yield f"{error}. Declare what observe returns, or leave it out"


def _targets(problem: Problem, n: int, seed: int) -> Iterator[str]:
    target = _columns(_numbers(problem, "target", _call(problem, "target", _sample(problem, n, seed))))
    space = problem.answer_space
    if tuple(target.shape) != (n, space.dim):
        mend = f"Return one point of the answer space ({space.dim} coordinates) per task"
        yield _line(problem, "target", f"shape {_shape(target)}", f"shape ({n}, {space.dim})", mend)
        return
    outside = (space.project(target) - target).abs() / space.unit_scale
    bad = ~(outside <= TOLERANCE).all(dim=1)
    if bad.any():
        row = int(bad.nonzero()[0])
        mend = f"Widen the answer space or change the prior; {int(bad.sum())} of {n} targets are outside"
        yield _line(problem, "target", f"{_round(target[row])} for task {row}", f"a point of {space}", mend)


def _losses(problem: Problem, n: int, seed: int) -> Iterator[str]:
    task = _sample(problem, n, seed)
    target = _columns(_numbers(problem, "target", _call(problem, "target", task)))
    if tuple(target.shape) != (n, problem.answer_space.dim) or not torch.isfinite(target).all():
        return  # reported by _targets
    times = 3
    answer = problem.answer_space.sample(n * times, _rng(seed))
    rows = torch.arange(n).repeat_interleave(times)
    loss: list[Tensor] = []
    for tasks, points in ((task, target), (task, answer[::times]), (trees.select(task, rows), answer)):
        value = _numbers(problem, "loss", _call(problem, "loss", tasks, points.clone()))
        if value.numel() != len(points):
            mend = "Return one number per answer; sum or take a norm over the coordinates (dim=-1)"
            yield _line(problem, "loss", f"shape {_shape(value)}", f"shape ({len(points)},)", mend)
            return
        value = value.reshape(-1)
        bad = ~(torch.isfinite(value) & (value >= -1e-6))
        if bad.any():
            row = int(bad.nonzero()[0])
            actual = f"{float(value[row]):g} for answer {_round(points[row])}"
            mend = "A loss is zero at the target and grows with the error; take an absolute value or a square"
            yield _line(problem, "loss", actual, "a finite number of at least 0", mend)
            return
        loss.append(value)
    at_target, single, repeated = loss
    if at_target.max() > TOLERANCE:
        row = int(at_target.argmax())
        actual = f"{float(at_target[row]):g} at the target {_round(target[row])} of task {row}"
        mend = "loss and target must agree: subtract the best value, or return from target what the loss is lowest at"
        yield _line(problem, "loss", actual, f"0 (at most {TOLERANCE:g})", mend)
    if not torch.allclose(single, repeated[::times], rtol=1e-4, atol=1e-6):
        mend = "Compute each row from its own task only; training asks for many answers of one task at once"
        yield _line(problem, "loss", "another loss when every task is repeated", "the same loss for the same row", mend)


def _contexts(problem: Problem, n: int, seed: int) -> Iterator[str]:
    names = tuple(problem.context_names)
    context = _numbers(problem, "context", _call(problem, "context", _sample(problem, n, seed)))
    if tuple(context.shape) != (n, len(names)):
        mend = f"Return one column per name in context_names = {names!r}, or mend context_names"
        yield _line(problem, "context", f"shape {_shape(context)}", f"shape ({n}, {len(names)})", mend)
    elif not torch.isfinite(context).all():
        row = int((~torch.isfinite(context)).any(dim=1).nonzero()[0])
        mend = "Tell the agent numbers only; leave out what is unknown"
        yield _line(problem, "context", f"{context[row].tolist()} for task {row}", "finite numbers", mend)
    default = _call(problem, "default_context")
    if default is not None and len(default) != len(names):
        mend = f"Give one number per name in context_names = {names!r}, or None where the user must say"
        yield _line(problem, "default_context", repr(default), f"None or {len(names)} numbers", mend)


def _likelihoods(problem: Problem, n: int, seed: int) -> Iterator[str]:
    if not problem.has_likelihood:
        return
    rows = torch.arange(n).repeat(16)  # every task meets every kind of query a few times
    task, rng = _sample(problem, n, seed), _rng(seed)
    true, shuffled = trees.select(task, rows), trees.select(task, (rows + 1) % n)
    query = problem.query_space.sample(len(rows), rng)
    seen = _columns(_numbers(problem, "observe", _call(problem, "observe", true, query.clone(), rng)))
    if seen.ndim != 2 or len(seen) != len(rows) or not torch.isfinite(seen).all():
        return  # reported by _observations
    scores = [
        _numbers(problem, "log_likelihood", _call(problem, "log_likelihood", t, query, seen)) for t in (true, shuffled)
    ]
    if any(tuple(score.shape) != (len(rows),) for score in scores):
        mend = "Return one number per task; sum over the numbers of an observation (dim=-1)"
        yield _line(problem, "log_likelihood", f"shape {_shape(scores[0])}", f"shape ({len(rows)},)", mend)
    elif not torch.isfinite(scores[0]).all() or scores[1].isnan().any():
        mend = "Compute in log space; what observe returned must be possible under its own task"
        yield _line(problem, "log_likelihood", "nan or infinity for an observation of its own", "finite numbers", mend)
    elif not scores[0].mean() > scores[1].mean():
        actual = f"{float(scores[0].mean()):g} on average for the true tasks, {float(scores[1].mean()):g} for others"
        mend = "Check the sign and the noise model against observe"
        yield _line(problem, "log_likelihood", actual, "more for the true tasks", mend)


# What the checks are made of.


class _Raised(Exception):
    """A problem's own code raised an exception, or returned what is not numbers."""


def _line(problem: Problem, method: str, actual: str, expected: str, mend: str) -> str:
    return f"{type(problem).__name__}.{method}: found {actual}; expected {expected}. {mend}."


def _call(problem: Problem, method: str, *arguments: Any) -> Any:
    try:
        return getattr(problem, method)(*arguments)
    except Exception as error:
        actual = f"{type(error).__name__}: {error}"
        mend = "The traceback above says where"
        raise _Raised(_line(problem, method, actual, "no exception", mend)) from error


def _numbers(problem: Problem, method: str, value: Any) -> Tensor:
    try:
        return torch.as_tensor(value, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError):
        mend = "Is a return missing?" if value is None else "Return torch.as_tensor(...)"
        raise _Raised(_line(problem, method, repr(value), "a tensor of numbers", mend)) from None


def _columns(value: Tensor) -> Tensor:
    return value[:, None] if value.ndim == 1 else value


def _sample(problem: Problem, n: int, seed: int) -> Any:
    return _call(problem, "sample", n, _rng(seed))


def _rng(seed: int) -> Generator:
    return torch.Generator().manual_seed(seed)


def _row(index: int) -> Tensor:
    return torch.tensor([index])


def _shape(value: Tensor) -> tuple[int, ...]:
    return tuple(value.shape)


def _round(point: Tensor) -> list[float]:
    return [float(f"{number:.4g}") for number in point.tolist()]


def _edges(space: Space, n: int, seed: int) -> list[Tensor]:
    """The centre, the middles of the faces and the corners (64 of them at most), in batches of n."""
    if space.dim <= 6:
        corners = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=space.dim)))
    else:
        signs = torch.randint(0, 2, (62, space.dim), generator=_rng(seed)) * 2.0 - 1
        corners = torch.cat([signs, torch.ones(1, space.dim), -torch.ones(1, space.dim)])
    axes = torch.eye(space.dim)
    points = space.project(space.from_unit(torch.cat([torch.zeros(1, space.dim), axes, -axes, corners])))
    batches = -(-len(points) // n)
    return list(points[torch.arange(batches * n) % len(points)].chunk(batches))


def _same(before: Any, after: Any) -> bool:
    """Whether two objects hold the same numbers; what ``after`` has cached in addition does not count."""
    if isinstance(before, Tensor):
        return before.shape == after.shape and torch.allclose(before, after, rtol=0, atol=0, equal_nan=True)
    if isinstance(before, np.ndarray) and before.dtype != object:
        return np.array_equal(before, after, equal_nan=before.dtype.kind in "fc")
    if isinstance(before, dict):
        return all(key in after and _same(value, after[key]) for key, value in before.items())
    if isinstance(before, tuple | list | np.ndarray):
        return len(before) == len(after) and all(_same(a, b) for a, b in zip(before, after, strict=True))
    if is_dataclass(before) and not isinstance(before, type):
        return all(_same(getattr(before, f.name), getattr(after, f.name)) for f in fields(before))
    if isinstance(before, int | float | complex | str | bytes | np.generic | None):
        return bool(before == after) or (before != before and after != after)
    return type(before) is type(after) and _same(getattr(before, "__dict__", {}), getattr(after, "__dict__", {}))
