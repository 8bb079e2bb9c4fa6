"""Continuation targets against brute force and against cases small enough to do by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cicpe.training.returns import lambda_returns, one_step_targets, shaped_returns


def uniform(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def brute_force(stop: Tensor, go: Tensor, cost: Tensor, trace: float) -> Tensor:
    """y_t for every row and step from the definition, by recursion and without sharing."""
    horizon = go.shape[1]

    def value(b: int, t: int) -> float:
        if t == horizon:
            return float(stop[b, t])
        if stop[b, t] >= go[b, t]:
            return float(stop[b, t])
        return (1 - trace) * float(go[b, t]) + trace * target(b, t)

    def target(b: int, t: int) -> float:
        return value(b, t + 1) - float(cost[b])

    return torch.tensor([[target(b, t) for t in range(horizon)] for b in range(len(stop))], dtype=torch.float64)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    batch=st.integers(1, 4),
    horizon=st.integers(1, 9),
    trace=st.floats(0, 1),
    seed=st.integers(0, 10_000),
)
def test_lambda_returns_are_the_recursion(batch: int, horizon: int, trace: float, seed: int) -> None:
    stop, go = uniform(batch, horizon + 1, seed=seed), uniform(batch, horizon, seed=seed + 1)
    cost = uniform(batch, seed=seed + 2) / 10
    torch.testing.assert_close(lambda_returns(stop, go, cost, trace), brute_force(stop, go, cost, trace))


@settings(max_examples=50, deadline=None, derandomize=True)
@given(length=st.integers(1, 8), trace=st.floats(0, 1), shaped=st.booleans(), seed=st.integers(0, 10_000))
def test_what_follows_the_end_of_a_trajectory_is_of_no_account(
    length: int, trace: float, shaped: bool, seed: int
) -> None:
    stop, go = uniform(3, 9, seed=seed), uniform(3, 8, seed=seed + 1) - 0.5 * shaped
    cost, returns = uniform(3, seed=seed + 2) / 10, shaped_returns if shaped else lambda_returns
    ended = returns(stop, go, cost, trace, torch.full((3,), length))[:, :length]
    torch.testing.assert_close(ended, returns(stop[:, : length + 1], go[:, :length], cost, trace))


STOP = torch.tensor([[0.1, 0.5, 0.3, 0.9]])
GO = torch.tensor([[0.4, 0.2, 0.6]])
COST = torch.tensor([0.05])


def test_lambda_zero_bootstraps_from_the_next_prefix() -> None:
    # y_t = max(stop, go) at t + 1 (stop alone at the horizon), less the cost.
    expected = torch.tensor([[0.5 - 0.05, 0.6 - 0.05, 0.9 - 0.05]])
    torch.testing.assert_close(lambda_returns(STOP, GO, COST, 0.0), expected)


def test_lambda_one_pays_the_way_to_the_next_stop() -> None:
    # Prefix 2 goes on (0.3 < 0.6) to the horizon: 0.9 - 0.05, less another cost at step 1. Prefix 1 stops.
    expected = torch.tensor([[0.5 - 0.05, 0.9 - 2 * 0.05, 0.9 - 0.05]])
    torch.testing.assert_close(lambda_returns(STOP, GO, COST, 1.0), expected)


def test_lambda_half_mixes_the_two() -> None:
    onward = 0.5 * 0.6 + 0.5 * (0.9 - 0.05)
    expected = torch.tensor([[0.5 - 0.05, onward - 0.05, 0.9 - 0.05]])
    torch.testing.assert_close(lambda_returns(STOP, GO, COST, 0.5), expected)


@pytest.mark.parametrize("trace", [0.0, 0.3, 1.0])
def test_who_always_stops_sees_the_next_stop_value(trace: float) -> None:
    stop = uniform(3, 6)
    targets = lambda_returns(stop, torch.full((3, 5), -1.0, dtype=torch.float64), torch.full((3,), 0.1), trace)
    torch.testing.assert_close(targets, stop[:, 1:] - 0.1)


def test_who_never_stops_pays_for_every_query_to_the_horizon() -> None:
    stop = uniform(3, 6)
    targets = lambda_returns(stop, torch.full((3, 5), 2.0, dtype=torch.float64), torch.full((3,), 0.1), 1.0)
    left = torch.arange(5, 0, -1)
    torch.testing.assert_close(targets, stop[:, -1:] - 0.1 * left)


def test_a_tie_stops() -> None:
    stop, go = torch.tensor([[0.0, 0.5, 1.0]]), torch.tensor([[0.0, 0.5]])
    assert float(lambda_returns(stop, go, torch.zeros(1), 1.0)[0, 0]) == 0.5


# One step: y = -c (1 - d) + d r(h') + gamma (1 - d) max(stop, go)(h').


def hand_loop(
    reward: Tensor,
    stop: Tensor,
    go: Tensor,
    cost: Tensor,
    final: Tensor,
    discount: float,
    clip: tuple[float, float] | None,
) -> Tensor:
    limits = []
    for values in (stop, go):
        low, high = (-np.inf, np.inf) if clip is None else np.quantile(values.numpy().reshape(-1), clip)
        limits.append((low, high))
    targets = torch.zeros_like(final)
    for b in range(final.shape[0]):
        for t in range(final.shape[1]):
            clipped = [
                min(max(float(values[b, t + 1]), low), high)
                for values, (low, high) in zip((stop, go), limits, strict=True)
            ]
            d = float(final[b, t])
            onward = -float(cost[b]) * (1 - d) + discount * (1 - d) * max(clipped)
            targets[b, t] = onward + d * float(reward[b, t + 1])
    return targets


@pytest.mark.parametrize("discount", [1.0, 0.9])
@pytest.mark.parametrize("clip", [None, (0.05, 0.95), (0.25, 0.5)])
def test_one_step_targets_are_the_formula(discount: float, clip: tuple[float, float] | None) -> None:
    batch, horizon = 5, 7
    reward, stop, go = (uniform(batch, horizon + 1, seed=seed).float() for seed in (1, 2, 3))
    cost = uniform(batch, seed=4).float() / 10
    length = torch.tensor([7, 7, 3, 5, 1])
    truncated = torch.tensor([True, True, False, False, True])
    final = ((torch.arange(horizon) == length[:, None] - 1) & truncated[:, None]).float()
    found = one_step_targets(reward, stop, go, cost, final, discount, clip)
    torch.testing.assert_close(found, hand_loop(reward, stop, go, cost, final, discount, clip))


def test_at_the_horizon_the_reward_counts_and_nothing_is_paid() -> None:
    reward, other = torch.tensor([[0.0, 0.7]]), torch.tensor([[9.0, 9.0]])
    found = one_step_targets(reward, other, other, torch.tensor([0.3]), torch.ones(1, 1), 0.9, None)
    torch.testing.assert_close(found, torch.tensor([[0.7]]))


def test_clipping_keeps_an_optimistic_value_from_propagating() -> None:
    stop = torch.zeros(1, 101)
    stop[0, 50] = 100.0
    zeros = torch.zeros(1, 101)
    given = zeros, stop, zeros - 1, torch.zeros(1), torch.zeros(1, 100), 1.0
    assert float(one_step_targets(*given, None).max()) == 100.0
    assert float(one_step_targets(*given, (0.05, 0.95)).max()) == 0.0
