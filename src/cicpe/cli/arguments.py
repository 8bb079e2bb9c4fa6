"""How the command line reads its arguments: numbers, and options that take one value or two."""

import math
from collections.abc import Sequence
from typing import Any

import typer

from cicpe.errors import InvalidInput

RANGES = {
    "train": ("--noise", "--epsilon", "--certify-at"),
    "check": ("--noise", "--epsilon"),
    "doctor": ("--noise", "--epsilon"),
}
"""Command -> its options that take one number or a low and a high one."""


def number(text: str) -> float:
    """A number, or an error that says what was typed."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number") from None


def whole(text: str) -> int:
    """A whole number, or an error that says what was typed."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number") from None


def seed(text: str) -> int:
    """A seed: what every generator in use accepts."""
    value = whole(text)
    if not 0 <= value < 2**32:
        raise typer.BadParameter(f"{text!r} is not a whole number from 0 to {2**32 - 1}")
    return value


def threads(text: str) -> int:
    """A number of threads."""
    value = whole(text)
    if not 1 <= value <= 1024:
        raise typer.BadParameter(f"{text!r} is not a whole number from 1 to 1024")
    return value


def spread_ranges(arguments: Sequence[str]) -> list[str]:
    """Repeats the option before each further number: ``--noise 0.05 0.1`` becomes ``--noise 0.05 --noise 0.1``.

    The parser underneath gives an option a fixed number of values; repeated options it takes as they come.
    """
    options = RANGES.get(arguments[0], ()) if arguments else ()
    spread: list[str] = []
    current: str | None = None
    values = 0
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if name in options:
            current, values = name, 1 if equals else 0
            spread.append(argument)
        elif current is not None and (values == 0 or _is_number(argument)):
            spread += [argument] if values == 0 else [current, argument]
            values += 1
        else:
            current = None
            spread.append(argument)
    return spread


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def one_or_two(field: str, values: Sequence[float] | None) -> float | tuple[float, float] | None:
    """None, one number, or a low and a high one."""
    if not values:
        return None
    if len(values) > 2:
        raise InvalidInput(field, " ".join(f"{value:g}" for value in values), "one number, or a low and a high one")
    if not all(map(math.isfinite, values)):
        raise InvalidInput(field, " ".join(f"{value:g}" for value in values), "finite numbers")
    if len(values) == 1:
        return values[0]
    low, high = values
    if low > high:
        raise InvalidInput(field, f"{low:g} {high:g}", "given with the lower number first")
    return low, high


def given(**options: Any) -> dict[str, Any]:
    """The options that were given: those that are not None."""
    return {name: value for name, value in options.items() if value is not None}
