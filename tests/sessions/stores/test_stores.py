"""Stores: the conformance suite on a file and on a real server, what is told of faults, kills and crowds."""

import fcntl
import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import ValidationError

import cicpe
from cicpe.errors import InvalidInput
from cicpe.sessions.campaign import Campaign
from cicpe.sessions.events import Event, Skipped, Told
from cicpe.sessions.stores import Store, StoredEvent, StoreError, default_store, open_store
from cicpe.sessions.stores import sqlite as sqlite_store
from cicpe.sessions.stores.schema import VERSION_TABLE, metadata
from cicpe.sessions.stores.sql import SqlStore
from cicpe.testing.stores import check_store
from commands import REPOSITORY

BENCHMARK = REPOSITORY / "benchmarks" / "campaigns.py"
EVENT = Told(query=(0.5,), observation=(1.0,))


def new(store: Store, name: str = "a") -> str:
    return store.create(name=name, model="m", model_sha256="0" * 64, epsilon=0.1, delta=0.1).id


def sql(store: Store) -> SqlStore:
    assert isinstance(store, SqlStore)
    return store


# Conformance.


def test_stores_conform(place: str) -> None:
    check_store(lambda: open_store(place))


class Wrapped:
    """A store that passes everything on; what is broken below is broken in one way."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class ForgetsKeys(Wrapped):
    def append(self, campaign_id: str, event: Event, *, expected_version: int, key: str | None = None) -> StoredEvent:
        return self.inner.append(campaign_id, event, expected_version=expected_version)


class TakesAnyVersion(Wrapped):
    def append(self, campaign_id: str, event: Event, *, expected_version: int, key: str | None = None) -> StoredEvent:
        now = self.inner.find(campaign_id).version
        return self.inner.append(campaign_id, event, expected_version=now, key=key)


class AppendsOneByOne(Wrapped):
    def append_all(
        self, campaign_id: str, events: Sequence[Event], *, expected_version: int, key: str | None = None
    ) -> list[StoredEvent]:
        numbered = enumerate(events, start=expected_version)
        return [self.inner.append(campaign_id, event, expected_version=version) for version, event in numbered]


class Rounds(Wrapped):
    def events(self, campaign_id: str, since: int = 0) -> Sequence[StoredEvent]:
        def rounded(stored: StoredEvent) -> StoredEvent:
            query = getattr(stored.event, "query", None)
            short = {} if query is None else {"query": tuple(round(value, 12) for value in query)}
            return stored.model_copy(update={"event": stored.event.model_copy(update=short)})

        return [rounded(stored) for stored in self.inner.events(campaign_id, since)]


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (ForgetsKeys, "idempotency"),
        (TakesAnyVersion, "append|conflict"),
        (AppendsOneByOne, "append_all"),
        (Rounds, "events come back"),
    ],
)
def test_the_suite_finds_broken_stores(broken: type[Wrapped], promise: str, tmp_path: Path) -> None:
    """The negative control."""
    with pytest.raises(AssertionError, match=promise):
        check_store(lambda: broken(open_store(tmp_path / "a.db")))  # type: ignore[arg-type, return-value]


# The tables.


def test_the_migrations_make_the_schema(place: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext

    store = sql(open_store(place))
    with store.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE, "compare_type": True})
        assert compare_metadata(context, metadata) == []
    store.close()


def test_many_can_open_a_new_store_at_once(place: str) -> None:
    failures: list[BaseException] = []

    def opens() -> None:
        try:
            open_store(place).close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=opens) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_store_of_a_newer_version_is_refused_and_left_alone(place: str) -> None:
    store = sql(open_store(place))
    with store._writing() as connection:
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    store.close()
    with pytest.raises(StoreError, match="newer version of cicpe"):
        open_store(place)


# SQLite.


@pytest.mark.parametrize(
    ("version", "fixed"),
    [
        ((3, 40, 1), False),
        ((3, 44, 5), False),
        ((3, 44, 6), True),
        ((3, 45, 0), False),
        ((3, 50, 6), False),
        ((3, 50, 7), True),
        ((3, 51, 0), False),
        ((3, 51, 2), False),
        ((3, 51, 3), True),
        ((3, 52, 0), True),
        ((4, 0, 0), True),
    ],
)
def test_which_sqlite_has_the_fix(version: tuple[int, int, int], fixed: bool) -> None:
    assert sqlite_store.has_wal_fix(version) == fixed


@pytest.mark.parametrize(("fixed", "journal"), [(True, "wal"), (False, "delete")])
def test_sqlite_is_set_to_keep_what_it_acknowledged(
    fixed: bool, journal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for before in (not fixed, fixed):  # the second time over what the other kind of SQLite has left
        monkeypatch.setattr(sqlite_store, "has_wal_fix", lambda version, before=before: before)
        store = sql(open_store(tmp_path / "a.db"))
        with store.engine.connect() as connection:
            found = {
                name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")
            }
        store.close()
    assert found == {"journal_mode": journal, "synchronous": 2}


def test_a_writer_waits_for_another_program(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a.db")
    campaign = new(store)
    holder = sqlite3.connect(tmp_path / "a.db", isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN EXCLUSIVE")
    threading.Timer(0.5, lambda: holder.execute("COMMIT")).start()
    assert store.append(campaign, EVENT, expected_version=0).position == 0


def test_a_store_held_for_too_long_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "PATIENCE", 0.1)
    store = open_store(tmp_path / "a.db")
    campaign = new(store)
    holder = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="nothing was recorded"):
        store.append(campaign, EVENT, expected_version=0)
    holder.execute("COMMIT")
    assert store.append(campaign, EVENT, expected_version=0).position == 0


def test_a_stranger_at_the_folder_holds_nobody_up_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock on the folder is a courtesy among writers: whoever holds it for ever is not waited for."""
    monkeypatch.setattr(sqlite_store, "TURN", 0.3)
    store = open_store(tmp_path / "a.db")
    campaign = new(store)
    stranger = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(stranger, fcntl.LOCK_EX)
    threads, began = threading.active_count(), time.monotonic()
    for version in range(20):
        assert store.append(campaign, EVENT, expected_version=version).position == version
    assert 0.3 <= time.monotonic() - began < 10  # waited for once, and then no more
    assert threading.active_count() <= threads + 1
    os.close(stranger)
    until = time.monotonic() + 10
    while sqlite_store._strangers and time.monotonic() < until:
        time.sleep(0.01)
    assert not sqlite_store._strangers
    assert store.append(campaign, EVENT, expected_version=20).position == 20


def test_a_stranger_and_a_held_file_are_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "PATIENCE", 0.1)
    store = open_store(tmp_path / "a.db")
    campaign = new(store)
    stranger = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(stranger, fcntl.LOCK_EX)
    holder = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="nothing was recorded"):
        store.append(campaign, EVENT, expected_version=0)
    os.close(stranger)


def test_a_row_that_another_program_holds_is_a_clear_error(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from cicpe.sessions.stores import postgres as postgres_store

    monkeypatch.setattr(postgres_store, "PATIENCE", 0.3)
    store, other = open_store(database), sa.create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    campaign = new(store)
    with other.begin() as connection:
        connection.execute(sa.text("UPDATE cicpe_campaigns SET version = version"))
        with pytest.raises(StoreError, match="nothing was recorded"):
            store.append(campaign, EVENT, expected_version=0)
    assert store.append(campaign, EVENT, expected_version=0).position == 0
    store.close()
    other.dispose()


@pytest.mark.parametrize("content", [b"not a database at all, but text" * 50, b"SQLite format 3\0" + b"\xff" * 4000])
def test_a_file_that_is_no_store_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes(content)
    with pytest.raises(StoreError, match=r"a\.db"):
        open_store(tmp_path / "a.db")
    assert (tmp_path / "a.db").read_bytes() == content


def test_a_damaged_event_is_a_clear_error(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a.db")
    campaign = new(store)
    store.append(campaign, EVENT, expected_version=0)
    with sqlite3.connect(tmp_path / "a.db") as file:
        file.execute("""UPDATE cicpe_events SET payload = '{"kind": "told", "query": [NaN]}'""")
    with pytest.raises(StoreError, match="damaged event, entry 0"):
        store.events(campaign)


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_missing_event_is_noticed(place: str, gone: int) -> None:
    """A hole, or an end that was cut off: what follows from the rest would be another campaign."""
    store = sql(open_store(place))
    campaign = new(store)
    for version in range(3):
        store.append(campaign, EVENT, expected_version=version)
    with store._writing() as connection:
        connection.execute(sa.text(f"DELETE FROM cicpe_events WHERE position = {gone}"))
    with pytest.raises(StoreError, match=rf"damaged: campaign a has 3 entries, but entries \[{gone}\] are missing"):
        store.events(campaign)
    with pytest.raises(StoreError, match="missing"):
        store.events(campaign, since=gone)
    assert len(store.events(campaign, since=gone + 1)) == 2 - gone
    store.close()


def test_an_event_too_many_is_noticed(place: str) -> None:
    store = sql(open_store(place))
    campaign = new(store)
    store.append(campaign, EVENT, expected_version=0)
    with store._writing() as connection:
        connection.execute(sa.text("UPDATE cicpe_campaigns SET version = 0"))
    with pytest.raises(StoreError, match="are there all the same"):
        store.events(campaign)
    store.close()


def test_an_entry_that_is_no_json_is_a_clear_error(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a.db")
    campaign = new(store)
    store.append(campaign, EVENT, expected_version=0)
    with sqlite3.connect(tmp_path / "a.db") as file:
        file.execute("UPDATE cicpe_events SET payload = '{'")
    with pytest.raises(StoreError, match="damaged entry"):
        store.events(campaign)


# Words.

UNWRITABLE = ["\udcff", "a\ud800b", "a\nb", "\x1b[2J", "\x00", "\x85"]


@pytest.mark.parametrize("text", UNWRITABLE, ids=ascii)
def test_words_that_cannot_be_shown_are_refused(place: str, text: str) -> None:
    store = open_store(place)
    campaign = new(store)
    about = {"model_sha256": "0" * 64, "epsilon": 0.1, "delta": 0.1}
    with pytest.raises(InvalidInput, match="key"):
        store.append(campaign, EVENT, expected_version=0, key=f"k{text}")
    with pytest.raises(InvalidInput, match="model"):
        store.create(name="b", model=f"m{text}", **about)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="context"):
        store.create(name="b", model="m", context={f"c{text}": 1.0}, **about)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="UTF-8"):
        Skipped(query=(1.0,), reason=text)
    assert store.get(campaign).version == 0
    store.close()


def test_words_that_an_older_version_took_can_be_read(place: str) -> None:
    store = sql(open_store(place))
    campaign = new(store)
    store.append(campaign, Skipped(query=(1.0,), reason="stuck"), expected_version=0)
    with store._writing() as connection:
        payload = json.dumps({"kind": "skipped", "query": [1.0], "reason": "stuck \ud800\x1b"})
        connection.execute(sa.text("UPDATE cicpe_events SET payload = :payload"), {"payload": payload})
    (stored,) = store.events(campaign)
    assert isinstance(stored.event, Skipped)
    assert stored.event.reason == "stuck ??"
    store.close()


# Places.


def test_a_file_may_be_given_as_an_address(tmp_path: Path) -> None:
    campaign = new(open_store(f"sqlite:///{tmp_path / 'a.db'}"))
    assert open_store(tmp_path / "a.db").find("a").id == campaign


def test_the_default_is_a_file_in_the_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CICPE_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_store() == str(tmp_path / "cicpe" / "campaigns.db")
    monkeypatch.setenv("CICPE_STORE", "elsewhere.db")
    assert default_store() == "elsewhere.db"


@pytest.mark.parametrize("place", ["mysql://here/there", "http://x"])
def test_other_addresses_are_refused(place: str) -> None:
    with pytest.raises(InvalidInput, match="store"):
        open_store(place)


def test_a_server_that_is_not_there_is_a_clear_error_without_the_password() -> None:
    with pytest.raises(StoreError, match="failed, nothing was read") as caught:
        open_store("postgresql://me:secret@127.0.0.1:9/none")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "place",
    [
        "postgresql://me:s3cret@127.0.0.1:9/none",
        "postgresql://127.0.0.1:9/none?user=me&password=s3cret",
        "postgresql://127.0.0.1:9/none?sslpassword=s3cret&user=me",
        "postgresql://me:s3%63ret@127.0.0.1:9/none?connect_timeout=2",
        "postgresql://me:1/s3cret@127.0.0.1:9/none",
        "postgresql://me:s3cret@127.0.0.1:port/none",
        "mysql://me:s3cret@127.0.0.1/none",
        "mysql://127.0.0.1/none?password=s3cret",
        "postgresql://127.0.0.1:9/none?user=me&password=s3cret&no_such_option=1",
    ],
)
def test_no_error_shows_a_password(place: str) -> None:
    with pytest.raises((StoreError, InvalidInput)) as caught:
        open_store(place)
    assert "s3cret" not in str(caught.value)
    assert "s3%63ret" not in str(caught.value)


@pytest.mark.parametrize(
    ("missing", "place", "extra"),
    [("sqlalchemy", "a.db", "store"), ("psycopg", "postgresql://x/y", "postgres")],
)
def test_a_missing_package_is_named_with_its_extra(missing: str, place: str, extra: str, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        f"sys.modules[{missing!r}] = None\n"
        "from cicpe.sessions.stores import open_store, StoreError\n"
        "try:\n"
        f"    open_store({place!r})\n"
        "except StoreError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert f"pip install 'cicpe[{extra}]'" in done.stdout, done.stderr


def test_a_client_that_only_appends_does_not_import_torch(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from cicpe.sessions.stores import open_store\n"
        "from cicpe.sessions.events import Told\n"
        "store = open_store('a.db')\n"
        "made = store.create(name='a', model='m', model_sha256='0', epsilon=0.1, delta=0.1)\n"
        "store.append(made.id, Told(query=(1,), observation=(2,)), expected_version=0)\n"
        "assert not {'torch', 'numpy', 'scipy'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 0, done.stderr


# Kills and crowds, small; `benchmarks/campaigns.py` has the large ones.


def benchmark(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, str(BENCHMARK), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path) -> None:
    result = benchmark("kills", "--store", tmp_path / "a.db", "--size", 10)
    assert result["kills"] == 10
    assert result["acknowledged"] > 0
    assert result["faults"] == []


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_by_a_kill_on_a_server(database: str) -> None:
    result = benchmark("kills", "--store", database, "--size", 10)
    assert (result["kills"], result["faults"]) == (10, [])


def test_the_kill_test_sees_what_is_lost_doubled_or_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control."""
    monkeypatch.syspath_prepend(BENCHMARK.parent)
    spec = importlib.util.spec_from_file_location("campaigns", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    kills = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kills)
    model, place = cicpe.load(kills.MODEL), str(tmp_path / "a.db")
    campaign = Campaign.new(open_store(place), model, kills.MODEL, name="a", epsilon=0.1, delta=0.1)
    for t in range(3):
        campaign.tell(kills.observation("a", t), key=f"step {t}")
    assert kills._faults_of(place, "a", 3, model) == []
    assert kills._faults_of(place, "a", 2, model) == []  # recorded, and killed before it was acknowledged
    assert "4 steps were acknowledged, 3 are there" in kills._faults_of(place, "a", 4, model)[0]
    assert len(kills._faults_of(place, "a", 1, model)) == 1
    campaign.correct(1, [-value for value in kills.observation("a", 0)])
    faults = kills._faults_of(place, "a", 4, model)
    assert "the log is" in faults[0]
    assert "the rebuilt session is another" in faults[1]


def test_a_crowd_of_processes(tmp_path: Path) -> None:
    result = benchmark("crowd", "--store", tmp_path / "a.db", "--size", 4, "--each", 10)
    assert (result["clients"], result["events"], result["faults"]) == (4, 40, [])


@pytest.mark.slow
def test_a_crowd_on_a_server(database: str) -> None:
    result = benchmark("crowd", "--store", database, "--size", 10, "--each", 5, "--threads", 5)
    assert (result["clients"], result["events"], result["faults"]) == (10, 50, [])
