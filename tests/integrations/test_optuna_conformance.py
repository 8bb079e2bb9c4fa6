"""Optuna's own sampler cases, on models of the zoo."""

from collections.abc import Callable
from functools import cache
from typing import Any

import optuna
import pytest
from optuna.samplers import BaseSampler, RandomSampler
from optuna.testing.pytest_samplers import BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase

import cicpe
from cicpe.integrations.optuna import CicpeSampler

optuna.logging.set_verbosity(optuna.logging.ERROR)
load = cache(cicpe.load)
NUMBERS = "the coordinates of a model are numbers: categories go to the independent sampler"


def make(name: str) -> CicpeSampler:
    """A sampler that leaves to another what its model does not know; the cases suggest parameters of every kind."""
    epsilon = 38.0 if name == "gp-max-1d" else 0.2  # the former answers with a value, and 600 are 3 of its units
    return CicpeSampler(
        load(name), epsilon, 0.1, value_range=(-300.0, 300.0), independent_sampler=RandomSampler(0), stop_study=False
    )


class _InOneDimension:
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: make("gp-max-1d")


class _InTwoDimensions:
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: make("geochem-2d")


class TestBasic(_InOneDimension, BasicSamplerTestCase):
    """Any parameters at all."""


class TestRelative(_InTwoDimensions, RelativeSamplerTestCase):
    """Parameters that are suggested together."""

    def test_sample_relative_categorical(self, sampler: Any) -> None:
        pytest.skip(NUMBERS)

    def test_sample_relative_mixed(self, sampler: Any) -> None:
        pytest.skip(NUMBERS)


class TestSingleOnlyInOneDimension(_InOneDimension, SingleOnlySamplerTestCase):
    """As many objectives as the model observes: one."""


class TestSingleOnlyInTwoDimensions(_InTwoDimensions, SingleOnlySamplerTestCase):
    """The same."""


@pytest.mark.slow
class TestBasicInTwoDimensions(_InTwoDimensions, BasicSamplerTestCase):
    """Any parameters at all, with a model that looks at two of them together."""
