"""One file: nothing to install, and enough for a lab.

Writers queue up and take the lock when they begin (BEGIN IMMEDIATE); a commit has reached the disk when
it returns (synchronous FULL). The write-ahead log is used only with a SQLite that has the fix of its reset bug.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import URL

from cicpe.files import lock_within
from cicpe.sessions.stores.base import StoreError
from cicpe.sessions.stores.sql import WRITES, SqlStore

PATIENCE = 120
"""Seconds that a client waits for others to finish; a transaction takes milliseconds."""
TURN = 10
"""Seconds, of those, that it waits for its turn in line before it goes on without."""
_strangers: set[Path] = set()
"""Folders that someone holds who is in no line of ours, as this process has found out."""


def has_wal_fix(version: tuple[int, int, int]) -> bool:
    """Whether a SQLite has the fix of the WAL-reset bug: 3.51.3 and newer, 3.50.7 and 3.44.6 of the older lines."""
    return version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51) or (3, 44, 6) <= version < (3, 45)


def open_sqlite(file: Path, make: bool = True) -> SqlStore:
    """The store in a file, which is made if it is not there."""
    path = file.resolve()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"the folder of the store {path} cannot be made: {error.strerror}") from None
    engine = create_engine(URL.create("sqlite", database=str(path)), connect_args={"timeout": PATIENCE})
    journal = "wal" if has_wal_fix(sqlite3.sqlite_version_info) else "delete"

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself
        # A file that another SQLite left in WAL mode stays so on disk: an unsafe one is set back, or refused.
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
        if mode != journal:
            with suppress(sqlite3.OperationalError) if journal == "wal" else nullcontext():
                connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return SqlStore(engine, str(path), lambda: _in_turn(path.parent), path, make)


@contextmanager
def _in_turn(folder: Path) -> Iterator[None]:
    """Writers queue up at a lock of the operating system on the folder, first come, first served.

    SQLite's own waiting is to try again after a while: with many writers, some would wait for very long. This is a
    courtesy between them and nothing depends on it. The lock leaves no file and ends with whoever holds it. Where
    someone holds it for longer than any of ours would, the line is left, until that one is gone.
    """
    with ExitStack() as until:
        if folder not in _strangers:
            with suppress(ImportError, OSError):  # not on every system and file system
                descriptor = lock_within(folder, min(TURN, PATIENCE), held_up=lambda now: _note(folder, now))
                if descriptor is not None:
                    until.callback(os.close, descriptor)
        yield


def _note(folder: Path, held_up: bool) -> None:
    (_strangers.add if held_up else _strangers.discard)(folder)
