"""Tasks from a shifted prior: some coordinates of a task, uniform in training, follow a Beta law instead.

Two ways, so that it works for any problem:

* **By parameters**, where a problem has ``parameter_space`` and ``from_parameters`` and a uniform prior there: every
  parameter that the target depends on is drawn from the Beta law and the task is built anew. Exact in any dimension.
* **By rank**, for all others: one number of a task (its target, or a field of the task such as a length scale) is
  replaced by its rank in a large pool of tasks from the prior, which is uniform whatever the number's own law is.
  A rank is drawn from the Beta law and the task that has it is taken. Several coordinates at once would need
  importance weights, whose effective number falls off exponentially with the dimension; so a vector counts by the
  mean of its unit coordinates (on a sphere: how far it points along the diagonal).

Either way only the prior changes: given the task, episodes are as they were.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from cicpe import trees
from cicpe.errors import InvalidInput
from cicpe.problems import Problem, TaskBatch

POOL = 8192
"""Tasks among which ranks are taken."""
CHUNK = 1024
EDGE = 1e-9
"""How near to 0 and 1 a unit coordinate may come, so that its density stays a number."""


class ShiftedTasks(NamedTuple):
    """Tasks under way, and where they lie in the coordinates that were shifted."""

    tasks: TaskBatch
    unit: Float[Tensor, "n coordinate"]
    """In [0, 1], uniform under the training prior; float64."""
    distinct: int
    """How many different tasks there are."""


class PriorShift(ABC):
    """A way to draw the tasks of a problem from another prior."""

    of: str
    """What is shifted, in words."""
    coordinates: int

    @abstractmethod
    def draw(self, alpha: float, beta: float, n: int, rng: Generator) -> ShiftedTasks:
        """``n`` tasks with Beta(alpha, beta) in every shifted coordinate; (1, 1) is the training prior."""


def prior_shift(problem: Problem, field: str | None, rng: Generator) -> PriorShift:
    """By parameters where the problem allows it, else by the rank of its target; by the rank of ``field`` if given."""
    if field is None and problem.parameter_space is not None and _uniform(problem):
        columns = _columns_of_target(problem, rng)
        if len(columns):
            return ByParameters(problem, columns, f"{_counted(len(columns))} of the target", len(columns))
    pool = _pool(problem, rng)
    values, of = (_target_number(pool), "target") if field is None else (_field_number(pool, field), field)
    return ByRank(pool, values.argsort(), f"rank of the {of}")


def _counted(columns: int) -> str:
    return "1 coordinate" if columns == 1 else f"{columns} coordinates"


@final
@dataclass(frozen=True)
class ByParameters(PriorShift):
    """The parameters ``columns`` of a uniform parameter space follow the Beta law, independently."""

    problem: Problem
    columns: Int[Tensor, " coordinate"]
    of: str
    coordinates: int

    def draw(self, alpha: float, beta: float, n: int, rng: Generator) -> ShiftedTasks:
        box = self.problem.parameter_space
        assert box is not None
        base = TaskBatch.draw(self.problem, n, rng)
        unit = _beta(alpha, beta, (n, self.coordinates), rng)
        low, high = torch.tensor(box.low)[self.columns], torch.tensor(box.high)[self.columns]
        parameters = self.problem.parameters(base.task).clone()
        parameters[:, self.columns] = low + (high - low) * unit.float()
        task = self.problem.from_parameters(parameters, base.context)
        target = torch.as_tensor(self.problem.target(task), dtype=torch.float32).reshape(base.target.shape)
        return ShiftedTasks(TaskBatch(self.problem, task, base.context, target), unit, n)


@final
@dataclass(frozen=True)
class ByRank(PriorShift):
    """The rank of a task in a pool of tasks from the prior follows the Beta law."""

    pool: TaskBatch
    order: Int[Tensor, " pool"]
    """The pool's tasks, sorted by the shifted number."""
    of: str
    coordinates: int = 1

    def draw(self, alpha: float, beta: float, n: int, rng: Generator) -> ShiftedTasks:
        size = len(self.order)
        rank = (_beta(alpha, beta, (n,), rng) * size).long().clamp_max(size - 1)
        unit = (rank.double() + 0.5) / size
        return ShiftedTasks(self.pool.select(self.order[rank]), unit[:, None], len(set(rank.tolist())))


def _beta(alpha: float, beta: float, shape: tuple[int, ...], rng: Generator) -> Tensor:
    seed = int(torch.randint(2**62, (), generator=rng))
    drawn = np.random.default_rng(seed).beta(alpha, beta, shape)
    return torch.from_numpy(drawn).clamp(EDGE, 1 - EDGE)


def _uniform(problem: Problem) -> bool:
    cls = type(problem)
    return cls.from_parameters is not Problem.from_parameters and cls.log_prior is Problem.log_prior


def _columns_of_target(problem: Problem, rng: Generator, n: int = 64) -> Int[Tensor, " coordinate"]:
    """The parameters that the target depends on: those that change it when they are swapped among tasks."""
    tasks = TaskBatch.draw(problem, n, rng)
    parameters = problem.parameters(tasks.task)
    columns = []
    for column in range(parameters.shape[1]):
        swapped = parameters.clone()
        swapped[:, column] = parameters[:, column].roll(1)
        target = torch.as_tensor(problem.target(problem.from_parameters(swapped, tasks.context)))
        if not torch.allclose(target.reshape(tasks.target.shape).float(), tasks.target):
            columns.append(column)
    return torch.tensor(columns, dtype=torch.long)


def _pool(problem: Problem, rng: Generator) -> TaskBatch:
    parts = [TaskBatch.draw(problem, CHUNK, rng) for _ in range(POOL // CHUNK)]
    task = trees.concatenate([part.task for part in parts])
    context, target = torch.cat([part.context for part in parts]), torch.cat([part.target for part in parts])
    return TaskBatch(problem, task, context, target)


def _target_number(pool: TaskBatch) -> Float[Tensor, " pool"]:
    return pool.problem.answer_space.to_unit(pool.target).double().mean(dim=-1)


def _field_number(pool: TaskBatch, field: str) -> Float[Tensor, " pool"]:
    fields = {name: value for name, value in _fields(pool.task).items() if _is_number(value)}
    if field not in fields:
        raise InvalidInput(
            "shift", field, f"a number that a task has: {', '.join(fields) or 'this problem names none'}"
        )
    return torch.as_tensor(fields[field]).double().reshape(POOL, -1).mean(dim=-1)


def _is_number(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and (value.ndim == 1 or value.ndim == 2)


def _fields(task: Any) -> Mapping[str, Any]:
    if isinstance(task, Mapping):
        return task
    names = (*getattr(task, "_fields", ()), *getattr(task, "__dataclass_fields__", ()))
    return {name: getattr(task, name) for name in names}
