"""Every family by its name: it conforms, survives JSON, and has the defaults and the noise of the paper."""

import json
import math
from typing import Any

import pytest
import torch
from torch.distributions import Normal

from cicpe.errors import InvalidInput
from cicpe.problems import FAMILIES, ProblemSpec, TaskBatch, make_problem, spec_of
from cicpe.testing import check_problem
from small_runs import make_rng

ALL = [
    *[("binary-search", dim) for dim in (1, 2, 6, 9)],
    *[("best-arm", dim) for dim in (2, 5)],
    *[("ackley", dim) for dim in (1, 3, 7)],
    *[("gp-max", dim) for dim in (1, 2)],
]


SIMULATED = [name for name in FAMILIES if name not in ("geochem", "smooth", "parametric")]
"""Families that need no data; geochem has tests of its own, and so have those of experiment files."""


SIZED = [name for name in SIMULATED if name != "gp-argmax"]
"""Families that come in several dimensions."""


@pytest.mark.parametrize(("name", "dim"), ALL)
def test_family_conforms(name: str, dim: int) -> None:
    check_problem(make_problem(name, dim=dim))


@pytest.mark.parametrize("name", SIMULATED)
def test_family_conforms_without_noise(name: str) -> None:
    check_problem(make_problem(name, noise=0.0), seed=1)


@pytest.mark.parametrize("name", SIMULATED)
def test_family_survives_json(name: str) -> None:
    problem = make_problem(name, noise=(0.01, 0.02))
    spec = spec_of(problem)
    data = json.loads(json.dumps({"name": spec.name, "options": dict(spec.options)}))
    assert spec.name == name
    assert ProblemSpec(**data).make() == problem


@pytest.mark.parametrize("name", SIZED)
def test_family_has_the_defaults_of_the_paper(name: str) -> None:
    expected = {
        "binary-search": (6, (0.025, 0.1)),
        "best-arm": (5, (0.00125, 0.01)),
        "ackley": (3, (0.025, 0.1)),
        "gp-max": (1, (0.0375, 0.1)),
    }
    problem: Any = make_problem(name)
    assert (problem.dim, problem.noise) == expected[name]
    assert problem.default_context() == (problem.noise[1],)


@pytest.mark.parametrize("name", SIMULATED)
def test_noise_is_log_uniform_in_its_range_and_told_to_the_agent(name: str) -> None:
    problem = make_problem(name, noise=(0.001, 0.1))
    context = TaskBatch.draw(problem, 2000, make_rng()).context
    share = (torch.log10(context) + 3) / 2
    assert share.min() >= 0
    assert share.max() <= 1
    # U[0, 1]: the mean has standard error 0.289 / sqrt(n).
    assert abs(share.mean() - 0.5) < 4 * 0.289 / math.sqrt(2000)


@pytest.mark.parametrize("name", SIZED)
def test_with_noise_changes_the_noise_only(name: str) -> None:
    problem: Any = make_problem(name, dim=2)
    other: Any = problem.with_context(noise=0.05)
    assert (other.dim, other.noise) == (2, (0.05, 0.05))
    assert TaskBatch.draw(other, 3, make_rng()).context == pytest.approx(torch.full((3, 1), 0.05))


@pytest.mark.parametrize("name", SIMULATED)
@pytest.mark.parametrize("noise", [-0.1, math.nan, math.inf, (0.2, 0.1)])
def test_bad_noise_is_refused(name: str, noise: Any) -> None:
    with pytest.raises(InvalidInput, match="noise"):
        make_problem(name, noise=noise)


@pytest.mark.parametrize(
    ("name", "dim"),
    [("binary-search", 0), ("best-arm", 1), ("ackley", 0), ("ackley", 21), ("gp-max", 0), ("gp-max", 3)],
)
def test_bad_dimension_is_refused(name: str, dim: int) -> None:
    with pytest.raises(InvalidInput, match=f"dim must be .*; got {dim}"):
        make_problem(name, dim=dim)


@pytest.mark.parametrize(("name", "dim"), [("best-arm", 4), ("ackley", 3), ("gp-max", 1), ("gp-max", 2)])
def test_gaussian_observations_and_their_likelihood(name: str, dim: int) -> None:
    problem: Any = make_problem(name, dim=dim)
    n = 1000
    task = problem.sample(n, make_rng())
    query = problem.query_space.sample(n, make_rng(1))
    seen = problem.observe(task, query, make_rng(2))
    mean = problem.value(task, query)
    assert seen.shape == (n, 1)
    normal: Any = Normal(mean.double(), task.noise.double())
    oracle = normal.log_prob(seen[:, 0].double())
    assert torch.allclose(problem.log_likelihood(task, query, seen).double(), oracle, atol=2e-3)
    residual = (seen[:, 0] - mean) / task.noise
    assert abs(residual.mean()) < 4 / math.sqrt(n)
    assert abs(residual.square().mean() - 1) < 4 * math.sqrt(2 / n)
