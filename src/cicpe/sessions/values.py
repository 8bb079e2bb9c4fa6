"""Numbers from outside, checked."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from cicpe.errors import InvalidInput

LARGEST = float(np.finfo(np.float32).max)
"""Networks compute in single precision; a larger observation would be infinite to them."""

Values = float | Sequence[float] | np.ndarray | Tensor


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
        each = "one per observed quantity" if field == "observation" else "one per coordinate"
        raise InvalidInput(field, given, f"{expected} number(s), {each}")
    if not all(abs(value) <= LARGEST for value in values):  # written so that a NaN fails
        raise InvalidInput(field, given, "finite numbers")
    return values


def _number(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError
    return float(value)
