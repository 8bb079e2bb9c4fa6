"""Ranges of parameters and the coordinates of a model: both ways."""

import math
from typing import Any

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from cicpe.integrations.coordinates import (
    count_places,
    fits,
    point_at,
    rounded,
    share_of,
    shares_of,
    shares_of_params,
    value_at,
)
from cicpe.spaces import Box

LINE, STEPS, WHOLE = FloatDistribution(-3, 8), FloatDistribution(0, 1, step=0.25), IntDistribution(-4, 4)


@pytest.mark.parametrize(
    "distribution",
    [
        LINE,
        FloatDistribution(1e-5, 10, log=True),
        STEPS,
        WHOLE,
        IntDistribution(1, 1000, log=True),
        IntDistribution(0, 9, step=3),
    ],
)
def test_a_value_and_its_share_are_inverse(distribution: Any) -> None:
    for share in np.linspace(0, 1, 21).tolist():
        value = value_at(distribution, share)
        assert distribution._contains(value)
        assert value_at(distribution, share_of(distribution, value)) == pytest.approx(value, rel=1e-9)
    assert (value_at(distribution, 0.0), value_at(distribution, 1.0)) == pytest.approx(
        (distribution.low, distribution.high)
    )


def test_a_point_of_a_box_and_its_shares_are_inverse() -> None:
    box = Box([-1.0, 10.0], [3.0, 20.0])
    assert shares_of(box, [0.0, 20.0]) == pytest.approx([0.25, 1.0])
    assert point_at(box, [0.25, 1.0]) == pytest.approx([0.0, 20.0])


def test_what_is_not_known_yet_stays_a_share() -> None:
    assert rounded({"x": WHOLE}, [0.3, 0.7]) == (-2, 0.7)
    assert rounded({}, [0.3, 0.7]) == (0.3, 0.7)


def test_where_a_trial_lies() -> None:
    ranges = {"x": LINE, "y": WHOLE}
    assert shares_of_params(ranges, {"x": 8.0, "y": 0, "z": 3}) == pytest.approx([1.0, 0.5])
    assert shares_of_params(ranges, {"x": 8.0}) is None
    assert shares_of_params(ranges, {"x": 9.0, "y": 0}) is None
    assert shares_of_params({"x": FloatDistribution(1, 2, log=True)}, {"x": -1.0}) is None


def test_how_many_places_there_are() -> None:
    assert count_places({"x": WHOLE, "y": STEPS}, 2) == 9 * 5
    assert count_places({"x": WHOLE, "y": LINE}, 2) == math.inf
    assert count_places({"x": WHOLE}, 2) == math.inf


def test_what_fits_a_model() -> None:
    assert fits({"x": WHOLE, "y": LINE}, 2)
    assert not fits({"x": WHOLE}, 2)
    assert not fits({"x": CategoricalDistribution([1, 2])}, 1)
    assert not fits({"x": FloatDistribution(1, 1)}, 1)
