"""A server: for several machines."""

from typing import Any

import psycopg
from sqlalchemy import create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from cicpe.errors import InvalidInput
from cicpe.sessions.stores.sql import SqlStore

assert psycopg  # imported here so that its absence is noticed before an engine is made

PATIENCE = 120
"""Seconds that a client waits for a lock that another holds."""
SILENCE = 120
"""Seconds after which the server ends a transaction of ours that says nothing, and with it lets go of its locks."""
CONNECTING = 20
"""Seconds to reach the server, where the address does not say otherwise."""
ADDRESS = "postgresql://USER@HOST/DATABASE, where / and @ of a password are written %2F and %40"


def open_postgres(url: str, make: bool = True) -> SqlStore:
    """The store in a PostgreSQL database."""
    path = url.partition("://")[2].partition("?")[0].partition("/")[2]
    try:
        address = make_url(url)
        if "@" in path:  # of a password, most likely: what follows would be shown as the name of the database
            raise ValueError
    except (ArgumentError, ValueError):
        raise InvalidInput("store", "an address", ADDRESS) from None
    waits = {} if "connect_timeout" in address.query else {"connect_timeout": CONNECTING}
    # Whatever the server's default is: each statement sees what others have committed, as ``append`` needs.
    engine = create_engine(address, isolation_level="READ COMMITTED", pool_pre_ping=True, connect_args=waits)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = '{PATIENCE * 1000:.0f}ms'")
            cursor.execute(f"SET idle_in_transaction_session_timeout = '{SILENCE * 1000:.0f}ms'")
        connection.commit()

    return SqlStore(engine, address.render_as_string(hide_password=False), make=make)
