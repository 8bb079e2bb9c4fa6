"""The losses against analytic oracles: robust transform, prefix weights, likelihoods, and heads."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor
from torch.distributions import Normal
from torch.nn.functional import smooth_l1_loss

from cicpe.beliefs.network.posteriors.gaussian import GaussianPosterior
from cicpe.spaces import Box, Space, Sphere
from cicpe.training.config import PrefixMixture
from cicpe.training.losses import (
    continuation_loss,
    first_true,
    inference_loss,
    prefix_weights,
    robust,
    stop_loss,
)


def make_rng(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=make_rng(seed))


# The robust transform: rho(u) = min(u, 0) + tau log(1 + max(u, 0) / tau).


@pytest.mark.parametrize("tail", [0.5, 5.0])
def test_robust_is_the_formula(tail: float) -> None:
    u = torch.linspace(-20, 200, 2001, dtype=torch.float64)
    expected = [min(x, 0.0) + tail * math.log(1 + max(x, 0.0) / tail) for x in u.tolist()]
    torch.testing.assert_close(robust(u, tail), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("tail", [0.5, 5.0])
def test_robust_is_linear_below_zero_and_its_slope_falls_above(tail: float) -> None:
    u = torch.linspace(-5, 50, 1100, dtype=torch.float64).requires_grad_()
    (slope,) = torch.autograd.grad(robust(u, tail).sum(), u)
    expected = torch.where(u.detach() <= 0, 1.0, 1 / (1 + u.detach() / tail))
    torch.testing.assert_close(slope, expected)


def test_robust_has_no_kink_at_zero() -> None:
    u = torch.tensor([-1e-6, 1e-6], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(robust(u, 5.0).sum(), u)
    torch.testing.assert_close(slope, torch.ones_like(slope), rtol=0, atol=1e-6)


def test_robust_tends_to_the_identity_as_its_tail_grows() -> None:
    u = torch.linspace(-3, 3, 50, dtype=torch.float64)
    torch.testing.assert_close(robust(u, 1e9), u, rtol=0, atol=1e-7)


# Weights of prefixes.

MIXTURES = [
    PrefixMixture(),
    PrefixMixture(uniform=1, near_stop=0, terminal=0),
    PrefixMixture(uniform=0, near_stop=1, terminal=0),
    PrefixMixture(uniform=0, near_stop=0, terminal=1),
    PrefixMixture(uniform=5, near_stop=2.5, terminal=2.5),
]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    mixture=st.sampled_from(MIXTURES),
    horizon=st.integers(1, 30),
    shares=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=6),
)
def test_prefix_weights_are_a_probability_on_the_prefixes_of_the_trajectory(
    mixture: PrefixMixture, horizon: int, shares: list[tuple[float, float]]
) -> None:
    length = torch.tensor([round(horizon * share) for share, _ in shares])
    stop_time = torch.tensor([horizon * share for _, share in shares])
    weights = prefix_weights(length, stop_time, horizon + 1, mixture)
    assert weights.shape == (len(shares), horizon + 1)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(len(shares)))
    for row, end in zip(weights, length.tolist(), strict=True):
        assert (row[end + 1 :] == 0).all()


def test_each_part_of_the_mixture() -> None:
    length, stop_time = torch.tensor([4, 2]), torch.tensor([1.0, 2.0])
    uniform, near, terminal = (prefix_weights(length, stop_time, 7, mixture) for mixture in MIXTURES[1:4])
    # A trajectory that stopped after 4 observations has the prefixes 0 ... 4, of which 4 is the terminal one.
    torch.testing.assert_close(uniform[0], torch.tensor([0.2] * 5 + [0.0] * 2))
    torch.testing.assert_close(uniform[1], torch.tensor([1 / 3] * 3 + [0.0] * 4))
    assert terminal.tolist() == [[0, 0, 0, 0, 1, 0, 0], [0, 0, 1, 0, 0, 0, 0]]
    bell = [math.exp(-(((t - 1) / 3) ** 2) / 2) for t in range(5)]
    torch.testing.assert_close(near[0], torch.tensor([x / sum(bell) for x in bell] + [0.0] * 2))
    mixed = prefix_weights(length, stop_time, 7, PrefixMixture(uniform=2, near_stop=1, terminal=1))
    torch.testing.assert_close(mixed, (2 * uniform + near + terminal) / 4)


def test_a_stop_time_far_beyond_the_trajectory_is_no_division_by_zero() -> None:
    weights = prefix_weights(torch.tensor([3]), torch.tensor([400.0]), 401, MIXTURES[2])
    assert weights.isfinite().all()
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(1))


def test_first_true_is_the_first_or_the_last_prefix() -> None:
    hit = torch.tensor([[False, True, False, True], [False, False, False, False], [True, True, True, True]])
    assert first_true(hit).tolist() == [1.0, 3.0, 0.0]


# The likelihood.


@pytest.mark.parametrize("space", [Box([-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]), Box([0.0, 5.0, -3.0], [1.0, 25.0, 9.0])])
def test_nll_is_that_of_a_gaussian_in_unit_coordinates(space: Space) -> None:
    mean, log_std = normal(4, 5, 3, seed=1), normal(4, 5, 3, seed=2)
    target = space.sample(20, make_rng(3)).view(4, 5, 3)
    found = GaussianPosterior(space, mean, log_std).nll(target)
    expected = -Normal(mean, log_std.exp()).log_prob(space.to_unit(target)).mean(dim=-1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def posterior_of(space: Space, mean: Tensor, log_std: Tensor) -> GaussianPosterior:
    """The same belief at one prefix of every episode."""
    n = 4000
    return GaussianPosterior(space, mean.expand(n, 1, -1), log_std.expand(n, 1, -1))


def descend(anchor_weight: float, tail: float, target: Tensor, steps: int = 400) -> tuple[float, float]:
    """Gradient descent on the mean and the log standard deviation themselves."""
    space = Box([-8.0], [8.0])  # wide enough that nothing is projected; unit coordinates are eighths
    mean, log_std = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    optimiser = torch.optim.Adam([mean, log_std], lr=0.03)
    weights = torch.ones(len(target), 1)
    for _ in range(steps):
        optimiser.zero_grad()
        posterior = posterior_of(space, mean, log_std)
        inference_loss(posterior, target, weights, space, tail, anchor_weight, make_rng()).backward()
        optimiser.step()
    return mean.item() * 8, math.exp(log_std.item()) * 8


def test_the_inference_loss_is_least_at_the_conjugate_posterior() -> None:
    # theta ~ N(0, 1) and y | theta ~ N(theta, 0.5^2): given y, theta ~ N(y / 1.25, 0.2).
    y, variance = 1.3, 1 / (1 + 1 / 0.25)
    exact_mean, exact_std = y * (1 - variance), math.sqrt(variance)
    draws = torch.special.ndtri((torch.arange(4000) + 0.5) / 4000)  # quantiles: no sampling error
    target = (exact_mean + exact_std * draws)[:, None]
    mean, std = descend(anchor_weight=0.0, tail=1e6, target=target)
    assert mean == pytest.approx(exact_mean, abs=5e-3)
    assert std == pytest.approx(exact_std, rel=1e-2)
    # The anchor pulls the mean of a symmetric posterior nowhere else.
    anchored, _ = descend(anchor_weight=0.1, tail=1e6, target=target)
    assert anchored == pytest.approx(exact_mean, abs=5e-3)


def test_the_robust_tail_keeps_an_outlier_from_widening_the_posterior() -> None:
    target = 0.4 * normal(4000, 1)
    target[:20] = 7.5
    _, plain = descend(anchor_weight=0.0, tail=1e6, target=target)
    _, kept = descend(anchor_weight=0.0, tail=0.5, target=target)
    assert kept < plain


def test_inference_loss_is_the_weighted_sum_of_its_parts() -> None:
    space = Box([0.0, 0.0], [4.0, 2.0])
    posterior = GaussianPosterior(space, 0.3 * normal(3, 4, 2, seed=1), normal(3, 4, 2, seed=2))
    target = space.sample(3, make_rng())
    weights = torch.rand(3, 4, generator=make_rng(5))
    found = float(inference_loss(posterior, target, weights, space, 5.0, 0.25, make_rng()))
    total = 0.0
    for b in range(3):
        for t in range(4):
            log_p = Normal(posterior.mean_unit[b, t], posterior.log_std_unit[b, t].exp()).log_prob(
                space.to_unit(target[b])
            )
            u = -float(log_p.mean())
            point_estimate = float(
                smooth_l1_loss(space.to_unit(posterior.recommendation[b, t]), space.to_unit(target[b]))
            )
            total += float(weights[b, t]) * (min(u, 0) + 5 * math.log(1 + max(u, 0) / 5) + 0.25 * point_estimate) / 3
    assert found == pytest.approx(total, rel=1e-5)


def test_the_anchor_on_a_sphere_is_minus_the_cosine_of_a_sample() -> None:
    space = Sphere(3)
    mean, target = space.sample(6, make_rng(1)), space.sample(6, make_rng(2))
    posterior = GaussianPosterior(space, mean[:, None], torch.full((6, 1, 3), -1.0))
    one = torch.ones(6, 1)
    with_anchor = inference_loss(posterior, target, one, space, 5.0, 1.0, make_rng(7))
    without = inference_loss(posterior, target, one, space, 5.0, 0.0, make_rng(7))
    drawn = posterior.sample(make_rng(7))[:, 0]
    torch.testing.assert_close(with_anchor - without, -(drawn * target).sum(dim=-1).mean(), rtol=1e-4, atol=1e-5)


# The heads.


def test_stop_loss_is_cross_entropy_summed_over_twins() -> None:
    logits, reward = normal(2, 3, 2), torch.tensor([[0.0, 1.0, 0.25], [1.0, 0.0, 0.5]])
    weights = torch.rand(2, 3, generator=make_rng())
    entropy = 0.0
    for b in range(2):
        for t in range(3):
            for twin in range(2):
                p, r = 1 / (1 + math.exp(-float(logits[b, t, twin]))), float(reward[b, t])
                entropy -= float(weights[b, t]) * (r * math.log(p) + (1 - r) * math.log(1 - p)) / 2
    assert float(stop_loss(logits, reward, weights)) == pytest.approx(entropy, rel=1e-5)


def test_the_stop_loss_is_least_at_the_success_probability() -> None:
    reward = (torch.arange(1000) < 730).float()[:, None]
    grid = torch.linspace(-4, 4, 1601)
    values = [float(stop_loss(x.expand(1000, 1, 1), reward, torch.ones(1000, 1))) for x in grid]
    assert float(torch.sigmoid(grid[int(torch.tensor(values).argmin())])) == pytest.approx(0.73, abs=2e-3)


def test_continuation_loss_is_half_a_square_where_a_continuation_was_made() -> None:
    values, target = normal(2, 3, 2), normal(2, 3, seed=1)
    weights = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    expected = sum(
        float(weights[b, t]) * (float(values[b, t, j]) - float(target[b, t])) ** 2 / 2 / 2
        for b in range(2)
        for t in range(3)
        for j in range(2)
    )
    assert float(continuation_loss(values, target, weights)) == pytest.approx(expected, rel=1e-5)
