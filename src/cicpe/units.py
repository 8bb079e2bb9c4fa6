"""Between a model's coordinates and what people write down: names, units, steps, yes and no. No torch here.

A model works in coordinates of its own, in which one model serves every range of the same shape. ``Units`` says what a
coordinate means to whoever measures. A session speaks in these units, and so does its log; a model without them speaks
in its coordinates.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, final

from pydantic import Field, model_validator

from cicpe.config import Config
from cicpe.errors import InvalidInput, meant
from cicpe.rounding import decimals_for, interval, rounded, with_unit

MeasurementKind = Literal["number", "yes/no", "count"]
RANGE_PARTS = 1000
"""Parts of a range that are told apart where an instrument has no step."""
SLACK = 1e-6
"""Share of a range by which a value may lie outside for its last digit."""
LARGEST = 1e30
"""Of any number of a scale: whatever is made of two of them is finite."""
FINEST = 1e-12
"""Of the width of a range and of a step, as shares of the larger end and of the width."""
STEEPEST = 300.0
"""Of an exponent: what is made of its exponential is finite."""
COLUMN = re.compile(r"[\w(].*")
"""How the name of a column begins: what else may, such as =, a spreadsheet would take for a program."""
Bounded = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]


@final
class Scale(Config):
    """One coordinate of a query or of an answer, and the quantity that it stands for."""

    name: str
    unit: str = ""
    low: Bounded
    """The quantity where the coordinate is ``start``."""
    high: Bounded
    """The quantity where it is ``start + extent``; below ``low`` where the two run against each other."""
    log: bool = False
    """Whether equal steps of the coordinate are equal factors of the quantity."""
    step: Annotated[float, Field(gt=0, le=LARGEST)] | None = None
    """What the instrument can be set to: ``low``, and so many steps above it."""
    values: tuple[Bounded, ...] = ()
    """What it can be set to, where that is a list."""
    start: Bounded = 0.0
    extent: Bounded = 1.0

    @model_validator(mode="after")
    def _spans(self) -> "Scale":
        width, larger = abs(self.high - self.low), max(abs(self.low), abs(self.high))
        if not (width > FINEST * larger and width > 1 / LARGEST):
            raise ValueError(f"high must be another number than low; got {self.high} and {self.low}")
        if self.log and min((self.least, *self.values)) < 1 / LARGEST:
            raise ValueError(f"low, high and values must be above 0 on a log scale; got {self.least}")
        if abs(self.extent) < 1 / LARGEST:
            raise ValueError(f"extent must not be 0; got {self.extent}")
        if self.step is not None and self.step < FINEST * width:
            raise ValueError(f"step must be at least {FINEST:g} of the range; got {self.step}")
        return self

    def value(self, coordinate: float) -> float:
        """The quantity at a coordinate."""
        share = (coordinate - self.start) / self.extent
        if self.log:
            exponent = math.log(self.low) + share * (math.log(self.high) - math.log(self.low))
            return math.exp(min(max(exponent, -STEEPEST), STEEPEST))
        return self.low + share * (self.high - self.low)

    def coordinate(self, value: float) -> float:
        """The coordinate of a quantity; where a logarithm has none, far below the start."""
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low) if value > 0 else -1e6
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * self.extent

    def settable(self, coordinate: float) -> float:
        """The nearest quantity that the instrument can be set to; a plain number where it has no step."""
        value = min(max(self.value(coordinate), self.least), self.most)
        if self.values:
            return min(self.values, key=lambda candidate: abs(self.coordinate(candidate) - coordinate))
        if self.step is not None:
            steps = min(round((value - self.low) / self.step), math.floor((self.high - self.low) / self.step + 1e-9))
            return float(f"{self.low + steps * self.step:.12g}")
        return min(max(self.rounded(value), self.least), self.most)

    def rounded(self, value: float) -> float:
        """A quantity with no more digits than its range asks for."""
        if self.log:
            figures = max(3, math.ceil(-math.log10(abs(math.log(self.high / self.low)) / RANGE_PARTS)))
            return float(f"{value:.{figures}g}")
        digits = math.ceil(-math.log10(abs(self.high - self.low) / RANGE_PARTS))
        return float(f"{round(value, digits):.12g}")

    @property
    def least(self) -> float:
        """The smallest quantity."""
        return min(self.low, self.high)

    @property
    def most(self) -> float:
        """The largest quantity."""
        return max(self.low, self.high)

    def contains(self, value: float) -> bool:
        """Whether a quantity lies in the range."""
        end = self.start + self.extent
        low, high = min(self.start, end), max(self.start, end)
        slack = SLACK * abs(self.extent)
        return low - slack <= self.coordinate(value) <= high + slack

    def slope(self, coordinate: float) -> float:
        """How much the quantity changes per unit of the coordinate."""
        if self.log:
            return self.value(coordinate) * abs(math.log(self.high / self.low) / self.extent)
        return abs((self.high - self.low) / self.extent)

    def words(self, value: float) -> str:
        """A quantity with its unit: ``845 °C``."""
        return with_unit(f"{self.rounded(value):.6g}", self.unit)

    def tolerance(self, epsilon: float) -> str:
        """In words, how far off a quantity may be whose coordinate is off by epsilon."""
        if self.log:
            exponent = abs(epsilon * math.log(self.high / self.low) / self.extent)
            return f"{100 * math.expm1(min(exponent, STEEPEST)):.3g} %"
        return with_unit(f"{abs(epsilon * (self.high - self.low) / self.extent):.3g}", self.unit)


@final
class Readout(Config):
    """What is read off at a query, and what a model sees of it."""

    name: str
    unit: str = ""
    kind: MeasurementKind = "number"
    low: Bounded
    """Below this a value is not plausible."""
    high: Bounded
    """Nor above this."""
    of: Annotated[int, Field(ge=1, le=10**6)] | None = None
    """Of a count: out of how many."""
    origin: Bounded = 0.0
    """A model sees (value - origin) / scale."""
    scale: Bounded = 1.0
    """Below zero where a trough is looked for: a model finds peaks."""

    @model_validator(mode="after")
    def _can_be_divided_by(self) -> "Readout":
        if abs(self.scale) < 1 / LARGEST:
            raise ValueError(f"scale must be at least {1 / LARGEST:g} in size; got {self.scale!r}")
        return self

    @property
    def allowed(self) -> str:
        """What may be told, in words."""
        if self.kind == "yes/no":
            return "yes or no"
        if self.kind == "count":
            return (
                "a whole number from 0 up, such as 7"
                if self.of is None
                else f"a count of {self.of}, such as {self.of // 3}/{self.of}"
            )
        return f"a number from {self.low:.4g} to {self.high:.4g}" + (f" in {self.unit}" if self.unit else "")

    def parse(self, given: object) -> object:
        """What was told, as a kind of observation takes it: text becomes a number where it says one.

        Args:
            given: A number, or text such as ``312``, ``312 HV``, ``yes`` or ``7/20``.

        Returns:
            A number, or the word itself; what cannot be is refused by the measurement's name.
        """
        value = self._from_text(given.strip()) if isinstance(given, str) else given
        wordy = self.kind != "yes/no" and isinstance(value, str | bool)
        beyond = self.of is not None and isinstance(value, int | float) and not 0 <= value <= self.of
        if wordy or beyond:
            raise InvalidInput(self.name, given, self.allowed)
        return value

    def _from_text(self, text: str) -> float | str:
        parts = re.fullmatch(r"(\d{1,9})\s*(?:/|of)\s*(\d{1,9})", text)
        if parts is not None and self.kind == "count":
            return float(parts[1]) if int(parts[2]) == self.of else text
        if self.unit and text.endswith(self.unit):
            text = text.removesuffix(self.unit).strip()
        try:
            return float(text)
        except ValueError:
            return text

    def words(self, value: float) -> str:
        """A value as people write it."""
        if self.kind == "yes/no":
            return "yes" if value else "no"
        if self.kind == "count":
            return f"{value:g}" if self.of is None else f"{value:g}/{self.of}"
        return with_unit(f"{value:.6g}", self.unit)


@final
class Units(Config):
    """What a model's coordinates mean. Without any, everything is written as the coordinates themselves."""

    title: str = ""
    settings: tuple[Scale, ...] = ()
    """One per coordinate of a query."""
    readout: Readout | None = None
    """What is measured."""
    answers: tuple[Scale, ...] = ()
    """One per coordinate of an answer."""
    epsilon: float | None = Field(default=None, gt=0)
    """How far off an answer may be where nobody says."""
    delta: float | None = Field(default=None, gt=0, lt=1)
    """How often it may be farther off where nobody says."""

    @model_validator(mode="after")
    def _columns(self) -> "Units":
        for name in (*self.names, *([] if self.readout is None else [self.readout.name])):
            if COLUMN.fullmatch(name) is None:
                raise ValueError(f"names must begin with a letter, a digit, _ or (; got {name!r}")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The settings' names; none where there are no units."""
        return tuple(setting.name for setting in self.settings)

    def settable(self, query: Sequence[float]) -> tuple[float, ...]:
        """A model's query as it can be set."""
        if not self.settings:
            return tuple(query)
        return tuple(setting.settable(value) for setting, value in zip(self.settings, query, strict=True))

    def query_coordinates(self, values: Sequence[float]) -> tuple[float, ...]:
        """A query in units as a model sees it."""
        return _to_model(self.settings, values)

    def query_values(self, query: Sequence[float]) -> tuple[float, ...]:
        """A model's query in units, as exactly as it is."""
        return _from_model(self.settings, query)

    def answer_values(self, answer: Sequence[float]) -> tuple[float, ...]:
        """A model's answer in units."""
        return _from_model(self.answers, answer)

    def answer_coordinates(self, values: Sequence[float]) -> tuple[float, ...]:
        """An answer in units as a model sees it."""
        return _to_model(self.answers, values)

    def answer_spread(self, answer: Sequence[float], spread: Sequence[float]) -> tuple[float, ...]:
        """Standard deviations of an answer's coordinates in units, by the scales' slopes there."""
        if not self.answers:
            return tuple(spread)
        return tuple(scale.slope(at) * std for scale, at, std in zip(self.answers, answer, spread, strict=True))

    def observation_coordinates(self, values: Sequence[float]) -> tuple[float, ...]:
        """What a model sees of a measurement in units."""
        if self.readout is None:
            return tuple(values)
        return tuple((value - self.readout.origin) / self.readout.scale for value in values)

    def read_observation(self, given: object) -> tuple[str, object]:
        """The measurement's name, and what was told as a kind of observation takes it."""
        if self.readout is None:
            return "observation", given
        alone = given[0] if isinstance(given, list | tuple) and len(given) == 1 else given
        return self.readout.name, self.readout.parse(alone)

    def read_query(self, given: object) -> object:
        """Settings that were told by name, in their order, each checked; as they are where there are no units."""
        if not self.settings:
            return given
        if isinstance(given, Mapping):
            given = [self.setting(name, given) for name in self.check_names(given)]
        for setting, value in zip(self.settings, given if isinstance(given, Sequence) else [], strict=False):
            if isinstance(value, int | float) and not setting.contains(float(value)):
                raise InvalidInput(
                    setting.name, value, f"from {setting.words(setting.least)} to {setting.words(setting.most)}"
                )
        return given

    def check_names(self, given: Mapping[str, object]) -> tuple[str, ...]:
        """All settings' names, refusing a name that is none of them."""
        for name in given:
            if name not in self.names:
                raise InvalidInput(str(name), given[name], f"one of {', '.join(self.names)}{meant(name, self.names)}")
        return self.names

    def setting(self, name: str, given: Mapping[str, object]) -> object:
        """The value of one setting."""
        if name not in given:
            raise InvalidInput(name, None, "given: every setting needs its value")
        return given[name]

    def query_words(self, values: Sequence[float]) -> str:
        """A query as people write it: ``temperature 845 °C, time 95 min``; numbers where there are no units."""
        if not self.settings:
            return " ".join(f"{value:.6g}" for value in values)
        named = zip(self.settings, values, strict=True)
        return ", ".join(f"{setting.name} {with_unit(f'{value:.6g}', setting.unit)}" for setting, value in named)

    def observation_words(self, values: Sequence[float]) -> str:
        """A measurement as people write it."""
        if self.readout is None:
            return " ".join(f"{value:.6g}" for value in values)
        return ", ".join(map(self.readout.words, values))

    def answer_words(self, values: Sequence[float]) -> str:
        """An answer as people write it."""
        if not self.answers:
            return " ".join(f"{value:.6g}" for value in values)
        named = zip(self.answers, values, strict=True)
        return ", ".join(f"{scale.name} {scale.words(value)}" for scale, value in named)

    def answer_with_region(self, values: Sequence[float], region: Sequence[Sequence[float]]) -> str:
        """An answer with its credible interval: ``temperature 845 °C (820 to 870)``; without units the answer alone."""
        decimals = [decimals_for(low, high) for low, high in region]
        figures = list(map(rounded, values, decimals))
        if not self.answers:
            return ", ".join(figures)
        rows = zip(self.answers, figures, map(interval, region, decimals), strict=True)
        return ", ".join(f"{scale.name} {with_unit(figure, scale.unit)} ({ends})" for scale, figure, ends in rows)

    def tolerance_words(self, epsilon: float) -> str:
        """How far off an answer may be, in words."""
        if not self.answers:
            return f"{epsilon:g}"
        each = [scale.tolerance(epsilon) for scale in self.answers]
        if len(each) == 1:
            return each[0]
        return " and ".join(f"{off} in {scale.name}" for off, scale in zip(each, self.answers, strict=True))


def _to_model(scales: Sequence[Scale], values: Sequence[float]) -> tuple[float, ...]:
    if not scales:
        return tuple(values)
    return tuple(scale.coordinate(value) for scale, value in zip(scales, values, strict=True))


def _from_model(scales: Sequence[Scale], coordinates: Sequence[float]) -> tuple[float, ...]:
    if not scales:
        return tuple(coordinates)
    return tuple(scale.value(at) for scale, at in zip(scales, coordinates, strict=True))
