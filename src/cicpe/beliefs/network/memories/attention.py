"""A causal transformer memory: every observation stays in view, at a cost that grows with the history."""

from typing import Literal, NamedTuple, final

import torch
from jaxtyping import Float, Int
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from cicpe.beliefs.network.layers import mlp, time_features, with_context
from cicpe.beliefs.network.memories.base import Dims, MemoryConfig, gather_prefixes
from cicpe.beliefs.network.memories.pooling import HiddenStateMemory, ReadoutName


@final
class AttentionConfig(MemoryConfig):
    """A causal transformer over the tokens (query, observation, context)."""

    kind: Literal["attention"] = "attention"
    layers: int = Field(default=2, ge=1, le=64)
    """Attention blocks."""
    width: PositiveInt = 64
    """Hidden units of a token."""
    heads: PositiveInt = 4
    """Attention heads in each block; they share the width equally."""
    readout: ReadoutName = "last"
    """Read the last hidden state, or pool all of them conditioned on a query (the paper's)."""

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> "AttentionConfig":
        if self.width % self.heads:
            raise ValueError(f"width ({self.width}) must be a multiple of heads ({self.heads})")
        return self

    def build(self, dims: Dims) -> "AttentionMemory":
        """The memory that this describes."""
        return AttentionMemory(self, dims)


class Cache(NamedTuple):
    """Keys and values of every token so far, in one block. N heads of D features, S tokens."""

    keys_BNSD: Tensor
    values_BNSD: Tensor


class AttentionState(NamedTuple):
    """Hidden states at every prefix read, every slot kept for pooling, and the caches to go on from."""

    hidden_BPH: Tensor
    slots_BSH: Tensor | None
    caches: tuple[Cache, ...] | None
    context_BC: Tensor
    prefix_BP: Tensor

    def at_prefixes(self, index_BK: Int[Tensor, "batch chosen"]) -> "AttentionState":
        """The state at K prefixes per episode, for reading."""
        return self._replace(
            hidden_BPH=gather_prefixes(self.hidden_BPH, index_BK),
            prefix_BP=gather_prefixes(self.prefix_BP, index_BK),
        )


@final
class AttentionBlock(nn.Module):
    """A pre-norm transformer block: x + attention(norm(x)), then x + feed(norm(x))."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.to_query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.feed_norm = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(
        self, x_BPH: Float[Tensor, "batch token hidden"], past: Cache | None
    ) -> tuple[Float[Tensor, "batch token hidden"], Cache]:
        """A whole sequence (no past), or one more token that sees all of the past."""
        assert past is None or x_BPH.shape[1] == 1, "a cache is continued by one token at a time"
        projected = self.to_query_key_value(self.norm(x_BPH)).unflatten(-1, (3, self.heads, -1))
        query_BNPD, keys_BNSD, values_BNSD = projected.permute(2, 0, 3, 1, 4)
        if past is not None:
            keys_BNSD = torch.cat([past.keys_BNSD, keys_BNSD], dim=2)
            values_BNSD = torch.cat([past.values_BNSD, values_BNSD], dim=2)
        mixed_BNPD = scaled_dot_product_attention(query_BNPD, keys_BNSD, values_BNSD, is_causal=past is None)
        x_BPH = x_BPH + self.out(mixed_BNPD.transpose(1, 2).flatten(start_dim=2))
        return x_BPH + self.feed(self.feed_norm(x_BPH)), Cache(keys_BNSD, values_BNSD)


@final
class AttentionMemory(HiddenStateMemory):
    """Causal self-attention over a start token made from the context and one token per observation.

    The position enters by a smooth code of t added to each token, so that any horizon works. ``step``
    runs the new token only, against cached keys and values; these grow by one entry per block. The
    state that ``unroll`` gives is for reading: it holds no caches, and one cannot step on from it.
    """

    def __init__(self, config: AttentionConfig, dims: Dims) -> None:
        super().__init__()
        width = config.width
        self.embed = mlp([dims.query + dims.observation + dims.context, width, width])
        self.start = nn.Linear(dims.context + 1, width)
        self.position = nn.Linear(3, width, bias=False)
        self.blocks = nn.ModuleList(AttentionBlock(width, config.heads) for _ in range(config.layers))
        self.norm = nn.LayerNorm(width)
        self._make_readout(config.readout, width, dims)

    def _first(self, context_BC: Tensor) -> Tensor:
        bias_B1 = torch.ones(len(context_BC), 1)
        token_B1H: Tensor = self.start(torch.cat([context_BC, bias_B1], dim=-1))[:, None]
        return token_B1H

    def _run(
        self, tokens_BPH: Tensor, prefix_BP: Tensor, past: tuple[Cache, ...] | None
    ) -> tuple[Tensor, tuple[Cache, ...]]:
        x_BPH = tokens_BPH + self.position(time_features(prefix_BP))
        caches = []
        for block, cache in zip(self.blocks, past or [None] * len(self.blocks), strict=True):
            x_BPH, grown = block(x_BPH, cache)
            caches.append(grown)
        return self.norm(x_BPH), tuple(caches)

    def begin(self, context_BC: Tensor) -> AttentionState:
        prefix = torch.zeros(len(context_BC), 1, dtype=torch.long)
        hidden_B1H, caches = self._run(self._first(context_BC), prefix, None)
        return AttentionState(hidden_B1H, self._slots(hidden_B1H), caches, context_BC, prefix)

    def step(self, state: AttentionState, query_BQ: Tensor, observation_BY: Tensor) -> AttentionState:
        assert state.caches is not None, "an unrolled state is for reading; start from begin() to step"
        prefix = state.prefix_BP + 1
        token_B1H = self.embed(with_context(state.context_BC, query_BQ[:, None], observation_BY[:, None]))
        hidden_B1H, caches = self._run(token_B1H, prefix, state.caches)
        slots = self._slots(hidden_B1H, state.slots_BSH)
        return AttentionState(hidden_B1H, slots, caches, state.context_BC, prefix)

    def unroll(self, context_BC: Tensor, query_BTQ: Tensor, observation_BTY: Tensor) -> AttentionState:
        tokens_BTH = self.embed(with_context(context_BC, query_BTQ, observation_BTY))
        tokens_BPH = torch.cat([self._first(context_BC), tokens_BTH], dim=1)
        prefix = torch.arange(tokens_BPH.shape[1]).expand(len(context_BC), -1)
        hidden_BPH, _ = self._run(tokens_BPH, prefix, None)
        return AttentionState(hidden_BPH, self._slots(hidden_BPH), None, context_BC, prefix)
