"""A session in units: people see theirs, the agent sees its own, and both are the same campaign."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from cicpe.agents.belief_agent import BeliefAgent
from cicpe.beliefs.network.belief import NetworkBelief
from cicpe.beliefs.network.memories.recurrent import RecurrentConfig
from cicpe.beliefs.network.network import NetworkConfig
from cicpe.beliefs.network.query_rules import make_actor
from cicpe.errors import Implausible, InvalidInput
from cicpe.problems import Problem, make_problem
from cicpe.sessions.events import read_event
from cicpe.sessions.session import Session
from cicpe.sessions.tables import read_table, table_of
from cicpe.training.config import TrainingConfig
from cicpe.training.loop import build_network
from cicpe.units import Units
from stopping import stopping_at

STEEL = make_problem("peak-2d")
HEARING = make_problem("psychometric-yes-no")
DOSE = make_problem("dose-toxicity")


def make_agent(problem: Problem) -> BeliefAgent:
    """An untrained network, which is as good as any here, and never stops."""
    config = TrainingConfig(network=NetworkConfig(memory=RecurrentConfig(hidden=12)))
    network = build_network(problem, config, torch.Generator().manual_seed(0)).eval().requires_grad_(False)
    actor = make_actor("ts", network.query_space, network.answer_space)
    return stopping_at(NetworkBelief(network, actor, 20), 2.0, problem.default_epsilon[0], query_spread=1.0)


def make_session(problem: Problem, units: Units | None = None) -> Session:
    return Session(
        make_agent(problem),
        problem.query_space,
        1,
        [],
        problem.default_epsilon[0],
        0.1,
        answer_space=problem.answer_space,
        units=problem.units if units is None else units,
    )


def test_a_session_in_units_is_the_same_campaign_in_coordinates() -> None:
    """The oracle: a session without units that is told, in coordinates, what was really set and read."""
    lab, plain = make_session(STEEL), make_session(STEEL, Units())
    units = STEEL.units
    for value in (312.0, 250.0, 405.5, 290.0):
        temperature, minutes = lab.ask().tolist()
        assert temperature in range(400, 1101, 5)
        assert minutes == round(minutes)
        plain.attach(units.query_coordinates((temperature, minutes)), units.observation_coordinates([value]))
        lab.tell(value)
        expected = units.answer_values(plain.recommendation.tolist())
        assert lab.recommendation.tolist() == pytest.approx(expected, rel=1e-5)
        assert lab.confidence == pytest.approx(plain.confidence, abs=1e-6)
        region = [units.answer_values(side) for side in plain.credible_region.T.tolist()]
        assert np.allclose(lab.credible_region, np.sort(np.array(region).T, axis=1), rtol=1e-5)


def test_the_log_is_in_units_and_makes_the_session_again() -> None:
    session = make_session(STEEL)
    session.tell("312 HV")
    session.tell(288, at={"temperature": 850})
    session.skip("the furnace is cold")
    session.correct(1, "310")
    logged = [event.model_dump(mode="json") for event in session.log]
    assert logged[0]["observation"] == [312.0]
    assert logged[1]["kind"] == "attached"
    assert logged[1]["query"][0] == 850.0
    again = make_session(STEEL).replay(read_event(json.loads(json.dumps(one))) for one in logged)
    assert again.status() == session.status()
    assert session.audit() == []
    assert session.status().units == STEEL.units


def test_undoing_opens_the_same_place_again() -> None:
    session = make_session(STEEL)
    session.tell(300)
    before = session.ask().tolist()
    session.tell(310, at={"time": 77})
    session.undo()
    assert session.ask().tolist() == before


def test_asking_by_name() -> None:
    session = make_session(STEEL)
    assert list(session.ask_by_name()) == ["temperature", "time"]
    assert list(session.ask_by_name().values()) == session.ask().tolist()
    assert session.is_open(session.ask())


@pytest.mark.parametrize(
    ("problem", "value", "words"),
    [
        (STEEL, "yes", "hardness must be a number from"),
        (STEEL, True, "hardness must be a number from"),
        (STEEL, float("nan"), "hardness must be a finite number"),
        (STEEL, [1.0, 2.0], "hardness must be 1 value"),
        (HEARING, "maybe", "heard must be yes or no"),
        (HEARING, 0.965, "heard must be yes or no"),
        (DOSE, "2/4", "toxicities must be a count of 3"),
        (DOSE, 2.5, "toxicities must be one of 0, 1, 2, 3"),
    ],
)
def test_the_wrong_kind_is_refused_by_name_and_changes_nothing(problem: Problem, value: object, words: str) -> None:
    session = make_session(problem)
    before = session.status()
    with pytest.raises(InvalidInput, match=words):
        session.tell(value)  # type: ignore[arg-type]
    assert session.status() == before


def test_a_slip_has_to_be_confirmed() -> None:
    session = make_session(STEEL)
    with pytest.raises(Implausible, match="hardness must be from"):
        session.tell(3120)
    session.tell(3120, confirm=True)
    assert session.history[0].observation == (3120.0,)


@pytest.mark.parametrize(("problem", "told"), [(HEARING, ["yes", "no", True]), (DOSE, ["2/3", 1, "0 of 3"])])
def test_words_are_taken_and_given_back(problem: Problem, told: list[object]) -> None:
    session = make_session(problem)
    for value in told:
        session.tell(value)  # type: ignore[arg-type]
    shown = [session.units.observation_words(step.observation) for step in session.history]
    assert shown == (["yes", "no", "yes"] if problem is HEARING else ["2/3", "1/3", "0/3"])


def test_settings_outside_are_refused_by_name() -> None:
    session = make_session(STEEL)
    with pytest.raises(InvalidInput, match="temperature must be from 400 °C to 1100 °C"):
        session.attach({"temperature": 1200, "time": 20}, 300)
    with pytest.raises(InvalidInput, match="did you mean time"):
        session.tell(300, at={"tme": 20})
    with pytest.raises(InvalidInput, match="settings have no names"):
        make_session(STEEL, Units()).tell(0.0, at={"time": 20})


def test_what_is_said_is_in_units() -> None:
    session = make_session(STEEL)
    assert "within 70 °C in temperature and 35 % in time" in session.reason.words
    limits = session.answer_limits
    assert limits is not None
    assert np.allclose(limits, [[400, 1100], [10, 240]])
    assert np.allclose(session.query_limits, limits)
    region = session.credible_region
    assert (region[:, 0] >= limits[:, 0] - 1e-6).all()
    assert (region[:, 1] <= limits[:, 1] + 1e-6).all()
    assert session.std.shape == (2,)
    assert (session.std > 0).all()


def test_a_table_goes_out_and_in(tmp_path) -> None:  # type: ignore[no-untyped-def]
    session, again = make_session(DOSE), make_session(DOSE)
    for value in ("0/3", "2/3", "3/3"):
        session.tell(value)
    file = tmp_path / "table.csv"
    file.write_text(table_of(session), encoding="utf-8")
    for query, value in read_table(file, again):
        again.attach(query, value)
    assert [step.query for step in again.history] == [step.query for step in session.history]
    assert again.recommendation.tolist() == session.recommendation.tolist()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("dose,toxicity\n1,0\n1,5,0\n", "line 3 must be as many cells as the header has, 2"),
        ("dose,toxicity,dose\n1,0,2\n", "column must be in the header, once"),
        (f"dose,toxicity\n{'1' * 200_000},0\n", "table must be a table that can be read"),
        ("dose,toxicity\n" + "1,0\n" * 3_000_000, "file must be a table of at most 10,000,000 bytes"),
        ("dose,toxicity\nhigh,0\n", "dose in line 2 must be a number"),
    ],
    ids=["a decimal comma", "a column twice", "a long cell", "a large file", "a word"],
)
def test_a_table_that_may_mean_something_else_is_refused(table: str, said: str, tmp_path: Path) -> None:
    session, file = make_session(DOSE), tmp_path / "table.csv"
    setting, measured = table_of(session).splitlines()[0].split(",")[1:3]
    file.write_text(table.replace("dose", setting).replace("toxicity", measured), encoding="utf-8")
    with pytest.raises(InvalidInput, match=said.replace("dose", setting)):
        list(read_table(file, session))


def test_a_pipe_in_the_place_of_a_table_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(InvalidInput, match="no plain file"):
        list(read_table(tmp_path / "pipe.csv", make_session(DOSE)))


def test_a_table_of_any_system_is_read(tmp_path: Path) -> None:
    session, file = make_session(DOSE), tmp_path / "table.csv"
    session.tell("2/3")
    for end in ("\n", "\r\n", "\r"):
        file.write_bytes(table_of(session).replace("\n", end).encode("utf-8-sig"))
        assert [value for _, value in read_table(file, session)] == ["2/3"]
