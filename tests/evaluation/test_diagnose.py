"""Checks of confidence and posterior, on cases that are right by construction and on ones that are wrong."""

from dataclasses import replace
from typing import Any

import torch

import cicpe
from cicpe.agents.belief_agent import BeliefAgent, ShownBy
from cicpe.beliefs.particles.belief import ParticleBelief, ParticleConfig
from cicpe.evaluation.diagnose import DRAWS, diagnose, rank_test
from cicpe.problems.binary_search import BinarySearch
from confidences import make_rng
from stopping import stopping_at


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
        else (lambda c: ShownBy(torch.full((len(c),), sharpened), torch.zeros(len(c)), torch.ones(len(c))))
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
    assert found.rewards is not None
    assert found.rewards.drawn <= found.rewards.recommended <= found.rewards.ideal
    assert found.rewards.ideal - found.rewards.recommended <= found.rewards.gap_bound
    assert abs(found.rewards.drawn - found.sampled_accuracy) < 0.08  # the posterior is right about its own draws
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
