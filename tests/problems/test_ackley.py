"""Ackley against the paper's formula."""

import math

import numpy as np
import pytest

from cicpe.problems.ackley import Ackley
from small_runs import make_rng


def ackley_oracle(place: np.ndarray, best: np.ndarray, b: float, c: float) -> float:
    """The paper's formula, number by number."""
    d = len(place)
    offset = [float(x) - float(y) for x, y in zip(place, best, strict=True)]
    bowl = 10 * math.exp(-b * math.sqrt(sum(u * u for u in offset) / d))
    ripple = math.exp(sum(math.cos(c * u) for u in offset) / d)
    height = 10 + math.e - bowl - ripple
    return 1 - 2 * height / (math.pi - 0.21 * d + 9.68 * b + 0.04 * c)


@pytest.mark.parametrize("dim", [1, 3, 6])
def test_ackley_against_the_formula(dim: int) -> None:
    problem = Ackley(dim=dim, noise=0.0)
    task = problem.sample(100, make_rng())
    query = problem.query_space.sample(100, make_rng(1))
    oracle = [
        ackley_oracle(query[i].numpy(), task.target[i].numpy(), float(task.decay[i]), float(task.frequency[i]))
        for i in range(100)
    ]
    assert problem.observe(task, query, make_rng())[:, 0].numpy() == pytest.approx(oracle, abs=2e-5)


@pytest.mark.parametrize("dim", [1, 3, 6])
def test_ackley_is_one_at_its_target_and_less_elsewhere(dim: int) -> None:
    problem = Ackley(dim=dim, noise=0.0)
    task = problem.sample(200, make_rng())
    assert (problem.observe(task, task.target, make_rng()) == 1).all()
    assert (problem.value(task, problem.query_space.sample(200, make_rng(1))) < 1).all()


def test_ackley_prior() -> None:
    task = Ackley().sample(5000, make_rng())
    for values, low, high in ((task.decay, 0.1, 0.5), (task.frequency, math.pi, 4 * math.pi), (task.target, -1, 1)):
        share = (values - low) / (high - low)
        assert share.min() >= -1e-6
        assert share.max() <= 1 + 1e-6
        assert (share.mean(0) - 0.5).abs().max() < 4 * 0.289 / math.sqrt(5000)
    assert Ackley().context_names == ("noise",)  # the shape stays hidden
