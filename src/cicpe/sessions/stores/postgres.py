"""A server: for several machines."""

import psycopg
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from cicpe.errors import InvalidInput
from cicpe.sessions.stores.sql import SqlStore

assert psycopg  # imported here so that its absence is noticed before an engine is made


def open_postgres(url: str) -> SqlStore:
    """The store in a PostgreSQL database."""
    try:
        address = make_url(url)
    except (ArgumentError, ValueError):
        raise InvalidInput("store", "an address", "postgresql://USER@HOST/DATABASE") from None
    # Whatever the server's default is: each statement sees what others have committed, as ``append`` needs.
    engine = create_engine(address, isolation_level="READ COMMITTED", pool_pre_ping=True)
    return SqlStore(engine, address.render_as_string(hide_password=True))
