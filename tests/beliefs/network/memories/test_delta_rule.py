"""The gated delta rule against its recurrence, and the memory that is made of it."""

import pytest
import torch
from torch import Tensor

from cicpe.beliefs.network.memories.base import Dims
from cicpe.beliefs.network.memories.delta_rule import DeltaRuleConfig, delta_rule


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("forgetting", [0.0, 1.0, 100.0])
def test_delta_rule_is_the_recurrence(forgetting: float) -> None:
    batch, heads, steps, size = 2, 2, 6, 3
    query, key, value = (normal(batch, heads, steps, size, seed=seed).double() for seed in (1, 2, 3))
    log_keep = -forgetting * normal(batch, heads, steps, seed=4).double().abs()
    write = torch.sigmoid(normal(batch, heads, steps, seed=5)).double()
    start = normal(batch, heads, size, size, seed=6).double()
    outputs, last = delta_rule(start, query, key, value, log_keep, write)
    for b in range(batch):
        for n in range(heads):
            store = start[b, n]
            for t in range(steps):
                k, v, g, beta = key[b, n, t], value[b, n, t], log_keep[b, n, t].exp(), write[b, n, t]
                store = g * store + beta * torch.outer(v - g * store @ k, k)
                torch.testing.assert_close(outputs[b, n, t], store @ query[b, n, t])
            torch.testing.assert_close(last[b, n], store)


def test_delta_rule_recalls_and_overwrites() -> None:
    # Orthogonal keys, full writes, nothing forgotten: a dictionary, where the last value of a key counts.
    key = torch.eye(3)[[0, 1, 0]][None, None]
    value = normal(1, 1, 3, 3)
    _, store = delta_rule(torch.zeros(1, 1, 3, 3), key, key, value, torch.zeros(1, 1, 3), torch.ones(1, 1, 3))
    torch.testing.assert_close(store[0, 0] @ key[0, 0, 0], value[0, 0, 2])
    torch.testing.assert_close(store[0, 0] @ key[0, 0, 1], value[0, 0, 1])


def test_delta_rule_averages_at_the_rate_of_a_running_mean() -> None:
    value = normal(1, 1, 20, 4)
    key = torch.zeros(1, 1, 20, 4)
    key[..., 0] = 1
    rate = (1 / torch.arange(1, 21))[None, None]
    outputs, _ = delta_rule(torch.zeros(1, 1, 4, 4), key, key, value, torch.zeros(1, 1, 20), rate)
    torch.testing.assert_close(outputs[0, 0, -1], value[0, 0].mean(dim=0), rtol=1e-4, atol=1e-5)


def test_delta_rule_has_finite_gradients_when_it_forgets_at_once() -> None:
    key = normal(1, 1, 30, 3)
    log_keep = torch.full((1, 1, 30), -50.0, requires_grad=True)
    outputs, _ = delta_rule(torch.ones(1, 1, 3, 3), key, key, key, log_keep, torch.ones(1, 1, 30))
    outputs.sum().backward()
    assert log_keep.grad is not None
    assert log_keep.grad.isfinite().all()


def test_delta_state_does_not_grow() -> None:
    memory = DeltaRuleConfig(hidden=16).build(Dims(2, 2, 1, 2))
    state = memory.begin(normal(3, 1))
    later = memory.step(memory.step(state, normal(3, 2), normal(3, 2)), normal(3, 2), normal(3, 2))
    assert [store.shape for store in later.stores] == [store.shape for store in state.stores]


def test_pooling_keeps_every_hidden_state_beside_the_store() -> None:
    memory = DeltaRuleConfig(hidden=16, readout="pooling").build(Dims(2, 2, 1, 2))
    state = memory.begin(normal(3, 1))
    for _ in range(4):
        state = memory.step(state, normal(3, 2), normal(3, 2))
    assert state.slots_BSH is not None
    assert state.slots_BSH.shape == (3, 5, 16)
    assert memory.features(state).summary.shape == (3, 1, 32)
