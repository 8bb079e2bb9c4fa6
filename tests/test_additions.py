"""What it takes to add a kind of each thing: a belief, a stop rule, a memory, a family.

Each is added here, outside the package, and taken through the public functions. ``docs/architecture.md`` says which
files the same takes inside it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, final

import pytest
import torch
from torch import Generator, Tensor, nn

import cicpe
from cicpe.agents.stop_rules import STOP_RULES, StopRule
from cicpe.beliefs.base import (
    Assessment,
    Belief,
    BeliefConfig,
    CalibrationPlan,
    FitRequest,
    FittedBelief,
    StopView,
    TaskShape,
)
from cicpe.beliefs.network.memories.base import Dims, Memory, MemoryConfig, MemoryFeatures
from cicpe.beliefs.network.memories.registry import MEMORIES, register_memory
from cicpe.beliefs.predictors import Prediction
from cicpe.beliefs.registry import KINDS, register
from cicpe.spaces import Box, Space
from cicpe.testing import check_agent, check_memory
from stopping import NEVER, stopping_at

LINE = Box([0.0], [1.0])
NOISE = 0.3


# A family: two spaces and three methods.


@dataclass(frozen=True)
class Weighing(cicpe.Problem):
    """How heavy is it? Every weighing is off by a normal error; where one looks makes no difference."""

    query_space = LINE
    answer_space = LINE
    horizon = 60
    default_epsilon = (0.1, 0.2)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return torch.rand(n, 1, generator=rng)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return task + NOISE * torch.randn(task.shape, generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task


# A belief: what it makes of a history, and its configuration.


class MeanState(NamedTuple):
    total: Tensor
    count: Tensor


@final
@dataclass(frozen=True)
class MeanBelief(Belief):
    """The mean of what was seen, and the error function of how far that may be off."""

    space: Space
    horizon: int
    noise: Tensor

    @property
    def query_space(self) -> Space:
        return self.space

    @property
    def answer_space(self) -> Space:
        return self.space

    def begin(self, context: Tensor) -> MeanState:
        return MeanState(torch.zeros(len(context), 1), torch.zeros(len(context)))

    def _moments(self, state: MeanState) -> tuple[Tensor, Tensor]:
        # The prior counts as one weighing in the middle.
        return (state.total + 0.5) / (state.count[:, None] + 1), self.noise / (state.count + 1).sqrt()

    def assess(
        self,
        state: MeanState,
        epsilons: Sequence[float],
        rng: Generator,
        query_spread: float = 0.0,
        costs: Sequence[Tensor] = (),
    ) -> Assessment:
        self.refuse_costs(costs)
        mean, std = self._moments(state)
        confidence = torch.stack([torch.erf(epsilon / (std * 2**0.5)) for epsilon in epsilons])
        answer = self.space.project(mean).expand(len(epsilons), -1, -1)
        none = torch.zeros(len(epsilons), 0, len(mean))
        query = torch.full_like(mean, 0.5)
        return Assessment(state.count.long(), query[:, None], answer, confidence, confidence, none, std[:, None])

    def update(self, state: MeanState, query: Tensor, observation: Tensor) -> MeanState:
        return MeanState(state.total + observation, state.count + 1)

    def sample_answers(self, state: MeanState, n: int, rng: Generator) -> Tensor:
        mean, std = self._moments(state)
        return self.space.project(mean[:, None] + std[:, None, None] * torch.randn(len(mean), n, 1, generator=rng))

    def predict(self, state: MeanState, query: Tensor) -> Prediction:
        mean, std = self._moments(state)
        log_std = (std.square() + self.noise.square()).sqrt().log()[:, None]
        return Prediction(torch.zeros(1, dtype=torch.bool), torch.zeros(1), torch.zeros_like(mean), mean, log_std)

    def tensors(self) -> Mapping[str, Tensor]:
        return {"noise": self.noise}


@final
class MeanConfig(BeliefConfig):
    """Means, with the noise as the one thing that is fitted."""

    kind: Literal["mean"] = "mean"

    @property
    def query_rule(self) -> str:
        return "middle"

    @property
    def calibration(self) -> CalibrationPlan:
        return CalibrationPlan(max_episodes=4000, n_epsilons=3, alarm_episodes=256, alarm_ranked=199)

    def fit(self, request: FitRequest) -> FittedBelief:
        rng = torch.Generator().manual_seed(request.seed)
        task = request.problem.sample(2000, rng)
        seen = request.problem.observe(task, LINE.sample(2000, rng), rng)
        noise = (seen - request.problem.target(task)).std()
        return FittedBelief(MeanBelief(LINE, self.horizon, noise), self, 0, 0.0)

    def build(self, shape: TaskShape, horizon: int) -> tuple[MeanBelief, nn.Module]:
        module = nn.Module()
        module.register_buffer("noise", torch.zeros(()))
        return MeanBelief(shape.query_space, horizon, module.get_buffer("noise")), module

    def describe(self) -> str:
        return "the mean of the observations"


@pytest.fixture
def mean_kind() -> Iterator[None]:
    register(MeanConfig)
    yield
    del KINDS["mean"]


@pytest.mark.usefixtures("mean_kind")
def test_a_belief_is_trained_saved_loaded_certified_and_watched(tmp_path: Path) -> None:
    problem = Weighing()
    model = cicpe.train(problem, recipe="mean", updates=1, out=tmp_path / "model")
    check_agent(model.agent(0.2, 0.1), problem)
    result = cicpe.evaluate(model, epsilon=0.2, delta=0.1, episodes=2000)
    assert result.accuracy_ci[1] > 0.9
    assert 3 < result.mean_queries < 20
    assert cicpe.certify(model, epsilon=0.2, delta=0.1, episodes=4000).certified
    watched = cicpe.fit_alarm(model)
    watched.save(tmp_path / "watched")
    assert model.card().count("the mean of the observations") == 1


# A stop rule: its thresholds, from the safest down, and who stops at one.


@final
@dataclass(frozen=True)
class SpreadRule(StopRule):
    """Stop once the widest coordinate of the posterior is narrow enough."""

    name: str = "spread"

    def thresholds(self, costs: tuple[float, float] | None) -> Tensor:
        return torch.linspace(0.01, 0.5, 50)

    def would_stop(self, view: StopView, threshold: Tensor) -> Tensor:
        return view.std.amax(dim=-1) <= threshold

    def safer(self, thresholds: Tensor) -> Tensor:
        return thresholds.amin(dim=-1)


@pytest.mark.usefixtures("mean_kind")
def test_a_stop_rule_is_calibrated_saved_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STOP_RULES, "spread", SpreadRule())
    model = cicpe.train(Weighing(), recipe="mean", updates=1)
    again = cicpe.load(model.save(tmp_path / "model"))
    assert again.calibration.rules.keys() == {"confidence", "each", "spread"}
    result = cicpe.evaluate(model, epsilon=0.2, delta=0.1, stop="spread", episodes=2000)
    assert result.accuracy_ci[1] > 0.9
    # The spread of a mean depends on the number of weighings alone, so all stop after as many.
    assert len(set(result.outcomes.queries.tolist())) == 1


# A memory: a state, features of it, and two ways to the same mathematics.


class SumState(NamedTuple):
    total_BPF: Tensor

    def at_prefixes(self, index_BK: Tensor) -> "SumState":
        return SumState(self.total_BPF.gather(1, index_BK[..., None].expand(-1, -1, self.total_BPF.shape[-1])))


@final
class SumMemory(Memory):
    """Embeds every step and sums."""

    def __init__(self, dims: Dims) -> None:
        super().__init__()
        self.embed = nn.Linear(dims.query + dims.observation, 8)
        self.width, self.width_at = 8, 8 + dims.query

    def begin(self, context_BC: Tensor) -> SumState:
        return SumState(torch.zeros(len(context_BC), 1, 8))

    def step(self, state: SumState, query_BQ: Tensor, observation_BY: Tensor) -> SumState:
        return SumState(state.total_BPF + self.embed(torch.cat([query_BQ, observation_BY], dim=-1))[:, None])

    def unroll(self, context_BC: Tensor, query_BTQ: Tensor, observation_BTY: Tensor) -> SumState:
        steps = self.embed(torch.cat([query_BTQ, observation_BTY], dim=-1)).cumsum(dim=1)
        return SumState(torch.cat([torch.zeros(len(steps), 1, 8), steps], dim=1))

    def features(self, state: SumState) -> MemoryFeatures:
        return MemoryFeatures(state.total_BPF)


@final
class SumConfig(MemoryConfig):
    kind: Literal["sum"] = "sum"

    def build(self, dims: Dims) -> SumMemory:
        return SumMemory(dims)


@pytest.fixture
def sum_memory() -> Iterator[None]:
    register_memory(SumConfig)
    yield
    del MEMORIES["sum"]


@pytest.mark.usefixtures("sum_memory")
def test_a_memory_is_chosen_by_a_setting_trained_saved_and_loaded(tmp_path: Path) -> None:
    dims = Dims(1, 1, 0, 1)
    check_memory(SumMemory(dims), dims)
    settings = {"network": {"memory": {"kind": "sum"}}, "first_batch": 16, "batch": 16, "horizon": 5}
    problem = Weighing()
    model = cicpe.train(problem, recipe="fast", updates=4, calibration_episodes=100, settings=settings)
    assert model.description.training.describe() == "memory `sum`"
    again = cicpe.load(model.save(tmp_path / "model"), problem=problem)
    assert again.description.training == model.description.training
    check_agent(stopping_at(again.belief, NEVER, 0.1), problem)


def test_an_unknown_memory_is_refused_with_those_that_there_are() -> None:
    settings = {"network": {"memory": {"kind": "sum"}}}
    with pytest.raises(cicpe.InvalidInput, match=r"one of gru, lstm, attention, delta, axis, regression"):
        cicpe.train(Weighing(), recipe="fast", updates=4, settings=settings)
