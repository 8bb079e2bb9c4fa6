"""A gated delta-rule memory: an associative store of fixed size, corrected by every observation.

Shape suffixes here, beside those of ``base``: N heads, D features of a head, V and K the rows (values)
and columns (keys) of a head's store, both of size D.
"""

import math
from typing import Literal, NamedTuple, final

import torch
from jaxtyping import Float, Int
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, normalize, silu

from cicpe.beliefs.network.layers import mlp, time_features, with_context
from cicpe.beliefs.network.memories.base import Dims, MemoryConfig, gather_prefixes
from cicpe.beliefs.network.memories.pooling import HiddenStateMemory, ReadoutName


@final
class DeltaRuleConfig(MemoryConfig):
    """A linear-attention recurrence with fast weights over the tokens (query, observation, context)."""

    kind: Literal["delta"] = "delta"
    hidden: PositiveInt = 64
    """Hidden units of a token."""
    heads: PositiveInt = 2
    """Fast-weight matrices in each layer; they share the hidden units equally."""
    layers: int = Field(default=1, ge=1, le=64)
    """Recurrent layers."""
    readout: ReadoutName = "last"
    """Read the last hidden state, or pool all of them conditioned on a query (the paper's)."""

    @model_validator(mode="after")
    def _heads_share_the_hidden_units(self) -> "DeltaRuleConfig":
        if self.hidden % self.heads:
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of heads ({self.heads})")
        return self

    def build(self, dims: Dims) -> "DeltaRuleMemory":
        """The memory that this describes."""
        return DeltaRuleMemory(self, dims)


class DeltaRuleState(NamedTuple):
    """Hidden states at every prefix read, every slot kept for pooling, and the store of each layer."""

    hidden_BPH: Tensor
    slots_BSH: Tensor | None
    stores: tuple[Tensor, ...]
    context_BC: Tensor
    prefix_BP: Tensor

    def at_prefixes(self, index_BK: Int[Tensor, "batch chosen"]) -> "DeltaRuleState":
        """The state at K prefixes per episode, for reading."""
        return self._replace(
            hidden_BPH=gather_prefixes(self.hidden_BPH, index_BK),
            prefix_BP=gather_prefixes(self.prefix_BP, index_BK),
        )


def delta_rule(
    store_BNVK: Float[Tensor, "batch head value key"],
    query_BNPK: Float[Tensor, "batch head token key"],
    key_BNPK: Float[Tensor, "batch head token key"],
    value_BNPV: Float[Tensor, "batch head token value"],
    log_keep_BNP: Float[Tensor, "batch head token"],
    write_BNP: Float[Tensor, "batch head token"],
) -> tuple[Float[Tensor, "batch head token value"], Float[Tensor, "batch head value key"]]:
    """The outputs S_t q_t, and the last S_t, of the gated delta rule.

    S_t = g_t S_{t-1} + u_t k_t^T with u_t = beta_t (v_t - g_t S_{t-1} k_t), where g = exp(``log_keep``) and
    beta = ``write``. For unit keys and rates within [0, 1] a step never enlarges what was stored before it.

    With G_ts = g_{s+1} ... g_t and G_t = g_1 ... g_t, the corrections u solve one triangular system,
    u_t + beta_t sum_{s<t} G_ts <k_t, k_s> u_s = beta_t (v_t - G_t S_0 k_t). One solve takes the place of
    a loop over the tokens: four to seven times as fast with its gradient, for 10 to 300 tokens on one core.
    """
    ahead_PP = torch.ones(key_BNPK.shape[2], key_BNPK.shape[2], dtype=torch.bool).triu(1)
    log_kept_BNP = log_keep_BNP.cumsum(dim=-1)
    # Masked before the exponential, which overflows above the diagonal.
    ratio_BNPP = (log_kept_BNP[..., :, None] - log_kept_BNP[..., None, :]).masked_fill(ahead_PP, -math.inf).exp()
    kept_BNP1, write_BNP1 = log_kept_BNP.exp()[..., None], write_BNP[..., None]
    wanted_BNPV = write_BNP1 * (value_BNPV - kept_BNP1 * (key_BNPK @ store_BNVK.mT))
    system_BNPP = write_BNP1 * ratio_BNPP * (key_BNPK @ key_BNPK.mT)
    # The solver takes ones for the diagonal and does not look above it.
    change_BNPV = torch.linalg.solve_triangular(system_BNPP, wanted_BNPV, upper=False, unitriangular=True)
    output_BNPV = kept_BNP1 * (query_BNPK @ store_BNVK.mT) + (ratio_BNPP * (query_BNPK @ key_BNPK.mT)) @ change_BNPV
    added_BNVK = (ratio_BNPP[..., -1, :, None] * change_BNPV).mT @ key_BNPK
    return output_BNPV, kept_BNP1[..., -1:, :] * store_BNVK + added_BNVK


@final
class DeltaLayer(nn.Module):
    """A pre-norm layer: x + delta rule(norm(x)), then x + gated perceptron(norm(x))."""

    KEEP_BIAS = 5.0
    """Starts with g = sigmoid(5) = 0.993: what was written early still counts after a hundred steps."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(hidden)
        self.to_query_key_value = nn.Linear(hidden, 3 * hidden, bias=False)
        self.to_keep = nn.Linear(hidden, heads)
        self.to_write = nn.Linear(hidden, heads)
        self.out = nn.Linear(hidden, hidden)
        self.feed_norm = nn.LayerNorm(hidden)
        self.feed_gate = nn.Linear(hidden, 2 * hidden)
        self.feed_in = nn.Linear(hidden, 2 * hidden)
        self.feed_out = nn.Linear(2 * hidden, hidden)
        with torch.no_grad():
            self.to_keep.bias.fill_(self.KEEP_BIAS)

    def forward(
        self, x_BPH: Float[Tensor, "batch token hidden"], store_BNVK: Float[Tensor, "batch head value key"]
    ) -> tuple[Float[Tensor, "batch token hidden"], Float[Tensor, "batch head value key"]]:
        """The outputs of a run of tokens that continues from a store, and the store after it."""
        normed_BPH = self.norm(x_BPH)
        projected = self.to_query_key_value(normed_BPH).unflatten(-1, (3, self.heads, -1))
        query_BNPD, key_BNPD, value_BNPD = projected.permute(2, 0, 3, 1, 4)
        seen_BNPD, store_BNVK = delta_rule(
            store_BNVK,
            normalize(query_BNPD, dim=-1),
            normalize(key_BNPD, dim=-1),
            value_BNPD,
            logsigmoid(self.to_keep(normed_BPH)).mT,
            torch.sigmoid(self.to_write(normed_BPH)).mT,
        )
        x_BPH = x_BPH + self.out(seen_BNPD.transpose(1, 2).flatten(start_dim=2))
        normed_BPH = self.feed_norm(x_BPH)
        return x_BPH + self.feed_out(silu(self.feed_gate(normed_BPH)) * self.feed_in(normed_BPH)), store_BNVK


@final
class DeltaRuleMemory(HiddenStateMemory):
    """Delta-rule layers over a start token made from the context and one token per observation.

    Tokens carry a smooth code of t, from which the layers can make rates such as 1 / (1 + t), those of
    a running average. A step costs the same at every t; with pooling, the hidden states of all steps are
    kept and a step's read grows with their number.
    """

    def __init__(self, config: DeltaRuleConfig, dims: Dims) -> None:
        super().__init__()
        hidden = config.hidden
        self.store_shape = (config.heads, hidden // config.heads, hidden // config.heads)
        self.embed = mlp([dims.query + dims.observation + dims.context, hidden, hidden])
        self.start = nn.Linear(dims.context + 1, hidden)
        self.position = nn.Linear(3, hidden, bias=False)
        self.layers = nn.ModuleList(DeltaLayer(hidden, config.heads) for _ in range(config.layers))
        self.norm = nn.LayerNorm(hidden)
        self._make_readout(config.readout, hidden, dims)

    def _run(
        self, tokens_BPH: Tensor, prefix_BP: Tensor, stores: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        x_BPH = tokens_BPH + self.position(time_features(prefix_BP))
        after = []
        for layer, store_BNVK in zip(self.layers, stores, strict=True):
            x_BPH, written_BNVK = layer(x_BPH, store_BNVK)
            after.append(written_BNVK)
        return self.norm(x_BPH), tuple(after)

    def _first(self, context_BC: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        bias_B1 = torch.ones(len(context_BC), 1)
        token_B1H = self.start(torch.cat([context_BC, bias_B1], dim=-1))[:, None]
        return token_B1H, (torch.zeros(len(context_BC), *self.store_shape),) * len(self.layers)

    def begin(self, context_BC: Tensor) -> DeltaRuleState:
        prefix = torch.zeros(len(context_BC), 1, dtype=torch.long)
        token_B1H, empty = self._first(context_BC)
        hidden_B1H, stores = self._run(token_B1H, prefix, empty)
        return DeltaRuleState(hidden_B1H, self._slots(hidden_B1H), stores, context_BC, prefix)

    def step(self, state: DeltaRuleState, query_BQ: Tensor, observation_BY: Tensor) -> DeltaRuleState:
        prefix = state.prefix_BP + 1
        token_B1H = self.embed(with_context(state.context_BC, query_BQ[:, None], observation_BY[:, None]))
        hidden_B1H, stores = self._run(token_B1H, prefix, state.stores)
        slots = self._slots(hidden_B1H, state.slots_BSH)
        return DeltaRuleState(hidden_B1H, slots, stores, state.context_BC, prefix)

    def unroll(self, context_BC: Tensor, query_BTQ: Tensor, observation_BTY: Tensor) -> DeltaRuleState:
        token_B1H, empty = self._first(context_BC)
        tokens_BTH = self.embed(with_context(context_BC, query_BTQ, observation_BTY))
        tokens_BPH = torch.cat([token_B1H, tokens_BTH], dim=1)
        prefix = torch.arange(tokens_BPH.shape[1]).expand(len(context_BC), -1)
        hidden_BPH, stores = self._run(tokens_BPH, prefix, empty)
        return DeltaRuleState(hidden_BPH, self._slots(hidden_BPH), stores, context_BC, prefix)
