"""A store in any database that SQLAlchemy and the two tables of ``schema.py`` work on."""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy import Connection, Engine, Row
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from cicpe.errors import InvalidInput
from cicpe.sessions.events import Event, read_event
from cicpe.sessions.stores.base import (
    CampaignRecord,
    Conflict,
    StopName,
    StoredEvent,
    StoreError,
    check_key,
    check_name,
)
from cicpe.sessions.stores.schema import HEAD, VERSION_TABLE, campaigns, events

WRITES = "cicpe_writes"
"""The execution option of a transaction that will write: SQLite takes its lock at once."""
SCHEMA_LOCK = 0x63696370
"""Number of the PostgreSQL advisory lock under which the tables are made."""
SHORTEST = 4
"""Letters of an id that may stand for it."""


@final
class SqlStore:
    """Campaigns in two tables. See ``Store`` for what it promises."""

    def __init__(
        self, engine: Engine, place: str, turn: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        """``turn`` is held around every transaction that writes."""
        self.engine, self.place, self._turn = engine, place, turn
        self._upgrade()

    def create(
        self,
        *,
        name: str,
        model: str,
        model_sha256: str,
        epsilon: float,
        delta: float,
        seed: int = 0,
        stop: StopName = "confidence",
        context: Mapping[str, float] | None = None,
        events: Sequence[Event] = (),
    ) -> CampaignRecord:
        record = CampaignRecord(
            id=uuid.uuid4().hex,
            name=check_name(name),
            model=model,
            model_sha256=model_sha256,
            epsilon=epsilon,
            delta=delta,
            seed=seed,
            stop=stop,
            context=dict(context or {}),
            created=_now(),
            version=len(events),
        )
        try:
            with self._writing() as connection:
                connection.execute(sa.insert(campaigns).values(record.model_dump(mode="json")))
                for position, event in enumerate(events):
                    _insert(connection, record.id, StoredEvent(position=position, event=event, key=None, at=_now()))
        except IntegrityError:
            raise InvalidInput("name", name, "a name that no other campaign of this store has") from None
        return record

    def campaigns(self) -> list[CampaignRecord]:
        with self._reading() as connection:
            rows = connection.execute(sa.select(campaigns).order_by(campaigns.c.created, campaigns.c.id)).all()
        return [self._record(row) for row in rows]

    def find(self, campaign: str) -> CampaignRecord:
        fits = (campaigns.c.name == campaign) | (campaigns.c.id == campaign)
        if len(campaign) >= SHORTEST:
            fits |= campaigns.c.id.startswith(campaign.lower(), autoescape=True)
        with self._reading() as connection:
            rows = connection.execute(sa.select(campaigns).where(fits).order_by(campaigns.c.created)).all()
            if not rows:
                names = connection.scalars(sa.select(campaigns.c.name).order_by(campaigns.c.created.desc()).limit(9))
                known = ", ".join(names)
        if not rows:
            raise InvalidInput("campaign", campaign, f"one of this store: {known or 'it is empty'}")
        exact = [row for row in rows if row.name == campaign] or rows
        if len(exact) > 1:
            raise InvalidInput("campaign", campaign, f"one only, not {', '.join(row.name for row in exact)}")
        return self._record(exact[0])

    def events(self, campaign_id: str, since: int = 0) -> list[StoredEvent]:
        with self._reading() as connection:
            return self._events(connection, campaign_id, since)

    def keyed(self, campaign_id: str, key: str) -> StoredEvent | None:
        with self._reading() as connection:
            return self._keyed(connection, campaign_id, key)

    def append(self, campaign_id: str, event: Event, *, expected_version: int, key: str | None = None) -> StoredEvent:
        check_key(key)
        stored = StoredEvent(position=expected_version, event=event, key=key, at=_now())
        claim = (
            sa.update(campaigns)
            .where(campaigns.c.id == campaign_id, campaigns.c.version == expected_version)
            .values(version=expected_version + 1)
        )
        with self._writing() as connection:
            # Whoever claims a version holds the campaign's row until the end: what is read below is final.
            claimed = connection.execute(claim).rowcount == 1
            before = None if key is None else self._keyed(connection, campaign_id, key)
            if before is not None:
                connection.rollback()
                return before
            if not claimed:
                raise self._conflict(connection, campaign_id, expected_version)
            _insert(connection, campaign_id, stored)
        return stored

    def close(self) -> None:
        self.engine.dispose()

    # Inside.

    def _conflict(self, connection: Connection, campaign_id: str, expected: int) -> Exception:
        row = connection.execute(sa.select(campaigns).where(campaigns.c.id == campaign_id)).first()
        if row is None:
            return InvalidInput("campaign", campaign_id, "one of this store")
        return Conflict(row.name, expected, self._events(connection, campaign_id, max(expected, 0)), row.version)

    def _events(self, connection: Connection, campaign_id: str, since: int) -> list[StoredEvent]:
        wanted = sa.select(events).where(events.c.campaign_id == campaign_id, events.c.position >= since)
        return [self._event(row) for row in connection.execute(wanted.order_by(events.c.position))]

    def _keyed(self, connection: Connection, campaign_id: str, key: str) -> StoredEvent | None:
        wanted = sa.select(events).where(events.c.campaign_id == campaign_id, events.c.key == key)
        row = connection.execute(wanted).first()
        return None if row is None else self._event(row)

    def _record(self, row: Row[Any]) -> CampaignRecord:
        try:
            return CampaignRecord.model_validate(dict(row._mapping))
        except ValidationError as error:
            raise StoreError(f"the store {self.place} holds a damaged campaign {row.name}: {error}") from None

    def _event(self, row: Row[Any]) -> StoredEvent:
        try:
            return StoredEvent(position=row.position, event=read_event(row.payload), key=row.key, at=row.at)
        except ValidationError as error:
            where = f"entry {row.position} of campaign {row.campaign_id}"
            raise StoreError(f"the store {self.place} holds a damaged event, {where}: {error}") from None

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """One transaction, committed when the block ends and not otherwise."""
        with self._clear_errors("nothing was recorded"), self._turn(), self.engine.connect() as plain:
            connection = plain.execution_options(**{WRITES: True})
            with connection.begin() as transaction:
                yield connection
                if transaction.is_active:
                    # A server may be lost after it has committed and before it has said so.
                    with self._clear_errors("it may or may not be recorded: look, or send it again with its key"):
                        transaction.commit()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self._clear_errors("nothing was read"), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def _clear_errors(self, outcome: str) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise
        except SQLAlchemyError as error:
            cause = " ".join(str(getattr(error, "orig", None) or error).split())
            raise StoreError(f"the store {self.place} failed, {outcome}. It says: {cause}") from error

    # The tables.

    def _upgrade(self) -> None:
        """Brings the tables up to date: at once where they are, under a lock otherwise."""
        if self._revision() == HEAD:
            return
        with self._writing() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(SCHEMA_LOCK)))
            _migrate(connection)
        if self._revision() != HEAD:
            raise StoreError(f"the store {self.place} was made by a newer version of cicpe: upgrade this one")

    def _revision(self) -> str | None:
        with self._reading() as connection:
            if not sa.inspect(connection).has_table(VERSION_TABLE):
                return None
            found: str | None = connection.scalar(sa.text(f"SELECT version_num FROM {VERSION_TABLE}"))
            return found


def _migrate(connection: Connection) -> None:
    """Applies the migrations that are missing; tables of a newer version are left as they are."""
    from alembic import command  # here, because it is slow to import and rarely needed
    from alembic.config import Config
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    now = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision()
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if now is None or now in known:
        command.upgrade(config, "head")


def _insert(connection: Connection, campaign_id: str, stored: StoredEvent) -> None:
    row = {"campaign_id": campaign_id, "position": stored.position, "kind": stored.event.kind, "key": stored.key}
    payload = stored.event.model_dump(mode="json")
    connection.execute(sa.insert(events).values(**row, payload=payload, at=stored.at))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
