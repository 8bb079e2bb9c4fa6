"""The axis-shared memory: one small recurrent filter, the same for every coordinate.

It fits problems whose query, observation and answer have one entry per coordinate. What it learns
about one coordinate it knows about all of them, so its size and its training time hardly depend on
the dimension.

Each coordinate carries a running estimate with its spread beside the hidden state, and sees its
query relative to them. A comparison near the estimate then looks the same at every scale, so the
filter keeps its precision while the posterior shrinks by orders of magnitude (a GRU on absolute
coordinates was five times too wide after 20 comparisons: docs/decisions/0001-zooming-axis-memory.md).
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple, final

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.nn.functional import silu

from cicpe.beliefs.network.layers import LOG_STD
from cicpe.beliefs.network.memories.base import Dims, Memory, MemoryConfig, MemoryFeatures, gather_prefixes
from cicpe.errors import InvalidInput

UNIFORM_LOG_STD = -0.5493
"""Log standard deviation of a uniform variable on [-1, 1]: log(1 / sqrt 3)."""
VIEW = 16
"""Features of one coordinate of a candidate query."""


@final
class PerAxisConfig(MemoryConfig):
    """A recurrent filter per coordinate with shared weights; coordinates are pooled for the critic."""

    kind: Literal["axis"] = "axis"
    hidden: int = 32
    """Hidden units per coordinate."""
    view: Literal["raw", "relative"] = "raw"
    """How the critic sees a candidate query: as it is, or from each coordinate's estimate, which tells it what
    the query would add. Actors that compare queries by their value (td3, search) need the second."""

    def build(self, dims: Dims) -> "PerAxisMemory":
        """The memory that this describes."""
        return PerAxisMemory(self, dims)


class PerAxisState(NamedTuple):
    """Every coordinate's estimate, log spread and hidden state at every prefix, and the context."""

    mean_BPX: Tensor
    log_std_BPX: Tensor
    hidden_BPXH: Tensor
    context_BC: Tensor

    def at_prefixes(self, index_BK: Int[Tensor, "batch chosen"]) -> "PerAxisState":
        """The state at K prefixes per episode, for reading."""
        return self._replace(
            mean_BPX=gather_prefixes(self.mean_BPX, index_BK),
            log_std_BPX=gather_prefixes(self.log_std_BPX, index_BK),
            hidden_BPXH=gather_prefixes(self.hidden_BPXH, index_BK),
        )


@final
class PerAxisMemory(Memory):
    """For each coordinate i, a GRU cell on ((query_i - mean_i) / std_i, observation_i, mean_i, log std_i, context)."""

    def __init__(self, config: PerAxisConfig, dims: Dims) -> None:
        super().__init__()
        if not dims.query == dims.observation == dims.answer:
            sizes = f"query {dims.query}, observation {dims.observation}, answer {dims.answer}"
            raise InvalidInput(
                "memory",
                "axis",
                f"another one for this problem: axis needs one entry per coordinate, and it has {sizes}",
            )
        self.axes = dims.answer
        self.embed = nn.Linear(4 + dims.context, config.hidden)
        self.cell = nn.GRUCell(config.hidden, config.hidden)
        self.update = nn.Linear(config.hidden, 2)
        with torch.no_grad():
            self.update.weight.mul_(0.1)
            self.update.bias.zero_()
        self.width = 2 * (config.hidden + 1)
        self.axis_width = config.hidden
        self.from_estimate = nn.Linear(config.hidden + 2, VIEW) if config.view == "relative" else None
        self.width_at = self.width + (dims.query if self.from_estimate is None else 2 * VIEW)

    def begin(self, context_BC: Tensor) -> PerAxisState:
        shape = (len(context_BC), 1, self.axes)
        hidden = torch.zeros(*shape, self.cell.hidden_size)
        return PerAxisState(torch.zeros(shape), torch.full(shape, UNIFORM_LOG_STD), hidden, context_BC)

    def _advance(
        self, mean_BX: Tensor, log_std_BX: Tensor, hidden_NH: Tensor, query_BX: Tensor, inputs_BXI: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        std_BX = log_std_BX.exp()
        relative_BX = ((query_BX - mean_BX) / std_BX).clamp(-5.0, 5.0)
        seen_BXI = torch.cat([torch.stack([relative_BX, mean_BX, log_std_BX / 3], dim=-1), inputs_BXI], dim=-1)
        hidden_NH = self.cell(silu(self.embed(seen_BXI)).flatten(0, 1), hidden_NH)
        change_BX, widen_BX = self.update(hidden_NH).view(*query_BX.shape, 2).unbind(dim=-1)
        mean_BX = (mean_BX + std_BX * change_BX).clamp(-1.0, 1.0)
        return mean_BX, (log_std_BX + widen_BX).clamp(*LOG_STD), hidden_NH

    def _inputs(self, context_BC: Tensor, observation_BX: Tensor) -> Tensor:
        context_BXC = context_BC[:, None].expand(-1, self.axes, -1)
        return torch.cat([observation_BX[..., None], context_BXC], dim=-1)

    def step(self, state: PerAxisState, query_BQ: Tensor, observation_BY: Tensor) -> PerAxisState:
        mean, log_std, hidden = self._advance(
            state.mean_BPX[:, 0],
            state.log_std_BPX[:, 0],
            state.hidden_BPXH.flatten(0, 2),
            query_BQ,
            self._inputs(state.context_BC, observation_BY),
        )
        hidden_BPXH = hidden.view(len(query_BQ), 1, self.axes, -1)
        return PerAxisState(mean[:, None], log_std[:, None], hidden_BPXH, state.context_BC)

    def unroll(self, context_BC: Tensor, query_BTQ: Tensor, observation_BTY: Tensor) -> PerAxisState:
        first = self.begin(context_BC)
        mean, log_std, hidden = first.mean_BPX[:, 0], first.log_std_BPX[:, 0], first.hidden_BPXH.flatten(0, 2)
        means, log_stds, hiddens = [mean], [log_std], [hidden]
        for t in range(query_BTQ.shape[1]):
            inputs = self._inputs(context_BC, observation_BTY[:, t])
            mean, log_std, hidden = self._advance(mean, log_std, hidden, query_BTQ[:, t], inputs)
            means.append(mean)
            log_stds.append(log_std)
            hiddens.append(hidden)
        hidden_BPXH = torch.stack(hiddens, dim=1).view(len(context_BC), self.axes, len(hiddens), -1).transpose(1, 2)
        return PerAxisState(torch.stack(means, dim=1), torch.stack(log_stds, dim=1), hidden_BPXH, context_BC)

    def features(self, state: PerAxisState) -> MemoryFeatures:
        features_BPXF = torch.cat([state.hidden_BPXH, state.log_std_BPX[..., None]], dim=-1)
        summary = torch.cat([features_BPXF.mean(dim=2), features_BPXF.amax(dim=2)], dim=-1)
        return MemoryFeatures(summary, state.hidden_BPXH, state.mean_BPX, state.log_std_BPX)

    def features_at(self, state: PerAxisState, memory_features: MemoryFeatures, query_BPQ: Tensor) -> Tensor:
        if self.from_estimate is None:
            return super().features_at(state, memory_features, query_BPQ)
        relative_BPX = ((query_BPQ - state.mean_BPX) * torch.exp(-state.log_std_BPX)).clamp(-5.0, 5.0)
        moments_BPX2 = torch.stack([relative_BPX, state.log_std_BPX / 3], dim=-1)
        seen_BPXV = silu(self.from_estimate(torch.cat([moments_BPX2, state.hidden_BPXH], dim=-1)))
        return torch.cat([memory_features.summary, seen_BPXV.mean(dim=2), seen_BPXV.amax(dim=2)], dim=-1)

    def query_parameters(self) -> Iterator[nn.Parameter]:
        if self.from_estimate is not None:
            yield from self.from_estimate.parameters()
