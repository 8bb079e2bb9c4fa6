"""The map between an objective's values and a model's observations."""

import math
from typing import Any

import pytest
import torch

import cicpe
from cicpe.errors import InvalidInput
from cicpe.integrations.objective_scale import (
    SLACK,
    ObjectiveScale,
    Observations,
    checked_range,
    epsilon_is_a_value,
    units_per_value,
)
from cicpe.problems.ackley import Ackley
from cicpe.problems.binary_search import BinarySearch
from cicpe.problems.gp_max import GPMax

HIGH, LOW = Observations(-2.0, 2.0, "high"), Observations(-2.0, 2.0, "low")


@pytest.mark.parametrize(
    ("observations", "minimise", "of_0", "of_10"),
    [(HIGH, False, -2.0, 2.0), (HIGH, True, 2.0, -2.0), (LOW, False, 2.0, -2.0), (LOW, True, -2.0, 2.0)],
)
def test_the_better_end_is_the_better_end(
    observations: Observations, minimise: bool, of_0: float, of_10: float
) -> None:
    scale = ObjectiveScale((0.0, 10.0), observations, minimise)
    assert [scale.to_model(value) for value in (0.0, 5.0, 10.0)] == pytest.approx([of_0, 0.0, of_10])
    for value in (-3.0, 0.0, 2.5, 12.0):
        assert scale.from_model(scale.to_model(value)) == pytest.approx(value)


@pytest.mark.parametrize(("observations", "minimise", "sign"), [(HIGH, False, 1), (HIGH, True, -1), (LOW, True, 1)])
def test_values_as_trained(observations: Observations, minimise: bool, sign: int) -> None:
    scale = ObjectiveScale("as-trained", observations, minimise)
    for value in (-1.7, 0.0, 0.3):
        assert scale.to_model(value) == pytest.approx(sign * value)
    assert units_per_value("as-trained", observations) == 1.0


@pytest.mark.parametrize("minimise", [False, True])
def test_far_better_is_refused_far_worse_is_clipped(minimise: bool) -> None:
    scale = ObjectiveScale((0.0, 10.0), HIGH, minimise)
    better, worse = (-1, 11) if minimise else (11, -1)
    step = 10 * SLACK
    assert scale.observe("value", better) == (pytest.approx(2.4), False)
    assert scale.observe("value", worse) == (pytest.approx(-2.4), False)
    for value in (worse + (step if minimise else -step), -math.inf if not minimise else math.inf):
        assert scale.observe("value", value) == (pytest.approx(-2.0), True)
    for value in (better - (step if minimise else -step), math.inf if not minimise else -math.inf, math.nan):
        with pytest.raises(InvalidInput, match="value_range, which says 0 to 10"):
            scale.observe("value", value)


def test_one_unit_of_the_objective() -> None:
    assert units_per_value((0.0, 10.0), HIGH) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("problem", "low", "high", "best"),
    [
        (GPMax(1, 0.05), (-2.0, -1.0), (1.0, 2.0), "high"),
        (Ackley(3, 0.05), (-1.5, -0.5), (0.9, 1.1), "high"),  # at the target, which random queries miss, it is 1
        (BinarySearch(3), (-1.0, -1.0), (1.0, 1.0), None),
    ],
    ids=str,
)
def test_what_a_pilot_says(problem: Any, low: Any, high: Any, best: str | None) -> None:
    found = Observations.measured(problem)
    assert low[0] <= found.low <= low[1]
    assert high[0] <= found.high <= high[1]
    assert found.best == best


def test_a_pilot_sees_which_end_is_sought() -> None:
    class Upside(cicpe.Problem):
        query_space = answer_space = cicpe.Box([0.0], [1.0])

        def sample(self, n: int, rng: torch.Generator) -> torch.Tensor:
            return torch.rand((n, 1), generator=rng)

        def observe(self, task: torch.Tensor, query: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
            return (query - task).abs()

        def target(self, task: torch.Tensor) -> torch.Tensor:
            return task

    found = Observations.measured(Upside())
    assert found.best == "low"
    assert found.low == pytest.approx(0.0, abs=0.01)


def test_a_model_of_functions_is_asked_what_it_predicts() -> None:
    found = Observations.of(cicpe.load("geochem-2d"))
    assert found.low < 0 < found.high
    assert found.best == "high"


def test_what_epsilon_is_about() -> None:
    assert epsilon_is_a_value(cicpe.load("gp-max-1d"))
    assert not epsilon_is_a_value(cicpe.load("geochem-2d"))  # distances
    assert not epsilon_is_a_value(cicpe.load("ackley-3d"))


def test_a_range_for_observations_that_are_no_merits() -> None:
    answers = Observations(-1.0, 1.0, None)
    assert checked_range("as-trained", answers) == "as-trained"
    with pytest.raises(InvalidInput, match="no merits"):
        checked_range((0.0, 1.0), answers)
