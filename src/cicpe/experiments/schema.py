"""The experiment file: every field, with its type and its default. What fits together is checked in ``checks.py``."""

import re
import unicodedata
from typing import Annotated, Any, Literal, final

from pydantic import AfterValidator, Field

from cicpe.config import Config
from cicpe.units import MeasurementKind

LARGEST = 1e12
"""Of any number in a file: in single precision there is room above and below."""
Number = Annotated[float, Field(strict=True, ge=-LARGEST, le=LARGEST)]
Range = tuple[Number, Number]


def _one_line(text: str) -> str:
    if len(text) > 100 or any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in text):
        raise ValueError("must be one line of text, at most 100 letters")
    return text


def _name(text: str) -> str:
    if len(text) > 40 or NAME.fullmatch(text) is None:
        raise ValueError("must be letters, digits and underscores, at most 40, no digit first")
    return text


NAME = re.compile(r"[^\W\d]\w*")
Text = Annotated[str, Field(strict=True), AfterValidator(_one_line)]
"""One line that any terminal can show."""
Name = Annotated[str, Field(strict=True), AfterValidator(_name)]
"""A name that can stand in a formula."""
ScaleName = Literal["linear", "log"]


@final
class ExperimentSetting(Config):
    """Something that is chosen for every measurement."""

    name: Name
    unit: Text = ""
    range: Range | None = None
    """The lowest and the highest value."""
    scale: ScaleName = "linear"
    """log: equal factors matter equally, as for times and concentrations."""
    step: Annotated[Number, Field(gt=0)] | None = None
    """What the instrument can be set to: the lowest value, and so many steps above."""
    values: Annotated[tuple[Number, ...], Field(min_length=2, max_length=1000)] | None = None
    """All values that it can be set to, in the place of range and step."""

    @property
    def limits(self) -> Range:
        """The lowest and the highest value."""
        if self.values is not None:
            return min(self.values), max(self.values)
        assert self.range is not None, "checked"
        return self.range


@final
class ExperimentMeasurement(Config):
    """What is read off each time."""

    name: Name
    unit: Text = ""
    kind: MeasurementKind = "number"
    typical: Range | None = None
    """Between which values nearly all true values lie."""
    noise: Number | Range | None = None
    """A number's standard deviation, or the range that it may be in."""
    of: Annotated[int, Field(strict=True, ge=1, le=100_000)] | None = None
    """Of a count: out of how many. Without it a count has no upper end."""
    limits: Range | None = None
    """Beyond these a value is refused as a slip."""


@final
class SmoothModel(Config):
    """A random smooth function of one to three settings."""

    kind: Literal["smooth"]
    bumps: Literal["one", "few", "many"] | None = None
    """How wiggly; few where neither this nor lengths is given."""
    lengths: dict[str, Number | Range] | None = None
    """By setting: over which distance the measurement changes much, in its unit (a factor on a log scale)."""


@final
class ThresholdModel(Config):
    """The probability of yes rises with one setting, from ``guess`` to 1 - ``lapse``."""

    kind: Literal["threshold"]
    shape: Literal["logistic", "probit", "weibull"] = "logistic"
    guess: Number | Range = 0.0
    """How often the answer is yes far below the threshold."""
    lapse: Number | Range = 0.0
    """How often it is no far above."""
    width: Number | Range | None = None
    """How far the setting goes from a tenth to nine tenths of the curve's way (a factor on a log scale)."""
    threshold: Range | None = None
    """Where the threshold may lie; anywhere in the setting's range where not given."""
    direction: Literal["rising", "falling"] = "rising"


@final
class ExperimentParameter(Config):
    """An unknown number of a formula."""

    range: Range
    scale: ScaleName = "linear"
    unit: Text = ""


@final
class FormulaModel(Config):
    """A formula of the settings with unknown parameters."""

    kind: Literal["formula"]
    formula: Annotated[str, Field(min_length=1)]
    """The number's mean, the count's mean (its share, with ``of``), or the probability of yes."""
    parameters: Annotated[dict[str, Number | Range | ExperimentParameter], Field(min_length=1, max_length=12)]
    """By name: a known number, the range of an unknown one, or a table with range, scale and unit."""


AnyModel = Annotated[SmoothModel | ThresholdModel | FormulaModel, Field(discriminator="kind")]


@final
class ExperimentGoal(Config):
    """What is asked, how exactly, how surely, and after how many measurements at most."""

    find: Annotated[str, Field(min_length=1)] | Annotated[tuple[str, ...], Field(min_length=1, max_length=6)]
    """peak, trough, height, depth, crossing, threshold, or parameters and expressions of them."""
    within: Number | str | dict[str, Number | str]
    """How far off: a number in the unit of what is sought, per cent of it ("10 %"), or one of these by name."""
    sure: Annotated[Number, Field(ge=0.5, le=0.99)] = 0.9
    """With which probability."""
    at_most: Annotated[int, Field(strict=True, ge=1, le=2000)] = 100
    """Measurements."""
    level: Number | None = None
    """Of a crossing or a threshold: at which value."""

    @property
    def sought(self) -> tuple[str, ...]:
        """What is to be found, as a list."""
        return (self.find,) if isinstance(self.find, str) else self.find


SECTIONS: dict[str, Any] = {
    "title": Text,
    "setting": Annotated[tuple[ExperimentSetting, ...], Field(min_length=1, max_length=6)],
    "measurement": ExperimentMeasurement,
    "model": AnyModel,
    "goal": ExperimentGoal,
}
"""The parts of a file, each with its type."""
