"""Which store a text means. The database packages are imported only once a store is opened."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from cicpe.errors import InvalidInput
from cicpe.files import data_folder
from cicpe.sessions.stores.addresses import shown
from cicpe.sessions.stores.base import Store, StoreError

if TYPE_CHECKING:
    from cicpe.sessions.stores.sql import SqlStore

POSTGRES = ("postgresql", "postgres", "postgresql+psycopg")


def default_store() -> str:
    """``CICPE_STORE``, or a file in the user's data directory.

    Returns:
        A place as ``open_store`` takes it.
    """
    place = os.environ.get("CICPE_STORE")
    return place or str(data_folder() / "campaigns.db")


def open_existing(place: str | Path | None = None) -> "SqlStore":
    """The store at a place where there is one: nothing is made."""
    from cicpe.sessions.stores.sql import SqlStore

    text = str(place) if place is not None else default_store()
    kind, address, rest = text.partition("://")
    if not address or kind == "sqlite":
        file = Path(rest.removeprefix("/") if address else text).expanduser()
        if not file.is_file() or not file.stat().st_size:
            raise InvalidInput("store", shown(text), "a store that is there")
    store = open_store(place, make=False)
    assert isinstance(store, SqlStore)
    return store


def open_store(place: str | Path | None = None, *, make: bool = True) -> Store:
    """Opens a store; its tables are made where they are missing.

    Args:
        place: A file, ``sqlite:///FILE`` or ``postgresql://USER@HOST/DATABASE``; ``default_store()`` if left out.
        make: Whether to make a store where there is none.

    Returns:
        The store, for several threads and processes at once.
    """
    text = str(place) if place is not None else default_store()
    kind, address, rest = text.partition("://")
    try:
        if not address or kind == "sqlite":
            from cicpe.sessions.stores.sqlite import open_sqlite

            return open_sqlite(Path(rest.removeprefix("/") if address else text).expanduser(), make)
        if kind in POSTGRES:
            from cicpe.sessions.stores.postgres import open_postgres

            return open_postgres(f"postgresql+psycopg://{rest}", make)
    except ModuleNotFoundError as error:
        extra = "postgres" if error.name and error.name.startswith("psycopg") else "store"
        raise StoreError(f"{error.name} is missing: install it with  pip install 'cicpe[{extra}]'") from None
    raise InvalidInput("store", shown(text), "a file, sqlite:///FILE, or postgresql://USER@HOST/DATABASE")
