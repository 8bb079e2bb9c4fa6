"""What can happen in a session: the entries of its log, which is only ever appended to.

Everything else about a session is derived from these. They are plain data, checked when they are read,
and carry the version of their own format. No torch here: a program that only stores events starts fast.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, final

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    model_serializer,
)

from cicpe.errors import SessionError
from cicpe.sessions.texts import check_reason
from cicpe.units import Units

MOST_VERIFICATIONS = 100
"""Redundant queries that can be asked for."""
Point = Annotated[tuple[float, ...], Field(min_length=1)]
"""Finite numbers, one per coordinate. Single-precision numbers survive the way through JSON exactly."""


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    format: Literal[1] = 1
    """Version of this record's fields; a later format gets another number and is read beside this one."""


class _Observed(_Event):
    observation: Point
    confirmed: bool = False
    """Whether the user stood by an observation that was not plausible."""

    @model_serializer(mode="wrap")
    def _said_where_so(self, write: SerializerFunctionWrapHandler):  # type: ignore[no-untyped-def]
        """Left out where it is not so: an event of earlier versions is written as it was read."""
        # A return type would take the place of the fields in the documented schema.
        data: dict[str, Any] = write(self)
        return data if self.confirmed else {name: value for name, value in data.items() if name != "confirmed"}


@final
class Told(_Observed):
    """A query that the session asked for, and what was observed there."""

    kind: Literal["told"] = "told"
    query: Point


@final
class Attached(_Observed):
    """A query that was made elsewhere, and what was observed there."""

    kind: Literal["attached"] = "attached"
    query: Point


@final
class Corrected(_Observed):
    """Another observation for a step of the history: the old one was wrong. The log keeps both."""

    kind: Literal["corrected"] = "corrected"
    step: int = Field(ge=1)
    """Counted from 1, as the history is."""


@final
class Skipped(_Event):
    """A query that cannot be made; another is asked for."""

    kind: Literal["skipped"] = "skipped"
    query: Point
    reason: Annotated[str, AfterValidator(check_reason)] = ""


@final
class Undone(_Event):
    """The last entry that still counted no longer does."""

    kind: Literal["undone"] = "undone"
    position: int = Field(ge=0)
    """Where in the log that entry is, counted from 0."""


@final
class Verifying(_Event):
    """From now on, a stop is final only after so many redundant queries."""

    kind: Literal["verifying"] = "verifying"
    queries: int = Field(ge=0, le=MOST_VERIFICATIONS)


@final
class Released(_Event):
    """The alarm held the stop, and someone has looked and lets the campaign stop all the same."""

    kind: Literal["released"] = "released"
    reason: Annotated[str, AfterValidator(check_reason)] = ""


Event = Told | Attached | Corrected | Skipped | Undone | Verifying | Released

_READER: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])


def read_event(data: Any) -> Event:
    """An event from its JSON object; pydantic's ValidationError says what is wrong with another."""
    return _READER.validate_python(data)


def in_force(events: Iterable[Event], before: Sequence[int] = (), start: int = 0) -> tuple[int, ...]:
    """Positions of the entries of a log that count: those that were not undone, without the undoing itself.

    Args:
        events: A log, or what comes after its first ``start`` entries.
        before: Positions in force among those first entries.
        start: How many those are.
    """
    positions = list(before)
    for position, event in enumerate(events, start=start):
        if not isinstance(event, Undone):
            positions.append(position)
        elif positions and positions[-1] == event.position:
            positions.pop()
        else:
            raise SessionError(f"entry {position} of the log undoes entry {event.position}, which is not the last one")
    return tuple(positions)


def in_words(event: Event, units: Units | None = None) -> str:
    """One line about an event, in the units of whoever measured, where they are given."""
    sure = ", confirmed" if isinstance(event, _Observed) and event.confirmed else ""
    match event:
        case Told():
            return f"told {_observed(event, units)} at {_place(event.query, units)}{sure}"
        case Attached():
            return f"attached {_observed(event, units)} at {_place(event.query, units)}{sure}"
        case Corrected():
            return f"corrected step {event.step} to {_observed(event, units)}{sure}"
        case Skipped():
            return f"skipped {_place(event.query, units)}" + (f": {event.reason}" if event.reason else "")
        case Undone():
            return f"undid entry {event.position}"
        case Verifying():
            return f"asked for {event.queries} redundant queries before a stop"
        case Released():
            return "released the stop" + (f": {event.reason}" if event.reason else "")


def _place(query: Sequence[float], units: Units | None) -> str:
    return units.query_words(query) if units is not None and units.settings else in_digits(query)


def _observed(event: _Observed, units: Units | None) -> str:
    readout = None if units is None else units.readout
    return in_digits(event.observation) if readout is None else ", ".join(map(readout.words, event.observation))


def in_digits(values: Sequence[float]) -> str:
    """Coordinates as people write them."""
    return "(" + ", ".join(f"{value:.6g}" for value in values) + ")"
