"""Shared statistics against closed forms and SciPy."""

import numpy as np
import pytest
import torch
from scipy.stats import binom, binomtest, kstest, qmc

from cicpe.statistics import (
    MANY_POINTS,
    RUN,
    clopper_pearson,
    first_of_best,
    highest_mass_interval,
    log_grid,
    log_uniform,
    sobol_points,
    systematic,
)


@pytest.mark.parametrize("tail", [0.025, 0.05, 0.001])
def test_clopper_pearson_is_scipys_for_many_proportions_at_once(tail: float) -> None:
    successes, n = np.array([0, 1, 0, 3, 10, 900, 3999]), np.array([1, 1, 10, 10, 10, 1000, 4000])
    low, high = clopper_pearson(successes, n, tail)
    exact = [binomtest(k, m).proportion_ci(1 - 2 * tail, method="exact") for k, m in zip(successes, n, strict=True)]
    np.testing.assert_allclose(low, [interval.low for interval in exact], atol=1e-12)
    np.testing.assert_allclose(high, [interval.high for interval in exact], atol=1e-12)
    assert float(clopper_pearson(3, 10, tail)[0]) == low[3]


@pytest.mark.parametrize("p", [0.5, 0.8, 0.9])
def test_each_bound_is_wrong_as_seldom_as_it_says(p: float) -> None:
    counts = np.arange(51)
    low, high = clopper_pearson(counts, 50, 0.05)
    weight = binom.pmf(counts, 50, p)
    assert weight[low > p].sum() <= 0.05
    assert weight[high < p].sum() <= 0.05
    careless, _ = clopper_pearson(counts, 50, 0.4)  # a bound that allows more is wrong more often
    assert weight[careless > p].sum() > 0.05


def test_log_uniform_numbers_are_uniform_in_their_logarithm() -> None:
    draws = log_uniform(0.01, 10.0, 4000, torch.Generator().manual_seed(0)).double()
    share = (draws / 0.01).log() / np.log(1000)
    assert kstest(share.numpy(), "uniform").pvalue > 1e-3
    assert kstest(draws.numpy() / 10, "uniform").pvalue < 1e-3


def test_a_log_grid_has_even_ratios_and_exact_ends() -> None:
    grid = log_grid(0.01, 0.3, 7)
    assert (grid[0], grid[-1], len(grid)) == (0.01, 0.3, 7)
    np.testing.assert_allclose(np.diff(np.log(grid)), np.log(30) / 6)
    assert log_grid(0.2, 0.2, 5) == (0.2,)


def test_sobol_points_are_more_even_than_independent_ones() -> None:
    points = sobol_points(64, 3, seed=5)
    assert points.dtype == torch.float64
    torch.testing.assert_close(points[:9], sobol_points(9, 3, seed=5))
    assert not torch.equal(points, sobol_points(64, 3, seed=6))
    independent = torch.rand((64, 3), generator=torch.Generator().manual_seed(5))
    assert qmc.discrepancy(points.numpy()) < 0.2 * qmc.discrepancy(independent.numpy())


def test_the_highest_mass_interval_by_hand() -> None:
    value, weight = torch.tensor([[0.0, 1.0, 1.3, 5.0]]), torch.tensor([[0.3, 0.25, 0.25, 0.2]])
    answer, confidence = highest_mass_interval(value, weight, 0.2)
    assert float(answer[0]) == pytest.approx(1.15)
    assert float(confidence[0]) == pytest.approx(0.5)
    assert float(highest_mass_interval(value, weight, 0.1)[1][0]) == pytest.approx(0.3)


class TestFirstOfBest:
    def test_rounding_changes_no_choice(self) -> None:
        rng = torch.Generator().manual_seed(0)
        score = torch.rand(64, 9, generator=rng)
        score[:, 5] = score[:, 2] = 1.5  # a tie
        rounded = score * (1 + 2e-7 * (torch.rand(score.shape, generator=rng) - 0.5))
        assert (first_of_best(score) == 2).all()
        assert (first_of_best(rounded) == 2).all()
        assert not (rounded.argmax(dim=1) == 2).all()  # what it is there for

    def test_beyond_rounding_the_best_is_chosen(self) -> None:
        score = torch.tensor([[1.0, 1.0 + 1e-5, 0.5], [-3.0, -2.0, -2.0 - 1e-5]])
        assert first_of_best(score).tolist() == [1, 1]


@pytest.mark.parametrize("offset", [0.0, 0.37, 0.999])
def test_systematic_draws_from_many_points_are_those_of_one_cumulative_sum(offset: float) -> None:
    weight = torch.rand((6, 2 * MANY_POINTS), generator=torch.Generator().manual_seed(0)) ** 20 + 1e-25
    weight[0, : MANY_POINTS + 5] = 1e-25  # all of the mass is late
    weight[1, 7] = 1e6  # nearly all of it is one point
    together = systematic(weight, 96, offset)
    alone = systematic(weight[:, :-1], 96, offset)  # not a whole number of runs
    assert (2 * MANY_POINTS - 1) % RUN
    weight[:, -1] = 1e-25
    assert int((systematic(weight, 96, offset) != alone).sum()) <= 2  # a tick on the edge of a point, by rounding
    assert bool((together.diff(dim=1) >= 0).all())
    share = torch.zeros_like(weight).index_put_(
        (torch.arange(6)[:, None], together), torch.tensor(1.0 / 96), accumulate=True
    )
    assert bool(((share - weight / weight.sum(dim=1, keepdim=True)).abs() <= 1.001 / 96 + 1e-6).all())
