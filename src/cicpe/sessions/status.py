"""What a session says of itself, as plain data: for the command line, a server and an export. No torch here."""

from dataclasses import dataclass
from typing import Literal, final

from pydantic import BaseModel, ConfigDict

from cicpe.units import Units

ReasonCode = Literal["unsure", "verifying", "held", "confident", "horizon"]
Source = Literal["told", "attached"]


@final
@dataclass(frozen=True)
class Reason:
    """Why a session goes on or has stopped."""

    code: ReasonCode
    """unsure: it goes on; verifying: the stop rule is met, and the prior is being checked; held: it is met, and the
    alarm holds the stop; confident: it is met; horizon: it has made every query that it can."""
    words: str


@final
@dataclass(frozen=True)
class StatusStep:
    """One query and what was observed there."""

    query: tuple[float, ...]
    observation: tuple[float, ...]
    source: Source = "told"
    """Whether the session asked for it (told) or it was measured elsewhere (attached)."""
    first_observation: tuple[float, ...] | None = None
    """What was recorded at first, where it was corrected later."""


@final
@dataclass(frozen=True)
class Skip:
    """A query that could not be made, and why."""

    query: tuple[float, ...]
    reason: str


@final
class Status(BaseModel):
    """Everything derived from a session's log at one version of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int
    """Length of the log."""
    epsilon: float
    delta: float
    step: int
    """Number of the open query; of the last step, where the session has stopped."""
    query: tuple[float, ...] | None
    """The open query; null where the session has stopped."""
    stopped: bool
    truncated: bool
    """Whether it stopped at the horizon, short of the confidence that was asked for."""
    reason: Reason
    confidence: float
    stops_at: float | None
    """The calibrated confidence at which it stops; None where its stop rule looks at more than that."""
    p_value: float | None
    """How likely a history of the prior is to look as odd; None where the model has no alarm."""
    in_prior: Literal["yes", "doubtful", "no", "unknown"]
    held: bool = False
    """Whether the stop rule is met, but ``in_prior: no`` holds the stop until someone releases it."""
    released: bool = False
    """Whether someone has let it stop although the alarm says no."""
    verify: int = 0
    """Redundant queries that are made before a stop is final."""
    verifying: bool = False
    """Whether the open query is one of them."""
    recommendation: tuple[float, ...]
    std: tuple[float, ...]
    credible_region: tuple[tuple[float, float], ...]
    """Low and high of each coordinate of the answer, by the agent's belief."""
    decimals: tuple[int, ...]
    """Digits after the decimal point that are worth reading of each coordinate, by the width of its interval."""
    expected_remaining_queries: float | None
    attached: int
    """Steps that were measured elsewhere."""
    corrected: int
    """Steps whose observation was corrected."""
    skipped: int
    """Queries that could not be made."""
    history: tuple[StatusStep, ...]
    units: Units = Units()
    """What queries, observations and answers mean; empty where they are a model's own coordinates."""
