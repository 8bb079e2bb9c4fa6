"""Readouts of a memory that keeps hidden states: the last one, or all of them pooled (the paper's)."""

import math
from collections.abc import Iterator
from typing import Literal, Protocol, final, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import silu

from cicpe.beliefs.network.layers import time_features
from cicpe.beliefs.network.memories.base import Dims, Memory, MemoryFeatures

ReadoutName = Literal["last", "pooling"]


@final
class QueryPooling(nn.Module):
    """Reads a history from the point of view of a query q (the paper's "History Encoder and Time Pooling Layer").

    alpha_i = softmax_i <W_q q, W_k h_i> / sqrt(d), v = sum_i alpha_i W_v h_i, z = v * silu(W_m q).
    The query is a time code for inference and stopping, a candidate action for continuation.
    """

    def __init__(self, query: int, hidden: int) -> None:
        super().__init__()
        self.to_query = nn.Linear(query, hidden, bias=False)
        self.to_key = nn.Linear(hidden, hidden, bias=False)
        self.to_value = nn.Linear(hidden, hidden, bias=False)
        self.to_gate = nn.Linear(query, hidden)

    def forward(
        self,
        query_BPQ: Float[Tensor, "batch prefix query"],
        hidden_BSH: Float[Tensor, "batch slot hidden"],
        prefix_BP: Int[Tensor, "batch prefix"],
    ) -> Float[Tensor, "batch prefix hidden"]:
        """Pools the slots 0 ... t of each prefix t (slot 0 is the empty history's).

        Args:
            query_BPQ: What each prefix is read for.
            hidden_BSH: The hidden state of every slot.
            prefix_BP: The number of observations of each prefix.

        Returns:
            z(q, H_t) at every prefix.
        """
        # <W_q q, W_k h> = <W_k' W_q q, h> and sum alpha W_v h = W_v sum alpha h: the work on the history is
        # then one product per slot, not a projection, and a step's cost hardly grows with it.
        looked_for_BPH = self.to_query(query_BPQ) @ self.to_key.weight
        scores_BPS = looked_for_BPH @ hidden_BSH.transpose(1, 2) / math.sqrt(hidden_BSH.shape[-1])
        slot_S = torch.arange(hidden_BSH.shape[1])
        scores_BPS = scores_BPS.masked_fill(slot_S > prefix_BP[..., None], -math.inf)
        pooled_BPH: Tensor = self.to_value(scores_BPS.softmax(dim=-1) @ hidden_BSH)
        return pooled_BPH * silu(self.to_gate(query_BPQ))


@runtime_checkable
class HiddenStates(Protocol):
    """What a readout needs of a memory's state."""

    @property
    def hidden_BPH(self) -> Tensor:
        """The hidden state at every prefix that is read."""

    @property
    def slots_BSH(self) -> Tensor | None:
        """The hidden states of all slots so far, where they are pooled."""

    @property
    def prefix_BP(self) -> Tensor:
        """The number of observations of each prefix that is read."""


class HiddenStateMemory(Memory):
    """A memory that is read by its hidden states: the last one, or all of them pooled beside it."""

    def _make_readout(self, readout: ReadoutName, hidden: int, dims: Dims) -> None:
        """Makes the layers of the readout, and declares the widths that follow from it."""
        self.pooled = readout == "pooling"
        if self.pooled:
            self.by_time = QueryPooling(3, hidden)
            self.by_action = QueryPooling(dims.query, hidden)
        self.width = 2 * hidden if self.pooled else hidden
        self.width_at = self.width + dims.query

    def _slots(self, hidden_BSH: Tensor, before: Tensor | None = None) -> Tensor | None:
        """What is kept for pooling: every hidden state so far, or nothing where only the last is read."""
        if not self.pooled:
            return None
        return hidden_BSH if before is None else torch.cat([before, hidden_BSH], dim=1)

    def features(self, state: HiddenStates) -> MemoryFeatures:
        if state.slots_BSH is None:
            return MemoryFeatures(state.hidden_BPH)
        pooled = self.by_time(time_features(state.prefix_BP), state.slots_BSH, state.prefix_BP)
        return MemoryFeatures(torch.cat([pooled, state.hidden_BPH], dim=-1))

    def features_at(self, state: HiddenStates, memory_features: MemoryFeatures, query_BPQ: Tensor) -> Tensor:
        if state.slots_BSH is None:
            return super().features_at(state, memory_features, query_BPQ)
        pooled = self.by_action(query_BPQ, state.slots_BSH, state.prefix_BP)
        return torch.cat([pooled, state.hidden_BPH, query_BPQ], dim=-1)

    def query_parameters(self) -> Iterator[nn.Parameter]:
        if self.pooled:
            yield from self.by_action.parameters()
