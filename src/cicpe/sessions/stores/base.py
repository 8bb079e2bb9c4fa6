"""The interface of a store, its records and its errors."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Protocol, final, runtime_checkable

from pydantic import BaseModel, ConfigDict, StringConstraints

from cicpe.errors import CicpeError, InvalidInput, SessionError
from cicpe.sessions.events import Event, in_words
from cicpe.sessions.texts import check_text

StopName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$", max_length=64)]
"""A rule of ``cicpe.agents.stop_rules``, by name; the model refuses one that it does not know."""
KEY_LENGTH = 200


class StoreError(CicpeError):
    """A store cannot be reached, read or written. What was acknowledged before is still there."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


@final
class CampaignRecord(_Record):
    """A campaign without its events. Only ``version`` ever changes."""

    id: str
    name: str
    model: str
    """A name in the zoo, or a model's folder."""
    model_sha256: str
    epsilon: float
    delta: float
    seed: int
    stop: StopName
    context: Mapping[str, float]
    created: str
    """UTC, ISO 8601."""
    version: int
    """How many events there are."""


@final
class StoredEvent(_Record):
    """An event and its place in a campaign's log."""

    position: int
    """Counted from 0."""
    event: Event
    key: str | None
    """What the client called it, so that sending it again does not add it again."""
    at: str
    """UTC, ISO 8601."""


class Conflict(SessionError):
    """Someone else changed the campaign in the meantime: nothing was recorded.

    Args:
        name: The campaign's name.
        expected: The version that the change was decided on.
        since: What was recorded after that version.
        version: The version that the campaign has now.
    """

    def __init__(self, name: str, expected: int, since: Sequence[StoredEvent], version: int) -> None:
        news = "; ".join(in_words(stored.event) for stored in since) or "nothing"
        super().__init__(
            f"campaign {name} is at version {version}, not {expected}; nothing was recorded. "
            f"Since then: {news}. Look at the open query again before going on"
        )
        self.expected, self.since, self.version = expected, tuple(since), version


@runtime_checkable
class Store(Protocol):
    """Campaigns and their logs. Safe for several threads, processes and machines at once.

    What a method that writes has returned from is on the disk. A log is only ever appended to.
    """

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
        """Makes a new campaign.

        Args:
            name: What it is called; the name must be free.
            model: A name in the zoo, or a model's folder.
            model_sha256: The model's fingerprint.
            epsilon: How far off the answer may be.
            delta: How often it may be farther off.
            seed: Seeds the queries.
            stop: The stop rule, by name.
            context: What is known beforehand, by name.
            events: A log to begin with, such as that of another campaign.

        Returns:
            The campaign, with the id that it was given.
        """

    def campaigns(self) -> list[CampaignRecord]:
        """Reads every campaign.

        Returns:
            Campaigns without their events, oldest first.
        """

    def find(self, campaign: str) -> CampaignRecord:
        """The campaign that a person means: a name, an id, or its first letters (see ``references.py``).

        Args:
            campaign: What the person typed; where it could mean two campaigns, it is refused.

        Returns:
            The campaign.
        """

    def get(self, campaign_id: str) -> CampaignRecord:
        """A campaign by its whole id, and by nothing else: what a program remembers.

        Args:
            campaign_id: The 32 letters of the id.

        Returns:
            The campaign.
        """

    def events(self, campaign_id: str, since: int = 0) -> list[StoredEvent]:
        """Reads the log from a position on; a missing entry is a ``StoreError``.

        Args:
            campaign_id: Whose log.
            since: The first position to read, counted from 0.

        Returns:
            Events with their positions, keys and times, in order.
        """

    def keyed(self, campaign_id: str, key: str) -> StoredEvent | None:
        """The event that was sent with a key.

        Args:
            campaign_id: Whose log.
            key: The key.

        Returns:
            The event with its position and time; None where no event has this key.
        """

    def append(self, campaign_id: str, event: Event, *, expected_version: int, key: str | None = None) -> StoredEvent:
        """Adds an event to a log of the expected length, or raises ``Conflict``.

        Where an event with this key is there already, nothing is added and that event is returned.

        Args:
            campaign_id: Whose log.
            event: What happened.
            expected_version: How long the log was when the change was decided on.
            key: What the client calls the event, so that sending it again does not add it again.

        Returns:
            The event as it is recorded, on the disk.
        """

    def append_all(
        self, campaign_id: str, events: Sequence[Event], *, expected_version: int, key: str | None = None
    ) -> list[StoredEvent]:
        """Adds events to a log of the expected length, all of them or none, or raises Conflict.

        Args:
            campaign_id: The whole id.
            events: What happened, in its order; one at least.
            expected_version: How long the log is taken to be.
            key: The first event gets it. Where an event with this key is there already, nothing is added.

        Returns:
            The events as they were recorded; those that were there already, where the key is.
        """

    def close(self) -> None:
        """Lets go of its connections."""


def check_key(key: str | None) -> str | None:
    """An idempotency key."""
    if key is not None and not key:
        raise InvalidInput("key", key, f"1 to {KEY_LENGTH} letters")
    return None if key is None else check_text("key", key, KEY_LENGTH)
