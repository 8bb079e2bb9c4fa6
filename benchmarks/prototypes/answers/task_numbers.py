"""The hidden numbers of a task that its answer and its context do not already say.

Whatever ``sample`` returns is flattened to numbers. Constant ones, known ones and those that a coordinate of the
target gives are left out; every other is put on an even scale by its own quantiles. Where that is possible the
nuisance need not be discovered: a network can be fitted with it as an input, and inference ranges over it.

Shapes: n tasks, D numbers.
"""

from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe import trees
from cicpe.problems.base import Problem, Task, TaskBatch

MOST = 12
"""Tasks with more numbers than this, beside the answer, are not flattened."""
KNOTS = 257
EDGE = 3**0.5
"""Even numbers lie in [-EDGE, EDGE], where they have variance one."""


def flat_numbers(task: Task) -> Tensor | None:
    """All numbers of a batch of tasks, n x D; None where they are no numbers."""
    columns: list[Tensor] = []
    try:
        leaves = trees.leaves(task)
    except TypeError:
        return None
    for leaf in leaves:
        if isinstance(leaf, np.ndarray) and leaf.dtype == object:
            rows = [_object_numbers(one) for one in leaf]
            if any(row is None for row in rows) or len({len(row) for row in rows if row is not None}) != 1:
                return None
            columns.append(torch.tensor(rows, dtype=torch.float64))
        else:
            columns.append(torch.as_tensor(leaf).double().reshape(len(leaf), -1))
    joined = torch.cat(columns, dim=1) if columns else None
    return joined if joined is not None and bool(torch.isfinite(joined).all()) else None


def _object_numbers(value: Any) -> list[float] | None:
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    if isinstance(value, np.ndarray | Tensor):
        value = np.asarray(value, dtype=np.float64).reshape(-1).tolist()
    if isinstance(value, int | float | np.number):
        return [float(value)]
    if isinstance(value, list | tuple):
        parts = [_object_numbers(part) for part in value]
        return None if any(part is None for part in parts) else [x for part in parts for x in part]
    return None


@final
class TaskNumbers:
    """Reads the nuisance of tasks as numbers on an even scale."""

    def __init__(self, kept: Tensor, knots_DS: Tensor) -> None:
        self.kept, self.knots_DS = kept, knots_DS

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.kept)

    @classmethod
    def find(cls, problem: Problem, rng: Generator, n: int = 4000) -> "TaskNumbers | None":
        """The nuisance of a family; None where tasks are no numbers or too many."""
        hidden = TaskBatch.draw(problem, n, rng)
        numbers = flat_numbers(hidden.task)
        if numbers is None:
            return None
        told = torch.cat([hidden.target, hidden.context], dim=1).double()
        kept = [i for i, column in enumerate(numbers.T) if float(column.std()) > 0 and not _is_told(column, told)]
        if len(kept) > MOST:
            return None
        levels = torch.linspace(0, 1, KNOTS, dtype=torch.float64)
        knots = torch.quantile(numbers[:, kept], levels, dim=0).T.contiguous() if kept else torch.zeros(0, KNOTS)
        found = cls(torch.tensor(kept, dtype=torch.long), knots)
        # Numbers that together give the target are no nuisance beside it: candidates could not vary on their own.
        return None if kept and _explained(found.read(hidden.task).double(), hidden.target.double()) > 0.9 else found

    def read(self, task: Task) -> Float[Tensor, "n D"]:
        """The nuisance of tasks, each number between -EDGE and EDGE."""
        numbers = flat_numbers(task)
        assert numbers is not None
        found = []
        for column, knots in zip(numbers[:, self.kept].T, self.knots_DS, strict=True):
            place = torch.searchsorted(knots, column.contiguous()).clamp(1, KNOTS - 1)
            low, high = knots[place - 1], knots[place]
            share = ((column - low) / (high - low).clamp_min(1e-12)).clamp(0, 1)
            found.append(EDGE * (2 * (place - 1 + share) / (KNOTS - 1) - 1))
        return torch.stack(found, dim=1).float() if found else torch.zeros(len(numbers), 0)


def _explained(numbers: Tensor, target: Tensor) -> float:
    """The largest share of a target coordinate's variance that a quadratic function of the numbers explains."""
    size = numbers.shape[1]
    rows, columns = torch.tril_indices(size, size)
    features = torch.cat([torch.ones(len(numbers), 1), numbers, numbers[:, rows] * numbers[:, columns]], dim=1)
    half = len(numbers) // 2
    fitted = torch.linalg.lstsq(features[:half], target[:half]).solution
    error = (target[half:] - features[half:] @ fitted).square().mean(dim=0)
    return float((1 - error / target[half:].var(dim=0).clamp_min(1e-12)).max())


def _is_told(column: Tensor, told: Tensor) -> bool:
    """Whether a number rises or falls with one that is known or asked for, in every pair of tasks."""
    for other in told.T:
        ordered = column[other.argsort()]
        steps = ordered.diff()
        if bool((steps >= -1e-6 * column.std()).all()) or bool((steps <= 1e-6 * column.std()).all()):
            return float(other.std()) > 0
    return False
