"""What a problem is: a family of hidden tasks with its prior and its simulator.

A user writes four methods and names two spaces; everything is batched over ``n`` tasks::

    class DoseFinding(Problem):
        query_space = Box(low=[0.0], high=[1.0])
        answer_space = Box(low=[0.0], high=[1.0])

        def sample(self, n, rng): ...             # n hidden tasks from the prior
        def observe(self, task, query, rng): ...  # one noisy observation of each
        def target(self, task): ...               # the answer with zero loss
        def loss(self, task, answer): ...         # success is loss <= epsilon

``TaskBatch`` is how the library itself talks to a problem: it checks every value that comes back
and keeps the hidden part away from agents, which see the context, the queries and the observations.
"""

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from functools import cached_property, wraps
from typing import Any, cast, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe import trees
from cicpe.errors import InvalidInput, ProblemError
from cicpe.problems.context import ContextGrid, knots_per_context
from cicpe.problems.observations import ObservationKind
from cicpe.spaces import Box, Space
from cicpe.statistics import log_grid
from cicpe.units import Units

Task = Any
"""A batch of n hidden tasks: a tensor, or a tuple, dict or dataclass of tensors, with n as first dimension."""


MADE_WITH = "_made_with"
"""The attribute in which a problem that is no dataclass keeps what its constructor was given."""


def _remembering(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor that keeps its arguments. Of several, along a line of classes, the outermost one counts."""

    @wraps(init)
    def remembering(self: Any, *args: Any, **kwargs: Any) -> None:
        vars(self).setdefault(MADE_WITH, (args, kwargs))
        init(self, *args, **kwargs)

    return remembering


def options_of(problem: "Problem") -> dict[str, Any]:
    """The options that a problem was made with, by name.

    Args:
        problem: A dataclass, whose fields they are; or another class, whose constructor's arguments they are (or what
            it says itself in a dictionary ``options``).

    Returns:
        With these its class makes the same problem again.
    """
    me: Any = problem
    if is_dataclass(me):
        return asdict(cast(Any, me))
    declared = getattr(me, "options", None)
    if isinstance(declared, dict):
        return dict(declared)
    args, kwargs = vars(problem).get(MADE_WITH, ((), {}))
    options: dict[str, Any] = {}
    signature = inspect.signature(type(problem))
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        kind = signature.parameters[name].kind
        if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
            raise InvalidInput(name, value, "an option with a name: one that is given by its place cannot be kept")
        options |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
    return options


class Problem(ABC):
    """A family of tasks with its prior. Subclass it, set the two spaces, write the methods."""

    query_space: Space
    """Where a query may be made."""
    answer_space: Space
    """Where a recommendation lives."""
    horizon: int = 100
    """The most queries that an episode may take; training uses fewer where fewer are enough."""
    default_epsilon: tuple[float, float] = (0.1, 0.2)
    """The range of epsilon that a model is trained for where none is asked for."""
    context_names: Sequence[str] = ()
    """Names of the numbers that an agent is told before its first query, such as ``noise``."""
    observation: ObservationKind | Sequence[ObservationKind] | None = None
    """Optional: what an observation can be, one kind for all of its entries or one per entry; found where not given."""
    parameter_space: Box | None = None
    """Optional: a box that the numbers of ``parameters`` live in; None where a task is no list of numbers."""

    units: Units = Units()
    """Optional: what people write in the place of coordinates; sessions speak in them."""
    broadcasts: bool = False
    """Whether tasks, queries and observations may have leading dimensions that broadcast in the place of n."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            setattr(cls, "__init__", _remembering(vars(cls)["__init__"]))  # noqa: B010, for mypy

    @abstractmethod
    def sample(self, n: int, rng: Generator) -> Task:
        """Draws ``n`` hidden tasks from the prior.

        Args:
            n: How many.
            rng: Draws them.

        Returns:
            A tensor, or a tuple, dictionary or dataclass of tensors, with n as first dimension.
        """

    @abstractmethod
    def observe(self, task: Task, query: Float[Tensor, "n query"], rng: Generator) -> Tensor:
        """Makes one noisy observation of each task at its query.

        Args:
            task: A batch of n tasks, as ``sample`` drew them.
            query: One query per task: n x query.
            rng: Draws the noise.

        Returns:
            Shape n, or n x observation.
        """

    @abstractmethod
    def target(self, task: Task) -> Tensor:
        """The selected answer with zero loss, x*, of each task.

        Args:
            task: A batch of n tasks, as ``sample`` drew them.

        Returns:
            Shape n x answer; n is enough where answers have one number.
        """

    def loss(self, task: Task, answer: Float[Tensor, "n answer"]) -> Tensor:
        """How wrong an answer is, zero at the target. Default: the distance of the answer space.

        Args:
            task: A batch of n tasks, as ``sample`` drew them.
            answer: One answer per task: n x answer.

        Returns:
            Shape n; success is a loss of at most epsilon.
        """
        return self.answer_space.distance(answer, _columns(self.target(task)))

    def context(self, task: Task) -> Tensor:
        """What the agent is told at the start, in the units that a user would type.

        Args:
            task: A batch of n tasks, as ``sample`` drew them.

        Returns:
            Shape n x len(context_names).
        """
        return torch.zeros((len(trees.leaves(task)[0]), 0))

    def default_context(self) -> tuple[float, ...] | None:
        """The context of a session that names none.

        Returns:
            A number per name in ``context_names``; None where the user must say.
        """
        return () if not self.context_names else None

    def log_likelihood(
        self, task: Task, query: Float[Tensor, "n query"], observation: Float[Tensor, "n observation"]
    ) -> Float[Tensor, " n"]:
        """Optional: log p(observation | task, query). Used by reference agents, never by trained ones.

        Args:
            task: A batch of n tasks, as ``sample`` drew them.
            query: One query per task: n x query.
            observation: One observation per task: n x observation.

        Returns:
            Shape n, in nats.
        """
        raise NotImplementedError(f"{type(self).__name__} gives no log_likelihood")

    @property
    def has_likelihood(self) -> bool:
        """Whether ``log_likelihood`` was written."""
        return type(self).log_likelihood is not Problem.log_likelihood

    def parameters(self, task: Task) -> Float[Tensor, "n parameter"]:
        """Optional, with ``parameter_space``: all that is hidden of each task, as numbers. Particles use it.

        Args:
            task: A batch of n tasks, as ``sample`` drew them.

        Returns:
            Shape n x parameter, inside ``parameter_space``.
        """
        raise NotImplementedError(f"{type(self).__name__} gives no parameters")

    def from_parameters(self, parameters: Float[Tensor, "n parameter"], context: Float[Tensor, "n context"]) -> Task:
        """Optional: the inverse of ``parameters``, given the known context.

        Parameters and context have to be independent under the prior: any parameters may go with any context.

        Args:
            parameters: As ``parameters`` gives them: n x parameter.
            context: What is known of each task: n x context.

        Returns:
            A batch of n tasks, as ``sample`` draws them.
        """
        raise NotImplementedError(f"{type(self).__name__} gives no from_parameters")

    def log_prior(self, parameters: Float[Tensor, "n parameter"]) -> Float[Tensor, " n"]:
        """Log density of ``parameters`` under ``sample``, up to a constant. Default: uniform in their box.

        Args:
            parameters: As ``parameters`` gives them: n x parameter.

        Returns:
            Shape n.
        """
        return torch.zeros(len(parameters))

    @property
    def has_default_loss(self) -> bool:
        """Whether nobody has written a loss, which is then the answer space's own distance to the target."""
        return type(self).loss is Problem.loss

    @cached_property
    def has_distance_loss(self) -> bool:
        """Whether the loss is that distance, also where it was written out: measured on some tasks."""
        if self.has_default_loss:
            return True
        rng = torch.Generator().manual_seed(0)
        tasks, answer = TaskBatch.draw(self, 256, rng), self.answer_space.sample(256, rng)
        distance = self.answer_space.distance(answer, tasks.target)
        return bool(torch.allclose(tasks.loss(answer), distance, rtol=1e-3, atol=1e-6))

    @cached_property
    def observation_dim(self) -> int:
        """How many numbers an observation has, found by making one."""
        hidden = TaskBatch.draw(self, 2, torch.Generator().manual_seed(0))
        query = self.query_space.sample(2, torch.Generator().manual_seed(0))
        return hidden.observe(query, torch.Generator().manual_seed(0)).shape[-1]

    def with_context(self, **values: float | tuple[float, float]) -> "Problem":
        """The same problem with some of its contexts at one value each, or in another range.

        Args:
            values: By the names of the contexts, which have to be options of the problem too.

        Returns:
            A copy. A problem whose contexts are no options of it cannot be set, and refuses.
        """
        me: Any = self
        for name, value in values.items():
            if not hasattr(self, name):
                raise InvalidInput(name, value, f"left out: {type(self).__name__} has no {name} to set")
            if is_dataclass(me) and name in {f.name for f in fields(me)}:
                me = replace(cast(Any, me), **{name: value})
            else:
                options = options_of(me)
                me = copy.copy(me)
                setattr(me, name, value)
                vars(me)[MADE_WITH] = ((), options | {name: value} if name in options else options)
        return cast(Problem, me)

    def context_grid(self, n_knots: int) -> ContextGrid | None:
        """A few values of each context, from its range.

        Args:
            n_knots: How many values, where there is one context; of several, each has fewer.

        Returns:
            The grid; None where a context is no option that could be set.
        """
        ranges = [getattr(self, name, None) for name in self.context_names]
        if any(not _is_range(values) for values in ranges):
            return None
        pairs = [values if isinstance(values, tuple | list) else (values, values) for values in ranges]
        varying = sum(low < high for low, high in pairs)
        if any(low <= 0 < high for low, high in pairs if low < high):
            return None
        n = knots_per_context(n_knots, varying)
        return ContextGrid(tuple(log_grid(float(low), float(high), n) for low, high in pairs))

    def at_context(self, point: Sequence[float]) -> "Problem":
        """The same problem at one point of its ``context_grid``.

        Args:
            point: A value per name in ``context_names``.

        Returns:
            A copy with these contexts fixed.
        """
        return self.with_context(**dict(zip(self.context_names, point, strict=True)))


def _is_range(values: Any) -> bool:
    """Whether an option of a problem is a number, or a low and a high one."""
    if isinstance(values, tuple | list):
        return len(values) == 2 and all(isinstance(value, float | int) for value in values)
    return isinstance(values, float | int) and not isinstance(values, bool)


def _numbers(problem: Problem, method: str, values: Any) -> Tensor:
    try:
        return torch.as_tensor(values, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError):
        raise ProblemError(f"{type(problem).__name__}.{method} returned {values!r}; expected a tensor") from None


def _columns(values: Any) -> Tensor:
    tensor = torch.as_tensor(values, dtype=torch.float32)
    return tensor[:, None] if tensor.ndim == 1 else tensor


@final
@dataclass(frozen=True)
class TaskBatch:
    """``n`` tasks under way: the simulator's side of an episode, with every answer checked."""

    problem: Problem
    task: Task
    context: Float[Tensor, "n context"]
    target: Float[Tensor, "n answer"]

    @classmethod
    def draw(cls, problem: Problem, n: int, rng: Generator) -> "TaskBatch":
        """``n`` fresh tasks from the problem's prior.

        Args:
            problem: The family.
            n: How many tasks.
            rng: Draws them.

        Returns:
            The tasks with their contexts and targets, all of them checked.
        """
        task = problem.sample(n, rng)
        try:
            rows = {len(leaf) for leaf in trees.leaves(task)}
        except TypeError as error:
            raise ProblemError(f"{type(problem).__name__}.sample returned an unusable batch: {error}") from None
        if rows != {n}:
            raise ProblemError(
                f"{type(problem).__name__}.sample({n}, rng) must return tensors whose first dimension is {n}; "
                f"found {sorted(rows) or 'none'}"
            )
        context = _numbers(problem, "context", problem.context(task))
        context = _checked(problem, "context", context, (n, len(problem.context_names)))
        target = _columns(_numbers(problem, "target", problem.target(task)))
        target = _checked(problem, "target", target, (n, problem.answer_space.dim))
        return cls(problem, task, context, target)

    def __len__(self) -> int:
        return len(self.target)

    def select(self, index: Tensor) -> "TaskBatch":
        """The tasks at ``index``.

        Args:
            index: Positions, or a mask of n.

        Returns:
            A batch of those tasks, in that order.
        """
        return TaskBatch(self.problem, trees.select(self.task, index), self.context[index], self.target[index])

    def observe(self, query: Float[Tensor, "n query"], rng: Generator) -> Float[Tensor, "n observation"]:
        """One observation of each task at its query.

        Args:
            query: One query per task: n x query.
            rng: Draws the noise.

        Returns:
            Shape n x observation; a value that is not finite is a ``ProblemError``.
        """
        observation = _columns(_numbers(self.problem, "observe", self.problem.observe(self.task, query, rng)))
        known = self.problem.__dict__.get("observation_dim", observation.shape[-1] if observation.ndim else 1)
        return _checked(self.problem, "observe", observation, (len(self), known), query)

    def loss(self, answer: Float[Tensor, "n *extra answer"]) -> Float[Tensor, " n *extra"]:
        """The loss of one answer or of many per task.

        Args:
            answer: n x answer, or with dimensions between the two.

        Returns:
            The same shape without its last dimension.
        """
        if self.problem.has_default_loss:
            n, dim = self.target.shape
            extra = (1,) * (answer.ndim - 2)
            return self.problem.answer_space.distance(answer, self.target.view(n, *extra, dim))
        flat = answer.flatten(1, -2) if answer.ndim > 2 else answer[:, None]
        many = flat.shape[1]
        rows = torch.arange(len(self)).repeat_interleave(many)
        task = trees.select(self.task, rows) if many > 1 else self.task
        loss = _numbers(self.problem, "loss", self.problem.loss(task, flat.flatten(0, 1)))
        loss = loss.reshape(-1) if loss.numel() == len(rows) else loss
        loss = _checked(self.problem, "loss", loss, (len(rows),))
        return loss.view(answer.shape[:-1])


def _checked(
    problem: Problem, method: str, value: Tensor, shape: tuple[int, ...], query: Tensor | None = None
) -> Tensor:
    name = f"{type(problem).__name__}.{method}"
    if tuple(value.shape) != shape:
        raise ProblemError(f"{name} returned shape {tuple(value.shape)}; expected {shape}")
    if not bool(torch.isfinite(value).all()):
        row = int((~torch.isfinite(value)).reshape(shape[0], -1).any(dim=1).nonzero()[0])
        where = "" if query is None else f" at query {query[row].tolist()}"
        raise ProblemError(f"{name} returned {value[row].tolist()} for task {row}{where}; every value must be finite")
    return value
