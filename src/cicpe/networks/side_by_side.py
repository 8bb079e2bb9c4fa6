"""Several memories on one history: what one of them cannot say, another may."""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, cast, final

import torch
from pydantic import Field
from torch import Tensor, nn

from cicpe.networks.attention import AttentionConfig
from cicpe.networks.axis import AxisConfig
from cicpe.networks.base import Config, Dims, Memory, Reading, State
from cicpe.networks.delta import DeltaConfig
from cicpe.networks.recurrent import RecurrentConfig
from cicpe.networks.regression import RegressionConfig

SimpleMemoryConfig = Annotated[
    RecurrentConfig | AttentionConfig | DeltaConfig | AxisConfig | RegressionConfig,
    Field(discriminator="kind"),
]
"""Every memory that is not made of other memories."""


@final
class SideBySideConfig(Config):
    """At least two memories that see the same history and do not see each other."""

    kind: Literal["side-by-side"] = "side-by-side"
    memories: tuple[SimpleMemoryConfig, ...] = Field(default=(RecurrentConfig(), AttentionConfig()), min_length=2)
    """The memories; if several give an anchor, the first one's counts."""

    def build(self, dims: Dims) -> "SideBySideMemory":
        """The memory that this describes."""
        return SideBySideMemory([memory.build(dims) for memory in self.memories])


class SideBySideState(NamedTuple):
    """The state of each memory, and its own reading, which ``read_at`` gives back to it."""

    states: tuple[State, ...]
    readings: tuple[Reading, ...]


@final
class SideBySideMemory(Memory):
    """Concatenates what its memories say: summaries, axes of those that give them, views from a query."""

    def __init__(self, memories: Sequence[Memory]) -> None:
        super().__init__()
        self.memories = nn.ModuleList(memories)
        axis_widths = [memory.axis_width for memory in memories if memory.axis_width is not None]
        self.width = sum(memory.width for memory in memories)
        self.axis_width = sum(axis_widths) if axis_widths else None
        self.width_at = sum(memory.width_at for memory in memories)

    @property
    def _parts(self) -> list[Memory]:
        return cast(list[Memory], list(self.memories))

    def _state(self, states: Sequence[State]) -> SideBySideState:
        readings = [memory.read(state) for memory, state in zip(self._parts, states, strict=True)]
        return SideBySideState(tuple(states), tuple(readings))

    def begin(self, context_BC: Tensor) -> SideBySideState:
        return self._state([memory.begin(context_BC) for memory in self._parts])

    def step(self, state: SideBySideState, query_BQ: Tensor, observation_BY: Tensor) -> SideBySideState:
        pairs = zip(self._parts, state.states, strict=True)
        return self._state([memory.step(part, query_BQ, observation_BY) for memory, part in pairs])

    def unroll(self, context_BC: Tensor, query_BTQ: Tensor, observation_BTY: Tensor) -> SideBySideState:
        return self._state([memory.unroll(context_BC, query_BTQ, observation_BTY) for memory in self._parts])

    def read(self, state: SideBySideState) -> Reading:
        summary = torch.cat([reading.summary for reading in state.readings], dim=-1)
        axes = [reading.axes for reading in state.readings if reading.axes is not None]
        anchored = next((reading for reading in state.readings if reading.anchor is not None), None)
        # An anchor and its spread belong together, so both come from one memory.
        anchor, log_spread = (None, None) if anchored is None else (anchored.anchor, anchored.log_spread)
        return Reading(summary, torch.cat(axes, dim=-1) if axes else None, anchor, log_spread)

    def read_at(self, state: SideBySideState, reading: Reading, query_BPQ: Tensor) -> Tensor:
        parts = zip(self._parts, state.states, state.readings, strict=True)
        return torch.cat([memory.read_at(part, own, query_BPQ) for memory, part, own in parts], dim=-1)
