"""Tasks as numbers, read from whatever ``sample`` returns."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from cicpe.beliefs.particles.belief import ParticleBelief
from cicpe.beliefs.particles.parametrisation import TaskNumbers, parameter_count, parametrisation
from cicpe.errors import InvalidInput
from cicpe.problems import Problem, make_problem
from cicpe.problems.per_task import PerTaskProblem
from cicpe.spaces import Box
from cicpe.training.recipes import candidates

NOISE = 0.5


@dataclass(frozen=True)
class Slope(Problem):
    """The slope of a line. Its tasks are a tree: the slope, a number beside it, a kind, the noise, a constant."""

    query_space = Box([-1.0], [1.0])
    answer_space = Box([-4.0], [4.0])
    context_names = ("noise",)

    def sample(self, n: int, rng: Generator) -> Any:
        slope = torch.randn(n, generator=rng)
        beside = 0.8 * slope + 0.6 * torch.randn(n, generator=rng)
        noise = NOISE * (1 + torch.rand(n, generator=rng))
        kind = torch.randint(3, (n,), generator=rng)
        return {"slope": slope, "more": (beside, kind, 2 * noise, torch.ones(n)), "twice": 2 * slope}

    def observe(self, task: Any, query: Tensor, rng: Generator) -> Tensor:
        return task["slope"] * query[:, 0] + task["more"][2] / 2 * torch.randn(len(query), generator=rng)

    def target(self, task: Any) -> Tensor:
        return task["slope"]

    def context(self, task: Any) -> Tensor:
        return task["more"][2][:, None] / 2

    def log_likelihood(self, task: Any, query: Tensor, observation: Tensor) -> Tensor:
        noise = task["more"][2] / 2
        return -0.5 * ((observation[:, 0] - task["slope"] * query[:, 0]) / noise).square() - noise.log()


def test_tasks_come_back_with_their_distribution() -> None:
    problem, rng = Slope(), torch.Generator().manual_seed(0)
    ways = parametrisation(problem)
    assert ways is not None
    assert ways.space.dim == 3
    context = NOISE * (1 + torch.rand((20_000, 1), generator=rng))
    task = ways.task(ways.prior(20_000, rng), context)
    beside, kind, twice_noise, constant = task["more"]
    assert float(task["slope"].mean()) == pytest.approx(0.0, abs=0.03)
    assert float(task["slope"].std()) == pytest.approx(1.0, abs=0.03)
    assert float(torch.corrcoef(torch.stack([task["slope"], beside]))[0, 1]) == pytest.approx(0.8, abs=0.02)
    assert kind.dtype == torch.int64
    assert kind.bincount().tolist() == pytest.approx([20_000 / 3] * 3, rel=0.1)
    torch.testing.assert_close(twice_noise, 2 * context[:, 0], atol=1e-3, rtol=0)
    torch.testing.assert_close(task["twice"], 2 * task["slope"], atol=2e-3, rtol=0)
    assert bool((constant == 1).all())


def test_particles_have_the_conjugate_posterior() -> None:
    belief = ParticleBelief(Slope(), horizon=8)
    state = belief.begin(torch.tensor([[NOISE]]))
    queries, seen = torch.tensor([1.0, -1.0, 0.5, 1.0]), torch.tensor([1.3, -0.6, 0.2, 1.1])
    for query, value in zip(queries, seen, strict=True):
        state = belief.update(state, query.view(1, 1), value.view(1, 1))
    precision = 1 + float(queries.square().sum()) / NOISE**2
    mean = float((queries * seen).sum()) / NOISE**2 / precision
    answers = belief.sample_answers(state, 2000, torch.Generator().manual_seed(0))[0, :, 0]
    assert float(answers.mean()) == pytest.approx(mean, abs=0.06)
    assert float(answers.std()) == pytest.approx(1 / math.sqrt(precision), rel=0.12)


def test_a_given_likelihood_is_raced_whatever_the_spaces_are() -> None:
    assert candidates(Slope())[0].recipe == "particles"


class Named(PerTaskProblem):
    """A NumPy simulator whose tasks are objects."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])

    def sample_one(self, rng: np.random.Generator) -> Any:
        return {"kind": "oak", "x": rng.uniform()}

    def observe_one(self, task: Any, query: np.ndarray, rng: np.random.Generator) -> float:
        return float(task["x"])

    def target_one(self, task: Any) -> float:
        return float(task["x"])


def test_objects_cannot_be_made_of_numbers() -> None:
    assert TaskNumbers.read(Named(), draws=64) is None
    assert parameter_count(Named()) == math.inf
    with pytest.raises(InvalidInput, match="parameter_space"):
        ParticleBelief(Named(), horizon=4)


def test_directions_are_no_numbers_of_their_own() -> None:
    assert parameter_count(make_problem("best-arm", dim=3)) == math.inf


def test_a_problem_that_says_its_parameters_is_believed() -> None:
    problem = make_problem("ackley", dim=3)
    assert problem.parameter_space is not None
    assert parameter_count(problem) == problem.parameter_space.dim
    ways = parametrisation(problem)
    assert ways is not None
    assert ways.space == problem.parameter_space
