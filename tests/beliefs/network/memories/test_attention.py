"""What the conformance suite does not see of the attention memory: its caches."""

import pytest
import torch

from cicpe.beliefs.network.memories.attention import AttentionBlock, AttentionConfig
from cicpe.beliefs.network.memories.base import Dims

ATTENTION = AttentionConfig(width=16, heads=2)


def test_attention_step_runs_the_new_token_only() -> None:
    memory = ATTENTION.build(Dims(1, 1, 0, 1))
    tokens: list[int] = []
    for block in memory.blocks:
        assert isinstance(block, AttentionBlock)
        block.to_query_key_value.register_forward_hook(lambda _, inputs, __: tokens.append(inputs[0].shape[1]))
    state = memory.begin(torch.zeros(3, 0))
    for _ in range(6):
        state = memory.step(state, torch.zeros(3, 1), torch.zeros(3, 1))
    assert tokens == [1] * (7 * len(memory.blocks))
    assert [cache.keys_BNSD.shape[2] for cache in state.caches] == [7] * len(memory.blocks)


def test_attention_cannot_step_from_an_unrolled_state() -> None:
    memory = ATTENTION.build(Dims(1, 1, 0, 1))
    state = memory.unroll(torch.zeros(3, 0), torch.zeros(3, 4, 1), torch.zeros(3, 4, 1))
    with pytest.raises(AssertionError, match="begin"):
        memory.step(state, torch.zeros(3, 1), torch.zeros(3, 1))
