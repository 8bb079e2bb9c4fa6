"""Whole stores: what is damaged is found, what is copied or backed up is the same, and nothing is written over."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from cicpe.errors import InvalidInput
from cicpe.sessions.events import Told
from cicpe.sessions.stores import StoreError, open_store
from cicpe.sessions.stores.moving import back_up, check_store, copy_store, restore
from cicpe.sessions.stores.opening import open_existing
from cicpe.sessions.stores.sql import SqlStore, StoredCampaign
from cicpe.testing.stores import EVERY_KIND

EVENT = Told(query=(0.5,), observation=(1.0,))


def filled(place: str | Path, *names: str) -> SqlStore:
    """A store with campaigns that have every kind of entry, with and without keys."""
    store = open_store(place)
    for name in names or ("titan", "europa"):
        made = store.create(
            name=name, model="m", model_sha256="0" * 64, epsilon=1 / 3, delta=0.1, seed=2**40, context={"noise": 0.1}
        )
        for version, event in enumerate(EVERY_KIND):
            store.append(made.id, event, expected_version=version, key=f"k{version}" if version % 2 else None)
    assert isinstance(store, SqlStore)
    return store


def content(place: str | Path) -> list[StoredCampaign]:
    with closing(open_existing(place)) as store:
        return store.snapshot()


# Checking.


def test_a_whole_store_has_no_faults(place: str) -> None:
    with closing(filled(place)) as store:
        assert check_store(store) == (2, 2 * len(EVERY_KIND), [])


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        ("DELETE FROM cicpe_events WHERE position = 2 AND campaign_id = '{}'", "entries [2] are missing"),
        (
            "UPDATE cicpe_events SET payload = '{{}}' WHERE position = 1 AND campaign_id = '{}'",
            "damaged event, entry 1",
        ),
        ("UPDATE cicpe_campaigns SET stop = 'never' WHERE id = '{}'", "damaged campaign titan"),
        (
            'UPDATE cicpe_events SET payload = \'{{"kind": "undone", "position": 0}}\' '
            "WHERE position = 4 AND campaign_id = '{}'",
            "campaign titan: entry 4 of the log undoes entry 0",
        ),
    ],
)
def test_damage_is_found(place: str, damage: str, fault: str) -> None:
    with closing(filled(place)) as store:
        with store._writing() as connection:
            connection.execute(sa.text(damage.format(store.find("titan").id).replace('":', '"\\:')))
        found = check_store(store)
    assert found.campaigns == 2
    assert len(found.faults) == 1
    assert fault in found.faults[0]


def test_entries_without_a_campaign_are_found(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "a.db")) as store:
        with sqlite3.connect(tmp_path / "a.db") as file:
            file.execute("DELETE FROM cicpe_campaigns WHERE name = 'titan'")
        found = check_store(store)
    assert found.campaigns == 1
    assert "a campaign that is not there" in found.faults[0]


def test_a_damaged_file_is_found(tmp_path: Path) -> None:
    filled(tmp_path / "a.db", *(f"c{i}" for i in range(40))).close()
    whole = bytearray((tmp_path / "a.db").read_bytes())
    middle = len(whole) // 2 // 4096 * 4096
    whole[middle : middle + 4096] = b"\xa5" * 4096
    (tmp_path / "a.db").write_bytes(whole)
    with closing(open_existing(tmp_path / "a.db")) as store:
        assert check_store(store).faults


# Copying.


def test_a_copy_is_the_same(place: str, tmp_path: Path) -> None:
    with closing(filled(place)) as source:
        before = source.snapshot()
        with closing(open_store(tmp_path / "other.db")) as target:
            assert isinstance(target, SqlStore)
            assert copy_store(source, target) == (2, 2 * len(EVERY_KIND), 0)
            assert copy_store(source, target) == (0, 0, 2)  # again: they are there
            assert repr(target.snapshot()) == repr(before)  # minus zero is another number
            source.append(before[0].record.id, EVENT, expected_version=len(EVERY_KIND))
            with pytest.raises(InvalidInput, match="a store without campaign titan"):
                copy_store(source, target)
            assert repr(target.snapshot()) == repr(before)


def test_a_copy_from_a_file_to_a_server(database: str, tmp_path: Path) -> None:
    with closing(filled(tmp_path / "a.db")) as source, closing(open_store(database)) as target:
        assert isinstance(target, SqlStore)
        copy_store(source, target)
        assert repr(target.snapshot()) == repr(source.snapshot())


def test_a_name_that_is_taken_copies_nothing(tmp_path: Path) -> None:
    with closing(filled(tmp_path / "a.db")) as source, closing(filled(tmp_path / "b.db", "europa")) as target:
        before = target.snapshot()
        with pytest.raises(InvalidInput, match="another campaign that is called europa"):
            copy_store(source, target)
        assert target.snapshot() == before


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, database: str) -> None:
    for missing in (tmp_path / "a.db", f"sqlite:///{tmp_path / 'a.db'}"):
        with pytest.raises(InvalidInput, match="a store that is there"):
            open_existing(missing)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreError, match="no store of campaigns; nothing was made there"):
        open_existing(database)


# Backups.


def test_a_backup_is_the_same_and_can_be_put_back(place: str, tmp_path: Path) -> None:
    filled(place).close()
    before, file = content(place), tmp_path / "backups" / "monday.db"
    assert back_up(place, file) == (2, 2 * len(EVERY_KIND), [])
    assert [one.name for one in file.parent.iterdir()] == ["monday.db"]
    assert repr(content(file)) == repr(before)
    restored = tmp_path / "restored.db"
    assert restore(file, restored) == ((2, 2 * len(EVERY_KIND), []), None)
    assert repr(content(restored)) == repr(before)


def test_a_backup_of_a_store_in_use_is_one_moment_of_it(place: str, tmp_path: Path) -> None:
    store = filled(place, "titan")
    titan, ended = store.find("titan").id, threading.Event()

    def write() -> None:
        version = len(EVERY_KIND)
        while not ended.is_set():
            store.append(titan, EVENT, expected_version=version)
            version += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            made = back_up(place, tmp_path / f"{number}.db")
            assert made.faults == []
            (found,) = content(tmp_path / f"{number}.db")
            assert len(found.events) == found.record.version == made.events
    finally:
        ended.set()
        writer.join()
    store.close()


def test_a_backup_is_not_written_over_anything(tmp_path: Path) -> None:
    filled(tmp_path / "a.db").close()
    (tmp_path / "b.db").write_text("mine")
    with pytest.raises(InvalidInput, match="a new file"):
        back_up(tmp_path / "a.db", tmp_path / "b.db")
    assert (tmp_path / "b.db").read_text() == "mine"


def test_a_store_is_replaced_only_on_demand_and_is_kept(tmp_path: Path) -> None:
    store, file = tmp_path / "a.db", tmp_path / "monday.db"
    filled(store).close()
    monday = content(store)
    back_up(store, file)
    with closing(open_store(store)) as again:
        again.append(monday[0].record.id, EVENT, expected_version=len(EVERY_KIND))
    tuesday = content(store)
    with pytest.raises(InvalidInput, match="--replace"):
        restore(file, store)
    assert content(store) == tuesday
    _, kept = restore(file, store, replace=True)
    assert kept is not None
    assert (content(store), content(kept)) == (monday, tuesday)


def test_a_server_is_restored_only_when_it_is_empty(database: str, tmp_path: Path) -> None:
    filled(tmp_path / "a.db").close()
    back_up(tmp_path / "a.db", tmp_path / "b.db")
    restore(tmp_path / "b.db", database)
    assert repr(content(database)) == repr(content(tmp_path / "a.db"))
    with pytest.raises(InvalidInput, match="for files only"):
        restore(tmp_path / "b.db", database, replace=True)


def test_a_damaged_backup_is_not_put_back(tmp_path: Path) -> None:
    filled(tmp_path / "a.db").close()
    back_up(tmp_path / "a.db", tmp_path / "b.db")
    with sqlite3.connect(tmp_path / "b.db") as file:
        file.execute("DELETE FROM cicpe_events WHERE position = 0")
    before = content(tmp_path / "a.db")
    with pytest.raises(StoreError, match="nothing was restored"):
        restore(tmp_path / "b.db", tmp_path / "a.db", replace=True)
    assert content(tmp_path / "a.db") == before
    with pytest.raises(InvalidInput, match="another file"):
        restore(tmp_path / "a.db", tmp_path / "a.db", replace=True)
