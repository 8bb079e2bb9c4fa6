"""A store in any database that SQLAlchemy and the two tables of ``schema.py`` work on."""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, final

import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy import Connection, Engine, Row
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from cicpe.errors import InvalidInput
from cicpe.sessions.events import Event, read_event
from cicpe.sessions.stores.addresses import shown, without_secrets
from cicpe.sessions.stores.base import (
    CampaignRecord,
    Conflict,
    StopName,
    StoredEvent,
    StoreError,
    check_key,
)
from cicpe.sessions.stores.references import Reference, check_name, read_reference
from cicpe.sessions.stores.schema import HEAD, VERSION_TABLE, campaigns, events
from cicpe.sessions.texts import check_text, shown_text

WRITES = "cicpe_writes"
"""The execution option of a transaction that will write: SQLite takes its lock at once."""
SCHEMA_LOCK = 0x63696370
"""Number of the PostgreSQL advisory lock under which the tables are made."""
MOST_MODEL = 4096
"""Letters of the reference to a model: as long as a path may be."""


class StoredCampaign(NamedTuple):
    """A campaign and its whole log."""

    record: CampaignRecord
    events: tuple[StoredEvent, ...]


@final
class SqlStore:
    """Campaigns in two tables. See ``Store`` for what it promises."""

    def __init__(
        self,
        engine: Engine,
        place: str,
        turn: Callable[[], AbstractContextManager[None]] = nullcontext,
        file: Path | None = None,
        make: bool = True,
    ) -> None:
        """Opens a store, whose tables are made if missing and ``make`` says so.

        ``turn`` is held around every transaction that writes. Of ``place``, no secret is ever shown.
        """
        self.engine, self.place, self.file, self._turn = engine, shown(place), file, turn
        self._address = place
        self._upgrade(make)

    def create(
        self,
        *,
        name: str,
        model: str,
        model_sha256: str,
        epsilon: float,
        delta: float,
        seed: int = 0,
        stop: StopName = "each",
        context: Mapping[str, float] | None = None,
        events: Sequence[Event] = (),
    ) -> CampaignRecord:
        record = CampaignRecord(
            id=uuid.uuid4().hex,
            name=check_name(name),
            model=check_text("model", model, MOST_MODEL),
            model_sha256=model_sha256,
            epsilon=epsilon,
            delta=delta,
            seed=seed,
            stop=stop,
            context={check_text("context", name): value for name, value in (context or {}).items()},
            created=_now(),
            version=len(events),
        )
        try:
            with self._writing() as connection:
                connection.execute(sa.insert(campaigns).values(record.model_dump(mode="json")))
                for stored in _numbered(events, 0):
                    _insert(connection, record.id, stored)
        except IntegrityError:
            raise InvalidInput("name", name, "a name that no other campaign of this store has") from None
        return record

    def campaigns(self) -> list[CampaignRecord]:
        with self._reading() as connection:
            rows = connection.execute(sa.select(campaigns).order_by(campaigns.c.created, campaigns.c.id)).all()
        return [self._record(row) for row in rows]

    def find(self, campaign: str) -> CampaignRecord:
        wanted = read_reference(campaign)
        with self._reading() as connection:
            rows = connection.execute(sa.select(campaigns).where(_fits(wanted)).order_by(campaigns.c.created)).all()
            if not rows:
                names = connection.scalars(sa.select(campaigns.c.name).order_by(campaigns.c.created.desc()).limit(9))
                known = ", ".join(names)
        if not rows:
            raise InvalidInput("campaign", campaign, f"one of this store: {known or 'it is empty'}")
        if len(rows) > 1:
            ways = ", ".join(f"name:{row.name} is id:{row.id}" for row in rows)
            raise InvalidInput("campaign", campaign, f"one only, and this may mean several: {ways}")
        return self._record(rows[0])

    def get(self, campaign_id: str) -> CampaignRecord:
        with self._reading() as connection:
            row = connection.execute(sa.select(campaigns).where(campaigns.c.id == campaign_id)).first()
        if row is None:
            raise InvalidInput("campaign", campaign_id, "the id of a campaign of this store")
        return self._record(row)

    def events(self, campaign_id: str, since: int = 0) -> list[StoredEvent]:
        with self._reading() as connection:
            return self._events(connection, campaign_id, since)

    def keyed(self, campaign_id: str, key: str) -> StoredEvent | None:
        with self._reading() as connection:
            return self._keyed(connection, campaign_id, key)

    def append(self, campaign_id: str, event: Event, *, expected_version: int, key: str | None = None) -> StoredEvent:
        return self.append_all(campaign_id, [event], expected_version=expected_version, key=key)[0]

    def append_all(
        self, campaign_id: str, events: Sequence[Event], *, expected_version: int, key: str | None = None
    ) -> list[StoredEvent]:
        check_key(key)
        added = _numbered(events, expected_version, key)
        with self._writing() as connection:
            claimed = _claimed(connection, campaign_id, expected_version, len(added))
            before = None if key is None else self._keyed(connection, campaign_id, key)
            if before is not None:
                connection.rollback()
            elif not claimed:
                raise self._conflict(connection, campaign_id, expected_version)
            else:
                for stored in added:
                    _insert(connection, campaign_id, stored)
        return added if before is None else self.events(campaign_id, before.position)[: len(added)]

    def close(self) -> None:
        self.engine.dispose()

    # The store as a whole, for ``moving.py``.

    def campaign_ids(self) -> list[str]:
        """Of every campaign, oldest first, however damaged it is."""
        with self._reading() as connection:
            return list(connection.scalars(sa.select(campaigns.c.id).order_by(campaigns.c.created, campaigns.c.id)))

    def snapshot(self) -> list[StoredCampaign]:
        """Every campaign with its log, all as they were at one moment."""
        with self._reading() as plain:
            level = {"isolation_level": "REPEATABLE READ"} if plain.dialect.name == "postgresql" else {}
            connection = plain.execution_options(**level)
            rows = connection.execute(sa.select(campaigns).order_by(campaigns.c.created, campaigns.c.id)).all()
            return [StoredCampaign(self._record(row), tuple(self._events(connection, row.id, 0))) for row in rows]

    def insert(self, whole: Sequence[StoredCampaign]) -> None:
        """Adds campaigns as they are, with their ids, times and keys: all of them or none."""
        try:
            with self._writing() as connection:
                for campaign in whole:
                    connection.execute(sa.insert(campaigns).values(campaign.record.model_dump(mode="json")))
                    for stored in campaign.events:
                        _insert(connection, campaign.record.id, stored)
        except IntegrityError:
            raise StoreError(f"the store {self.place} has been changed by others: nothing was copied") from None

    # Inside.

    def _conflict(self, connection: Connection, campaign_id: str, expected: int) -> Exception:
        row = connection.execute(sa.select(campaigns).where(campaigns.c.id == campaign_id)).first()
        if row is None:
            return InvalidInput("campaign", campaign_id, "one of this store")
        return Conflict(row.name, expected, self._events(connection, campaign_id, max(expected, 0)), row.version)

    def _events(self, connection: Connection, campaign_id: str, since: int) -> list[StoredEvent]:
        """The log and its length in one statement, so that they are of the same moment."""
        later = (events.c.campaign_id == campaigns.c.id) & (events.c.position >= since)
        wanted = sa.select(campaigns.c.version, campaigns.c.name, events).where(campaigns.c.id == campaign_id)
        joined = wanted.select_from(campaigns.outerjoin(events, later)).order_by(events.c.position)
        rows = connection.execute(joined).all()
        event_rows = [row for row in rows if row.position is not None]
        if rows:
            self._check_whole(rows[0].name, [row.position for row in event_rows], max(since, 0), rows[0].version)
        return [self._event(row) for row in event_rows]

    def _check_whole(self, name: str, positions: list[int], since: int, version: int) -> None:
        """Refuses a log with a hole in it, or one that ends too early or too late."""
        if positions == list(range(since, version)):
            return
        missing = sorted(set(range(since, version)) - set(positions))
        beyond = sorted(set(positions) - set(range(since, version)))
        what = f"entries {missing[:5]} are missing" if missing else f"entries {beyond[:5]} are there all the same"
        raise StoreError(
            f"the store {self.place} is damaged: campaign {name} has {version} entries, but {what}. Nothing was made "
            "of it: `cicpe store check` lists what is damaged, `cicpe store restore` puts a backup back"
        )

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
            event = read_event(_readable(row.payload))
            return StoredEvent(position=row.position, event=event, key=row.key, at=row.at)
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
            message = without_secrets(str(getattr(error, "orig", None) or error), self._address)
            raise StoreError(
                f"the store {self.place} failed, {outcome}. It says: {' '.join(message.split())}"
            ) from error
        except json.JSONDecodeError as error:  # of a column that the driver reads as JSON
            raise StoreError(f"the store {self.place} holds a damaged entry, {outcome}: {error}") from None

    # The tables.

    def _upgrade(self, make: bool) -> None:
        """Brings the tables up to date: at once where they are, under a lock otherwise."""
        revision = self._revision()
        if revision == HEAD:
            return
        if revision is None and not make:
            raise StoreError(f"the database {self.place} is no store of campaigns; nothing was made there")
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
            revision: str | None = connection.scalar(sa.text(f"SELECT version_num FROM {VERSION_TABLE}"))
            return revision


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


def _fits(wanted: Reference) -> sa.ColumnElement[bool]:
    fits: sa.ColumnElement[bool] = sa.false()
    if wanted.as_name is not None:
        fits |= campaigns.c.name == wanted.as_name
    if wanted.as_id is not None:
        fits |= campaigns.c.id.startswith(wanted.as_id)
    return fits


def _readable(payload: Any) -> Any:
    """An event as it is stored; a reason that an older version took without looking is made one that can be shown."""
    if isinstance(payload, dict) and isinstance(payload.get("reason"), str):
        return payload | {"reason": shown_text(payload["reason"])}
    return payload


def _claimed(connection: Connection, campaign_id: str, version: int, count: int) -> bool:
    """Whether the next entries of a log are ours: then its campaign's row is held until the end of the transaction."""
    mine = sa.update(campaigns).where(campaigns.c.id == campaign_id, campaigns.c.version == version)
    return connection.execute(mine.values(version=version + count)).rowcount == 1


def _numbered(events: Sequence[Event], first: int, key: str | None = None) -> list[StoredEvent]:
    """Events as the entries of a log from a position on; the first one has the key."""
    now, keys = _now(), (key, *[None] * len(events))
    return [StoredEvent(position=first + i, event=event, key=keys[i], at=now) for i, event in enumerate(events)]


def _insert(connection: Connection, campaign_id: str, stored: StoredEvent) -> None:
    row = {"campaign_id": campaign_id, "position": stored.position, "kind": stored.event.kind, "key": stored.key}
    payload = stored.event.model_dump(mode="json")
    connection.execute(sa.insert(events).values(**row, payload=payload, at=stored.at))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
