"""Sessions as logs of events: any interleaving is rebuilt bit for bit, corrected, undone, skipped, kept in a store."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from torch import Generator, Tensor

from cicpe.agents.base import Agent, Proposal
from cicpe.beliefs.network.belief import NetworkBelief
from cicpe.beliefs.network.memories.recurrent import RecurrentConfig
from cicpe.beliefs.network.network import NetworkConfig
from cicpe.beliefs.network.query_rules import make_actor
from cicpe.errors import InvalidInput, ModelError, SessionError
from cicpe.problems.binary_search import BinarySearch
from cicpe.sessions.campaign import Campaign, OtherQuery
from cicpe.sessions.events import Corrected, Told, Undone, in_force, read_event
from cicpe.sessions.session import Session
from cicpe.sessions.skipping import APART
from cicpe.sessions.status import Status
from cicpe.sessions.stores import Conflict, Store, open_store, sql
from cicpe.spaces import Box, Interval, Sphere
from cicpe.training.config import TrainingConfig
from cicpe.training.loop import build_network
from stopping import stopping_at

PROBLEM = BinarySearch(dim=2, noise=0.0)
HORIZON = 8


def make_core() -> NetworkBelief:
    """An untrained network whose confidence varies."""
    config = TrainingConfig(network=NetworkConfig(memory=RecurrentConfig(hidden=12)))
    network = build_network(PROBLEM, config, torch.Generator().manual_seed(0)).eval().requires_grad_(False)
    for head in network.critic.stop:
        head[-1].weight.mul_(20)  # type: ignore[operator, union-attr, index]
    return NetworkBelief(network, make_actor("ts", network.query_space, network.answer_space), HORIZON)


CORE = make_core()


def make_session(seed: int = 3, scale: float = 1.0, kappa: float = 2.0) -> Session:
    agent = stopping_at(CORE, kappa, 0.1, query_spread=scale)
    space = PROBLEM.answer_space
    return Session(agent, PROBLEM.query_space, 2, [0.0], 0.1, 0.1, seed, answer_space=space, typical_queries=5.0)


def rebuilt(session: Session, **options: Any) -> Session:
    """A new session with the exported log, by way of JSON text."""
    document = json.loads(json.dumps(session.export(), allow_nan=False))
    return make_session(document["seed"], **options).replay(read_event(event) for event in document["events"])


def bits(session: Session) -> dict[str, Any]:
    """All that is derived from a log, without the log's own length."""
    return session.status().model_dump(exclude={"version"})


# Any interleaving.

VALUES = st.lists(st.floats(-3, 3, width=32), min_size=2, max_size=2)
PLACES = st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=2)
SOMETIMES = 0.55
"""A threshold that is reached now and then."""


class Interleavings(RuleBasedStateMachine):
    """Asks, tells, corrects, undoes, skips and attaches in any order, beside what should be in force by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.options = {"scale": 1.0, "kappa": SOMETIMES}
        self.session = make_session(**self.options)
        self.before: list[dict[str, Any]] = []
        self.history: list[list[tuple[float, ...]]] = []

    def changed(self, before: dict[str, Any]) -> None:
        self.before.append(before)

    @precondition(lambda self: not self.session.stopped)
    @rule(values=VALUES)
    def tell(self, values: list[float]) -> None:
        before, asked = bits(self.session), tuple(self.session.ask().tolist())
        self.session.tell(values)
        assert self.session.history[-1].query == asked
        self.changed(before)

    @precondition(lambda self: not self.session.stopped)
    @rule()
    def skip(self) -> None:
        before, asked = bits(self.session), self.session.ask()
        self.session.skip("stuck")
        assert self.session.stopped or not np.array_equal(self.session.ask(), asked)
        self.changed(before)

    @precondition(lambda self: len(self.session.history) < HORIZON)
    @rule(place=PLACES, values=VALUES)
    def attach(self, place: list[float], values: list[float]) -> None:
        before = bits(self.session)
        self.session.attach(place, values)
        assert self.session.history[-1].query == tuple(place)
        self.changed(before)

    @precondition(lambda self: self.session.history)
    @rule(which=st.integers(0, 99), values=VALUES)
    def correct(self, which: int, values: list[float]) -> None:
        before, queries = bits(self.session), [step.query for step in self.session.history]
        step = which % len(queries) + 1
        self.session.correct(step, values)
        assert self.session.history[step - 1].observation == tuple(values)
        assert [step.query for step in self.session.history] == queries  # they were really made
        self.changed(before)

    @precondition(lambda self: self.before)
    @rule()
    def undo(self) -> None:
        self.session.undo()
        assert bits(self.session) == self.before.pop()

    @rule(values=st.sampled_from([[math.nan, 0.0], [1.0], "x", [1.0, math.inf], None]))
    def refused(self, values: Any) -> None:
        version = self.session.version
        with pytest.raises((InvalidInput, SessionError)):
            self.session.tell(values)
        assert self.session.version == version

    @rule()
    def fork(self) -> None:
        now, other = self.session.export(), self.session.fork()
        if len(other.history) < HORIZON:
            other.attach([0.5, 0.5], [1.0, 1.0])
        assert self.session.export() == now
        assert self.session.fork().export() == now

    @invariant()
    def is_rebuilt_from_its_log(self) -> None:
        again = rebuilt(self.session, **self.options)
        assert again.export() == self.session.export()
        assert again.audit() == []
        assert len(in_force(self.session.log)) == len(self.before)


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(
    max_examples=25, stateful_step_count=14, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_the_audit_finds_a_log_of_another_seed() -> None:
    """The negative control: the log alone does not make its queries."""
    session = make_session(seed=1)
    for _ in range(3):
        session.tell([1.0, -1.0])
    assert session.audit() == []
    other = make_session(seed=2).replay(session.log)
    assert other.history == session.history
    assert other.audit() == [0, 1, 2]


def test_a_log_that_cannot_have_happened_is_refused_without_a_trace() -> None:
    session = make_session()
    session.tell([1.0, 1.0])
    before = session.export()
    for wrong in (Undone(position=7), Corrected(step=4, observation=(1.0, 1.0))):
        with pytest.raises(SessionError):
            session.replay([wrong])
    with pytest.raises(SessionError, match=f"take {HORIZON} observations"):
        session.replay([Told(query=(0.0, 0.0), observation=(1.0, 1.0))] * HORIZON)
    assert session.export() == before


# Correcting and undoing.


def test_a_corrected_session_believes_what_one_told_rightly_believes() -> None:
    wrong, right = make_session(scale=0.0), make_session(scale=0.0)
    wrong.tell([9.0, 9.0])
    right.attach(wrong.history[0].query, [1.0, -1.0])
    for value in ([1.0, 1.0], [-1.0, 1.0]):
        wrong.tell(value)
        right.attach(wrong.history[-1].query, value)
    wrong.correct(1, [1.0, -1.0])
    assert wrong.recommendation.tolist() == right.recommendation.tolist()
    assert wrong.confidence == right.confidence
    assert wrong.history[0].first_observation == (9.0, 9.0)
    assert wrong.status().corrected == 1
    assert "1 corrected" in wrong.reason.words
    assert [event.kind for event in wrong.log] == ["told", "told", "told", "corrected"]


def test_a_second_correction_remembers_what_was_first_told() -> None:
    session = make_session()
    session.tell([1.0, 1.0])
    session.correct(1, [2.0, 2.0])
    session.correct(1, [3.0, 3.0])
    assert session.history[0].first_observation == (1.0, 1.0)
    session.undo()
    assert session.history[0].observation == (2.0, 2.0)


def test_minus_zero_is_another_value() -> None:
    session = make_session()
    session.tell([0.0, 1.0])
    session.correct(1, [-0.0, 1.0])
    assert math.copysign(1, session.history[0].observation[0]) == -1
    assert rebuilt(session).export() == session.export()


def test_undoing_a_tell_opens_the_same_query_again() -> None:
    session = make_session()
    session.tell([1.0, 1.0])
    asked = session.ask()
    session.tell([5.0, 5.0])
    session.undo()
    assert np.array_equal(session.ask(), asked)


def test_there_is_an_end_to_undoing() -> None:
    session = make_session()
    with pytest.raises(SessionError, match="nothing to undo"):
        session.undo()


@pytest.mark.parametrize("step", [0, 2, -1, 1.0, "1", None])
def test_only_steps_that_were_made_can_be_corrected(step: Any) -> None:
    session = make_session()
    session.tell([1.0, 1.0])
    with pytest.raises(InvalidInput) as caught:
        session.correct(step, [1.0, 1.0])
    assert caught.value.field == "step"


@pytest.mark.parametrize("values", [[math.nan, 1.0], [1.0], "x", [1.0, math.inf]])
def test_bad_values_are_refused_everywhere(values: Any) -> None:
    session = make_session()
    session.tell([1.0, 1.0])
    before = session.export()
    for act in (session.tell, lambda v: session.correct(1, v), lambda v: session.attach([0.0, 0.0], v)):
        with pytest.raises(InvalidInput) as caught:
            act(values)
        assert caught.value.field == "observation"
    assert session.export() == before


@pytest.mark.parametrize("query", [[math.nan, 0.0], [0.0], [1.5, 0.0], "x", [0.0, math.inf]])
def test_a_query_elsewhere_must_be_one(query: Any) -> None:
    session = make_session()
    with pytest.raises(InvalidInput) as caught:
        session.attach(query, [1.0, 1.0])
    assert caught.value.field == "query"


# Skipping.


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_a_skipped_query_is_kept_away_from(scale: float) -> None:
    session = make_session(scale=scale)
    skipped = []
    for _ in range(6):
        skipped.append(session.ask())
        session.skip("infeasible")
    session.tell([1.0, 1.0])
    for query in [session.history[0].query, session.ask()]:
        nearest = min(np.linalg.norm(np.asarray(query) - one) for one in skipped)
        assert nearest >= APART * math.sqrt(2) - 1e-6
    assert [skip.reason for skip in session.skips] == ["infeasible"] * 6


def test_skipping_ends_nowhere_near_an_endless_loop() -> None:
    session = Session(Fixed(), Interval(0.0, 1.0), 1, [], 0.1, 0.1)
    seen = set()
    for _ in range(60):  # more than there are places apart
        seen.add(float(session.ask()[0]))
        session.skip()
    assert len(seen) == 60


# Ending.


class Fixed(Agent):
    """Says the same at all times, except that it stops for a large sum of observations."""

    horizon = 4

    def begin(self, context: Tensor) -> Any:
        return torch.zeros(len(context), 1)

    def propose(self, state: Any, rng: Generator) -> Proposal:
        middle = torch.full_like(state, 0.5)
        return Proposal(middle[:, None], state[:, 0] > 10, middle, torch.full((len(state),), 0.7), 0.1 * middle)

    def update(self, state: Any, query: Tensor, observation: Tensor) -> Any:
        return state + observation


def fixed(**options: Any) -> Session:
    return Session(Fixed(), Box([0.0], [1.0]), 1, [], 0.1, 0.2, **options)


def test_the_reason_is_said_as_a_code_and_in_words() -> None:
    session = fixed()
    assert session.reason.code == "unsure"
    assert "0.700" in session.reason.words
    session.tell(11.0)
    assert session.reason.code == "confident"
    session.correct(1, 0.0)
    assert (session.reason.code, session.stopped) == ("unsure", False)
    for _ in range(3):
        session.tell(0.0)
    assert (session.reason.code, session.truncated) == ("horizon", True)


def test_a_measurement_that_was_under_way_at_the_stop_can_be_attached() -> None:
    session = fixed()
    session.tell(11.0)
    with pytest.raises(SessionError):
        session.skip()
    session.attach([0.3], -5.0)
    assert not session.stopped
    assert session.status().attached == 1


def test_the_credible_region_is_a_box_for_all_coordinates_at_once() -> None:
    region = fixed().credible_region
    # The normal quantile at 1 - 0.2 / 2, times a standard deviation of 0.05.
    assert region == pytest.approx(np.array([[0.5 - 1.2815515 * 0.05, 0.5 + 1.2815515 * 0.05]]), abs=1e-6)
    session = make_session()  # a network, whose posterior is normal and is cut to the box
    reach = 1.9599640 * session.std  # two coordinates share delta = 0.1
    low, high = session.recommendation - reach, session.recommendation + reach
    assert session.credible_region == pytest.approx(np.clip(np.stack([low, high], axis=1), -1, 1), abs=0.1)


class Skewed(Fixed):
    """Believes in an exponential distribution, whose quantiles are known."""

    def quantiles(self, state: Any, levels: Sequence[float], rng: Generator) -> Tensor:
        return torch.tensor([[[-math.log(1 - level) for level in levels]]])


def test_the_credible_region_is_of_the_beliefs_quantiles_and_holds_the_answer() -> None:
    session = Session(Skewed(), Box([0.0], [1.0]), 1, [], 0.1, 0.2)
    assert session.credible_region == pytest.approx(np.array([[-math.log(0.9), -math.log(0.1)]]), abs=1e-6)
    below = Session(Skewed(), Box([0.0], [1.0]), 1, [], 0.1, 0.9)  # from 0.598 on: above the answer of 0.5
    assert below.credible_region == pytest.approx(np.array([[0.5, -math.log(0.45)]]), abs=1e-6)
    assert session.status().decimals == (1,)  # 0.1 to 2.3


@pytest.mark.parametrize(
    ("space", "limits"),
    [
        (Box([0.0, -2.0], [1.0, 5.0]), [[0.0, 1.0], [-2.0, 5.0]]),
        (Interval(0.4, 0.6), [[0.4, 0.6]]),
        (Sphere(2), [[-1.0, 1.0]] * 2),
    ],
)
def test_the_limits_of_an_answer(space: Any, limits: list[list[float]]) -> None:
    found = fixed(answer_space=space).answer_limits
    assert found is not None
    assert found.tolist() == limits
    assert fixed().answer_limits is None


def test_expected_remaining_queries() -> None:
    assert fixed().expected_remaining_queries is None
    session = fixed(typical_queries=2.5)
    expected = [session.expected_remaining_queries]
    for _ in range(4):
        session.tell(0.0)
        expected.append(session.expected_remaining_queries)
    assert expected == [2.5, 1.5, 1.0, 1.0, 0.0]
    assert fixed(typical_queries=99.0).expected_remaining_queries == 4.0  # the horizon


def test_the_trace_ends_at_what_is_believed_now() -> None:
    session = make_session()
    for value in ([1.0, 1.0], [-1.0, 1.0], [0.5, -1.0]):
        session.tell(value)
    session.correct(2, [1.0, -1.0])
    trace = session.trace()
    assert len(trace) == 4
    assert trace[-1].confidence == session.confidence
    assert trace[-1].recommendation.tolist() == session.recommendation.tolist()
    assert trace[0].confidence == make_session().confidence


def test_the_status_survives_json() -> None:
    session = make_session()
    session.tell([1 / 3, 1.0])
    session.correct(1, [1 / 7, 1.0])
    session.skip("no")
    status = session.status()
    assert Status.model_validate_json(status.model_dump_json()) == status


# In a store.


class Tiny:
    """A model as a campaign sees it."""

    def __init__(self, sha256: str = "ab" * 32) -> None:
        self.fingerprint = sha256

    def session(self, epsilon: float, delta: float, *, seed: int = 0, stop: str = "", **context: float) -> Session:
        assert (epsilon, delta) == (0.1, 0.1)
        return make_session(seed)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "campaigns.db")


def begin(store: Store, name: str = "lab") -> Campaign:
    return Campaign.new(store, Tiny(), "tiny", name=name, epsilon=0.1, delta=0.1, seed=5)


def reopen(store: Store, name: str = "lab") -> Campaign:
    return Campaign.open(store, name, lambda reference: Tiny())


def test_a_campaign_is_what_its_store_says(store: Store) -> None:
    campaign = begin(store)
    campaign.tell([1.0, 1.0])
    campaign.skip("no")
    campaign.attach([0.1, 0.2], [1.0, -1.0])
    campaign.correct(1, [0.5, 0.5])
    campaign.undo()
    again = reopen(store)
    assert again.export() == campaign.export()
    assert again.record.version == 5
    assert again.export()["campaign"]["name"] == "lab"


def test_another_model_is_refused(store: Store) -> None:
    begin(store)
    with pytest.raises(ModelError, match=r"campaign lab was made with model tiny of sha256 abababababab"):
        Campaign.open(store, "lab", lambda reference: Tiny("cd" * 32))


def test_a_campaign_of_an_earlier_version_knows_its_model_by_the_earlier_fingerprint(store: Store) -> None:
    begin(store)
    model = Tiny("cd" * 32)
    model.earlier_fingerprint = "ab" * 32  # type: ignore[attr-defined]
    assert Campaign.open(store, "lab", lambda reference: model).record.name == "lab"


def test_a_changed_model_is_gone_on_with_knowingly_in_a_campaign_of_its_own(store: Store) -> None:
    first, changed = begin(store), Tiny("cd" * 32)
    first.tell([1.0, 1.0])
    with pytest.raises(ModelError, match="cicpe session adopt -c lab"):
        Campaign.open(store, "lab", lambda reference: changed)
    adopted = Campaign.adopt(store, "lab", changed, "tiny", "lab-2")
    assert (adopted.record.name, adopted.record.model_sha256) == ("lab-2", "cd" * 32)
    assert adopted.session.log == first.session.log
    adopted.tell([0.5, 0.5])
    again = Campaign.open(store, "lab-2", lambda reference: changed)
    assert (len(again.session.log), len(reopen(store).session.log)) == (2, 1)


def test_two_people_at_one_campaign_get_a_conflict_and_not_a_mix(store: Store) -> None:
    one, two = begin(store), reopen(store)
    one.tell([1.0, 1.0])
    before = two.session.export()
    with pytest.raises(Conflict, match="version 1, not 0") as caught:
        two.tell([2.0, 2.0])
    assert [stored.event for stored in caught.value.since] == [one.session.log[0]]
    assert two.session.export() == before
    assert len(two.refresh()) == 1
    two.tell([2.0, 2.0])
    one.refresh()
    assert one.export() == two.export()


def test_what_was_seen_is_what_is_answered(store: Store) -> None:
    one, two = begin(store), reopen(store)
    seen = two.session.version
    one.tell([1.0, 1.0])
    two.refresh()
    with pytest.raises(Conflict):
        two.tell([2.0, 2.0], expected_version=seen)
    stale = reopen(store)
    one.tell([1.0, 1.0])
    stale.tell([3.0, 3.0], expected_version=2)  # whoever decided had seen more than this object
    assert stale.session.version == 3


def test_a_value_may_name_its_query(store: Store) -> None:
    one, two = begin(store), reopen(store)
    asked = two.session.ask()
    for wrong in ({"step": 2}, {"query": asked + 0.1}, {"step": 1, "query": -asked}):
        with pytest.raises(OtherQuery, match="nothing was recorded"):
            one.tell([1.0, 1.0], **wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="query"):
        one.tell([1.0, 1.0], query=[1.0])
    one.tell([1.0, 1.0], step=1, query=asked.round(5))
    with pytest.raises(Conflict, match="version 1, not 0"):
        two.tell([2.0, 2.0], step=1)
    two.tell([2.0, 2.0], step=2)  # whoever decided had seen more than this object
    with pytest.raises(OtherQuery, match="step = 2 is not the open query of campaign lab, which is 3"):
        two.tell([2.0, 2.0], step=2)
    with pytest.raises(OtherQuery):
        two.skip("no", step=2)
    two.skip("no", step=3)
    assert [event.kind for event in reopen(store).session.log] == ["told", "told", "skipped"]


def test_a_tell_with_a_key_is_made_once(store: Store) -> None:
    one = begin(store)
    one.tell([1.0, 1.0], key="monday")
    one.tell([1.0, 1.0], key="monday")
    two = reopen(store)
    two.tell([1.0, 1.0], key="monday", expected_version=0)  # sent again after a lost answer
    assert (one.session.version, two.session.version) == (1, 1)
    with pytest.raises(InvalidInput, match="someone has already told") as caught:
        two.tell([2.0, 1.0], key="monday")
    assert caught.value.field == "key"
    with pytest.raises(InvalidInput):
        two.undo(key="monday")
    two.attach([0.1, 0.7], [1.0, 1.0], key="x")
    two.attach([0.1, 0.7], [1.0, 1.0], key="x")
    two.correct(1, [0.0, 0.0], key="y")
    two.correct(1, [0.0, 0.0], key="y")
    two.undo(key="z")
    two.undo(key="z")
    assert [event.kind for event in two.session.log] == ["told", "attached", "corrected", "undone"]


def test_the_same_key_at_the_same_time(store: Store) -> None:
    one, two = begin(store), reopen(store)
    original = store.keyed
    answers = iter([None])

    def keyed(campaign_id: str, key: str) -> Any:
        return next(answers, original(campaign_id, key))  # not there yet, when two looks for the first time

    one.tell([1.0, 1.0], key="k")
    store.keyed = keyed  # type: ignore[method-assign]
    two.tell([1.0, 1.0], key="k")
    assert two.session.version == 1
    assert two.export() == one.export()


def test_a_twin_that_was_faster_is_no_conflict(store: Store) -> None:
    """Sent twice at once: the second finds no key, then a newer version, which the first has just made."""
    one, two = begin(store), reopen(store)
    original = store.keyed
    one.tell([1.0, 1.0], key="k", expected_version=0)
    for named in ({"expected_version": 0}, {"step": 1}):
        answers = iter([None])
        store.keyed = lambda *words, answers=answers: next(answers, original(*words))  # type: ignore[method-assign, misc]
        two.tell([1.0, 1.0], key="k", **named)  # type: ignore[arg-type]
        two = reopen(store)
    assert two.session.version == 1
    with pytest.raises(Conflict):
        two.tell([1.0, 1.0], key="other", expected_version=0)


def test_a_store_that_fails_leaves_the_session_as_it_was(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = begin(store)
    campaign.tell([1.0, 1.0])
    before = campaign.session.export()

    def fails(*_: Any, **__: Any) -> Any:
        raise OSError("the disk is full")

    monkeypatch.setattr(store, "append", fails)
    with pytest.raises(OSError, match="full"):
        campaign.tell([1.0, 1.0])
    assert campaign.session.export() == before


def test_a_table_is_attached_whole_or_not_at_all(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sent again after half of it was written, that half would be there twice."""
    campaign, rows = begin(store), [([0.1 * i, 0.2], [1.0, -1.0]) for i in range(5)]
    insert, written = sql._insert, []

    def dies(*words: Any) -> None:
        written.append(words)
        insert(*words)
        if len(written) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(sql, "_insert", dies)
    with pytest.raises(KeyboardInterrupt):
        campaign.attach_all(rows)
    assert (campaign.session.version, reopen(store).session.version) == (0, 0)
    monkeypatch.undo()
    assert campaign.attach_all(rows) == 5
    assert [step.query for step in reopen(store).session.history] == [step.query for step in campaign.session.history]
    late = reopen(store)
    campaign.tell([1.0, 1.0])
    with pytest.raises(Conflict):
        late.attach_all(rows[:1])
    assert reopen(store).session.version == 6


def test_a_table_with_a_key_is_attached_once(store: Store) -> None:
    campaign, rows = begin(store), [([0.1 * i, 0.2], [1.0, -1.0]) for i in range(3)]
    late = reopen(store)
    for one in (campaign, campaign, late, reopen(store)):
        assert one.attach_all(rows, key="last year") == 3
        assert one.session.version == 3
    with pytest.raises(InvalidInput, match="a new key"):
        campaign.attach_all([([0.7, 0.7], [1.0, 1.0])], key="last year")
    with pytest.raises(Conflict):
        campaign.attach_all(rows, expected_version=1)
    assert campaign.attach_all([]) == 0
    assert reopen(store).session.version == 3


def test_a_fork_has_the_same_past_and_another_future(store: Store) -> None:
    one = begin(store)
    one.tell([1.0, 1.0])
    two = one.fork("what-if")
    assert two.session.ask().tolist() == one.session.ask().tolist()
    two.tell([-1.0, 1.0])
    assert (reopen(store).session.version, reopen(store, "what-if").session.version) == (1, 2)
