"""Confidence against success, on cases that are right by construction and on ones that are wrong."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cicpe.episodes.table import AgentTable
from cicpe.evaluation.reliability import EVEN, at_random_times, reliability
from confidences import make_rng, outcomes


def test_a_calibrated_confidence_has_no_error_and_others_have() -> None:
    assert reliability(*outcomes()).error < 0.012
    assert reliability(*outcomes(slope=0.4)).error > 0.08
    assert reliability(*outcomes(intercept=-0.7)).error > 0.08


def test_chance_is_what_a_perfect_confidence_shows() -> None:
    errors, by_chance = [], []
    for seed in range(60):
        rng = make_rng(seed)
        confidence = 0.8 + 0.2 * torch.rand(500, generator=rng)
        table = reliability(confidence, torch.rand(500, generator=rng) < confidence)
        errors.append(table.error)
        by_chance.append(table.by_chance)
    assert sum(errors) / 60 == pytest.approx(sum(by_chance) / 60, rel=0.1)
    assert sum(by_chance) / 60 > 0.02


def test_the_error_of_a_constant_confidence_is_known() -> None:
    success = torch.arange(1000) < 700
    table = reliability(torch.full((1000,), 0.9), success)
    assert table.error == pytest.approx(0.2)
    assert table.brier == pytest.approx(0.7 * 0.01 + 0.3 * 0.81)
    assert table.sizes == (1000,)


@given(n=st.integers(1, 200), levels=st.integers(1, 30), bins=st.integers(1, 12), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_bins_hold_every_episode_once_and_do_not_part_equals(n: int, levels: int, bins: int, seed: int) -> None:
    rng = make_rng(seed)
    confidence = torch.randint(levels, (n,), generator=rng) / levels
    table = reliability(confidence, torch.rand(n, generator=rng) < 0.5, bins)
    assert sum(table.sizes) == n
    assert len(table.sizes) <= bins
    assert min(table.sizes) >= 1
    assert list(table.confidence) == sorted(set(table.confidence))
    assert 0 <= table.error <= 1


def test_a_calibrated_confidence_lies_on_the_diagonal_and_another_does_not() -> None:
    n, rng = 20_000, make_rng()
    truth = torch.rand(n, 3, generator=rng)
    loss = torch.where(torch.rand(n, 3, generator=rng) < truth, 0.0, 1.0)
    blank = torch.zeros(n, 3)
    honest, vain = (
        reliability(*at_random_times(AgentTable(loss, shown, blank, blank.bool()), 0.5, seed=0), borders=EVEN)
        for shown in (truth, truth.sqrt())
    )
    assert sum(honest.sizes) == sum(vain.sizes) == n
    confidence, _, low, high, _ = honest.columns
    assert ((low <= confidence) & (confidence <= high)).sum() >= 8
    assert (vain.columns[0] > vain.columns[3]).sum() >= 8


def test_borders_part_bins_and_empty_ones_are_left_out() -> None:
    confidence = torch.tensor([0.05, 0.3, 0.35, 0.95, 1.0])
    table = reliability(confidence, torch.tensor([False, False, True, True, True]), borders=(0.1, 0.3, 0.5, 0.9))
    assert table.sizes == (1, 2, 2)
    np.testing.assert_allclose(table.confidence, [0.05, 0.325, 0.975], rtol=1e-6)
    assert table.accuracy == (0.0, 0.5, 1.0)
