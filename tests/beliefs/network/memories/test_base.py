"""Every memory runs the conformance suite; broken ones must fail it."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor, nn

from cicpe.beliefs.network.memories.attention import AttentionConfig
from cicpe.beliefs.network.memories.base import Dims, Memory, MemoryFeatures, gather_prefixes
from cicpe.beliefs.network.memories.delta_rule import DeltaRuleConfig
from cicpe.beliefs.network.memories.lattice import LatticeConfig
from cicpe.beliefs.network.memories.per_axis import PerAxisConfig
from cicpe.beliefs.network.memories.recurrent import RecurrentConfig
from cicpe.beliefs.network.memories.regression import RegressionConfig
from cicpe.beliefs.network.network import MemoryConfig, NetworkConfig
from cicpe.errors import InvalidInput
from cicpe.testing import check_memory

ANY = [Dims(2, 2, 0, 2), Dims(2, 2, 2, 2), Dims(3, 1, 2, 1), Dims(1, 4, 0, 3)]
PER_COORDINATE = [Dims(1, 1, 0, 1), Dims(3, 3, 2, 3)]
SCALAR = [Dims(1, 1, 0, 1), Dims(1, 1, 2, 1), Dims(2, 1, 2, 2), Dims(3, 1, 0, 3)]

GRU, LSTM = RecurrentConfig(kind="gru", hidden=16), RecurrentConfig(kind="lstm", hidden=16)
ATTENTION = AttentionConfig(width=16, heads=2)
DELTA = DeltaRuleConfig(hidden=16)
AXIS = PerAxisConfig(hidden=8)
REGRESSION = RegressionConfig(basis=10, probes=9)
LATTICE = LatticeConfig(side=5, hidden=8)

# Name, configuration, and the sizes that it takes: extend this list with every new memory.
MEMORIES = [
    ("gru", GRU, ANY),
    ("gru-pooling", GRU.model_copy(update={"readout": "pooling"}), ANY),
    ("lstm", LSTM, ANY),
    ("lstm-pooling", LSTM.model_copy(update={"readout": "pooling"}), ANY),
    ("attention", ATTENTION, ANY),
    ("attention-pooling", ATTENTION.model_copy(update={"readout": "pooling"}), ANY),
    ("delta", DELTA, ANY),
    ("delta-deep", DeltaRuleConfig(hidden=16, heads=4, layers=2), ANY),
    ("delta-pooling", DELTA.model_copy(update={"readout": "pooling"}), ANY),
    ("axis", AXIS, PER_COORDINATE),
    ("lattice", LATTICE, SCALAR),
    ("regression", REGRESSION, SCALAR),
    ("regression-argmax", REGRESSION.model_copy(update={"estimate": "argmax"}), SCALAR),
    ("regression-weights", RegressionConfig(features="linear", estimate="weights"), SCALAR),
]
CASES = [pytest.param(config, dims, id=f"{name}-{tuple(dims)}") for name, config, sizes in MEMORIES for dims in sizes]
CONFIGS = [pytest.param(config, id=name) for name, config, _ in MEMORIES]


def build(config: MemoryConfig, dims: Dims, seed: int = 0) -> Memory:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return config.build(dims)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# Conformance.


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("config", "dims"), CASES)
def test_memory_conforms(config: MemoryConfig, dims: Dims, seed: int) -> None:
    check_memory(build(config, dims, seed), dims, seed=seed)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    config=st.sampled_from([config for _, config, sizes in MEMORIES if sizes is ANY]),
    dims=st.builds(Dims, st.integers(1, 4), st.integers(1, 4), st.integers(0, 3), st.integers(1, 4)),
    horizon=st.integers(2, 9),
    batch=st.integers(2, 6),
    seed=st.integers(0, 2**32),
)
def test_general_memories_conform_at_any_size(
    config: MemoryConfig, dims: Dims, horizon: int, batch: int, seed: int
) -> None:
    check_memory(build(config, dims, seed % 1000), dims, horizon, batch, seed)


@pytest.mark.parametrize("config", [GRU, ATTENTION, DELTA], ids=lambda config: config.kind)
def test_memory_conforms_on_a_long_horizon(config: MemoryConfig) -> None:
    dims = Dims(2, 1, 1, 2)
    check_memory(build(config, dims), dims, horizon=80, batch=2)


@pytest.mark.parametrize("config", CONFIGS)
def test_config_survives_json(config: MemoryConfig) -> None:
    network = NetworkConfig(memory=config)
    again = NetworkConfig.model_validate_json(network.model_dump_json())
    assert again == network
    assert type(again.memory) is type(config)


def test_heads_must_share_the_width() -> None:
    with pytest.raises(ValidationError, match="multiple of heads"):
        AttentionConfig(width=10, heads=4)
    with pytest.raises(ValidationError, match="multiple of heads"):
        DeltaRuleConfig(hidden=9, heads=2)


# Negative controls: a memory that breaks one promise must fail, by the check of that promise.


class MeanState(NamedTuple):
    mean_BPY: Tensor
    prefix_BP: Tensor

    def at_prefixes(self, index_BK: Tensor) -> "MeanState":
        return MeanState(gather_prefixes(self.mean_BPY, index_BK), gather_prefixes(self.prefix_BP, index_BK))


class MeanMemory(Memory):
    """The running mean of the observations, times a parameter: correct, and easy to break."""

    def __init__(self, dims: Dims) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(dims.observation))
        self.width, self.width_at = dims.observation, dims.observation + dims.query

    def begin(self, context_BC: Tensor) -> MeanState:
        return MeanState(torch.zeros(len(context_BC), 1, len(self.gain)), torch.zeros(len(context_BC), 1))

    def step(self, state: MeanState, query_BQ: Tensor, observation_BY: Tensor) -> MeanState:
        prefix = state.prefix_BP + 1
        return MeanState(state.mean_BPY + (observation_BY[:, None] - state.mean_BPY) / prefix[..., None], prefix)

    def unroll(self, context_BC: Tensor, query_BTQ: Tensor, observation_BTY: Tensor) -> MeanState:
        first = self.begin(context_BC)
        prefix = torch.arange(observation_BTY.shape[1] + 1.0).expand(len(context_BC), -1)
        means = observation_BTY.cumsum(dim=1) / prefix[:, 1:, None]
        return MeanState(torch.cat([first.mean_BPY, means], dim=1), prefix)

    def features(self, state: MeanState) -> MemoryFeatures:
        return MemoryFeatures(self.gain * state.mean_BPY)


class LeaksTheFuture(MeanMemory):
    def unroll(self, context_BC: Tensor, query_BTQ: Tensor, observation_BTY: Tensor) -> MeanState:
        state = super().unroll(context_BC, query_BTQ, observation_BTY)
        return state._replace(mean_BPY=state.mean_BPY + 0.01 * state.mean_BPY[:, -1:])


class LeaksTheNextQuery(MeanMemory):
    """Off by one: prefix t sees the query that it is about to make."""

    def unroll(self, context_BC: Tensor, query_BTQ: Tensor, observation_BTY: Tensor) -> MeanState:
        state = super().unroll(context_BC, query_BTQ, observation_BTY)
        coming = torch.cat([query_BTQ, query_BTQ[:, -1:]], dim=1).mean(dim=-1, keepdim=True)
        return state._replace(mean_BPY=state.mean_BPY + 0.01 * coming)


class StepsDifferently(MeanMemory):
    def step(self, state: MeanState, query_BQ: Tensor, observation_BY: Tensor) -> MeanState:
        return super().step(state, query_BQ, observation_BY * 1.001)


class StepsInPlace(MeanMemory):
    """Right if read at once, but earlier states change under one's hands."""

    def step(self, state: MeanState, query_BQ: Tensor, observation_BY: Tensor) -> MeanState:
        after = super().step(state, query_BQ, observation_BY)
        return after._replace(mean_BPY=state.mean_BPY.copy_(after.mean_BPY))


class SeesFromElsewhere(MeanMemory):
    """``features_at`` ignores which prefix its candidate belongs to."""

    def features_at(self, state: MeanState, memory_features: MemoryFeatures, query_BPQ: Tensor) -> Tensor:
        return torch.cat([memory_features.summary, query_BPQ[:, :1].expand_as(query_BPQ)], dim=-1)


class MixesEpisodes(MeanMemory):
    def features(self, state: MeanState) -> MemoryFeatures:
        return MemoryFeatures(self.gain * (state.mean_BPY - state.mean_BPY.mean(dim=0)))


class FlattensEpisodes(MeanMemory):
    """Keeps its state as one long vector, which cannot be selected from."""

    def step(self, state: MeanState, query_BQ: Tensor, observation_BY: Tensor) -> MeanState:
        state = MeanState(state.mean_BPY.view(len(query_BQ), 1, -1), state.prefix_BP)
        after = super().step(state, query_BQ, observation_BY)
        return after._replace(mean_BPY=after.mean_BPY.flatten()[:, None, None])

    def features(self, state: MeanState) -> MemoryFeatures:
        return MemoryFeatures(self.gain * state.mean_BPY.view(*state.prefix_BP.shape, -1))


class HasNoPrefixes(MeanMemory):
    """Its state cannot be read at some of its prefixes."""

    class State(NamedTuple):
        mean_BPY: Tensor
        prefix_BP: Tensor

    def unroll(self, context_BC: Tensor, query_BTQ: Tensor, observation_BTY: Tensor) -> MeanState:
        return self.State(*super().unroll(context_BC, query_BTQ, observation_BTY))  # type: ignore[return-value]


class ForgetsItsPrefixes(MeanMemory):
    """Its state picks its means at other prefixes than it was asked for."""

    class State(NamedTuple):
        mean_BPY: Tensor
        prefix_BP: Tensor

        def at_prefixes(self, index_BK: Tensor) -> "ForgetsItsPrefixes.State":
            return self._replace(mean_BPY=self.mean_BPY[:, : index_BK.shape[1]])

    def unroll(self, context_BC: Tensor, query_BTQ: Tensor, observation_BTY: Tensor) -> MeanState:
        return self.State(*super().unroll(context_BC, query_BTQ, observation_BTY))  # type: ignore[return-value]


class HasInfiniteGradients(MeanMemory):
    def features(self, state: MeanState) -> MemoryFeatures:
        return MemoryFeatures(self.gain * state.mean_BPY + (self.gain * 0).sqrt())


class IsCutOff(MeanMemory):
    def features(self, state: MeanState) -> MemoryFeatures:
        return MemoryFeatures((self.gain * state.mean_BPY).detach())


class DeclaresAnotherWidth(MeanMemory):
    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.width += 1


class HidesItsAxes(MeanMemory):
    def __init__(self, dims: Dims) -> None:
        super().__init__(dims)
        self.axis_width = 4


def test_the_negative_controls_are_right_before_they_are_broken() -> None:
    dims = Dims(2, 3, 1, 2)
    check_memory(MeanMemory(dims), dims)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (LeaksTheFuture, "causality: at the prefixes 0 ... 0 after a change of step 0"),
        (LeaksTheNextQuery, "causality"),
        (StepsDifferently, "agreement of unroll and step: at prefix 1, summary differs by"),
        (StepsInPlace, "agreement of unroll and step: at prefix 0"),
        (SeesFromElsewhere, "agreement of unroll and step: at prefix 1, read_at differs"),
        (MixesEpisodes, "selection of episodes"),
        (FlattensEpisodes, "shapes of a state"),
        (HasNoPrefixes, "prefixes of a state: State has no at_prefixes"),
        (ForgetsItsPrefixes, "prefixes of a state: at the prefixes .* of 1 steps, summary differs"),
        (HasInfiniteGradients, "gradients: that of gain is not finite"),
        (IsCutOff, "gradients: nothing that is read"),
        (DeclaresAnotherWidth, "shapes after begin: summary must be 5 x 1 x 4, not 5 x 1 x 3"),
        (HidesItsAxes, "axis_width is 4, but axes are not given"),
    ],
)
def test_a_broken_memory_fails(broken: Callable[[Dims], Memory], message: str) -> None:
    dims = Dims(2, 3, 1, 2)
    with pytest.raises(AssertionError, match=message):
        check_memory(broken(dims), dims)


def test_check_memory_keeps_the_mode_and_refuses_histories_that_check_nothing() -> None:
    dims = Dims(2, 3, 1, 2)
    memory = MeanMemory(dims)
    check_memory(memory, dims)
    assert memory.training
    with pytest.raises(InvalidInput, match="horizon"):
        check_memory(memory, dims, horizon=1)
