"""Query-conditioned pooling against the paper's formula."""

import math

import torch
from torch import Tensor

from cicpe.beliefs.network.memories.pooling import QueryPooling


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_query_pooling_is_the_formula() -> None:
    batch, slots, hidden, query = 3, 5, 4, 2
    with torch.random.fork_rng():
        torch.manual_seed(0)
        pooling = QueryPooling(query, hidden).requires_grad_(False)
    hidden_BSH, query_BPQ = normal(batch, slots, hidden, seed=1), normal(batch, slots, query, seed=2)
    prefix_BP = torch.arange(slots).expand(batch, -1)
    pooled = pooling(query_BPQ, hidden_BSH, prefix_BP)
    for b in range(batch):
        for t in range(slots):
            q = query_BPQ[b, t]
            scores = [
                float((pooling.to_query.weight @ q) @ (pooling.to_key.weight @ hidden_BSH[b, i])) / math.sqrt(hidden)
                for i in range(t + 1)
            ]
            total = sum(math.exp(score) for score in scores)
            value = sum(
                math.exp(score) / total * (pooling.to_value.weight @ hidden_BSH[b, i]) for i, score in enumerate(scores)
            )
            gate = pooling.to_gate.weight @ q + pooling.to_gate.bias
            torch.testing.assert_close(pooled[b, t], value * gate * torch.sigmoid(gate), rtol=1e-4, atol=1e-6)
