"""Continuation targets against brute force and against cases small enough to do by hand."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cicpe.training.returns import lambda_returns, shaped_returns


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
@given(horizon=st.integers(1, 8), trace=st.floats(0, 1), seed=st.integers(0, 10_000))
def test_shaped_returns_are_the_gain_over_stopping_now(horizon: int, trace: float, seed: int) -> None:
    # With V = r + S and Q = r + shaped Q the two recursions are the same, less what stopping gives now.
    reward, shaped = uniform(3, horizon + 1, seed=seed), uniform(3, horizon, seed=seed + 1) - 0.5
    cost = uniform(3, seed=seed + 2) / 10
    whole = lambda_returns(reward, reward[:, :-1] + shaped, cost, trace)
    torch.testing.assert_close(
        shaped_returns(reward, shaped, cost, trace), whole - reward[:, :-1], rtol=1e-5, atol=1e-6, check_dtype=False
    )


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
