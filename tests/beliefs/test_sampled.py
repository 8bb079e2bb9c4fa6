"""Queries that are drawn from a posterior, whoever computes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from scipy.stats import kstest
from torch import Generator, Tensor

from cicpe.beliefs.base import Assessment, Belief
from cicpe.beliefs.sampled import SampledQueries, top_two
from cicpe.errors import InvalidInput
from cicpe.spaces import Box, Space

LINE = Box([-9.0], [9.0])


@dataclass(frozen=True)
class Normal(Belief):
    """Believes in a standard normal answer, whatever is seen; its draws come in order."""

    horizon: int = 5
    answers: Space = LINE

    @property
    def query_space(self) -> Space:
        return LINE

    @property
    def answer_space(self) -> Space:
        return self.answers

    def begin(self, context: Tensor) -> Tensor:
        return context

    def update(self, state: Tensor, query: Tensor, observation: Tensor) -> Tensor:
        return state

    def assess(
        self,
        state: Tensor,
        epsilons: Sequence[float],
        rng: Generator,
        query_spread: float = 0.0,
        costs: Sequence[Tensor] = (),
    ) -> Assessment:
        n, zeros = len(state), torch.zeros(len(epsilons), len(state))
        nothing = torch.zeros(n, 1)
        return Assessment(zeros[0].long(), nothing[:, None], nothing[None], zeros, zeros, zeros[:, None], nothing)

    def sample_answers(self, state: Any, n: int, rng: Generator) -> Tensor:
        return torch.randn((len(state), n, 1), generator=rng).sort(dim=1).values

    def tensors(self) -> Mapping[str, Tensor]:
        return {}


def queries(rule: Any, n: int = 4000) -> Tensor:
    belief = SampledQueries(Normal(), rule)
    return belief.assess(belief.begin(torch.zeros(n, 0)), (0.1,), Generator().manual_seed(0)).query[:, 0, 0]


def test_thompson_queries_have_the_law_of_the_posterior() -> None:
    """Though the draws come in order. Negative control: a spread that is a tenth too wide is seen."""
    drawn = queries("ts").numpy()
    assert kstest(drawn, "norm").pvalue > 1e-3
    assert kstest(1.1 * drawn, "norm").pvalue < 1e-3


def test_top_two_queries_lie_farther_from_the_mean() -> None:
    assert float(queries("ttps").std()) > 1.05 * float(queries("ts").std())


def test_uniform_queries_are_anywhere() -> None:
    assert kstest((queries("uniform").numpy() + 9) / 18, "uniform").pvalue > 1e-3


def test_a_challenger_takes_the_place_of_a_draw_near_the_mean_half_of_the_time() -> None:
    n, space = 2000, LINE
    first, challenger, typical, mean = (torch.full((n, 1), value) for value in (0.1, 3.0, 1.0, 0.0))
    share = float((top_two(first, challenger, typical, mean, space, Generator().manual_seed(0)) == 3.0).float().mean())
    assert 0.46 < share < 0.54
    # Never where the draw is farther off than usual, or the challenger nearer.
    for other in ((2.0 * first / 0.1, challenger, typical), (first, 0.5 * first, typical)):
        assert torch.equal(top_two(*other, mean, space, Generator().manual_seed(0)), other[0])


def test_all_else_is_the_beliefs_own() -> None:
    belief = SampledQueries(Normal(), "ts")
    assert belief.with_horizon(9).horizon == 9
    assert (belief.horizon, belief.most_at_once, belief.judges_gaps) == (5, Normal().most_at_once, False)


def test_answers_that_are_no_queries_are_not_asked_for() -> None:
    elsewhere = Normal(answers=Box([0.0], [1.0]))
    assert SampledQueries(elsewhere, "uniform").answer_space == Box([0.0], [1.0])
    with pytest.raises(InvalidInput, match="both spaces must be one"):
        SampledQueries(elsewhere, "ts")
