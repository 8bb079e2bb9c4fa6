"""LSTM and GRU memories: the general-purpose choice when nothing is known of the observations."""

from typing import Literal, NamedTuple, final

import torch
from torch import Tensor, nn

from cicpe.beliefs.network.layers import mlp, time_features, with_context
from cicpe.beliefs.network.memories.base import Dims, Memory, MemoryFeatures, State
from cicpe.beliefs.network.memories.pooling import QueryPooling
from cicpe.config import Config


@final
class RecurrentConfig(Config):
    """A recurrent network over the tokens (query, observation, context)."""

    kind: Literal["lstm", "gru"] = "gru"
    """The cell."""
    hidden: int = 128
    """Hidden units."""
    readout: Literal["last", "pooling"] = "last"
    """Read the last hidden state, or pool all of them conditioned on a query (the paper's)."""

    def build(self, dims: Dims) -> "RecurrentMemory":
        """The memory that this describes."""
        return RecurrentMemory(self, dims)


class RecurrentState(NamedTuple):
    """Hidden states at every prefix read, every slot kept for pooling, and the carry to go on from."""

    hidden_BPH: Tensor
    slots_BSH: Tensor | None
    carry: tuple[Tensor, ...]
    prefix_BP: Tensor


@final
class RecurrentMemory(Memory):
    """One recurrent layer over embedded (query, observation, context) tokens."""

    def __init__(self, config: RecurrentConfig, dims: Dims) -> None:
        super().__init__()
        hidden = config.hidden
        self.pooled = config.readout == "pooling"
        self.embed = mlp([dims.query + dims.observation + dims.context, hidden, hidden])
        self.start = nn.Linear(dims.context + 1, hidden)
        self.cell: nn.LSTM | nn.GRU = (nn.LSTM if config.kind == "lstm" else nn.GRU)(hidden, hidden, batch_first=True)
        if self.pooled:
            self.by_time = QueryPooling(3, hidden)
            self.by_action = QueryPooling(dims.query, hidden)
        self.width = 2 * hidden if self.pooled else hidden
        self.width_at = hidden + dims.query if not self.pooled else 2 * hidden + dims.query

    def begin(self, context_BC: Tensor) -> RecurrentState:
        one = torch.ones(len(context_BC), 1)
        first_B1H = torch.tanh(self.start(torch.cat([context_BC, one], dim=-1)))[:, None]
        lstm = isinstance(self.cell, nn.LSTM)
        carry = (first_B1H, torch.zeros_like(first_B1H)) if lstm else (first_B1H,)
        prefix = torch.zeros(len(context_BC), 1, dtype=torch.long)
        # The carry keeps the episode first, as trees of episodes do; the cells want the layer first.
        return RecurrentState(first_B1H, first_B1H if self.pooled else None, (*carry, context_BC), prefix)

    def _run(self, state: RecurrentState, query_BTQ: Tensor, observation_BTY: Tensor) -> tuple[Tensor, State]:
        *carry, context_BC = state.carry
        tokens_BTH = self.embed(with_context(context_BC, query_BTQ, observation_BTY))
        initial = tuple(part.transpose(0, 1).contiguous() for part in carry)
        hidden_BTH, final = self.cell(tokens_BTH, initial if len(initial) > 1 else initial[0])
        final = final if isinstance(final, tuple) else (final,)
        return hidden_BTH, (*(part.transpose(0, 1) for part in final), context_BC)

    def step(self, state: RecurrentState, query_BQ: Tensor, observation_BY: Tensor) -> RecurrentState:
        hidden_B1H, carry = self._run(state, query_BQ[:, None], observation_BY[:, None])
        slots = None if state.slots_BSH is None else torch.cat([state.slots_BSH, hidden_B1H], dim=1)
        return RecurrentState(hidden_B1H, slots, carry, state.prefix_BP + 1)

    def unroll(self, context_BC: Tensor, query_BTQ: Tensor, observation_BTY: Tensor) -> RecurrentState:
        first = self.begin(context_BC)
        hidden_BTH, carry = self._run(first, query_BTQ, observation_BTY)
        hidden_BPH = torch.cat([first.hidden_BPH, hidden_BTH], dim=1)
        prefix = torch.arange(hidden_BPH.shape[1]).expand(len(context_BC), -1)
        return RecurrentState(hidden_BPH, hidden_BPH if self.pooled else None, carry, prefix)

    def features(self, state: RecurrentState) -> MemoryFeatures:
        if state.slots_BSH is None:
            return MemoryFeatures(state.hidden_BPH)
        pooled = self.by_time(time_features(state.prefix_BP), state.slots_BSH, state.prefix_BP)
        return MemoryFeatures(torch.cat([pooled, state.hidden_BPH], dim=-1))

    def features_at(self, state: RecurrentState, memory_features: MemoryFeatures, query_BPQ: Tensor) -> Tensor:
        if state.slots_BSH is None:
            return super().features_at(state, memory_features, query_BPQ)
        pooled = self.by_action(query_BPQ, state.slots_BSH, state.prefix_BP)
        return torch.cat([pooled, state.hidden_BPH, query_BPQ], dim=-1)
