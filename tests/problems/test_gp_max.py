"""Paths of the GP maximum: their covariance, smoothness, interpolation and largest value."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.interpolate import RegularGridInterpolator
from torch import Tensor

from cicpe.problems import TaskBatch
from cicpe.problems.gp_max import GRID, GPMax, sample_paths
from small_runs import make_rng


def z_scores(products: Tensor, kernel: Tensor) -> Tensor:
    """How many standard errors the mean of f(x) f(x') is from that of k(x, x'), for each column."""
    gap = products - kernel
    return gap.mean(0) / gap.std(0) * math.sqrt(len(gap))


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("scales", [(0.05, 0.1), (0.1, 0.2)])
def test_gp_paths_have_the_rbf_covariance(dim: int, scales: tuple[float, float]) -> None:
    n = 3000 if dim == 1 else 1000
    low, high = scales
    lengthscale = low + (high - low) * torch.rand(n, generator=make_rng())
    paths = sample_paths(lengthscale, dim, make_rng(5))
    side = GRID[dim]
    assert paths.shape == (n, *[side] * dim)
    # Lags of 0, 0.05, 0.1, 0.2, 0.5 and 1: along the axis, and for d = 2 along each axis and the diagonal.
    steps = [round(lag * (side - 1)) for lag in (0, 0.05, 0.1, 0.2, 0.5, 1)]
    directions = [(1,)] if dim == 1 else [(1, 0), (0, 1), (1, 1)]
    products, squares = [], []
    for direction in directions:
        for step in steps:
            here: tuple[Any, ...] = (slice(None), *[0] * dim)
            there: tuple[Any, ...] = (slice(None), *[step * axis for axis in direction])
            products.append(paths[here] * paths[there])
            squares.append(sum((step * axis / (side - 1)) ** 2 for axis in direction))
    squared_lag = torch.tensor(squares)
    kernel = torch.exp(-squared_lag / (2 * lengthscale[:, None] ** 2))
    assert z_scores(torch.stack(products, 1), kernel).abs().max() < 4.2  # 18 two-sided tests at alpha 1e-3 in all
    wrong = torch.exp(-squared_lag / (2 * (1.5 * lengthscale[:, None]) ** 2))
    assert z_scores(torch.stack(products, 1), wrong).abs().max() > 5  # the test can tell a wrong kernel


@pytest.mark.parametrize("dim", [1, 2])
def test_gp_paths_are_stationary_with_mean_zero_and_variance_one(dim: int) -> None:
    n = 1000
    paths = sample_paths(torch.full((n,), 0.1), dim, make_rng()).flatten(1)[:, :: 61 if dim == 1 else 455]
    assert (paths.mean(0) * math.sqrt(n)).abs().max() < 4.2
    assert ((paths.square().mean(0) - 1) * math.sqrt(n / 2)).abs().max() < 4.5


def test_gp_paths_are_smooth() -> None:
    """Rounding in the embedding would show as white noise; the second difference of an RBF path is tiny."""
    paths = sample_paths(torch.full((200,), 0.2), 1, make_rng()).double()
    second = paths[:, 2:] - 2 * paths[:, 1:-1] + paths[:, :-2]
    # Var f'' = 3 / l^4, so the difference has standard deviation sqrt(3) (h / l)^2.
    expected = math.sqrt(3) / (0.2 * 511) ** 2
    assert second.std() == pytest.approx(expected, rel=0.2)


def test_gp_prior_of_the_length_scale() -> None:
    share = (GPMax().sample(2000, make_rng()).lengthscale - 0.05) / 0.15
    assert share.min() >= -1e-6
    assert share.max() <= 1 + 1e-6
    assert abs(share.mean() - 0.5) < 4 * 0.289 / math.sqrt(2000)


@pytest.mark.parametrize("dim", [1, 2])
def test_gp_values_are_interpolated(dim: int) -> None:
    problem = GPMax(dim=dim, noise=0.0)
    task = problem.sample(20, make_rng())
    axis = np.linspace(0, 1, GRID[dim])
    corners = torch.cat([torch.zeros(1, dim), torch.ones(1, dim), torch.eye(dim)])
    query = torch.cat([corners, problem.query_space.sample(20 - len(corners), make_rng(1))])
    oracle = [
        RegularGridInterpolator([axis] * dim, task.values[i].double().numpy())(query[i].double().numpy())[0]
        for i in range(20)
    ]
    assert problem.observe(task, query, make_rng())[:, 0].numpy() == pytest.approx(oracle, abs=1e-4)


@pytest.mark.parametrize("dim", [1, 2])
def test_gp_target_is_the_largest_value(dim: int) -> None:
    problem = GPMax(dim=dim, noise=0.0)
    tasks = TaskBatch.draw(problem, 200, make_rng())
    places = problem.query_space.sample(200, make_rng(1))
    assert (problem.value(tasks.task, places) <= tasks.target[:, 0] + 1e-5).all()
    best = tasks.task.values.flatten(1).argmax(1)
    side = GRID[dim]
    at = torch.stack(torch.unravel_index(best, [side] * dim), -1) / (side - 1)
    assert torch.allclose(problem.value(tasks.task, at).clamp(-5, 5), tasks.target[:, 0], atol=1e-3)
    assert torch.allclose(tasks.loss(tasks.target + 0.25), torch.full((200,), 0.25), atol=1e-5)


def test_gp_target_is_clipped_into_the_answer_space() -> None:
    problem = GPMax()
    task = problem.sample(2, make_rng())
    high = task._replace(values=task.values * 0 + torch.tensor([[9.0], [-9.0]]))
    assert problem.target(high).tolist() == [[5.0], [-5.0]]
