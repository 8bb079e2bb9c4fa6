"""What an observation can be: yes or no, a category, a count or a number, with plausible limits.

A problem declares it, one kind for every entry of an observation (or a single one for all)::

    observation = YesNo()                      # what is told is yes or no
    observation = Count(high=200)              # whole numbers; more than 200 would be odd
    observation = (Number(0, 14), Category(3))  # a vector: one kind per entry

What is not declared is found from simulated observations. A value that cannot be is refused; one that can be but is
not plausible is asked for twice.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, final

import torch
from jaxtyping import Float
from torch import Tensor

from cicpe.errors import Implausible, InvalidInput
from cicpe.units import Readout

MOST_CATEGORIES = 12
"""Entries with at most this many different values in the pilot are categories."""
MARGIN = 0.25
"""How far plausible limits lie beyond what the pilot saw, as a share of the range that it saw."""
LARGEST = float(torch.finfo(torch.float32).max)
"""Networks compute in single precision; a larger observation would be infinite to them."""
STUCK = 3
"""Equal values in a row, at different queries, that are asked about."""
UNEVEN = 0.04
"""How far the shares of values and of their negatives may be apart; two samples of 8,192 differ by 0.02 by chance."""
SAME = 1e-5
"""How far, relative to their distance, a value may be from one of a list and still mean it."""


class ObservationKind(ABC):
    """What one entry of an observation can be. Immutable, compared by value, and JSON can hold it."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def allowed(self) -> str:
        """What is possible, in words that follow "must be"."""

    @abstractmethod
    def read(self, value: object) -> float:
        """The number that a value means; a ``ValueError`` where it cannot be one of this kind."""

    def doubt(self, value: float) -> str | None:
        """What would be plausible, in words that follow "must be"; None where the value is."""
        return None

    @property
    def words(self) -> str:
        """What is possible and what is plausible, in a few words."""
        return self.allowed

    @property
    def has_limits(self) -> bool:
        """Whether plausible limits are known, or none are needed."""
        return True

    def within(self, low: float, high: float) -> "ObservationKind":
        """The same kind with plausible limits where it has none, from the smallest and largest value that was seen."""
        return self

    def to_json(self) -> dict[str, Any]:
        """A JSON object that ``kind_from_json`` reads back."""
        fields = asdict(self)  # type: ignore[call-overload]
        return {"kind": self.name} | {key: list(v) if isinstance(v, tuple) else v for key, v in fields.items()}


def _number(value: object) -> float:
    """A finite number; text is none."""
    if isinstance(value, str | bytes):
        raise ValueError
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, OverflowError):
        raise ValueError from None
    if not abs(number) <= LARGEST:  # written so that a NaN fails
        raise ValueError
    return number


def _nearest(value: float, known: Sequence[float]) -> float | None:
    """The known value that is meant, but for what single precision loses."""
    near = min(known, key=lambda other: abs(other - value))
    return near if abs(near - value) <= SAME * max(1.0, abs(near)) else None


@final
@dataclass(frozen=True)
class YesNo(ObservationKind):
    """One of two values. Yes and no, true and false, or the two numbers themselves can be told.

    Args:
        no: The number that the simulator returns for no.
        yes: And for yes.
    """

    no: float = 0.0
    yes: float = 1.0
    name: ClassVar[str] = "yes-no"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.no) and math.isfinite(self.yes) and self.no != self.yes):
            raise InvalidInput("no, yes", (self.no, self.yes), "two different numbers")

    @property
    def allowed(self) -> str:
        return f"yes or no ({self.yes:g} or {self.no:g})"

    def read(self, value: object) -> float:
        if isinstance(value, str):
            value = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}.get(
                value.strip().lower(), value
            )
        if isinstance(value, bool):
            return self.yes if value else self.no
        known = _nearest(_number(value), (self.no, self.yes))
        if known is None:
            raise ValueError
        return known


@final
@dataclass(frozen=True)
class Category(ObservationKind):
    """One of a few values.

    Args:
        values: How many, for 0, 1, 2 and so on; or the numbers that the simulator returns.
        names: What people call them, in the same order; they can be told by name too.
        closed: Whether there are no others. Of categories that only a pilot saw that is not known, and another number
            is merely implausible.
    """

    values: int | Sequence[float]
    names: Sequence[str] = ()
    closed: bool = True
    name: ClassVar[str] = "category"

    def __post_init__(self) -> None:
        values = range(self.values) if isinstance(self.values, int) else self.values
        numbers = tuple(float(value) for value in values)
        if len(numbers) < 2 or len(set(numbers)) != len(numbers) or not all(map(math.isfinite, numbers)):
            raise InvalidInput("values", self.values, "at least 2 categories, or their numbers")
        if self.names and (len(self.names) != len(numbers) or len(set(self.names)) != len(numbers)):
            raise InvalidInput("names", self.names, f"{len(numbers)} different names, one per category")
        object.__setattr__(self, "values", numbers)
        object.__setattr__(self, "names", tuple(self.names))

    @property
    def numbers(self) -> tuple[float, ...]:
        """The numbers that the simulator returns."""
        assert not isinstance(self.values, int)
        return tuple(self.values)

    @property
    def allowed(self) -> str:
        listed = self.names or [f"{value:g}" for value in self.numbers]
        return f"one of {', '.join(listed)}" if self.closed else "a number"

    def read(self, value: object) -> float:
        if isinstance(value, str) and value.strip() in self.names:
            return self.numbers[self.names.index(value.strip())]
        number = _number(value)
        known = _nearest(number, self.numbers)
        if known is None and self.closed:
            raise ValueError
        return number if known is None else known

    def doubt(self, value: float) -> str | None:
        if _nearest(value, self.numbers) is not None:
            return None
        return f"one of {', '.join(f'{known:g}' for known in self.numbers)}, which is all that simulations gave"


@dataclass(frozen=True)
class _Limited(ObservationKind):
    low: float | None = None
    """The smallest plausible value; from the pilot where it is not given."""
    high: float | None = None
    """The largest plausible value, likewise."""

    def __post_init__(self) -> None:
        ends = [end for end in (self.low, self.high) if end is not None]
        if not all(map(math.isfinite, ends)) or (len(ends) == 2 and not ends[0] < ends[1]):
            raise InvalidInput("low, high", (self.low, self.high), "finite numbers with low < high, or left out")

    @property
    def has_limits(self) -> bool:
        return self.low is not None and self.high is not None

    def within(self, low: float, high: float) -> ObservationKind:
        reach = MARGIN * (high - low)
        least = self.low if self.low is not None else self._least(low - reach)
        most = self.high if self.high is not None else high + reach
        return replace(self, low=least, high=most if most > least else least + 1.0)

    def _least(self, low: float) -> float:
        return low

    @property
    def words(self) -> str:
        plausible = self._plausible
        return self.allowed if plausible is None else f"{self.allowed}, {plausible} as a rule"

    @property
    def _plausible(self) -> str | None:
        match self.low, self.high:
            case None, None:
                return None
            case low, None:
                return f"at least {low:.4g}"
            case None, high:
                return f"at most {high:.4g}"
            case low, high:
                return f"from {low:.4g} to {high:.4g}"

    def doubt(self, value: float) -> str | None:
        low, high = self.low, self.high
        if (low is None or value >= low) and (high is None or value <= high):
            return None
        return f"{self._plausible}, where values of this kind lie"


@final
@dataclass(frozen=True)
class Count(_Limited):
    """A whole number that is not negative; plausible from ``low`` to ``high``."""

    name: ClassVar[str] = "count"

    @property
    def allowed(self) -> str:
        return "a whole number that is not negative"

    def _least(self, low: float) -> float:
        return max(0.0, low)

    def read(self, value: object) -> float:
        number = _number(value)
        if number < 0 or number != round(number):
            raise ValueError
        return number


@final
@dataclass(frozen=True)
class Number(_Limited):
    """Any finite number; plausible from ``low`` to ``high``."""

    continuous: bool = False
    """Whether simulations never gave a value twice, nor a coordinate of the query (found by the pilot): either is then
    a sign of a stuck instrument or of a slip."""
    mirrored: bool = False
    """Whether the prior has the same values with their sign reversed (found by the pilot): no alarm can see a reversed
    sign then, and whoever reads the answer is told so."""
    name: ClassVar[str] = "number"

    @property
    def allowed(self) -> str:
        return "a finite number"

    def read(self, value: object) -> float:
        return _number(value)


KINDS: Mapping[str, type[ObservationKind]] = {kind.name: kind for kind in (YesNo, Category, Count, Number)}


def kind_from_json(data: Mapping[str, Any]) -> ObservationKind:
    """A kind from its JSON object; a ``ValueError`` says what is wrong with another."""
    fields = dict(data)
    kind = KINDS.get(fields.pop("kind", ""))
    if kind is None:
        raise InvalidInput("kind", data.get("kind"), f"one of {', '.join(KINDS)}")
    try:
        return kind(**fields)
    except TypeError as error:
        raise InvalidInput("observation", dict(data), f"what {kind.__name__} takes: {error}") from None


def find_kind(entry: Float[Tensor, " n"]) -> ObservationKind:
    """The kind that simulated values of one entry show, with plausible limits.

    Args:
        entry: Values of an entry; where they are all the same, it is taken for one of two.

    Returns:
        Two values are yes and no, a few are categories, whole numbers that are not negative are counts, and all else
        is a number.
    """
    values = entry.unique()  # type: ignore[no-untyped-call]
    if len(values) == 1:
        values = torch.cat([values, values + 1])
    if len(values) == 2:
        return YesNo(float(values[0]), float(values[1]))
    low, high = float(values[0]), float(values[-1])
    if len(values) <= MOST_CATEGORIES:
        return Category(tuple(values.tolist()), closed=False)
    whole = bool((entry == entry.round()).all()) and low >= 0
    return (Count() if whole else Number()).within(low, high)


def is_mirrored(entry: Float[Tensor, " n"]) -> bool:
    """Whether values have about the same distribution as their negatives: no gap of their shares above ``UNEVEN``."""
    values = entry.sort().values
    places = torch.cat([values, -values])
    below = torch.searchsorted(values, places, right=True).double()
    mirrored_below = len(values) - torch.searchsorted(values, -places).double()
    return float((below - mirrored_below).abs().max()) <= UNEVEN * len(values)


def kind_of_readout(readout: Readout, origin: float = 0.0, scale: float = 1.0) -> ObservationKind:
    """What a measurement in units can be.

    Args:
        readout: The measurement.
        origin: Of a number: what is subtracted from it, where the kind is wanted in a model's coordinates.
        scale: And by what it is then divided.

    Returns:
        Its kind; of a number and a count, with plausible limits.
    """
    if readout.kind == "yes/no":
        return YesNo()
    if readout.of is not None:
        return Category(readout.of + 1)
    low, high = sorted((end - origin) / scale for end in (readout.low, readout.high))
    return Count(low, high) if readout.kind == "count" else Number(low, high)


@final
@dataclass(frozen=True)
class ObservationKinds:
    """The kinds of all entries of an observation: what a session checks what it is told against."""

    kinds: tuple[ObservationKind, ...]

    def read(self, field: str, values: Sequence[object], confirm: bool = False) -> tuple[float, ...]:
        """The numbers that values mean.

        Args:
            field: What they are called in a refusal.
            values: One per entry.
            confirm: Whether the user stands by values that are not plausible.

        Returns:
            One number per entry. What is impossible is an ``InvalidInput``, what is not plausible an ``Implausible``.
        """
        numbers = []
        for position, (kind, value) in enumerate(zip(self.kinds, values, strict=True), start=1):
            where = "" if len(self.kinds) == 1 else f" in entry {position}"
            try:
                number = kind.read(value)
            except ValueError:
                raise InvalidInput(field, value, kind.allowed + where) from None
            doubt = None if confirm else kind.doubt(number)
            if doubt is not None:
                raise Implausible(field, value, doubt + where)
            numbers.append(number)
        return tuple(numbers)

    def slip(
        self, values: Sequence[float], before: Sequence[Sequence[float]], query: Sequence[float] = ()
    ) -> str | None:
        """What is odd about a value that is plausible in itself, in words that follow "must be"; None where nothing is.

        Args:
            values: What was observed, one number per entry.
            before: The observations before it, at other queries, the latest last.
            query: Where it was observed.
        """
        if not all(isinstance(kind, Number) and kind.continuous for kind in self.kinds):
            return None
        if len(before) >= STUCK - 1 and all(tuple(other) == tuple(values) for other in before[1 - STUCK :]):
            return f"another value than the last {STUCK - 1}: is the instrument stuck?"
        if any(abs(value - place) <= SAME * abs(place) for value in values for place in query if abs(place) > SAME):
            return "what was measured, and not a coordinate of the query"
        return None

    @property
    def mirrored(self) -> bool:
        """Whether a reversed sign of some entry could not be told from the prior."""
        return any(isinstance(kind, Number) and kind.mirrored for kind in self.kinds)

    @property
    def words(self) -> tuple[str, ...]:
        """What each entry can be, in a few words."""
        return tuple(kind.words for kind in self.kinds)

    def to_json(self) -> list[dict[str, Any]]:
        """A list of JSON objects, one per entry."""
        return [kind.to_json() for kind in self.kinds]

    @classmethod
    def from_json(cls, data: Sequence[Mapping[str, Any]]) -> "ObservationKinds":
        """The inverse of ``to_json``."""
        return cls(tuple(kind_from_json(entry) for entry in data))

    @classmethod
    def any_number(cls, entries: int) -> "ObservationKinds":
        """Where nothing is known: every finite number."""
        return cls((Number(),) * entries)
