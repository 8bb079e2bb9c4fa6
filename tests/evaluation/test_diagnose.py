"""Checks of confidence and posterior, on cases that are right by construction and on ones that are wrong."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

import cicpe
from cicpe.agents.belief_agent import BeliefAgent
from cicpe.beliefs.particles.belief import ParticleBelief, ParticleConfig
from cicpe.calibration.platt import Platt, fit_platt
from cicpe.evaluation.diagnose import DRAWS, diagnose, rank_test, reliability
from cicpe.problems.binary_search import BinarySearch
from stopping import stopping_at


def make_rng(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


def outcomes(n: int = 20_000, slope: float = 1.0, intercept: float = 0.0) -> tuple[Tensor, Tensor]:
    """Confidences, and successes with log-odds slope * said + intercept."""
    rng = make_rng()
    logit = 1.5 + 1.5 * torch.randn(n, generator=rng)
    success = torch.rand(n, generator=rng) < torch.sigmoid(slope * logit + intercept)
    return torch.sigmoid(logit), success


def test_a_calibrated_confidence_has_no_error_and_others_have() -> None:
    assert reliability(*outcomes()).error < 0.012
    assert reliability(*outcomes(slope=0.4)).error > 0.08
    assert reliability(*outcomes(intercept=-0.7)).error > 0.08


def test_chance_is_what_a_perfect_confidence_shows() -> None:
    errors, said = [], []
    for seed in range(60):
        rng = make_rng(seed)
        confidence = 0.8 + 0.2 * torch.rand(500, generator=rng)
        found = reliability(confidence, torch.rand(500, generator=rng) < confidence)
        errors.append(found.error)
        said.append(found.by_chance)
    assert sum(errors) / 60 == pytest.approx(sum(said) / 60, rel=0.1)
    assert sum(said) / 60 > 0.02


def test_the_error_of_a_constant_confidence_is_known() -> None:
    success = torch.arange(1000) < 700
    found = reliability(torch.full((1000,), 0.9), success)
    assert found.error == pytest.approx(0.2)
    assert found.brier == pytest.approx(0.7 * 0.01 + 0.3 * 0.81)
    assert found.sizes == (1000,)


@given(n=st.integers(1, 200), levels=st.integers(1, 30), bins=st.integers(1, 12), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_bins_hold_every_episode_once_and_do_not_part_equals(n: int, levels: int, bins: int, seed: int) -> None:
    rng = make_rng(seed)
    confidence = torch.randint(levels, (n,), generator=rng) / levels
    found = reliability(confidence, torch.rand(n, generator=rng) < 0.5, bins)
    assert sum(found.sizes) == n
    assert len(found.sizes) <= bins
    assert min(found.sizes) >= 1
    assert list(found.confidence) == sorted(set(found.confidence))
    assert 0 <= found.error <= 1


@pytest.mark.parametrize(("slope", "intercept"), [(1.0, 0.0), (0.4, 0.3), (2.5, -1.0)])
def test_tempering_finds_the_truth(slope: float, intercept: float) -> None:
    confidence, success = outcomes(40_000, slope, intercept)
    found = fit_platt(confidence, success)
    assert found == Platt(pytest.approx(slope, abs=0.06), pytest.approx(intercept, abs=0.08))
    shown = torch.sigmoid(found.slope * torch.logit(confidence) + found.intercept)
    assert reliability(shown, success).error < 0.01


def test_tempering_of_nothing_new_stays_put_and_of_extremes_is_finite() -> None:
    assert fit_platt(torch.tensor([0.7]), torch.tensor([True])) == Platt(
        pytest.approx(1, abs=0.15), pytest.approx(0, abs=0.15)
    )
    for success in (torch.ones(500, dtype=torch.bool), torch.zeros(500, dtype=torch.bool)):
        found = fit_platt(torch.linspace(0, 1, 500), success)
        assert all(abs(value) < 100 for value in found)
        assert found.slope > 0


def test_uniform_ranks_pass_and_others_fail() -> None:
    rng = make_rng(3)
    target = torch.randn(3000, 2, generator=rng)
    draws = torch.randn(3000, DRAWS, 2, generator=rng)
    assert rank_test((draws < target[:, None]).sum(dim=1), DRAWS).p_value > 0.001
    for wrong in (1.3 * draws, 0.75 * draws, draws + 0.2):
        assert rank_test((wrong < target[:, None]).sum(dim=1), DRAWS).p_value < 1e-4


def particles(sharpened: float = 1.0) -> BeliefAgent:
    belief = ParticleBelief(
        BinarySearch(dim=1, noise=0.1),
        10,
        ParticleConfig(particles=256, prior_particles=2048, candidates=16, lookahead_particles=64),
    )
    platt = (
        None
        if sharpened == 1
        else (lambda c: (torch.full((len(c),), sharpened), torch.zeros(len(c)), torch.ones(len(c))))
    )
    return stopping_at(belief, 0.85, 0.2, platt=platt)


def test_an_exact_posterior_passes_and_a_sharpened_confidence_fails() -> None:
    problem = BinarySearch(dim=1, noise=0.1)
    found = diagnose(particles(), problem, 400, seed=1)
    assert found.at_stop.error < 0.06
    assert found.ranks.p_value > 0.001
    assert found.markov_bound <= found.accuracy
    assert found.second_moment_bound is not None
    assert found.second_moment_bound <= found.sampled_accuracy
    assert found.by_time[0][0] == 0
    # Negative control: the same decisions, said with four times the log-odds.
    wrong = diagnose(particles(sharpened=4.0), problem, 400, seed=1)
    assert wrong.mean_queries == found.mean_queries
    assert wrong.at_stop.error > found.at_stop.error + 0.02


def test_calibration_makes_the_shown_confidence_honest() -> None:
    options: dict[str, Any] = {
        "network": {"memory": {"kind": "gru", "hidden": 12}},
        "first_batch": 16,
        "batch": 16,
        "horizon": 6,
    }
    problem = BinarySearch(dim=1, noise=0.05)
    model = cicpe.train(problem, updates=40, epsilon=(0.3, 0.6), calibration_episodes=8000, settings=options)
    agent = model.agent(0.6, 0.2)
    error = diagnose(agent, problem, 4000, seed=2).at_stop.error
    raw = diagnose(replace(agent, platt=None), problem, 4000, seed=2).at_stop.error
    assert error < 0.05
    assert error < raw / 2
    # An epsilon between two calibrated ones is interpolated.
    assert diagnose(model.agent(0.55, 0.2), problem, 4000, seed=2).at_stop.error < 0.06
