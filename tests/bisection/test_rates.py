"""P(after > before) of two Beta distributions: closed forms, and exact sums of fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest

from cicpe.bisection.rates import BetaShape, log_order_probability, log_overlap
from cicpe.errors import InvalidInput
from exact_beta import order_probability


def computed(*shapes: float) -> float:
    return float(log_order_probability(*(np.array([float(shape)]) for shape in shapes))[0])


@pytest.mark.parametrize("a", [0.05, 0.3, 0.5, 1, 2.5, 40, 1000])
def test_against_a_uniform_rate_it_is_the_mean(a: float) -> None:
    assert computed(a, 1.7, 1, 1) == pytest.approx(math.log(a / (a + 1.7)), abs=1e-10)


@pytest.mark.parametrize("shape", [(0.05, 0.05), (0.5, 0.5), (3, 0.2), (700, 4000)])
def test_equal_shapes_are_even_odds(shape: tuple[float, float]) -> None:
    assert computed(*shape, *shape) == pytest.approx(math.log(0.5), abs=1e-10)


@pytest.mark.parametrize(
    "shapes", [(1, 1, 2, 3), (30, 12, 14, 40), (60, 140, 140, 60), (200, 800, 500, 500), (3, 300, 1, 500)]
)
def test_whole_shapes_agree_with_exact_fractions_however_small_the_probability(shapes: tuple[int, ...]) -> None:
    exact = order_probability(*shapes)
    log_exact = math.log(exact.numerator) - math.log(exact.denominator)
    assert computed(*shapes) == pytest.approx(log_exact, abs=1e-9)


def test_the_overlap_is_what_one_more_failure_adds() -> None:
    gained = order_probability(4, 2, 2, 3) - order_probability(3, 2, 2, 3)
    assert math.exp(log_overlap(BetaShape(3, 2), BetaShape(2, 3))) / 3 == pytest.approx(float(gained), rel=1e-12)


def test_the_exact_sum_is_right_in_a_case_done_by_hand() -> None:
    assert order_probability(2, 1, 1, 1) == Fraction(2, 3)


@pytest.mark.parametrize("shape", [(0, 1), (1, -1), (math.nan, 1), (1, math.inf), (1e5, 1)])
def test_shapes_that_cannot_be(shape: tuple[float, float]) -> None:
    with pytest.raises(InvalidInput, match=r"prior must be two numbers from 0.05 to 10000"):
        BetaShape(*shape)
