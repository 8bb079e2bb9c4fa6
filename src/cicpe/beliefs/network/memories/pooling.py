"""Query-conditioned pooling over a history's hidden states (the paper's readout)."""

import math
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import silu


@final
class QueryPooling(nn.Module):
    """Reads a history from the point of view of a query q.

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
        """Pools the slots 0 ... t of each prefix t (slot 0 is the empty history's)."""
        # <W_q q, W_k h> = <W_k' W_q q, h> and sum alpha W_v h = W_v sum alpha h: the work on the history is
        # then one product a slot, not a projection, and a step's cost hardly grows with it.
        looked_for_BPH = self.to_query(query_BPQ) @ self.to_key.weight
        scores_BPS = looked_for_BPH @ hidden_BSH.transpose(1, 2) / math.sqrt(hidden_BSH.shape[-1])
        slot_S = torch.arange(hidden_BSH.shape[1])
        scores_BPS = scores_BPS.masked_fill(slot_S > prefix_BP[..., None], -math.inf)
        pooled_BPH: Tensor = self.to_value(scores_BPS.softmax(dim=-1) @ hidden_BSH)
        return pooled_BPH * silu(self.to_gate(query_BPQ))
