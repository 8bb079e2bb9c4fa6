"""``cicpe store``: what it prints, how it ends, and that bad input leaves nothing behind."""

import sqlite3
from pathlib import Path

import pytest

from cicpe.sessions.events import Told
from cicpe.sessions.stores import open_store
from commands import Run, assert_refused


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CICPE_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    file = tmp_path / "campaigns.db"
    opened = open_store(file)
    made = opened.create(name="titan", model="m", model_sha256="0" * 64, epsilon=0.1, delta=0.1)
    opened.append(made.id, Told(query=(0.5,), observation=(1.0,)), expected_version=0, key="k")
    opened.close()
    return file


def test_a_backup_is_made_checked_and_put_back(run: Run, store: Path, tmp_path: Path) -> None:
    checked = run("store", "check", "--store", store, "--json")
    assert (checked.code, checked.json) == (0, {"store": str(store), "campaigns": 1, "events": 1, "faults": []})
    assert "1 campaign with 1 entry, all whole." in run("store", "check", "--store", store).out
    made = run("store", "backup", tmp_path / "b.db", "--store", store, "--json")
    assert (made.code, made.json["campaigns"], made.json["faults"]) == (0, 1, [])
    assert_refused(run("store", "backup", tmp_path / "b.db", "--store", store), "file", "a new file")
    assert_refused(run("store", "restore", tmp_path / "b.db", "--store", store), "store", "--replace")
    replaced = run("store", "restore", tmp_path / "b.db", "--store", store, "--replace", "--json")
    assert (replaced.code, Path(replaced.json["kept"]).is_file()) == (0, True)
    assert run("store", "restore", tmp_path / "b.db").code == 0  # to the default store
    assert run("session", "list", "--json").json["campaigns"][0]["name"] == "titan"


def test_a_store_is_copied(run: Run, store: Path, tmp_path: Path) -> None:
    copied = run("store", "copy", store, tmp_path / "c.db", "--json").json
    assert (copied["campaigns"], copied["events"], copied["already_there"]) == (1, 1, 0)
    again = run("store", "copy", f"sqlite:///{store}", tmp_path / "c.db")
    assert (again.code, "0 campaigns with 0 entries copied (1 had been there before)." in again.out) == (0, True)


def test_damage_is_said_with_exit_code_one(run: Run, store: Path, tmp_path: Path) -> None:
    with sqlite3.connect(store) as file:
        file.execute("DELETE FROM cicpe_events")
    for words in (["check"], ["backup", tmp_path / "b.db"]):
        done = run("store", *words, "--store", store)
        assert done.code == 1
        assert "entries [0] are missing" in done.err
    assert_refused(run("store", "restore", tmp_path / "b.db"), "nothing was restored")


@pytest.mark.parametrize("words", [["check"], ["backup", "b.db"], ["copy", "nowhere.db", "c.db"], ["restore", "x.db"]])
def test_a_store_that_is_not_there(run: Run, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CICPE_STORE", "missing.db")
    assert_refused(run("store", *words), "a store that is there")
    assert list(tmp_path.iterdir()) == []


def test_no_password_is_shown(run: Run, store: Path, tmp_path: Path) -> None:
    for place in ("postgresql://me:s3cret@127.0.0.1:9/x", "postgresql://127.0.0.1:9/x?user=me&password=s3cret"):
        for words in (["copy", store, place], ["copy", place, tmp_path / "c.db"], ["check", "--store", place]):
            done = run("store", *words)
            assert done.code == 2
            assert "s3cret" not in done.err + done.out
