"""The paper's bounds as functions: against cases that can be worked out, and on posteriors where they must hold."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cicpe.errors import InvalidInput
from cicpe.evaluation.theory import (
    max_value_lower_bound,
    near_optimality_bound,
    posterior_rewards,
    reward_gap_bound,
    second_moment_bound,
)
from cicpe.spaces import Box, Sphere
from confidences import make_rng

PLANE = Box([-5.0, -5.0], [5.0, 5.0])


@settings(max_examples=30, deadline=None)
@given(spread=st.floats(0.01, 1.0), shift=st.floats(0.0, 0.5), epsilon=st.floats(0.05, 1.0))
def test_a_drawn_answer_succeeds_at_least_as_often_as_the_second_moment_says(
    spread: float, shift: float, epsilon: float
) -> None:
    answers = torch.tensor([shift, 0.0]) + spread * torch.randn(2000, 2, generator=make_rng(1))
    success = float((PLANE.distance(answers, torch.zeros(2)) <= epsilon).float().mean())
    second_moment = answers.square().sum(dim=-1).mean()
    assert success >= float(second_moment_bound(second_moment, PLANE.margin(epsilon))) - 1e-6


@pytest.mark.parametrize("epsilon", [0.005, 0.05, 0.4])
def test_on_the_sphere_the_margin_is_the_chord_of_epsilon(epsilon: float) -> None:
    """One minus the cosine is half the squared chord, so the bound is one minus the mean loss over epsilon."""
    sphere, rng = Sphere(4), make_rng(2)
    target = sphere.sample(1, rng)
    answers = sphere.project(target + 0.05 * torch.randn(4000, 4, generator=rng))
    loss = sphere.distance(answers, target)
    bound = float(second_moment_bound((answers - target).square().sum(dim=-1).mean(), sphere.margin(epsilon)))
    assert bound == pytest.approx(1 - float(loss.mean()) / epsilon, abs=1e-4)
    assert float((loss <= epsilon).float().mean()) >= bound
    # The negative control: squared losses over epsilon squared, as if the sphere were flat, are another bound.
    assert bound != pytest.approx(1 - float(loss.square().mean()) / epsilon**2, abs=1e-3)


def test_of_a_gaussian_the_mean_is_best_and_gives_nothing_away() -> None:
    draws = 0.1 * torch.randn(3, 500, 2, generator=make_rng(3))
    rewards = posterior_rewards(PLANE, draws, draws.mean(dim=1), 0.2)
    expected = 1 - math.exp(-2)  # of a two-dimensional normal within two standard deviations
    assert rewards.recommended.tolist() == pytest.approx([expected] * 3, abs=0.05)
    assert float((rewards.ideal - rewards.recommended).max()) < 0.03
    # The difference of two draws is wider by the root of two.
    assert rewards.drawn.tolist() == pytest.approx([1 - math.exp(-1)] * 3, abs=0.05)
    assert rewards.gap_bound.tolist() == pytest.approx([2 * 0.01 / 0.04] * 3, rel=0.2)


def test_between_two_modes_the_mean_gives_half_away() -> None:
    """The multimodal case that the paper's remark warns of: the bound says nothing, and rightly so."""
    rng = make_rng(4)
    side = torch.where(torch.rand((1, 400, 1), generator=rng) < 0.5, -1.0, 1.0)
    draws = side * torch.tensor([1.0, 0.0]) + 0.01 * torch.randn(1, 400, 2, generator=rng)
    rewards = posterior_rewards(PLANE, draws, torch.zeros(1, 2), 0.1)
    assert (float(rewards.recommended), float(rewards.gap_bound)) == (0.0, 1.0)
    assert float(rewards.ideal) == pytest.approx(0.5, abs=0.1)


@settings(max_examples=30, deadline=None)
@given(scale=st.floats(0.01, 0.5), error=st.floats(0.0, 0.3), epsilon=st.floats(0.05, 1.0), seed=st.integers(0, 99))
def test_a_recommendation_never_gives_away_more_than_the_bound(
    scale: float, error: float, epsilon: float, seed: int
) -> None:
    draws = scale * torch.randn(4, 60, 2, generator=make_rng(seed))
    rewards = posterior_rewards(PLANE, draws, draws.mean(dim=1) + torch.tensor([error, 0.0]), epsilon)
    assert bool((rewards.ideal - rewards.recommended <= rewards.gap_bound + 1e-5).all())


def test_the_gap_of_a_drawn_answer_is_bounded_where_success_is_smooth() -> None:
    """q(x) = 1 - |x| is Lipschitz with constant one and largest at zero."""
    answers = 0.1 * torch.randn(5000, generator=make_rng(5))
    gap = answers.abs().mean()
    second_moment, one = answers.square().mean(), torch.tensor(1.0)
    assert float(gap) <= float(reward_gap_bound(second_moment, one))
    assert float(reward_gap_bound(second_moment, one, radius=0.5)) == pytest.approx(
        float(second_moment.sqrt() + second_moment / 0.25)
    )
    assert float(gap) > float(reward_gap_bound(second_moment, 0.5 * one))  # the control: half of the constant


def test_the_height_of_a_maximum_takes_at_least_one_over_epsilon_squared() -> None:
    assert max_value_lower_bound(10.0, 0.1, 1.0, 1, 0.5) == 0.0
    fine, finer = (max_value_lower_bound(epsilon, 0.1, 0.3, 1, 0.5) for epsilon in (1e-4, 1e-5))
    assert finer / fine == pytest.approx(100, rel=1e-3)
    # By hand: z = 1.6448536, C- = exp(-2), C+ = exp(1).
    assert fine == pytest.approx(0.09 * math.exp(-2) * (math.exp(-4) * 1.6448536**2 / 1e-8 - 1), rel=1e-6)


def test_what_is_no_radius_is_refused() -> None:
    one = torch.tensor(1.0)
    with pytest.raises(InvalidInput, match="margin must be above 0"):
        near_optimality_bound(one, one, 0.0)
    with pytest.raises(InvalidInput, match="delta must be between 0 and 1"):
        max_value_lower_bound(0.1, 1.0, 1.0, 1, 0.5)
