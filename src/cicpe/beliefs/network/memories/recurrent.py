"""LSTM and GRU memories: the general-purpose choice when nothing is known of the observations."""

from typing import Literal, NamedTuple, final

import torch
from jaxtyping import Int
from torch import Tensor, nn

from cicpe.beliefs.network.layers import mlp, with_context
from cicpe.beliefs.network.memories.base import Dims, MemoryConfig, State, gather_prefixes
from cicpe.beliefs.network.memories.pooling import HiddenStateMemory, ReadoutName


@final
class RecurrentConfig(MemoryConfig):
    """A recurrent network over the tokens (query, observation, context)."""

    kind: Literal["lstm", "gru"] = "gru"
    """The cell."""
    hidden: int = 128
    """Hidden units."""
    readout: ReadoutName = "last"
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

    def at_prefixes(self, index_BK: Int[Tensor, "batch chosen"]) -> "RecurrentState":
        """The state at K prefixes per episode, for reading."""
        return self._replace(
            hidden_BPH=gather_prefixes(self.hidden_BPH, index_BK),
            prefix_BP=gather_prefixes(self.prefix_BP, index_BK),
        )


@final
class RecurrentMemory(HiddenStateMemory):
    """One recurrent layer over embedded (query, observation, context) tokens."""

    def __init__(self, config: RecurrentConfig, dims: Dims) -> None:
        super().__init__()
        hidden = config.hidden
        self.embed = mlp([dims.query + dims.observation + dims.context, hidden, hidden])
        self.start = nn.Linear(dims.context + 1, hidden)
        self.cell: nn.LSTM | nn.GRU = (nn.LSTM if config.kind == "lstm" else nn.GRU)(hidden, hidden, batch_first=True)
        self._make_readout(config.readout, hidden, dims)

    def begin(self, context_BC: Tensor) -> RecurrentState:
        bias_B1 = torch.ones(len(context_BC), 1)
        first_B1H = torch.tanh(self.start(torch.cat([context_BC, bias_B1], dim=-1)))[:, None]
        lstm = isinstance(self.cell, nn.LSTM)
        carry = (first_B1H, torch.zeros_like(first_B1H)) if lstm else (first_B1H,)
        prefix = torch.zeros(len(context_BC), 1, dtype=torch.long)
        # The carry keeps the episode first, as trees of episodes do; the cells want the layer first.
        return RecurrentState(first_B1H, self._slots(first_B1H), (*carry, context_BC), prefix)

    def _run(self, state: RecurrentState, query_BTQ: Tensor, observation_BTY: Tensor) -> tuple[Tensor, State]:
        *carry, context_BC = state.carry
        tokens_BTH = self.embed(with_context(context_BC, query_BTQ, observation_BTY))
        initial = tuple(part.transpose(0, 1).contiguous() for part in carry)
        hidden_BTH, final = self.cell(tokens_BTH, initial if len(initial) > 1 else initial[0])
        final = final if isinstance(final, tuple) else (final,)
        return hidden_BTH, (*(part.transpose(0, 1) for part in final), context_BC)

    def step(self, state: RecurrentState, query_BQ: Tensor, observation_BY: Tensor) -> RecurrentState:
        hidden_B1H, carry = self._run(state, query_BQ[:, None], observation_BY[:, None])
        slots = self._slots(hidden_B1H, state.slots_BSH)
        return RecurrentState(hidden_B1H, slots, carry, state.prefix_BP + 1)

    def unroll(self, context_BC: Tensor, query_BTQ: Tensor, observation_BTY: Tensor) -> RecurrentState:
        first = self.begin(context_BC)
        hidden_BTH, carry = self._run(first, query_BTQ, observation_BTY)
        hidden_BPH = torch.cat([first.hidden_BPH, hidden_BTH], dim=1)
        prefix = torch.arange(hidden_BPH.shape[1]).expand(len(context_BC), -1)
        return RecurrentState(hidden_BPH, self._slots(hidden_BPH), carry, prefix)
