"""Numbers from outside, checked."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from cicpe.errors import InvalidInput
from cicpe.problems.observations import LARGEST

Values = float | Sequence[float] | np.ndarray | Tensor
Observed = Values | bool | str | Sequence[bool | str | float]
"""Numbers, or what the kind of an observation has words for: yes and no, names of categories."""


def entries(field: str, given: object, expected: int) -> list[object]:
    """The entries of an observation as they were given, as many as expected, or an error that names the field."""
    flat = _flat(given)
    if len(flat) != expected:
        raise InvalidInput(field, given, f"{expected} value(s), one per observed quantity")
    return flat


def _flat(value: object) -> list[object]:
    """What is in lists and arrays, in order; all else is one entry."""
    if isinstance(value, Tensor | np.ndarray | np.generic):
        plain = value.detach().numpy() if isinstance(value, Tensor) else np.asarray(value)
        return list(plain.reshape(-1).tolist())
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [entry for part in value for entry in _flat(part)]
    return [value]


def numbers(field: str, given: object, expected: int) -> tuple[float, ...]:
    """Finite numbers, as many as expected, or an error that names the field."""
    try:
        plain = np.asarray(given.detach().numpy() if isinstance(given, Tensor) else given)
        if plain.dtype.kind not in "biufO":  # NumPy would read a number out of text
            raise TypeError
        values = tuple(_number(value) for value in plain.reshape(-1))
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(field, given, f"{expected} number(s)") from None
    if len(values) != expected:
        raise InvalidInput(field, given, f"{expected} number(s), one per coordinate")
    if not all(abs(value) <= LARGEST for value in values):  # written so that a NaN fails
        raise InvalidInput(field, given, "finite numbers")
    return values


def _number(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError
    return float(value)
