"""A session: asked and told, refused without a trace, rebuilt from its log, and the same as the batch runner."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

import cicpe
from cicpe.agents.base import Agent, Proposal
from cicpe.agents.belief_agent import BeliefAgent
from cicpe.beliefs.network.belief import NetworkBelief
from cicpe.beliefs.network.memories.recurrent import RecurrentConfig
from cicpe.beliefs.network.network import NetworkConfig
from cicpe.beliefs.network.query_rules import make_actor
from cicpe.episodes.outcomes import run_episodes
from cicpe.errors import InvalidInput, SessionError
from cicpe.model import Model
from cicpe.problems import Problem, TaskBatch
from cicpe.problems.binary_search import BinarySearch
from cicpe.sessions.session import Session
from cicpe.spaces import Box
from cicpe.training.config import TrainingConfig
from cicpe.training.loop import build_network
from stopping import stopping_at

HORIZON = 8
PROBLEM = BinarySearch(dim=2, noise=0.0)


def make_agent(kappa: float = 2.0, scale: float = 1.0, problem: Problem = PROBLEM) -> BeliefAgent:
    """An untrained network, which is as good as any here; with kappa = 2 it never stops."""
    config = TrainingConfig(network=NetworkConfig(memory=RecurrentConfig(hidden=12)))
    network = build_network(problem, config, torch.Generator().manual_seed(0)).eval().requires_grad_(False)
    for head in network.critic.stop:
        head[-1].weight.mul_(20)  # type: ignore[operator, union-attr, index]
    actor = make_actor("ts", network.query_space, network.answer_space)
    return stopping_at(NetworkBelief(network, actor, HORIZON), kappa, 0.1, query_spread=scale)


def make_session(seed: int = 0, **options: Any) -> Session:
    return Session(make_agent(**options), PROBLEM.query_space, 2, [0.0], 0.1, 0.1, seed)


def everything(session: Session) -> tuple[Any, ...]:
    """All that can be seen of a session."""
    asked = None if session.stopped else session.ask().tolist()
    flags = session.stopped, session.truncated, session.confidence
    return asked, flags, session.recommendation.tolist(), session.std.tolist(), session.history


# Asking.


def test_asking_again_gives_the_same_query() -> None:
    session = make_session()
    for _ in range(3):
        assert session.ask().shape == (2,)
        assert np.array_equal(session.ask(), session.ask())
        session.tell([1.0, -1.0])


def test_what_is_handed_out_is_a_copy() -> None:
    session = make_session()
    before = everything(session)
    session.ask()[:] = 9
    session.recommendation[:] = 9
    session.std[:] = 9
    assert everything(session) == before


def test_the_history_says_what_was_asked_and_told() -> None:
    session = make_session()
    asked = []
    for told in ([1.0, -1.0], (0.5, 0.25), np.array([1, 0]), torch.tensor([2.0, 3.0]), [Decimal(1), True]):
        asked.append(tuple(session.ask().tolist()))
        session.tell(told)  # type: ignore[arg-type]
    assert [step.query for step in session.history] == asked
    told_back = [step.observation for step in session.history]
    assert told_back == [(1.0, -1.0), (0.5, 0.25), (1.0, 0.0), (2.0, 3.0), (1.0, 1.0)]


def test_one_number_may_be_told_bare() -> None:
    problem = BinarySearch(dim=1, noise=0.0)
    for told in (0.5, np.float32(0.5), np.array(0.5), torch.tensor(0.5), [0.5], [[0.5]]):
        session = Session(make_agent(problem=problem), problem.query_space, 1, [0.0], 0.1, 0.1)
        session.tell(told)  # type: ignore[arg-type]
        assert session.history[0].observation == (0.5,)


# Told what cannot be.


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        ([float("nan"), 0.0], "a finite number"),
        ([0.0, float("inf")], "a finite number"),
        ([0.0, -float("inf")], "a finite number"),
        ([0.0, 1e39], "a finite number"),  # infinite in single precision
        ([0.0, 10**400], "number"),
        ([1.0], r"2 value\(s\), one per observed quantity"),
        ([1.0, 2.0, 3.0], r"2 value\(s\), one per observed quantity"),
        ([], r"2 value\(s\)|a finite number"),
        (1.0, r"2 value\(s\)|a finite number"),
        ("high", r"2 value\(s\)|a finite number"),
        ("1.0 2.0", r"2 value\(s\)|a finite number"),
        (["1.0", "2.0"], r"2 value\(s\)|a finite number"),
        ([1.0, "2.0"], r"2 value\(s\)|a finite number"),
        ([1.0, None], r"number"),
        (None, r"2 value\(s\)"),
        ([1.0, 2j], r"2 value\(s\)|a finite number"),
        ({"y": 1.0}, r"2 value\(s\)|a finite number"),
        ([[1.0], [1.0, 2.0]], r"2 value\(s\)|a finite number"),
        (object(), r"2 value\(s\)|a finite number"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_observation_is_refused_without_a_trace(observation: Any, message: str) -> None:
    session, untouched = make_session(), make_session()
    session.tell([1.0, -1.0])
    untouched.tell([1.0, -1.0])
    before = everything(session)
    with pytest.raises(InvalidInput, match=message) as caught:
        session.tell(observation)
    assert caught.value.field == "observation"
    assert everything(session) == before
    session.tell([-1.0, 1.0])
    untouched.tell([-1.0, 1.0])
    assert everything(session) == everything(untouched)


class Overflows(Agent):
    """Squares what it sees, in single precision."""

    horizon = 5

    def begin(self, context: Tensor) -> Any:
        return torch.zeros(len(context), 1)

    def propose(self, state: Any, rng: Generator) -> Proposal:
        mean = state / (1 + state)
        return Proposal(
            mean[:, None], torch.zeros(len(state), dtype=torch.bool), mean, torch.full((len(state),), 0.5), mean
        )

    def update(self, state: Any, query: Tensor, observation: Tensor) -> Any:
        return state + observation.square()


def test_an_observation_that_overflows_the_agent_is_refused_without_a_trace() -> None:
    session = Session(Overflows(), Box([0.0], [1.0]), 1, [], 0.1, 0.1)
    session.tell(3.0)
    before = everything(session)
    with pytest.raises(InvalidInput, match="of a size that the model was trained for"):
        session.tell(1e30)
    assert everything(session) == before


class Breaks(Overflows):
    def propose(self, state: Any, rng: Generator) -> Proposal:
        if float(state[0, 0]) > 50:
            raise RuntimeError("broken")
        return super().propose(state, rng)


def test_an_agent_that_breaks_leaves_the_session_as_it_was() -> None:
    session = Session(Breaks(), Box([0.0], [1.0]), 1, [], 0.1, 0.1)
    session.tell(3.0)
    before = everything(session)
    with pytest.raises(RuntimeError, match="broken"):
        session.tell(10.0)
    assert everything(session) == before


# Rebuilt.


@pytest.mark.parametrize("scale", [0.0, 1.0])
@pytest.mark.parametrize("seed", [0, 7, -3, 2**62])
def test_a_session_is_a_function_of_its_log(seed: int, scale: float) -> None:
    rng = np.random.default_rng(0)
    session = make_session(seed, scale=scale)
    for _ in range(6):
        session.tell(rng.normal(size=2))
        again = make_session(seed, scale=scale)
        for step in session.history:
            assert tuple(again.ask().tolist()) == step.query
            again.tell(step.observation)
        assert everything(again) == everything(session)


def test_another_seed_asks_elsewhere_unless_greedy() -> None:
    assert not np.array_equal(make_session(1).ask(), make_session(2).ask())
    assert np.array_equal(make_session(1, scale=0.0).ask(), make_session(2, scale=0.0).ask())


def test_sessions_do_not_disturb_each_other_or_the_global_generator() -> None:
    before = torch.get_rng_state()
    alone, one, other = make_session(), make_session(), make_session(5)
    for told in ([1.0, 0.0], [0.0, 1.0]):
        one.tell(told)
        other.tell(told[::-1])
    for told in ([1.0, 0.0], [0.0, 1.0]):
        alone.tell(told)
    assert everything(one) == everything(alone)
    assert torch.equal(torch.get_rng_state(), before)


# Ending.


class Countdown(NamedTuple):
    time: Tensor


class StopsAt(Agent):
    """Stops after a set number of observations."""

    def __init__(self, when: int, horizon: int) -> None:
        self.when, self.horizon = when, horizon

    def begin(self, context: Tensor) -> Any:
        return Countdown(torch.zeros(len(context), 1))

    def propose(self, state: Any, rng: Generator) -> Proposal:
        answer = state.time / 10
        return Proposal(answer[:, None], state.time[:, 0] >= self.when, answer, torch.full((len(answer),), 0.7), answer)

    def update(self, state: Any, query: Tensor, observation: Tensor) -> Any:
        return Countdown(state.time + 1)


def play(agent: Agent) -> Session:
    session = Session(agent, Box([0.0], [1.0]), 1, [], 0.1, 0.1)
    while not session.stopped:
        session.tell(session.ask())
    return session


@pytest.mark.parametrize(
    ("when", "horizon", "steps", "truncated"), [(0, 5, 0, False), (3, 5, 3, False), (5, 5, 5, False), (9, 5, 5, True)]
)
def test_a_session_stops_or_is_truncated(when: int, horizon: int, steps: int, truncated: bool) -> None:
    session = play(StopsAt(when, horizon))
    assert len(session.history) == steps
    assert session.stopped
    assert session.truncated == truncated
    assert session.recommendation == pytest.approx([steps / 10])
    assert session.confidence == pytest.approx(0.7)


@pytest.mark.parametrize("when", [2, 99], ids=["stopped", "truncated"])
def test_nothing_is_asked_or_taken_after_the_end(when: int) -> None:
    session = play(StopsAt(when, 4))
    before = everything(session)
    with pytest.raises(SessionError, match="has stopped: read its recommendation"):
        session.ask()
    with pytest.raises(SessionError, match="was not taken; its recommendation stands"):
        session.tell(1.0)
    with pytest.raises(SessionError):
        session.tell("nonsense")  # type: ignore[arg-type]
    assert everything(session) == before


# The same as in a batch.


def test_a_session_does_what_the_batch_runner_does() -> None:
    # Noise-free and greedy: both see the same observations if, and only if, they make the same queries.
    agent = make_agent(scale=0.0)
    tasks = TaskBatch.draw(PROBLEM, 40, torch.Generator().manual_seed(1))
    never = run_episodes(agent, tasks, torch.Generator().manual_seed(0))
    middle = float(never.confidence.median())
    agent = make_agent(kappa=middle, scale=0.0)
    batch = run_episodes(agent, tasks, torch.Generator().manual_seed(0))
    assert len(set(batch.queries.tolist())) >= 3
    assert 0 < int(batch.stopped.sum()) < 40
    for row in range(40):
        task = tasks.select(torch.tensor([row]))
        session = Session(agent, PROBLEM.query_space, 2, task.context[0].tolist(), 0.1, 0.1)
        while not session.stopped:
            query = torch.from_numpy(session.ask())[None]
            session.tell(task.observe(query, torch.Generator().manual_seed(0))[0])
        assert len(session.history) == int(batch.queries[row])
        assert session.truncated != bool(batch.stopped[row])
        assert session.recommendation == pytest.approx(batch.recommendation[row].numpy(), abs=1e-5)
        assert session.confidence == pytest.approx(float(batch.confidence[row]), abs=1e-5)


# From a model.


@pytest.fixture(scope="module")
def model() -> Model:
    network = NetworkConfig(memory=RecurrentConfig(hidden=8)).model_dump()
    tiny = {"first_batch": 16, "batch": 16, "horizon": 6, "adapt_horizon": False, "network": network}
    return cicpe.train(BinarySearch(dim=1), updates=2, epsilon=(1.0, 2.0), calibration_episodes=256, settings=tiny)


def test_a_model_opens_sessions(model: Model) -> None:
    session = model.session(epsilon=1.5, delta=0.3, seed=4)
    assert (session.epsilon, session.delta, session.seed) == (1.5, 0.3, 4)
    while not session.stopped:
        session.tell(1.0 if session.ask()[0] < 0.3 else -1.0)
    assert len(session.history) <= 6
    assert session.recommendation.shape == (1,)


def test_context_is_given_by_name_and_has_a_default(model: Model) -> None:
    def first(**context: float) -> float:
        return model.session(epsilon=1.5, delta=0.3, **context).confidence  # type: ignore[arg-type]

    assert first() == first(noise=0.1)
    assert first() != first(noise=0.03)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda model: model.session(epsilon=0.5, delta=0.3), "epsilon"),
        (lambda model: model.session(epsilon=1.5, delta=0.001), "delta"),
        (lambda model: model.session(epsilon=1.5, delta=0.3, noise=0.3), "noise"),
        (lambda model: model.session(epsilon=1.5, delta=0.3, noice=0.05), "noice"),
    ],
    ids=["epsilon", "delta", "noise", "noice"],
)
def test_a_session_outside_the_model_is_refused(model: Model, call: Callable[[Model], Session], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        call(model)
    assert caught.value.field == field
