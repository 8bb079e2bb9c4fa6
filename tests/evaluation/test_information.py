"""Bounds of information against a case in closed form."""

import math

import pytest
import torch

from cicpe.evaluation.information import information_bounds


def linear_gaussian(contrastive: int, runs: int = 4000, slope: float = 3.0) -> tuple[torch.Tensor, torch.Tensor]:
    """theta ~ N(0, 1), y = slope theta + N(0, 1), four times: the information is log(1 + 4 slope^2) / 2."""
    rng = torch.Generator().manual_seed(1)
    theta = torch.randn(runs, 1, 1, generator=rng, dtype=torch.float64)
    y = slope * theta + torch.randn(runs, 1, 4, generator=rng, dtype=torch.float64)
    others = torch.randn(runs, contrastive, 1, generator=rng, dtype=torch.float64)
    log_true = -0.5 * (y - slope * theta).square().sum(dim=-1)[:, 0]
    return information_bounds(log_true, -0.5 * (y - slope * others).square().sum(dim=-1))


def test_the_bounds_enclose_the_closed_form() -> None:
    exact = 0.5 * math.log(1 + 4 * 9)
    lower, upper = linear_gaussian(400)
    error = float(lower.std()) / math.sqrt(len(lower))
    assert exact - 0.1 < float(lower.mean()) < exact + 3 * error
    assert exact - 3 * error < float(upper.mean()) < exact + 0.2


def test_the_lower_bound_is_capped_by_the_number_of_draws() -> None:
    lower, _ = linear_gaussian(3)
    assert float(lower.max()) <= math.log(4) + 1e-12


def test_without_information_both_are_zero() -> None:
    lower, upper = information_bounds(torch.zeros(3), torch.zeros(3, 7))
    assert lower.tolist() == pytest.approx([0, 0, 0], abs=1e-6)
    assert upper.tolist() == pytest.approx([0, 0, 0], abs=1e-6)
