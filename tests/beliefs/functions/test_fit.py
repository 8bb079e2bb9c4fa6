"""Gaussian processes that are fitted to simulated tasks find what the tasks were made with."""

import math

import pytest
import torch
from torch import Tensor

from cicpe.beliefs.functions.fit import fit_gp_mixture
from cicpe.gp.mixture import FLOOR, RATE, GPMixture
from cicpe.problems import TaskBatch
from functions_by_hand import MATERN_3, RBF, Smooth, Truth, only, rng


def held_out(problem: Smooth, mixture: GPMixture, tasks: int = 96, queries: int = 24) -> tuple[Tensor, Tensor]:
    """Mean log density of fresh observations of a task, in their own units, and how probable that makes each kind."""
    chance = rng(77)
    hidden = TaskBatch.draw(problem, tasks, chance)
    rows = torch.arange(tasks).repeat_interleave(queries)
    query = problem.query_space.sample(len(rows), chance)
    value = hidden.select(rows).observe(query, chance).double().view(tasks, queries)
    place = problem.query_space.to_unit(query).double().view(tasks, queries, 1)
    joint = mixture.log_evidence(hidden.context, place, mixture.standard(value))
    joint = joint + mixture.log_share_J.log_softmax(dim=0) - queries * mixture.spread.log()
    return joint.logsumexp(dim=-1).mean(), joint.softmax(dim=-1).mean(dim=0)


def shortfall(problem: Smooth, evidence: Tensor) -> float:
    """By how much an evidence falls short of that of the very process that tasks are drawn from."""
    true = only(Truth(problem.kind, (problem.length,), noise=1 + FLOOR), contexts=1)
    return float(held_out(problem, true)[0] - evidence)


@pytest.mark.parametrize(("kind", "length"), [(RBF, 0.2), (MATERN_3, 0.4)])
def test_the_fit_recovers_a_length_scale_and_how_smooth_functions_are(kind: int, length: float) -> None:
    problem, kinds = Smooth(length, kind=kind), 9
    start, fitted = fit_gp_mixture(problem, 0, kinds, 1), fit_gp_mixture(problem, 0, kinds, 100)
    before, _ = held_out(problem, start)
    after, share = held_out(problem, fitted)
    assert float(after) > float(before) + 1.0
    assert shortfall(problem, after) < 1.0
    smooth = torch.tensor([k % 3 == RBF for k in range(kinds)])
    if kind != RBF:
        assert float(share[smooth].sum()) < 0.3
        return
    assert float(share[smooth].sum()) > 0.5
    typical = float((share[smooth] * fitted.log_scale_JQ[smooth, 0]).sum() / share[smooth].sum())
    assert length / 1.5 < math.exp(typical) < 1.5 * length


def learned_noise(mixture: GPMixture, level: float) -> tuple[float, float]:
    """The noise that a belief works with at a level, in units of the observations, and what it falls short by."""
    problem = Smooth(levels=(level,))
    evidence, share = held_out(problem, mixture)
    typical = (mixture.noise(torch.tensor([[level]])).log() * share).sum().exp() * mixture.spread
    return float(typical), shortfall(problem, evidence)


def test_one_level_of_noise_is_learned() -> None:
    learned, short = learned_noise(fit_gp_mixture(Smooth(levels=(0.2,)), 0, 3, 80), 0.2)
    assert learned == pytest.approx(0.2, rel=0.15)
    assert short < 1.5


def test_the_noise_is_learned_as_a_function_of_the_context() -> None:
    fitted = fit_gp_mixture(Smooth(levels=(0.05, 0.5)), 0, 3, 120)
    assert bool((fitted.noise_by_context_JC > 0).all())
    for level in (0.05, 0.5):
        learned, short = learned_noise(fitted, level)
        assert learned == pytest.approx(level, rel=0.2)
        assert short < 1.0


def test_the_fit_is_decided_by_its_seed() -> None:
    one, same, other = (fit_gp_mixture(Smooth(), seed, 2, 3) for seed in (1, 1, 2))
    for key, value in one.state_dict().items():
        assert torch.equal(value, same.state_dict()[key]), key
    assert not torch.equal(one.log_scale_JQ, other.log_scale_JQ)


def test_a_fit_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10**6))
    monkeypatch.setattr("cicpe.gp.mixture.time.perf_counter", lambda: float(next(ticks)))
    start = GPMixture(2, 1, 1).requires_grad_(False).log_scale_JQ
    moved = fit_gp_mixture(Smooth(), 0, 2, 100, seconds=4.0).log_scale_JQ - start
    # Three steps of at most the learning rate, and not a hundred.
    assert 0 < float(moved.abs().max()) < 4 * RATE
