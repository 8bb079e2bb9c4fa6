"""The conformance suite of agents, on trained-style agents with every memory, on one by hand, and on broken ones."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator, Tensor

from cicpe.agents.base import Agent, Proposal
from cicpe.agents.belief_agent import BeliefAgent, ShownBy, calibrated_confidence
from cicpe.beliefs.network.belief import NetworkBelief
from cicpe.beliefs.network.memories.attention import AttentionConfig
from cicpe.beliefs.network.memories.delta_rule import DeltaRuleConfig
from cicpe.beliefs.network.memories.per_axis import PerAxisConfig
from cicpe.beliefs.network.memories.recurrent import RecurrentConfig
from cicpe.beliefs.network.memories.regression import RegressionConfig
from cicpe.beliefs.network.network import MemoryConfig, NetworkConfig
from cicpe.beliefs.network.policy import ActorConfig
from cicpe.beliefs.network.query_rules import ActorName, make_actor
from cicpe.errors import InvalidInput
from cicpe.problems import Problem
from cicpe.problems.ackley import Ackley
from cicpe.problems.best_arm import BestArm
from cicpe.problems.binary_search import BinarySearch
from cicpe.problems.gp_max import GPMax
from cicpe.testing import check_agent
from cicpe.training.config import TrainingConfig
from cicpe.training.loop import build_network
from stopping import NEVER, stopping_at

GRU = RecurrentConfig(hidden=16)
MEMORIES: list[tuple[str, Problem, MemoryConfig]] = [
    ("axis", BinarySearch(dim=3), PerAxisConfig(hidden=8)),
    ("gru", BinarySearch(dim=2), GRU),
    ("lstm-pooling", Ackley(dim=2), RecurrentConfig(kind="lstm", hidden=16, readout="pooling")),
    ("attention", Ackley(dim=2), AttentionConfig(width=16, heads=2)),
    ("delta", BestArm(dim=3), DeltaRuleConfig(hidden=16)),
    ("regression", GPMax(dim=1), RegressionConfig(basis=10, probes=9, estimate="maximum")),
    ("regression-weights", BestArm(dim=3), RegressionConfig(features="linear", estimate="weights")),
]


def network_agent(
    problem: Problem,
    memory: MemoryConfig,
    actor: ActorName,
    scale: float,
    level: float | Callable[[Tensor], Tensor],
    shared: bool = True,
    horizon: int = 12,
    rule: str = "confidence",
) -> BeliefAgent:
    head = ActorConfig(hidden=8) if actor == "td3" else None
    config = TrainingConfig(network=NetworkConfig(memory=memory, shared_memory=shared, actor=head), actor=actor)
    network = build_network(problem, config, torch.Generator().manual_seed(0)).eval().requires_grad_(False)
    chosen = make_actor(actor, network.query_space, network.answer_space, network)
    return stopping_at(NetworkBelief(network, chosen, horizon), level, 0.1, rule, query_spread=scale)


# Ours.


@pytest.mark.parametrize(("problem", "memory"), [case[1:] for case in MEMORIES], ids=[case[0] for case in MEMORIES])
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
def test_network_agent_conforms(problem: Problem, memory: MemoryConfig, shared: bool) -> None:
    same = problem.query_space == problem.answer_space
    check_agent(network_agent(problem, memory, "ts" if same else "uniform", 0.0, NEVER, shared), problem)


@pytest.mark.parametrize("actor", ["ts", "ttps", "uniform", "td3", "search"])
@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_network_agent_conforms_with_every_actor(actor: ActorName, scale: float) -> None:
    problem = BinarySearch(dim=2)
    check_agent(network_agent(problem, GRU, actor, scale, NEVER), problem, n=9, seed=1)


@pytest.mark.parametrize("actor", ["ucb", "fts", "td3", "search", "uniform"])
def test_network_agent_conforms_where_queries_are_no_answers(actor: ActorName) -> None:
    problem = GPMax(dim=1)
    memory = RegressionConfig(basis=10, probes=9, estimate="maximum")
    check_agent(network_agent(problem, memory, actor, 1.0, NEVER), problem, n=9, seed=1)


def test_network_agent_conforms_while_episodes_stop() -> None:
    problem = BinarySearch(dim=2)
    agent = network_agent(problem, GRU, "ts", 1.0, 0.01, rule="bellman")
    check_agent(agent, problem)
    state = agent.begin(torch.full((64, 1), 0.05))
    middle = agent.propose(state, torch.Generator().manual_seed(0)).confidence.median()
    check_agent(network_agent(problem, GRU, "ts", 1.0, float(middle)), problem)


def test_network_agent_conforms_on_a_horizon_of_one_and_in_a_batch_of_two() -> None:
    problem = BinarySearch(dim=2)
    check_agent(network_agent(problem, GRU, "ts", 0.0, NEVER, horizon=1), problem, n=2)


def test_the_threshold_is_that_of_the_episode_and_kept_with_it() -> None:
    problem = BinarySearch(dim=1)
    agent = network_agent(problem, GRU, "ts", 0.0, lambda context: (context[:, 0] > 0.05).float() * 2)
    context = torch.tensor([[0.03], [0.08], [0.03]])
    state = agent.begin(context)
    rng = torch.Generator().manual_seed(0)
    assert agent.propose(state, rng).stop.tolist() == [True, False, True]
    state = agent.update(state, torch.zeros(3, 1), torch.ones(3, 1))
    assert agent.propose(state, rng).stop.tolist() == [True, False, True]


# By hand: bisection in one dimension, greedy, with an exact posterior for noise-free answers.


class BisectionState(NamedTuple):
    low: Tensor
    high: Tensor


class Bisection(Agent):
    """Halves the interval that holds the target; stops when it is at most 2 epsilon wide."""

    horizon = 20

    def __init__(self, epsilon: float = 0.02) -> None:
        self.epsilon = epsilon

    def begin(self, context: Tensor) -> Any:
        ones = torch.ones(len(context), 1)
        return BisectionState(-ones, ones)

    def propose(self, state: Any, rng: Generator) -> Proposal:
        middle, half = (state.low + state.high) / 2, (state.high - state.low) / 2
        sure = (self.epsilon / half[:, 0]).clamp_max(1.0)
        return Proposal(middle[:, None], half[:, 0] <= self.epsilon, middle, sure, half / 3**0.5)

    def update(self, state: Any, query: Tensor, observation: Tensor) -> Any:
        above = observation > 0
        return BisectionState(torch.where(above, query, state.low), torch.where(above, state.high, query))


EXACT = BinarySearch(dim=1, noise=0.0)


def test_an_agent_by_hand_conforms() -> None:
    check_agent(Bisection(), EXACT)
    check_agent(Bisection(epsilon=0.3), EXACT)
    check_agent(Bisection(epsilon=1.0), EXACT)  # stops at once


class Dithering(Bisection):
    """Not greedy: its queries depend on the generator, and that is allowed."""

    def propose(self, state: Any, rng: Generator) -> Proposal:
        exact = super().propose(state, rng)
        noise = 0.01 * torch.randn(exact.query.shape, generator=rng)
        return exact._replace(query=(exact.query + noise).clamp(-1, 1))


def test_an_agent_need_not_be_greedy() -> None:
    check_agent(Dithering(), EXACT)


# Negative controls: an agent that breaks one promise fails, by the check of that promise.


class Flat(Bisection):
    def propose(self, state: Any, rng: Generator) -> Proposal:
        exact = super().propose(state, rng)
        return exact._replace(recommendation=exact.recommendation[:, 0])


class WantsToStopByNumber(Bisection):
    def propose(self, state: Any, rng: Generator) -> Proposal:
        exact = super().propose(state, rng)
        return exact._replace(stop=exact.stop.float())


class NotFinite(Bisection):
    def propose(self, state: Any, rng: Generator) -> Proposal:
        exact = super().propose(state, rng)
        return exact._replace(std=exact.std / 0 * 0)


class QueriesOutside(Bisection):
    def propose(self, state: Any, rng: Generator) -> Proposal:
        exact = super().propose(state, rng)
        return exact._replace(query=exact.query + 1.5)


class AnswersOutside(Bisection):
    def propose(self, state: Any, rng: Generator) -> Proposal:
        exact = super().propose(state, rng)
        return exact._replace(recommendation=exact.recommendation - 3)


class OverConfident(Bisection):
    def propose(self, state: Any, rng: Generator) -> Proposal:
        exact = super().propose(state, rng)
        return exact._replace(confidence=exact.confidence + 1)


class NegativeSpread(Bisection):
    def propose(self, state: Any, rng: Generator) -> Proposal:
        exact = super().propose(state, rng)
        return exact._replace(std=-exact.std)


class UsesTheGlobalGenerator(Bisection):
    def propose(self, state: Any, rng: Generator) -> Proposal:
        exact = super().propose(state, rng)
        return exact._replace(query=(exact.query + 0.1 * torch.rand(exact.query.shape)).clamp(-1, 1))


class LooksAtTheOthers(Bisection):
    def propose(self, state: Any, rng: Generator) -> Proposal:
        exact = super().propose(state, rng)
        return exact._replace(confidence=exact.confidence / 2 + exact.query.mean().abs() / 4)


class ObservesInPlace(Bisection):
    def update(self, state: Any, query: Tensor, observation: Tensor) -> Any:
        after = super().update(state, query, observation)
        return BisectionState(state.low.copy_(after.low), state.high.copy_(after.high))


class KeepsEpisodesLast(Bisection):
    def begin(self, context: Tensor) -> Any:
        state = super().begin(context)
        return BisectionState(state.low.T, state.high.T)

    def propose(self, state: Any, rng: Generator) -> Proposal:
        return super().propose(BisectionState(state.low.T, state.high.T), rng)


class KeepsAnObject(Bisection):
    def begin(self, context: Tensor) -> Any:
        return {"state": super().begin(context), "name": "bisection"}


class AnswersByPosition(Bisection):
    """Right until some of its episodes end and others take their places."""

    def propose(self, state: Any, rng: Generator) -> Proposal:
        exact = super().propose(state, rng)
        offset = 0.001 * torch.arange(len(exact.query))[:, None]
        return exact._replace(recommendation=exact.recommendation * (1 - offset))


class HasNoHorizon(Bisection):
    horizon = 0


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Flat, r"shapes: after 0 observations, recommendation must be \(32, 1\)"),
        (WantsToStopByNumber, "shapes: after 0 observations, stop must be .* torch.bool, not"),
        (NotFinite, "values: after 0 observations, std is not finite"),
        (QueriesOutside, r"values: after 0 observations, query \[1.5\] is not a point of Box"),
        (AnswersOutside, "recommendation .* is not a point of"),
        (OverConfident, r"confidence leaves \[0, 1\]: 1.02"),
        (NegativeSpread, "std is negative"),
        (UsesTheGlobalGenerator, "repeatability: after 0 observations, asked again, query differs"),
        (LooksAtTheOthers, "independence of episodes: .*, of episodes begun without the rest, confidence differs"),
        (ObservesInPlace, "states: after 0 observations, after observe, query differs"),
        (KeepsEpisodesLast, "states: after 0 observations, the first dimension of every leaf must be 32 episodes"),
        (KeepsAnObject, "states: after 0 observations, .* not str"),
        (AnswersByPosition, "independence of episodes: after 1 observations, .*, recommendation differs"),
        (HasNoHorizon, "horizon: must be a whole number from 1 up, not 0"),
    ],
)
def test_a_broken_agent_fails(broken: type[Bisection], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_agent(broken(), EXACT)


def test_one_episode_checks_nothing() -> None:
    with pytest.raises(InvalidInput, match="n must be at least 2; got 1"):
        check_agent(Bisection(), EXACT, n=1)


@settings(max_examples=60, deadline=None)
@given(slope=st.floats(0.1, 4.0), intercept=st.floats(-3.0, 3.0), low=st.floats(-2.0, 4.0), most=st.floats(0.9, 1.0))
def test_below_the_lowest_threshold_no_more_is_shown_than_is_believed(
    slope: float, intercept: float, low: float, most: float
) -> None:
    """A correction that was fitted at stops once showed 0.5 before the first query, where 0.08 were right."""
    raw = torch.linspace(-8, 8, 641, dtype=torch.float64)
    numbers = (torch.full_like(raw, value) for value in (slope, intercept, most, low))
    shown = calibrated_confidence(torch.sigmoid(raw), ShownBy(*numbers))
    plain = torch.sigmoid(slope * raw + intercept).clamp_max(most)
    at_stops = raw >= low
    torch.testing.assert_close(shown[at_stops], plain[at_stops])
    assert bool((shown <= plain + 1e-9).all())
    far_below = raw < low - max(0.0, (slope - 1) * low + intercept)
    assert bool((shown[far_below] <= torch.sigmoid(raw[far_below]) + 1e-9).all())
    assert bool((shown.diff() >= -1e-9).all())
    assert float(shown.diff().max()) < 0.025 * max(slope, 2.0) / 4 + 1e-6  # no jump
