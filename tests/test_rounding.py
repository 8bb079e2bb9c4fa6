"""Digits that match an interval's width."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cicpe.rounding import MOST_DECIMALS, decimals_for, interval, rounded


@pytest.mark.parametrize(
    ("low", "high", "decimals", "words"),
    [
        (1.0964, 1.39957, 2, "1.10 to 1.40"),
        (-3.76690, 5.0, 1, "-3.8 to 5.0"),
        (430.4, 561.2, 0, "430 to 561"),
        (0.12344, 0.12389, 5, "0.12344 to 0.12389"),
        (-0.0004, 0.3, 2, "0.00 to 0.30"),
        (0.25, 0.25, MOST_DECIMALS, "0.25 to 0.25"),
    ],
)
def test_two_digits_of_the_width(low: float, high: float, decimals: int, words: str) -> None:
    assert decimals_for(low, high) == decimals
    assert interval((low, high), decimals) == words


@given(st.floats(-1e6, 1e6), st.floats(1e-8, 1e6))
def test_rounding_moves_an_end_by_at_most_a_twentieth_of_the_width(low: float, width: float) -> None:
    high = low + width
    decimals = decimals_for(low, high)
    assert abs(float(rounded(low, decimals)) - low) <= 0.0501 * (high - low) or decimals == MOST_DECIMALS
    # No digit is written that is finer than a hundredth of the width.
    assert decimals == 0 or 10.0**-decimals >= 0.0099 * (high - low)


def test_an_endless_width_leaves_no_decimals() -> None:
    assert decimals_for(0.0, math.inf) == 0
