"""Whole stores: checked, copied from one database to another, kept as a file, and put back."""

import os
import secrets
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from cicpe.errors import CicpeError, InvalidInput, SessionError
from cicpe.files import sync_folder
from cicpe.sessions.events import in_force
from cicpe.sessions.stores.base import StoreError
from cicpe.sessions.stores.opening import open_existing, open_store
from cicpe.sessions.stores.sql import SqlStore
from cicpe.sessions.stores.sqlite import PATIENCE, open_sqlite


class StoreCheck(NamedTuple):
    """What a store holds, and what is wrong with it."""

    campaigns: int
    events: int
    faults: list[str]


class Copied(NamedTuple):
    """What was copied."""

    campaigns: int
    events: int
    already_there: int
    """Campaigns that the other store had before, exactly like this."""


def check_store(store: SqlStore) -> StoreCheck:
    """Reads everything: the file itself, every record, every entry of every log, and whether each log could be."""
    faults = _file_faults(store)
    events = 0
    ids = store.campaign_ids()
    for campaign_id in ids:
        try:
            record = store.get(campaign_id)
            log = store.events(campaign_id)
            events += len(log)
            in_force(stored.event for stored in log)
        except SessionError as error:
            faults.append(f"campaign {record.name}: {error}")
        except CicpeError as error:
            faults.append(str(error))
    return StoreCheck(len(ids), events, faults)


def _file_faults(store: SqlStore) -> list[str]:
    """What SQLite says of its file; a server looks after its own."""
    if store.file is None:
        return []
    try:
        with closing(_connect(store.file)) as connection:
            messages = [row[0] for row in connection.execute("PRAGMA integrity_check(20)")]
            lost = connection.execute("PRAGMA foreign_key_check").fetchall()
    except sqlite3.Error as error:
        return [f"the file {store.file} cannot be checked: {error}"]
    return [f"the file {store.file} is damaged: {message}" for message in messages if message != "ok"] + [
        f"the file {store.file} has an entry of a campaign that is not there (row {row[1]} of {row[0]})" for row in lost
    ]


def copy_store(source: SqlStore, target: SqlStore) -> Copied:
    """Copies every campaign with its id, its times and its keys, all of them or none, and compares what arrived.

    A campaign that is in the other store already, exactly so, is left as it is. Where one differs, or another has its
    name, nothing is copied.
    """
    campaigns = source.snapshot()
    before = {campaign.record.id: campaign for campaign in target.snapshot()}
    names = {campaign.record.name: campaign.record.id for campaign in before.values()}
    new = []
    for campaign in campaigns:
        name = campaign.record.name
        if campaign.record.id in before and campaign != before[campaign.record.id]:
            raise InvalidInput("to", target.place, f"a store without campaign {name}: its log there is another")
        if names.get(name, campaign.record.id) != campaign.record.id:
            raise InvalidInput("to", target.place, f"a store without another campaign that is called {name}")
        if campaign.record.id not in before:
            new.append(campaign)
    target.insert(new)
    arrived = {campaign.record.id: campaign for campaign in target.snapshot()}
    for campaign in campaigns:
        if arrived.get(campaign.record.id) != campaign:
            raise StoreError(
                f"campaign {campaign.record.name} did not arrive in {target.place} as it is in {source.place}"
            )
    return Copied(len(new), sum(len(campaign.events) for campaign in new), len(campaigns) - len(new))


def back_up(place: str | Path | None, file: Path) -> StoreCheck:
    """Writes a store to a new SQLite file, while others go on using it, and checks what was written.

    Of SQLite it is an exact copy of one moment, made by SQLite's own online backup; of PostgreSQL, every campaign.
    """
    _check_new(file)
    source = open_existing(place)
    temporary = file.parent / f".{file.name}.{secrets.token_hex(4)}.tmp"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if source.file is not None:
            _copy_file(source.file, temporary)
        else:
            with closing(open_sqlite(temporary)) as kept:
                copy_store(source, kept)
        with closing(open_sqlite(temporary)) as kept:
            checked = check_store(kept)
        _settle(temporary, file)
    finally:
        source.close()
        for suffix in ("", "-journal", "-wal", "-shm"):
            temporary.with_name(temporary.name + suffix).unlink(missing_ok=True)
    return checked


def restore(file: Path, place: str | Path | None, replace: bool = False) -> tuple[StoreCheck, Path | None]:
    """Puts a backup in the place of a store. Returns what it holds, and where the store that was there is kept.

    A store that holds campaigns is replaced only where that is said, only in SQLite, and kept beside the new one.
    """
    with closing(open_existing(file)) as backup:
        checked = check_store(backup)
        if checked.faults:
            raise StoreError(f"the backup {file} is damaged, and nothing was restored: {checked.faults[0]}")
        with closing(_opened(place)) as target:
            if target.file is not None and target.file == backup.file:
                raise InvalidInput("file", str(file), "another file than the store itself")
            if not target.campaign_ids():
                copy_store(backup, target)
                return checked, None
            _check_replaceable(target, replace)
            now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
            assert target.file is not None
            assert backup.file is not None
            kept = target.file.with_name(f"{target.file.name}.before-{now}-{secrets.token_hex(2)}")
            _copy_file(target.file, kept)
            _copy_file(backup.file, target.file)
    return checked, kept


def _check_replaceable(target: SqlStore, replace: bool) -> None:
    if not replace:
        raise InvalidInput("store", target.place, "an empty one; or --replace, and what is there is kept beside it")
    if target.file is None:
        raise InvalidInput("replace", True, "for files only: make an empty database for the backup")


def _opened(place: str | Path | None) -> SqlStore:
    store = open_store(place)
    assert isinstance(store, SqlStore)
    return store


def _check_new(file: Path) -> None:
    if file.exists():
        raise InvalidInput("file", str(file), "a new file: what is there is not written over")


def _connect(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(file, timeout=PATIENCE, isolation_level=None)


def _copy_file(source: Path, target: Path) -> None:
    """SQLite's online backup: the target is exactly what the source was at one moment, whoever writes meanwhile."""
    try:
        with closing(_connect(source)) as reading, closing(_connect(target)) as writing:
            reading.execute("BEGIN")
            reading.execute("SELECT count(*) FROM sqlite_master").fetchone()  # from here on it sees one moment
            reading.backup(writing)
    except sqlite3.Error as error:
        raise StoreError(f"{source} could not be copied to {target}: {error}") from None


def _settle(temporary: Path, file: Path) -> None:
    """Gives a finished file its name, on the disk, and never over another."""
    with closing(_connect(temporary)) as connection:
        connection.execute("PRAGMA journal_mode = delete")  # one file and no companions
    descriptor = os.open(temporary, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        os.link(temporary, file)
    except FileExistsError:
        _check_new(file)
        raise
    except OSError:  # a file system without links
        _check_new(file)
        os.rename(temporary, file)
    with suppress(OSError):
        sync_folder(file.parent)
