"""The sets that queries and answers live in.

A space knows how to project a point into itself, sample uniformly, measure a distance between two
points, and scale points to and from the unit coordinates that networks work in (roughly [-1, 1]).
Spaces are immutable, compare by value and survive a round trip through JSON.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, final, get_args

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.errors import InvalidInput

Norm = Literal["euclidean", "max"]
"""How far apart two points of a box are: by their Euclidean distance, or by the coordinate that differs most."""


class Space(ABC):
    """A compact set of points in ``dim`` real coordinates."""

    dim: int

    @abstractmethod
    def project(self, point: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """The nearest point of the space.

        Args:
            point: Any points.

        Returns:
            Points of the space, of the same shape.
        """

    @abstractmethod
    def sample(self, n: int, rng: Generator) -> Float[Tensor, "n dim"]:
        """``n`` points, uniformly.

        Args:
            n: How many.
            rng: Draws them.

        Returns:
            The points.
        """

    @abstractmethod
    def distance(self, a: Float[Tensor, "*#batch dim"], b: Float[Tensor, "*#batch dim"]) -> Float[Tensor, "*#batch"]:
        """How far apart two points are: zero if and only if they are the same.

        Args:
            a: Points.
            b: Others; shapes are broadcast.

        Returns:
            Distances of at least zero.
        """

    def margin(self, epsilon: float) -> float:
        """The radius of a Euclidean ball about a point, all points of which are within ``epsilon`` of it.

        Args:
            epsilon: A distance.

        Returns:
            The radius: ``epsilon`` itself, unless a space says otherwise.
        """
        return epsilon

    @abstractmethod
    def to_unit(self, point: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """The coordinates that a network sees, roughly in [-1, 1].

        Args:
            point: Points of the space.

        Returns:
            The same in unit coordinates.
        """

    @abstractmethod
    def from_unit(self, unit: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """The inverse of ``to_unit``.

        Args:
            unit: Points in unit coordinates.

        Returns:
            The same as points of the space.
        """

    @property
    @abstractmethod
    def unit_scale(self) -> Float[Tensor, " dim"]:
        """How long one unit of network coordinates is, per coordinate."""

    @property
    @abstractmethod
    def words(self) -> str:
        """What a point of it is, in words that follow "must be"."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """A JSON object that ``space_from_json`` reads back.

        Returns:
            What ``json.dumps`` takes.
        """


def _bounds(low: Sequence[float], high: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    try:
        lows, highs = tuple(map(float, low)), tuple(map(float, high))
    except (TypeError, ValueError):
        raise InvalidInput("low, high", (low, high), "two lists of numbers, one number per coordinate") from None
    if not lows or len(lows) != len(highs):
        raise InvalidInput("low, high", (low, high), "two lists of the same length, one number per coordinate")
    for a, b in zip(lows, highs, strict=True):
        if not (math.isfinite(a) and math.isfinite(b) and a < b):
            raise InvalidInput("low, high", (low, high), "finite numbers with low < high in every coordinate")
        width = float(torch.tensor(b) - torch.tensor(a))  # in single precision, as every point is
        if not 0 < width < math.inf:
            raise InvalidInput("low, high", (low, high), "bounds whose difference single precision can hold")
    return lows, highs


class _Bounded(Space):
    """What Box and Interval share: a product of closed intervals, with the Euclidean distance."""

    def _ends(self) -> tuple[Sequence[float], Sequence[float]]:
        raise NotImplementedError

    # Made once: every query asks for them ten times.
    @cached_property
    def _low(self) -> Float[Tensor, " dim"]:
        return torch.tensor(self._ends()[0])

    @cached_property
    def _high(self) -> Float[Tensor, " dim"]:
        return torch.tensor(self._ends()[1])

    @cached_property
    def _sum(self) -> Float[Tensor, " dim"]:
        return self._high + self._low

    @cached_property
    def _width(self) -> Float[Tensor, " dim"]:
        return self._high - self._low

    def project(self, point: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        return torch.minimum(torch.maximum(point, self._low.to(point)), self._high.to(point))

    def sample(self, n: int, rng: Generator) -> Float[Tensor, "n dim"]:
        return self._low + self._width * torch.rand((n, self.dim), generator=rng)

    def distance(self, a: Float[Tensor, "*#batch dim"], b: Float[Tensor, "*#batch dim"]) -> Float[Tensor, "*#batch"]:
        length: Tensor = torch.linalg.vector_norm(a - b, dim=-1)
        return length

    def to_unit(self, point: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        return (2 * point - self._sum.to(point)) / self._width.to(point)

    def from_unit(self, unit: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        return (unit * self._width.to(unit) + self._sum.to(unit)) / 2

    @property
    def unit_scale(self) -> Float[Tensor, " dim"]:
        return self._width / 2

    @property
    def words(self) -> str:
        ranges = [f"from {low:g} to {high:g}" for low, high in zip(*self._ends(), strict=True)]
        if len(ranges) == 1:
            return f"a number {ranges[0]}"
        if len(set(ranges)) == 1:
            return f"{len(ranges)} numbers, each {ranges[0]}"
        return f"{len(ranges)} numbers: {', '.join(f'x{i} {limits}' for i, limits in enumerate(ranges, start=1))}"


@final
@dataclass(frozen=True)
class Box(_Bounded):
    """A box with sides parallel to the axes; the distance is Euclidean, or the largest difference of a coordinate."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    norm: Norm = field(default="euclidean", repr=False)

    def __init__(self, low: Sequence[float], high: Sequence[float], *, norm: Norm = "euclidean") -> None:
        lows, highs = _bounds(low, high)
        if norm not in get_args(Norm):
            raise InvalidInput("norm", norm, " or ".join(get_args(Norm)))
        object.__setattr__(self, "low", lows)
        object.__setattr__(self, "high", highs)
        object.__setattr__(self, "norm", norm)

    def distance(self, a: Float[Tensor, "*#batch dim"], b: Float[Tensor, "*#batch dim"]) -> Float[Tensor, "*#batch"]:
        return super().distance(a, b) if self.norm == "euclidean" else (a - b).abs().amax(dim=-1)

    @property
    def dim(self) -> int:  # type: ignore[override]
        return len(self.low)

    def _ends(self) -> tuple[Sequence[float], Sequence[float]]:
        return self.low, self.high

    def to_json(self) -> dict[str, Any]:
        norm = {} if self.norm == "euclidean" else {"norm": self.norm}
        return {"kind": "box", "low": list(self.low), "high": list(self.high)} | norm


@final
@dataclass(frozen=True)
class Interval(_Bounded):
    """One real number between two bounds: a value to estimate rather than a place to go."""

    low: float
    high: float
    dim = 1

    def __post_init__(self) -> None:
        (low,), (high,) = _bounds([self.low], [self.high])
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def _ends(self) -> tuple[Sequence[float], Sequence[float]]:
        return [self.low], [self.high]

    def to_json(self) -> dict[str, Any]:
        return {"kind": "interval", "low": self.low, "high": self.high}


@final
@dataclass(frozen=True)
class Sphere(Space):
    """Unit vectors in ``dim`` coordinates; the distance is one minus the cosine."""

    dim: int

    def __post_init__(self) -> None:
        if not isinstance(self.dim, int) or self.dim < 2:
            raise InvalidInput("dim", self.dim, "a whole number of at least 2")

    def project(self, point: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        norm = torch.linalg.vector_norm(point, dim=-1, keepdim=True)
        pole = torch.zeros_like(point)
        pole[..., 0] = 1.0
        # Not `norm > 1e-12`: a NaN must stay a NaN, as it does in a box.
        return torch.where(norm <= 1e-12, pole, point / norm.clamp_min(1e-12))

    def sample(self, n: int, rng: Generator) -> Float[Tensor, "n dim"]:
        return self.project(torch.randn((n, self.dim), generator=rng))

    def distance(self, a: Float[Tensor, "*#batch dim"], b: Float[Tensor, "*#batch dim"]) -> Float[Tensor, "*#batch"]:
        # Half the squared chord equals one minus the cosine and keeps its digits when the two are close.
        return (self.project(a) - self.project(b)).square().sum(dim=-1) / 2

    def margin(self, epsilon: float) -> float:
        return math.sqrt(2 * epsilon)

    def to_unit(self, point: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        return point

    def from_unit(self, unit: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        return unit

    @property
    def unit_scale(self) -> Float[Tensor, " dim"]:
        return torch.ones(self.dim)

    @property
    def words(self) -> str:
        return f"{self.dim} numbers whose squares add up to 1"

    def to_json(self) -> dict[str, Any]:
        return {"kind": "sphere", "dim": self.dim}


def space_from_json(data: dict[str, Any]) -> Space:
    """Reads what ``Space.to_json`` wrote."""
    match data:
        case {"kind": "box", "low": low, "high": high}:
            return Box(low, high, norm=data.get("norm", "euclidean"))
        case {"kind": "interval", "low": low, "high": high}:
            return Interval(low, high)
        case {"kind": "sphere", "dim": dim}:
            return Sphere(dim)
    raise InvalidInput("space", data, "an object with kind box, interval or sphere and its bounds or dim")
