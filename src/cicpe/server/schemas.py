"""What goes over the wire: bodies of requests and answers. They are also the documented schema."""

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat, WithJsonSchema

from cicpe.sessions.events import MOST_VERIFICATIONS, Event
from cicpe.sessions.status import Skip, Status
from cicpe.sessions.stores import CampaignRecord
from cicpe.sessions.stores.base import KEY_LENGTH, StopName
from cicpe.sessions.stores.references import NAME, NAME_IN_WORDS
from cicpe.sessions.texts import LONGEST
from cicpe.units import Units

MOST_NUMBERS = 4096
"""Numbers of one observation or query."""
MOST_VERSIONS = 2**31 - 1
PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f]*$"
"""Text without control characters: not every database can hold those."""


def _listed(value: object) -> object:
    """One number is a list of one."""
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else value


Number = Annotated[FiniteFloat, Field(strict=True)]
Numbers = Annotated[
    list[Number],
    Field(min_length=1, max_length=MOST_NUMBERS),
    BeforeValidator(_listed),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number"},
                {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": MOST_NUMBERS},
            ]
        }
    ),
]
"""A number, or a list of them."""
A_NAME = f"^{NAME.pattern}$"
A_KEY = r"^[\x21-\x7e]+$"
PATTERNS_IN_WORDS = {
    A_NAME: NAME_IN_WORDS,
    A_KEY: f"1 to {KEY_LENGTH} letters, digits and signs of ASCII, without spaces",
    PRINTABLE: "one line of text, without control characters",
}
"""What may be typed, for people."""
Name = Annotated[str, Field(pattern=A_NAME, description="What can be typed without quotes.")]
Key = Annotated[str, Field(min_length=1, max_length=KEY_LENGTH, pattern=A_KEY)]


class Body(BaseModel):
    """What every body has in common: no field that is not known."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Version = Annotated[int, Field(strict=True, ge=0, le=MOST_VERSIONS)]
StepNumber = Annotated[int, Field(strict=True, ge=1, le=MOST_VERSIONS)]


class Change(Body):
    """What every change may carry."""

    expected_version: Version | None = None
    """The version that its sender has seen: refused with 409 where the campaign is at another."""


class AboutOpenQuery(Change):
    """A change that is about the open query says which one that is, in one of three ways or in several."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": [name]} for name in ("expected_version", "step", "query")]}
    )

    step: StepNumber | None = None
    """Number of the open query, from 1: refused with 409 where it is another."""
    query: Numbers | None = None
    """The open query itself: refused with 409 where it is another."""


def _entry(value: object) -> object:
    """A finite number, true or false, or a short text."""
    try:
        known = isinstance(value, bool) or (isinstance(value, str) and len(value.encode()) <= LONGEST)
        if known or (isinstance(value, int | float) and math.isfinite(value)):
            return value
    except (OverflowError, UnicodeEncodeError):
        pass
    raise ValueError("must be a finite number, yes or no, or the name of a category")


ENTRY = {"anyOf": [{"type": kind} for kind in ("number", "boolean", "string")]}
"""One entry of an observation. FastAPI's older versions know no list of types."""

Observed = Annotated[
    list[Annotated[Any, BeforeValidator(_entry)]],
    Field(min_length=1, max_length=MOST_NUMBERS),
    BeforeValidator(lambda value: value if isinstance(value, list) else [value]),
    WithJsonSchema(
        {
            "anyOf": [
                *ENTRY["anyOf"],
                {"type": "array", "items": ENTRY, "minItems": 1, "maxItems": MOST_NUMBERS},
            ]
        }
    ),
]
"""A number, or yes and no, or the name of a category; or a list of them."""


class MeasuredValue(Body):
    """What was measured, and whether its sender stands by it."""

    observation: Observed
    confirm: Annotated[bool, Field(strict=True)] = False
    """Record it though it is not plausible: sent again so after a refusal that says ``needs_confirmation``."""


class Tell(AboutOpenQuery, MeasuredValue):
    """What was measured at the open query."""

    at: Annotated[dict[str, Number], Field(max_length=64)] = {}
    """By name, settings that were really set to something else; the measurement then counts as attached."""


class Correct(Change, MeasuredValue):
    """What was really measured at an earlier step."""

    step: StepNumber
    """Its number in the history, from 1."""


class Undo(Body):
    """What is taken back is the last change that its sender has seen."""

    expected_version: Version
    """The version that its sender has seen: refused with 409 where the campaign is at another."""


class Skipping(AboutOpenQuery):
    """Why the open query cannot be measured."""

    reason: Annotated[str, Field(max_length=LONGEST, pattern=PRINTABLE)] = ""


class Attach(Change, MeasuredValue):
    """A measurement made elsewhere."""

    query: Numbers


class AttachTable(Change):
    """Measurements made elsewhere, as a table."""

    csv: Annotated[str, Field(min_length=1)]
    """With a header: a column per setting and one per measured quantity, by their names; as the export writes it."""
    confirm: Annotated[bool, Field(strict=True)] = False
    """Record them though some are not plausible."""


class Release(Body):
    """Why a campaign may stop that the alarm holds."""

    expected_version: Version
    """The version that its sender has looked at: refused with 409 where the campaign is at another."""
    reason: Annotated[str, Field(max_length=LONGEST, pattern=PRINTABLE)] = ""


class Verify(Change):
    """How many redundant queries are made before a stop is final."""

    queries: Annotated[int, Field(strict=True, ge=0, le=MOST_VERIFICATIONS)]


class Fork(Body):
    """The name of a copy."""

    name: Name


class NewCampaign(Body):
    """A campaign to begin."""

    name: Name
    model: Annotated[str, Field(max_length=200)]
    """One of ``/api/models``."""
    epsilon: Annotated[Number, Field(gt=0)] | None = None
    """How far off the answer may be; what the experiment file says where it is not given."""
    delta: Annotated[Number, Field(gt=0, lt=1)] | None = None
    """How often it may be farther off, likewise."""
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**32)] = 0
    stop: StopName = "each"
    verify: Annotated[int, Field(strict=True, ge=0, le=MOST_VERIFICATIONS)] = 0
    """Redundant queries before a stop is final."""
    context: Annotated[dict[str, Number], Field(max_length=64)] = {}
    """What is known beforehand, by name, such as ``noise``."""


class Limits(Body):
    """Where a coordinate may lie."""

    low: float
    high: float


class CampaignSetting(Body):
    """What stays the same in a campaign: its spaces and its goal."""

    query: list[Limits]
    """One for each coordinate of a query."""
    answer: list[Limits]
    """One for each coordinate of an answer."""
    observations: int
    """How many numbers are measured at a query."""
    observed: list[str]
    """What each of them can be, in words."""
    answer_lies: Literal["query", "observation"] | None
    """Whether an answer is a place among the queries, or a value on the scale of the observations."""
    horizon: int
    """The most queries that the model can take."""


class CampaignView(Body):
    """A campaign and everything that follows from its log."""

    campaign: CampaignRecord
    setting: CampaignSetting
    status: Status


class Question(Body):
    """The open query."""

    version: int
    step: int
    query: list[float] | None
    """Null where the campaign has stopped."""
    stopped: bool
    truncated: bool


class LogEntry(Body):
    """An event of the log."""

    position: int
    at: str
    key: str | None
    words: str
    in_force: bool
    """Whether it still counts: it was not undone, and is no undoing."""
    event: Annotated[Event, Field(discriminator="kind")]


class CampaignLog(Body):
    """Everything that happened, in order."""

    campaign: CampaignRecord
    events: list[LogEntry]


class BeliefThen(Body):
    """What is believed after a number of steps, by the history as it is known now."""

    recommendation: list[float]
    std: list[float]
    confidence: float


class PlotData(Body):
    """What a plot needs beside the status."""

    version: int
    trace: list[BeliefThen]
    """Before the first step and after each."""
    skips: list[Skip]


class Campaigns(Body):
    """Every campaign of the store, oldest first."""

    campaigns: list[CampaignRecord]


class Models(Body):
    """What a campaign can be begun with."""

    models: list[str]


class ContextRange(Body):
    """A number that a model wants to know beforehand."""

    name: str
    low: float
    high: float
    default: float | None


class ModelView(Body):
    """What a model is for."""

    name: str
    problem: str
    options: dict[str, Any]
    units: Units
    """What its coordinates mean, and the epsilon and delta of its experiment file; empty for other models."""
    epsilon: Limits
    deltas: list[float]
    """The calibrated ones; the smallest is the least that can be asked for."""
    context: list[ContextRange]
    horizon: int
    queries: int
    """Coordinates of a query."""
    observations: int
    """Numbers measured at each."""


class Fault(BaseModel):
    """Why a request was refused."""

    field: str | None
    value: Any = None
    allowed: str
    message: str
    needs_confirmation: bool = False
    """Whether the same request with ``confirm: true`` would be taken."""
    expected_version: int | None = None
    """Of a conflict: the version that the sender had seen."""
    since: list[LogEntry] | None = None
    """Of a conflict: what happened after that."""
    now: CampaignView | None = None
    """Of a conflict: the campaign as it is."""
