"""Binary search against analytic oracles."""

import math
from typing import Any

import pytest
import torch
from torch.distributions import Bernoulli

from cicpe.problems.binary_search import BinarySearch
from small_runs import make_rng


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.3])
def test_binary_search_flips_as_often_as_it_says(noise: float) -> None:
    problem = BinarySearch(dim=3, noise=noise)
    task = problem.sample(20_000, make_rng())
    query = problem.query_space.sample(20_000, make_rng(1))
    seen = problem.observe(task, query, make_rng(2))
    assert set(seen.flatten().tolist()) == {-1.0, 1.0}
    flipped = (seen != torch.sign(task.target - query)).float()
    error = math.sqrt(noise * (1 - noise) / 20_000)
    assert (flipped.mean(0) - noise).abs().max() <= 4.5 * error
    # Coordinates flip independently of each other.
    assert abs((flipped[:, 0] * flipped[:, 1]).mean() - noise**2) <= 4.5 * noise / math.sqrt(20_000)


def test_binary_search_likelihood_is_bernoulli() -> None:
    problem = BinarySearch(dim=4)
    task = problem.sample(200, make_rng())
    query = problem.query_space.sample(200, make_rng(1))
    seen = problem.observe(task, query, make_rng(2))
    up = torch.where(task.target > query, 1 - task.noise[:, None], task.noise[:, None])
    bernoulli: Any = Bernoulli(up)
    oracle = bernoulli.log_prob((seen > 0).float()).sum(-1)
    assert torch.allclose(problem.log_likelihood(task, query, seen), oracle, atol=1e-5)
