"""What goes over the wire for experiments and their training: bodies of requests and answers."""

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from cicpe.experiments.experiment import LARGEST_FILE
from cicpe.server.schemas import Body, Key, Name, Number
from cicpe.units import Units

DEEPEST = 12
"""Levels of lists and tables in a document: an experiment has four."""
MOST_MINUTES = 60.0
LEAST_MINUTES = 0.05
TrainingState = Literal["none", "running", "done", "failed", "cancelled", "interrupted"]


def _small(document: dict[str, Any]) -> dict[str, Any]:
    """A document that is no larger and no deeper than an experiment can be."""
    if _is_deeper(document, DEEPEST):
        raise ValueError(f"must be an experiment: at most {DEEPEST} levels of lists and tables")
    _check_text(json.dumps(document, ensure_ascii=False))
    return document


def _check_text(text: str) -> str:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError("must be text that UTF-8 can hold") from None
    if size > LARGEST_FILE:
        raise ValueError(f"must be at most {LARGEST_FILE:,} bytes")
    return text


def _is_deeper(value: Any, levels: int) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(levels == 0 or _is_deeper(child, levels - 1) for child in inside)


Document = Annotated[dict[str, Any], AfterValidator(_small)]
"""An experiment as plain data: the content of an experiment file."""
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32)]


class ExperimentDraft(Body):
    """An experiment that may have faults still: as plain data, or as the text of a file."""

    document: Document | None = None
    toml: Annotated[str, Field(max_length=LARGEST_FILE), AfterValidator(_check_text)] | None = None
    """The text of an experiment file, in the place of ``document``."""
    seed: Seed = 0
    """Which eight experiments are drawn."""

    @model_validator(mode="after")
    def _one_of_both(self) -> "ExperimentDraft":
        if (self.document is None) == (self.toml is None):
            raise ValueError("must be either document or toml, and not both")
        return self


class ExperimentFault(Body):
    """One thing that is wrong with an experiment."""

    path: list[str | int]
    """Where: names of tables and fields, and places in lists counted from 0."""
    field: str
    """The same as people say it."""
    line: int | None
    """Of the file, where there is one."""
    value: str
    allowed: str
    """What it must be, in words that follow "must be"."""
    message: str


class DrawnCurve(Body):
    """One experiment that might happen, in units."""

    truth: list[list[float | None]]
    """The mean on the grid, a row per value of the second setting; null where it is not finite."""
    read_at: list[list[float]]
    """Where measurements were made, one list of settings each."""
    readings: list[float | None]
    """What was read there."""
    answer: list[float | None]
    """What is sought."""


class ExperimentPicture(Body):
    """Eight experiments that might happen."""

    grid: list[list[float]]
    """The values of the first setting, and of the second where there are two or more; others are at their middle."""
    draws: list[DrawnCurve]
    answer_is_place: bool
    """Whether what is sought lies among the settings."""


class ExperimentView(Body):
    """What was understood of an experiment, or all that is wrong with it."""

    faults: list[ExperimentFault]
    document: dict[str, Any] | None
    """The content of the file as plain data, faults included; null where the text is no TOML."""
    toml: str | None
    """The text of a file that reads as this experiment; null where there are faults."""
    words: list[str]
    units: Units | None
    at_most: int | None
    """The most measurements."""
    picture: ExperimentPicture | None


class ExperimentTemplate(Body):
    """An experiment to begin with."""

    name: str
    title: str
    about: str
    """What it is for."""
    document: dict[str, Any]


class ExperimentTemplates(Body):
    """What a new experiment can begin with, and what a formula may hold."""

    templates: list[ExperimentTemplate]
    functions: list[str]
    constants: list[str]
    can_train: bool
    """Whether this server has a folder for models."""


class EstimateWish(Body):
    """An experiment of which the number of measurements is wanted."""

    document: Document


class EstimateView(Body):
    """How many measurements to expect, before anything is trained: rough, since nothing is calibrated."""

    words: str
    queries: float | None
    accuracy: float | None
    episodes: int
    horizon: int
    least: float | None


class TrainingWish(Body):
    """A training to begin."""

    document: Document
    name: Name
    """Of the model, and of the campaign that is begun with it."""
    minutes: Annotated[Number, Field(ge=LEAST_MINUTES, le=MOST_MINUTES)] = 5.0
    seed: Seed = 0


class TrainingCancel(Body):
    """Which training is to end."""

    id: Key
    """As the server named it: refused with 409 where another is under way."""


class TrainingView(Body):
    """The training that is under way, or the last one."""

    state: TrainingState
    id: str
    name: str
    title: str
    minutes: float
    share: float
    """How much of its time is over, from 0 to 1."""
    seconds_left: float
    stage: str
    """What is being done, in words."""
    lines: list[str]
    """What was tried and chosen so far."""
    message: str
    """Of one that failed: why."""
    model: str | None
    """Of one that is done: what campaigns can be begun with, one of ``/api/models``."""
    expected_queries: float | None
    """Of one that is done: how many measurements a campaign takes on average."""
    at_most: int | None
    delta: float | None
    """Of one that is done: the smallest that it can keep from the one that was asked for up; null where none."""
    wanted_delta: float | None
    document: dict[str, Any] | None
    """The experiment, so that it can be changed and trained again."""
