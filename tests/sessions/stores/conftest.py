"""Places of stores: files, and databases on a server of our own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from cicpe.sessions.stores import sqlite as sqlite_store
from cicpe.testing.postgres import postgres_is_installed, temporary_postgres


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if not postgres_is_installed():
        pytest.skip("no PostgreSQL server programs (initdb, postgres) on the path")
    with temporary_postgres() as url:
        yield url


@pytest.fixture
def database(server: str) -> str:
    """A fresh database on the server."""
    name = f"test_{os.urandom(6).hex()}"
    engine = sa.create_engine(server.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture(params=["sqlite", "sqlite-wal", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("database"))
    monkeypatch.setattr(sqlite_store, "has_wal_fix", lambda version: request.param == "sqlite-wal")
    return str(tmp_path / "new folder" / "campaigns.db")
