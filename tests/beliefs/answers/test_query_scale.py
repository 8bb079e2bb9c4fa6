"""The scale on which queries are compared: found where an even one has hardly any point that tells."""

from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor

import cicpe
from cicpe.beliefs.answers.belief import AnswerBelief
from cicpe.beliefs.answers.query_scale import OFFSETS, QueryScale
from cicpe.problems import Problem
from cicpe.spaces import Box, Sphere


class Binding(Problem):
    """The decimal logarithm of a binding constant; the concentration is in its own unit, over six decades."""

    query_space = Box([1e-3], [1e3])
    answer_space = Box([-3.0], [3.0])
    horizon = 40
    noise = 0.1

    def sample(self, n: int, rng: Generator) -> Tensor:
        return torch.rand((n, 1), generator=rng) * 5 - 2.5

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        bound = query[:, 0] / (query[:, 0] + 10 ** task[:, 0])
        return bound + self.noise * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task


class Logarithmic(Binding):
    """The same, with the logarithm of the concentration as the query."""

    query_space = Box([-3.0], [3.5])

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return super().observe(task, 10**query, rng)


class Unread(Binding):
    """Nothing but noise."""

    noise = 100.0


class Plane(Binding):
    """A second setting beside the concentration, which shifts what is seen a little."""

    query_space = Box([0.0, -1.0], [1e3, 1.0])

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return super().observe(task, query[:, :1], rng) + 0.3 * query[:, 1]


def found(problem: Problem, seconds: float | None = None) -> tuple[float, ...]:
    return QueryScale.find(problem, torch.Generator().manual_seed(0), seconds).offsets


def test_a_range_of_decades_is_bent_and_others_are_not() -> None:
    assert found(Binding())[0] <= 1e-4
    assert found(Logarithmic()) == ()
    assert found(Unread()) == ()
    low, other = found(Plane())
    assert low <= 1e-3
    assert other == 0.0


def test_where_simulating_is_slow_the_scale_stays_even() -> None:
    assert found(Binding(), seconds=1e-4) == ()


@pytest.mark.parametrize("offset", OFFSETS)
def test_queries_come_back(offset: float) -> None:
    scale = QueryScale(Box([1e-3, -1.0], [1e3, 1.0]), (offset, 0.0))
    unit = torch.stack([torch.linspace(-1, 1, 257)] * 2, dim=1)
    query = scale.from_unit(unit)
    torch.testing.assert_close(scale.to_unit(query), unit, rtol=0, atol=2e-6)
    assert bool((query[:, 0].diff() > 0).all())
    torch.testing.assert_close(query[:, 1], unit[:, 1])
    assert query[0, 0] == pytest.approx(1e-3)
    assert query[-1, 0] == pytest.approx(1e3)
    # Far above the offset, even steps are factors.
    factors = query[1:, 0] / query[:-1, 0]
    assert factors[-1] == pytest.approx(float((1 + 1 / offset) ** (1 / 256)), rel=0.02)


def test_an_even_scale_is_that_of_the_space() -> None:
    for space in (Box([1.0], [3.0]), Sphere(3)):
        query = space.sample(50, torch.Generator().manual_seed(1))
        scale = QueryScale(space)
        assert torch.equal(scale.to_unit(query), space.to_unit(query))
        assert torch.equal(scale.from_unit(query), space.from_unit(query))
        assert torch.equal(scale.sample(50, torch.Generator().manual_seed(1)), query)


def test_an_agent_queries_where_an_even_scale_has_no_point(tmp_path: Path) -> None:
    model = cicpe.train(
        Binding(), recipe="answers", epsilon=(0.3, 0.6), updates=400, calibration_episodes=600, out=tmp_path
    )
    result = cicpe.evaluate(model, epsilon=0.5, delta=0.1, episodes=500, seed=3)
    assert result.accuracy_ci[1] >= 0.9
    assert result.mean_queries < 20
    # What is saved has the scale.
    again = cicpe.load(tmp_path)
    assert isinstance(again.belief, AnswerBelief)
    assert again.belief.model.query_scale.offsets == model.belief.model.query_scale.offsets != ()  # type: ignore[attr-defined]
    asked = again.belief.random_queries(400, torch.Generator().manual_seed(0))
    assert 0.3 < float((asked < 1).float().mean()) < 0.7
