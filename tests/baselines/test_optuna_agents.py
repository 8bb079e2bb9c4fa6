"""Optuna's samplers as agents: how many queries are random, and when they start to look at observations."""

import optuna
import pytest
import torch
from torch import Tensor

from cicpe.baselines.optuna_agents import STARTUP_TRIALS, OptunaAgent, SamplerName
from cicpe.errors import InvalidInput
from cicpe.problems.ackley import Ackley

PROBLEM = Ackley(2, 0.05)
PLACES = PROBLEM.query_space.sample(8, torch.Generator().manual_seed(0))
RISING = torch.linspace(-1.0, 1.0, 8)
"""Observations, step by step."""


def query_after(agent: OptunaAgent, values: Tensor) -> list[float]:
    """What is asked for once the first ``PLACES`` were observed with these values; the seed is always the same."""
    state = agent.begin(torch.tensor([[0.05]]))
    for place, value in zip(PLACES[: len(values)], values, strict=True):
        state = agent.update(state, place[None], value.view(1, 1))
    asked: list[float] = agent.propose(state, torch.Generator().manual_seed(1)).query[0, 0].tolist()
    return asked


def looks(agent: OptunaAgent, steps: int) -> bool:
    """Whether the query after so many steps depends on the order in which the values were observed."""
    orders = [RISING[:steps].roll(shift) for shift in range(3)]  # a single pair may lead to the same corner of the box
    return len({tuple(query_after(agent, values)) for values in orders}) > 1


@pytest.mark.parametrize("sampler", ["tpe", "gp-logei"])
def test_queries_depend_on_observations_after_the_third(sampler: SamplerName) -> None:
    agent = OptunaAgent(PROBLEM, sampler, 8)
    assert [looks(agent, steps) for steps in range(2, 8)] == [False, True, True, True, True, True]


@pytest.mark.parametrize("sampler", ["tpe", "gp-logei"])
def test_with_ten_random_ones_they_would_be_random_search(sampler: SamplerName) -> None:
    """The negative control: with Optuna's default a budget of eight is never used."""
    agent = OptunaAgent(PROBLEM, sampler, 8, n_startup_trials=10)
    assert not any(looks(agent, steps) for steps in range(2, 8))


def test_cma_es_has_one_random_query_and_then_a_generation() -> None:
    """Its first generation is of 4 + floor(3 ln dim) = 6 queries about the middle, whatever was observed."""
    agent = OptunaAgent(PROBLEM, "cma-es", 20)
    sampler = agent._study((), seed=0).sampler
    assert sampler._n_startup_trials == 1
    assert not any(looks(agent, steps) for steps in range(2, 7))


@pytest.mark.parametrize("startup", [STARTUP_TRIALS, 2, 5])
def test_the_argument_reaches_the_sampler(startup: int) -> None:
    sampler = OptunaAgent(PROBLEM, "tpe", 8, n_startup_trials=startup)._study((), seed=0).sampler
    assert isinstance(sampler, optuna.samplers.TPESampler)
    assert sampler._n_startup_trials == startup


@pytest.mark.parametrize("startup", [0, -1, 2.5, "3"])
def test_a_number_of_random_queries_that_is_none(startup: object) -> None:
    with pytest.raises(InvalidInput, match="n_startup_trials"):
        OptunaAgent(PROBLEM, "tpe", 8, n_startup_trials=startup)  # type: ignore[arg-type]


def test_a_sampler_that_is_not_there() -> None:
    with pytest.raises(InvalidInput, match="one of tpe, cma-es, gp-logei"):
        OptunaAgent(PROBLEM, "nsga", 8)  # type: ignore[arg-type]
