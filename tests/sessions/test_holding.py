"""The alarm holds a stop until someone releases it, and redundant queries come before a stop that is to be verified."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from cicpe.agents.base import Agent, Proposal
from cicpe.agents.verification import VerifyingAgent
from cicpe.errors import Implausible, InvalidInput, SessionError
from cicpe.problems.observations import Number, ObservationKinds, YesNo
from cicpe.sessions.campaign import Campaign
from cicpe.sessions.events import Released, Told, Verifying, read_event
from cicpe.sessions.session import Session
from cicpe.sessions.stores import open_store
from cicpe.spaces import Box


class Watched(Agent):
    """Stops for a large sum of observations; its alarm is raised by one above 100."""

    horizon = 5

    def begin(self, context: Tensor) -> Any:
        return torch.zeros(len(context), 2)

    def propose(self, state: Any, rng: Generator) -> Proposal:
        middle = torch.full_like(state[:, :1], 0.5)
        return Proposal(middle[:, None], state[:, 0] > 10, middle, torch.full((len(state),), 0.95), 0.1 * middle)

    def update(self, state: Any, query: Tensor, observation: Tensor) -> Any:
        return torch.stack([state[:, 0] + observation[:, 0], torch.maximum(state[:, 1], observation[:, 0])], dim=1)

    def p_value(self, state: Any) -> Tensor | None:
        return torch.where(state[:, 1] > 100, 0.001, 0.5)

    def verified(self, queries: int) -> Agent:
        return VerifyingAgent(self, queries) if queries else self

    def candidates(self, proposal: Proposal, n: int, rng: Generator) -> Tensor:
        return torch.rand(len(proposal.stop), n, 1, generator=rng)

    def contradictable(self, state: Any, queries: Tensor) -> Tensor:
        return queries[..., 0]  # most at the right


def watched(kinds: ObservationKinds | int = 1) -> Session:
    return Session(Watched(), Box([0.0], [1.0]), kinds, [], 0.1, 0.1)


# What is told.


def test_what_is_not_plausible_changes_nothing_until_it_is_confirmed() -> None:
    session = watched(ObservationKinds((Number(0.0, 2.0),)))
    with pytest.raises(Implausible, match="observation must be from 0 to 2"):
        session.tell(545)
    with pytest.raises(Implausible):
        session.attach([0.3], 545)
    assert session.version == 0
    session.tell(545, confirm=True)
    session.tell(1.0, confirm=True)
    with pytest.raises(Implausible):
        session.correct(2, -1.0)
    session.correct(2, -1.0, confirm=True)
    # Only what had to be is noted as confirmed.
    assert [event.confirmed for event in session.log] == [True, False, True]  # type: ignore[union-attr]
    assert [step.observation for step in session.history] == [(545.0,), (-1.0,)]


def test_a_stuck_instrument_is_asked_about_at_its_third_reading() -> None:
    session = watched(ObservationKinds((Number(0.0, 2.0, continuous=True),)))
    session.attach([0.1], 0.7)
    session.attach([0.9], 0.7)
    with pytest.raises(Implausible, match="is the instrument stuck"):
        session.tell(0.7)
    session.tell(0.7, confirm=True)
    assert session.log[-1].confirmed  # type: ignore[union-attr]
    session.tell(0.8)
    with pytest.raises(Implausible, match="not a coordinate of the query"):
        session.tell(0.5)


def test_yes_and_no_can_be_told_and_seven_cannot() -> None:
    session = watched(ObservationKinds((YesNo(-1.0, 1.0),)))
    session.tell("yes")
    session.tell(False)
    with pytest.raises(InvalidInput, match=r"observation must be yes or no \(1 or -1\); got 7"):
        session.tell(7, confirm=True)
    assert [step.observation for step in session.history] == [(1.0,), (-1.0,)]


def test_an_event_says_that_it_was_confirmed_only_where_it_was() -> None:
    plain, sure = (Told(query=(0.5,), observation=(1.0,), confirmed=confirmed) for confirmed in (False, True))
    assert "confirmed" not in plain.model_dump(mode="json")
    for event in (plain, sure, Released(reason="looked"), Verifying(queries=2)):
        assert read_event(event.model_dump(mode="json")) == event


# The hold.


def test_the_alarm_holds_the_stop_until_it_is_released() -> None:
    session = watched()
    session.tell(200.0)
    assert (session.held, session.stopped, session.in_prior) == (True, False, "no")
    assert session.reason.code == "held"
    assert "not stop before you have looked" in session.reason.words
    assert session.status().query is not None  # there is something left to do
    session.release("the unit is right")
    assert (session.held, session.stopped, session.truncated) == (False, True, False)
    assert session.status().released
    assert session.log[-1] == Released(reason="the unit is right")
    session.undo()
    assert (session.held, session.stopped) == (True, False)


def test_a_corrected_slip_needs_no_release() -> None:
    session = watched()
    session.tell(200.0)
    session.correct(1, 20.0)
    assert (session.held, session.stopped, session.reason.code) == (False, True, "confident")
    with pytest.raises(SessionError, match="nothing holds"):
        session.release()


def test_at_the_horizon_a_held_session_has_not_stopped_by_choice() -> None:
    session = watched()
    session.tell(200.0)
    for _ in range(4):
        session.tell(0.0)
    assert (session.stopped, session.truncated, session.held) == (True, True, True)
    assert session.reason.code == "horizon"
    session.release()
    assert (session.stopped, session.truncated) == (True, False)


def test_without_an_alarm_nothing_is_held() -> None:
    class Unwatched(Watched):
        def p_value(self, state: Any) -> Tensor | None:
            return None

    session = Session(Unwatched(), Box([0.0], [1.0]), 1, [], 0.1, 0.1)
    session.tell(200.0)
    assert (session.stopped, session.in_prior) == (True, "unknown")


# Redundant queries.


def test_a_stop_is_final_after_the_redundant_queries() -> None:
    session = watched()
    session.ask_to_verify(2)
    session.tell(3.0)
    assert not session.verifying
    session.tell(8.0)
    for _ in range(2):
        assert (session.stopped, session.verifying, session.reason.code) == (False, True, "verifying")
        assert float(session.ask()[0]) > 0.8  # the best of its candidates, not the agent's own
        session.tell(0.0)
    assert (session.stopped, session.verifying) == (True, False)
    assert session.status().verify == 2
    assert session.audit() == []
    assert watched().replay(session.log).status() == session.status()


def test_what_redundant_queries_expose_holds_the_stop() -> None:
    session = watched()
    session.ask_to_verify(1)
    session.tell(11.0)
    session.tell(200.0)
    assert (session.held, session.stopped) == (True, False)


def test_verification_can_be_asked_for_late_and_taken_back() -> None:
    session = watched()
    session.tell(11.0)
    assert session.stopped
    session.ask_to_verify(1)
    assert (session.stopped, session.verifying) == (False, True)
    session.undo()
    assert session.stopped


@pytest.mark.parametrize("queries", [-1, 101, 1.5, "two"])
def test_a_number_of_redundant_queries_that_cannot_be(queries: Any) -> None:
    session = watched()
    with pytest.raises(InvalidInput, match="verify must be a whole number from 0 to 100"):
        session.ask_to_verify(queries)
    assert session.version == 0


def test_an_agent_without_an_alarm_cannot_verify() -> None:
    class Bare(Watched):
        def verified(self, queries: int) -> Agent:
            return Agent.verified(self, queries)

    session = Session(Bare(), Box([0.0], [1.0]), 1, [], 0.1, 0.1)
    with pytest.raises(InvalidInput, match="verify must be 0: this agent has no alarm"):
        session.ask_to_verify(1)


# In a store.


class WatchedModel:
    """What a campaign needs of a model."""

    fingerprint = "f" * 64

    def session(
        self, epsilon: float, delta: float, *, seed: int = 0, stop: str = "each", verify: int = 0, **context: float
    ) -> Session:
        kinds = ObservationKinds((Number(0.0, 300.0),))
        return Session(Watched(), Box([0.0], [1.0]), kinds, [], epsilon, delta, seed)


def test_a_store_keeps_verification_release_and_confirmation(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "campaigns.db"))
    campaign = Campaign.new(store, WatchedModel(), "m", name="one", epsilon=0.1, delta=0.1)
    campaign.ask_to_verify(1)
    with pytest.raises(Implausible):
        campaign.tell(1000.0, key="a")
    for _ in range(2):  # with a key, once
        campaign.tell(1000.0, key="a", confirm=True)
    campaign.tell(5.0)
    assert campaign.session.held
    campaign.release("looked", key="b")
    opened = Campaign.open(store, "one", lambda reference: WatchedModel())
    assert opened.session.status() == campaign.session.status()
    assert opened.session.stopped
    assert [event.kind for event in opened.session.log] == ["verifying", "told", "told", "released"]
    store.close()
