"""``cicpe session``: a whole campaign by its commands, two people at it, bad input, and what it imports."""

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import cicpe
from cicpe import zoo
from cicpe.cli.session_view import gauge, strip
from commands import Run, assert_refused

NEW = ["session", "new", "binary-search-6d", "--epsilon", "0.2", "--delta", "0.1"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user of our own."""
    monkeypatch.delenv("CICPE_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def session(run: Run) -> Run:
    """A command of ``cicpe session`` on a campaign that has begun."""
    assert run(*NEW, "--name", "titan").code == 0
    return lambda *words: run("session", *words)


def truth(query: list[float]) -> list[str]:
    """The answers of a hidden point without lies."""
    return ["1" if value < 0.25 else "-1" for value in query]


def test_yes_and_no_are_understood_and_seven_is_not(session: Run) -> None:
    refused = session("tell", *"777777")
    assert refused.code == 2
    assert "observation must be yes or no (1 or -1) in entry 1; got 7.0" in refused.err
    assert session("tell", *["yes", "no"] * 3).code == 0
    assert session("status", "--json").json["history"][0]["observation"] == [1, -1, 1, -1, 1, -1]


def test_nonsense_is_asked_for_twice_and_held_until_it_is_released(run: Run) -> None:
    new = ["session", "new", "gp-max-1d", "--epsilon", "0.2", "--delta", "0.1", "--noise", "0.05", "--verify", "1"]
    assert run(*new, "--json").json["verify"] == 1
    assert run("session", "verify", "0").code == 0
    assert run("session", "tell", "-0.012").code == 0
    doubted = run("session", "tell", "60.7")
    assert doubted.code == 2
    assert "--yes" in doubted.err
    held = run("session", "tell", "60.7", "--yes", "--json").json
    assert (held["held"], held["stopped"], held["reason"]["code"]) == (True, False, "held")
    assert run("session", "ask").code == 0  # there is something to do
    released = run("session", "release", "I have looked", "--json").json
    assert (released["stopped"], released["released"]) == (True, True)
    assert "released the stop: I have looked" in run("session", "log").out
    assert run("session", "release").code == 2


def test_a_whole_campaign(session: Run, home: Path) -> None:
    first = session("ask", "--json").json
    assert (first["campaign"], first["step"], first["stopped"]) == ("titan", 1, False)
    assert session("ask", "--json").json == first
    for _ in range(40):
        asked = session("ask", "--json")
        if asked.code:
            break
        told = session("tell", *truth(asked.json["query"]), "--json")
        assert told.code == 0
    assert (asked.code, asked.json["query"], asked.json["stopped"]) == (1, None, True)
    assert asked.json["reason"]["code"] == "confident"
    assert asked.json["recommendation"] == pytest.approx([0.25] * 6, abs=0.2)
    assert "has stopped" in session("ask").out
    refused = session("tell", *"111111")
    assert refused.code == 2
    assert "has stopped" in refused.err
    shown = session("status").out
    assert "titan" in shown
    assert "x6" in shown
    assert "confidence  [###" in shown
    assert (home / "data" / "cicpe" / "campaigns.db").exists()


def test_every_kind_of_change(session: Run) -> None:
    assert session("tell", "1,-1,1", "1 -1", "-1e0").code == 0
    assert session("tell", *"111111", "--key", "monday").code == 0
    again = session("tell", *"111111", "--key", "monday")
    assert (again.code, "nothing was added" in again.err) == (0, True)
    assert session("correct", 2, -1, 1, 1, 1, 1, 1).code == 0
    before = session("ask", "--json").json
    skipped = session("skip", "the valve stuck", "--json").json
    assert skipped["query"] != before["query"]
    undone = session("undo", "--json").json
    assert undone["query"] == before["query"]
    assert session("attach", "-0.5,0,0,0,0,0.5", "1,1,1,1,1,-1").code == 0
    shown = session("status").out
    assert "corrected, was 1 1 1 1 1 1" in shown
    assert "attached" in shown
    whole = session("status", "--json").json
    assert [step["source"] for step in whole["history"]] == ["told", "told", "attached"]
    assert whole["history"][0]["observation"] == [1, -1, 1, 1, -1, -1]
    assert (whole["version"], whole["corrected"], whole["attached"], whole["skipped"]) == (6, 1, 1, 0)
    log = session("log")
    assert log.out.count("undone") == 1
    assert "the valve stuck" in log.out
    kinds = [entry["event"]["kind"] for entry in session("log", "--json").json["events"]]
    assert kinds == ["told", "told", "corrected", "skipped", "undone", "attached"]


def test_an_export_has_everything(session: Run, home: Path) -> None:
    session("tell", *"111111")
    document = session("export").json
    assert document["campaign"]["model"] == "binary-search-6d"
    assert document["model_sha256"] == document["campaign"]["model_sha256"]
    assert [event["kind"] for event in document["events"]] == ["told"]
    assert document["status"]["query"] == session("ask", "--json").json["query"]
    assert session("export", "--out", home / "e.json").code == 0
    assert json.loads((home / "e.json").read_text()) == document


def test_which_campaign_is_meant(session: Run, run: Run) -> None:
    assert run(*NEW).code == 0
    second = run(*NEW, "--seed", 3, "--noise", 0.05, "--json").json
    assert second["campaign"] == "binary-search-6d-2"
    assert session("ask", "--json").json["id"] == second["id"]  # the last one used
    assert session("ask", "-c", "titan", "--json").json["campaign"] == "titan"
    assert session("ask", "--json").json["campaign"] == "titan"
    assert session("ask", "-c", second["id"][:6], "--json").json["campaign"] == "binary-search-6d-2"
    listed = session("list", "--json").json
    assert [one["name"] for one in listed["campaigns"]] == ["titan", "binary-search-6d", "binary-search-6d-2"]
    assert listed["campaigns"][2]["context"] == {"noise": 0.05}
    assert listed["last"] == second["id"]
    assert session("list").out.count("*") == 1
    wrong = session("ask", "-c", "vanadium")
    assert (wrong.code, "titan" in wrong.err) == (2, True)
    taken = run(*NEW, "--name", "titan")
    assert (taken.code, "name must be" in taken.err) == (2, True)


def test_a_store_of_ones_own(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(*NEW, "--store", home / "mine.db").code == 0
    assert run("session", "ask").code == 2  # the default store is empty
    assert run("session", "ask", "--store", home / "mine.db").code == 0
    monkeypatch.setenv("CICPE_STORE", f"sqlite:///{home / 'mine.db'}")
    assert run("session", "ask").code == 0


def test_two_people_at_one_campaign(session: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session("ask")
    with monkeypatch.context() as someone:
        someone.setenv("XDG_STATE_HOME", str(home / "someone else"))
        session("ask")
        assert session("tell", *"111111").code == 0
    conflict = session("tell", *"111111")
    assert conflict.code == 2
    assert "version 1, not 0" in conflict.err
    assert "told (1, 1, 1, 1, 1, 1)" in conflict.err
    assert session("log", "--json").json["events"][1:] == []
    session("ask")
    assert session("tell", *"111111").code == 0
    assert session("tell", *"111111", "--version", 1).code == 2


# The query that a value answers.


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whose state folder cannot be written."""
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/state")


def test_a_value_names_the_step_that_it_answers(session: Run) -> None:
    for words in (["1:", *"111111"], ["1:1,1,1", "1", "1", "1"], [*"111111", "--step", "1"], [*"111111", "-s", "1"]):
        assert session("tell", *words).code == 0
        assert session("undo").code == 0
    asked = session("ask", "--json").json
    place = ",".join(f"{value:.4g}" for value in asked["query"])
    assert session("tell", *"111111", "--query", place).code == 0
    for wrong in (["1:", *"111111"], ["3:", *"111111"], [*"111111", "-s", "3"], [*"111111", "--query", place]):
        refused = session("tell", *wrong)
        assert refused.code == 2
        assert "is not the open query of campaign titan" in refused.err
    for wrong in (["x:", *"111111"], ["2:", *"111111", "-s", "3"], [*"111111", "--query", "1"], ["2:"]):
        assert session("tell", *wrong).code == 2
    assert session("status", "--json").json["version"] == 9


def test_without_a_memory_a_value_has_to_name_its_step(run: Run, forgetful: None) -> None:
    """Today's guard was silently off: what someone else told in between was not noticed."""
    began = run(*NEW, "--name", "titan")
    assert began.code == 0
    assert "cannot be remembered" in began.err
    assert "cicpe session tell 1: VALUE" in began.err
    assert run("session", "ask").code == 0
    for words in (["tell", *"111111"], ["skip", "stuck"], ["undo"]):
        refused = run("session", *words)
        assert refused.code == 2
        assert "which you have not seen here. query 1 of titan is open" in refused.err
    assert run("session", "tell", "1:", *"111111").code == 0  # someone else
    late = run("session", "tell", "1:", *"111111")
    assert (late.code, "step = 1 is not the open query" in late.err) == (2, True)
    assert run("session", "skip", "stuck", "-s", "2").code == 0
    assert run("session", "undo", "--version", "2").code == 0
    assert run("session", "status", "--json").json["version"] == 3


def test_a_step_that_is_elsewhere_by_now_is_noticed(session: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a skip the open query has the same number and is another."""
    session("ask")
    with monkeypatch.context() as someone:
        someone.setenv("XDG_STATE_HOME", str(home / "someone else"))
        assert session("skip", "stuck", "-s", "1").code == 0
    refused = session("tell", "1:", *"111111")
    assert (refused.code, "query = (" in refused.err) == (2, True)
    session("ask")
    assert session("tell", "1:", *"111111").code == 0


def test_a_correction_is_of_the_measurement_that_was_seen(
    session: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an undo and a skip, a step of the same number is another measurement."""
    session("ask")
    session("tell", *"111111")
    with monkeypatch.context() as someone:
        someone.setenv("XDG_STATE_HOME", str(home / "someone else"))
        for words in (["undo", "--version", "1"], ["skip"], ["tell", *"111111"]):
            session("ask")
            assert session(*words).code == 0
    refused = session("correct", "1", *"111111")
    assert (refused.code, "another measurement by now" in refused.err) == (2, True)
    assert [entry["event"]["kind"] for entry in session("log", "--json").json["events"]][-1] == "told"
    session("ask")
    assert session("correct", "1", "yes", *"11111").code == 0


def test_a_campaign_named_after_another_does_not_take_its_values(session: Run, run: Run) -> None:
    titan = session("list", "--json").json["campaigns"][0]["id"]
    taken = run(*NEW, "--name", titan)
    assert (taken.code, "name must be" in taken.err) == (2, True)
    assert run(*NEW, "--name", titan[:8]).code == 0
    refused = session("tell", *"111111", "-c", titan[:8], "-s", "1")
    assert (refused.code, "may mean several" in refused.err) == (2, True)
    for reference in (titan, f"id:{titan[:8]}"):
        told = session("tell", *"111111", "-c", reference, "--json")
        assert (told.code, told.json["campaign"]) == (0, "titan")
    assert session("status", "-c", f"name:{titan[:8]}", "--json").json["version"] == 0


def test_a_reason_that_is_not_utf8_is_refused(session: Run) -> None:
    refused = session("skip", b"\xff".decode("utf-8", "surrogateescape"))
    assert (refused.code, "UTF-8" in refused.err) == (2, True)
    assert session("log", "--json").json["events"] == []


def test_a_log_with_a_hole_is_refused(session: Run, home: Path) -> None:
    for _ in range(2):
        assert session("tell", *"111111").code == 0
    with sqlite3.connect(home / "data" / "cicpe" / "campaigns.db") as file:
        file.execute("DELETE FROM cicpe_events WHERE position = 0")
    for words in (["tell", *"111111"], ["status"], ["log"], ["export"]):
        refused = session(*words)
        assert refused.code == 2
        assert "entries [0] are missing" in refused.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tell", "1"], "observation must be"),
        (["tell", "1", "nan", "1", "1", "1", "1"], "observation"),
        (["tell", "1", "-inf", "1", "1", "1", "1"], "yes or no (1 or -1)"),
        (["tell", "1", "up", "1", "1", "1", "1"], "observation must be"),
        (["tell", "--jsn", "1"], "--jsn"),
        (["tell"], "VALUE"),
        (["correct", "1", "1"], "step must be"),
        (["correct", "first", "1"], "not a whole number"),
        (["attach", "0,0", "1,1,1,1,1,1"], "query"),
        (["attach", "9,0,0,0,0,0", "1,1,1,1,1,1"], "query"),
        (["undo"], "nothing to undo"),
        (["new", "binary-search-6d", "--epsilon", "9", "--delta", "0.1"], "epsilon"),
        (["new", "binary-search-6d", "--epsilon", "0.2", "--delta", "0.1", "--stop", "soon"], "stop"),
        (["new", "binary-search-6d", "--epsilon", "0.2", "--delta", "0.1", "--context", "noise"], "context"),
        (["new", "binary-search-6d", "--epsilon", "0.2", "--delta", "0.1", "--context", "heat=3"], "heat"),
        (["new", "binary-search-6d", "--epsilon", "0.2", "--delta", "0.1", "--name", "a b"], "name"),
        (["new", "nothing", "--epsilon", "0.2", "--delta", "0.1"], "model"),
        (["list", "--store", "mysql://x"], "store"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_changes_nothing(session: Run, words: list[str], message: str) -> None:
    before = session("list", "--json").out
    done = session(*words)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
    assert done.out == ""
    assert session("list", "--json").out == before


def test_the_noise_that_is_taken_is_shown(run: Run) -> None:
    begun = run(*NEW, "--name", "quiet")
    assert "noise is taken to be 0.1" in begun.err
    assert ", noise 0.1" in run("session", "status").out
    named = run(*NEW, "--name", "loud", "--noise", "0.05")
    assert "taken to be" not in named.err
    assert ", noise 0.05" in run("session", "status").out


def test_a_model_that_changed_is_refused(run: Run, home: Path) -> None:
    folder = home / "model"
    shutil.copytree(zoo.folder("binary-search-6d"), folder)
    assert run("session", "new", folder, "--epsilon", 0.2, "--delta", 0.1).code == 0
    assert run("session", "tell", *"111111").code == 0
    shutil.rmtree(folder)
    shutil.copytree(zoo.folder("binary-search-8d"), folder)
    changed = run("session", "tell", *"111111")
    assert changed.code == 2
    assert "sha256" in changed.err


def test_an_edited_config_stops_a_campaign_until_it_is_adopted(run: Run, home: Path) -> None:
    folder = home / "model"
    shutil.copytree(zoo.folder("binary-search-6d"), folder)
    assert run("session", "new", folder, "--epsilon", "0.2", "--delta", "0.1", "--name", "titan").code == 0
    config = json.loads((folder / "config.json").read_text())
    config["default_context"] = [0.05]
    del config["files"]["config.json"]
    (folder / "config.json").write_text(json.dumps(config))
    refused = run("session", "status")
    assert_refused(refused, "put the first one back", "cicpe session adopt -c titan")
    adopted = run("session", "adopt", "-c", "titan", "--json")
    assert (adopted.code, adopted.json["campaign"]) == (0, "titan-2")
    assert run("session", "status", "-c", "titan-2").code == 0
    assert run("session", "status", "-c", "titan").code == 2


@pytest.mark.parametrize(("name", "epsilon"), [("binary-search-6d", 0.2), ("best-arm-5d", 0.02), ("gp-max-1d", 0.2)])
def test_weights_that_overflow_are_refused_and_leave_nothing(run: Run, home: Path, name: str, epsilon: float) -> None:
    model = cicpe.load(name)
    for weights in model.belief.tensors().values():
        weights.mul_(1e30).nan_to_num_()
    folder = model.save(home / "model")
    asked = ["--epsilon", str(epsilon), "--delta", "0.1"]
    assert_refused(run("session", "new", folder, *asked), "is not a number")
    assert run("session", "list", "--json").json["campaigns"] == []
    for command in ("evaluate", "certify"):
        assert_refused(run(command, folder, *asked, "--episodes", "20"), "is not a number")
    assert not (folder / "certificate.json").exists()


def test_what_was_seen_is_shown_without_the_model(session: Run, home: Path) -> None:
    code = (
        "import sys; from cicpe.cli.main import main\n"
        "for words in (['ask'], ['list'], ['log']):\n"
        "    assert main(['session', *words]) == 0\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    (home / "state" / "cicpe" / "sessions.json").write_text("{broken")
    assert session("ask", "--json").json["step"] == 1  # the only campaign there is, and the model again


def test_bars() -> None:
    assert gauge(0.0, 1.0).count("#") == 0
    assert gauge(1.0, 0.9).count("#") == 40
    assert strip(0.0, 0.5, 1.0, (0.0, 1.0)) == "=" * 20 + "o" + "=" * 20
    assert strip(-5.0, -5.0, -4.0, (0.0, 1.0)) == "o" + "." * 40
    assert strip(1.0, 1.0, 1.0, (1.0, 1.0)).count("o") == 1


def test_the_status_has_the_digits_of_its_interval_and_says_where_it_stops(run: Run, home: Path) -> None:
    assert run("session", "new", "gp-max-1d", "--epsilon", 0.2, "--delta", 0.1, "--noise", 0.05).code == 0
    assert run("session", "tell", "-0.012").code == 0
    now = run("session", "status", "--json").json
    (low, high), decimals = now["credible_region"][0], now["decimals"]
    assert decimals == [1]
    shown = run("session", "status").out
    assert f"{now['recommendation'][0]:.1f}   {low:.1f} to {high:.1f}" in shown
    assert "90 % credible interval" in shown
    assert "0.9 asked for" in shown
