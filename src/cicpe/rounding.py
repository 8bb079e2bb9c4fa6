"""How many digits of a number are worth reading: as many as its uncertainty leaves."""

import math
from collections.abc import Sequence

MOST_DECIMALS = 12
"""Of a number with an interval of next to no width."""


def decimals_for(low: float, high: float) -> int:
    """Decimals that two significant digits of an interval's width take, for its ends and for what lies between.

    Args:
        low: One end.
        high: The other.

    Returns:
        Digits after the decimal point, from 0 to ``MOST_DECIMALS``.
    """
    width = abs(high - low)
    if not 0 < width < math.inf:
        return 0 if width else MOST_DECIMALS
    return min(max(1 - math.floor(math.log10(width)), 0), MOST_DECIMALS)


def rounded(value: float, decimals: int) -> str:
    """A number with so many decimals; where they are next to unlimited, six significant digits.

    Args:
        value: The number.
        decimals: As ``decimals_for`` gives them.

    Returns:
        Text without a minus before zero.
    """
    if decimals >= MOST_DECIMALS:
        return f"{value:.6g}"
    return f"{round(value, decimals) + 0.0:.{decimals}f}"


def interval(bounds: Sequence[float], decimals: int) -> str:
    """An interval in words.

    Args:
        bounds: Its two ends.
        decimals: Of each.

    Returns:
        "low to high".
    """
    low, high = bounds
    return f"{rounded(low, decimals)} to {rounded(high, decimals)}"


def with_unit(number: str, unit: str) -> str:
    """A number and its unit, with a space between where there is a unit.

    Args:
        number: The number, as text.
        unit: Its unit; empty where it has none.

    Returns:
        The two as people write them: ``845 °C``.
    """
    return f"{number} {unit}" if unit else number
