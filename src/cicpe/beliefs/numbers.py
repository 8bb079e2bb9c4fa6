"""The numbers of tasks, read from whatever a problem's ``sample`` returns, and which of them say something new.

A word is a number, too: the kind of a curve, say. Each has its own, the same in every batch.
"""

import zlib
from enum import Enum
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from cicpe import trees
from cicpe.problems.base import Task


def flat_numbers(task: Task) -> Float[Tensor, "n number"] | None:
    """All numbers of a batch of tasks; None where it holds something else, or tasks of different sizes."""
    columns: list[Tensor] = []
    try:
        leaves = trees.leaves(task)
    except TypeError:
        return None
    for leaf in leaves:
        if isinstance(leaf, np.ndarray) and leaf.dtype == object:
            try:
                rows = [_numbers_of(value) for value in leaf]
            except RecursionError:  # an object that holds itself
                return None
            if any(row is None for row in rows) or len({len(row) for row in rows if row is not None}) != 1:
                return None
            columns.append(torch.tensor(rows, dtype=torch.float64))
        elif isinstance(leaf, np.ndarray) and leaf.dtype.kind == "U":
            words, place = np.unique(leaf, return_inverse=True)
            of_words = torch.tensor([_number_of_word(str(word)) for word in words])
            columns.append(of_words[torch.as_tensor(place).reshape(len(leaf), -1)])
        elif isinstance(leaf, np.ndarray) and leaf.dtype.kind not in "biuf":
            return None
        else:
            columns.append(torch.as_tensor(leaf).double().reshape(len(leaf), -1))
    joined = torch.cat(columns, dim=1) if columns else None
    return joined if joined is not None and bool(torch.isfinite(joined).all()) else None


def _number_of_word(word: str) -> float:
    return float(zlib.crc32(word.encode()))


def _numbers_of(value: Any) -> list[float] | None:
    """The numbers of one task of a plain Python or NumPy simulator."""
    if isinstance(value, Enum):
        value = value.name
    if isinstance(value, str):
        return [_number_of_word(value)]
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value, key=str)]
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        value = value.astype(np.float64).reshape(-1).tolist()
    if isinstance(value, Tensor):
        value = value.double().flatten().tolist()
    if isinstance(value, bool | int | float | np.number):
        return [float(value)]
    if isinstance(value, list | tuple):
        parts = [_numbers_of(part) for part in value]
        return None if any(part is None for part in parts) else [x for part in parts if part for x in part]
    try:
        fields = vars(value)
    except TypeError:
        return None
    return _numbers_of(fields)


def independent_numbers(numbers: Tensor, context: Tensor) -> list[int]:
    """The numbers that vary, and that neither the context nor an earlier number gives.

    Args:
        numbers: All numbers of a batch of tasks: n x number.
        context: What is known of each: n x context.

    Returns:
        Their places.
    """
    kept: list[int] = []
    for i, column in enumerate(numbers.T):
        told = torch.cat([context, numbers[:, kept]], dim=1)
        if float(column.std()) > 0 and not is_told(column, told):
            kept.append(i)
    return kept


def is_told(column: Tensor, told: Tensor) -> bool:
    """Whether a number rises or falls with one that is known or asked for, in every pair of tasks."""
    for other in told.T:
        if float(other.std()) == 0:
            continue
        steps = column[other.argsort(stable=True)].diff()
        slack = 1e-6 * float(column.std())
        if bool((steps >= -slack).all()) or bool((steps <= slack).all()):
            return True
    return False


def is_one_of(column: Tensor, others: Tensor) -> bool:
    """Whether one of the others says as much as a number: each rises or falls with the other."""
    return any(is_told(column, other[:, None]) and is_told(other, column[:, None]) for other in others.T)
