"""Observation heads: how the outputs of a network become the probability of an observation.

Every entry of an observation has the head that a pilot of simulated observations asks for: two values have a logit, a
few values a softmax, whole numbers a discretised mixture, and real numbers a Gaussian or a mixture of logistic
components, whose tails are heavier. Given the answer and what else is hidden, entries are independent, unless
simulations show that they are not (``dependence.py``): then every entry is shifted by how far those before it are from
what was expected of them.

The network is learned by its outputs as they are, with P as the last axis. Inference takes them *settled*: all that
needs no observation is computed, and P is the first axis, so that what is done to many of them is done to whole
tensors.

Shapes: P network outputs, Y entries of an observation, J outcomes.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, final

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from cicpe.config import Config
from cicpe.problems.observations import Category, Count, ObservationKind, YesNo, find_kind

MOST_LISTED = 16
"""Outcomes of a query that are listed rather than drawn."""
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
COMPONENTS = 3
"""Components of a mixture."""
MOST_EXPONENT = 40.0
"""Of the exponentials of a sigmoid, whose product is to stay finite."""
LOGISTIC_SPREAD = 1.8
"""Standard deviation of a logistic distribution, in its scales."""
LEAST_ROOT, STEP_SCALE = 0.375**0.5, 0.25 / LOGISTIC_SPREAD
"""The root of no count, as it is transformed, and the scale of half a step between two counts, times that root."""
LEAST_DENSITY = 1e-30
"""Of a mixture, where its components are not added up as logarithms."""
DECADES = 5.0
"""How many times as large the upper quartile of positive numbers is as the lower one where their logarithm is taken."""
FAINT = 1e-12
"""The least number that has a logarithm, in medians."""
LOG_SPREADS = (-7.0, 3.0)
"""Log spreads are kept in this range, in standardised units."""


class Head(Config, ABC):
    """The distribution of one entry of an observation."""

    kind: str

    @property
    @abstractmethod
    def parameters(self) -> int:
        """How many network outputs it takes."""

    @property
    def outcomes(self) -> int | None:
        """How many outcomes there are, where they can be listed."""
        return None

    @abstractmethod
    def encode(self, value: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """The entry as the head works with it, for example standardised."""

    @abstractmethod
    def decode(self, encoded: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """The inverse of ``encode``."""

    @abstractmethod
    def log_probability(self, parameters: Tensor, encoded: Tensor) -> Tensor:
        """Log probability (or density) of an encoded entry; the last axis of ``parameters`` is their own."""

    @abstractmethod
    def draw(self, settled: Tensor, uniform: Float[Tensor, "*batch 2"]) -> Tensor:
        """Encoded entries by two uniform numbers each."""

    def settled(self, parameters: Tensor) -> Tensor:
        """Parameters of which all that needs no observation is computed, as many as there are."""
        return parameters

    def settled_log_probability(self, settled: Tensor, encoded: Tensor) -> Tensor:
        """``log_probability`` by settled parameters, whose first axis is their own: for many at a time."""
        return self.log_probability(settled.movedim(0, -1), encoded)

    def quick(self, settled: Tensor, plain: bool) -> "tuple[Head, Tensor]":
        """What is near enough for comparing queries: whole numbers as if they were real ones.

        Args:
            settled: Settled parameters.
            plain: Whether one Gaussian is near enough, too.
        """
        return self, settled

    @abstractmethod
    def residual(self, settled: Tensor, encoded: Tensor) -> Tensor:
        """By how much an encoded entry differs from what the parameters expect of it."""

    @abstractmethod
    def shifted(self, parameters: Tensor, shift: Tensor) -> Tensor:
        """The parameters of a distribution that is shifted, where entries are numbers, or whose odds are.

        Args:
            parameters: Settled or not; their own axis is the first.
            shift: By how much.
        """


@final
class BinaryHead(Head):
    """Two values, by the logit of the larger."""

    kind: Literal["binary"] = "binary"
    low: float
    high: float

    @property
    def parameters(self) -> int:
        return 1

    @property
    def outcomes(self) -> int | None:
        return 2

    def encode(self, value: Tensor) -> Tensor:
        return (value > (self.low + self.high) / 2).float()

    def decode(self, encoded: Tensor) -> Tensor:
        return torch.where(encoded > 0.5, self.high, self.low)

    def log_probability(self, parameters: Tensor, encoded: Tensor) -> Tensor:
        return functional.logsigmoid(parameters[..., 0] * (2 * encoded - 1))

    def draw(self, settled: Tensor, uniform: Tensor) -> Tensor:
        return (uniform[..., 0] < torch.sigmoid(settled[0])).float()

    def residual(self, settled: Tensor, encoded: Tensor) -> Tensor:
        # The outcome itself: where one is all but sure, its distance from what is expected would be nothing.
        return 2 * encoded - 1 + torch.zeros_like(settled[0])

    def shifted(self, parameters: Tensor, shift: Tensor) -> Tensor:
        return parameters + shift


@final
class CategoricalHead(Head):
    """A few values, by a softmax over those that the pilot showed; another counts as the nearest of them."""

    kind: Literal["categorical"] = "categorical"
    values: tuple[float, ...]

    @property
    def parameters(self) -> int:
        return len(self.values)

    @property
    def outcomes(self) -> int | None:
        return len(self.values)

    def encode(self, value: Tensor) -> Tensor:
        return (value[..., None] - torch.tensor(self.values)).abs().argmin(dim=-1).float()

    def decode(self, encoded: Tensor) -> Tensor:
        return torch.tensor(self.values)[encoded.long()]

    def log_probability(self, parameters: Tensor, encoded: Tensor) -> Tensor:
        chosen = encoded[..., None] == torch.arange(self.parameters)
        return (parameters * chosen).sum(dim=-1) - parameters.logsumexp(dim=-1)

    def draw(self, settled: Tensor, uniform: Tensor) -> Tensor:
        below = settled.softmax(dim=0).cumsum(dim=0)[:-1]
        return (uniform[..., 0] > below).sum(dim=0).float()

    def _places(self) -> Tensor:
        return torch.linspace(-1.0, 1.0, self.parameters)

    def residual(self, settled: Tensor, encoded: Tensor) -> Tensor:
        return self._places()[encoded.long()] + torch.zeros_like(settled[0])

    def shifted(self, parameters: Tensor, shift: Tensor) -> Tensor:
        return parameters + self._places().view(-1, *[1] * shift.ndim) * shift


Transform = Literal["none", "root", "asinh", "log"]


class _Scaled(Head):
    """A numeric entry: where it is skewed or heavy a root, a logarithm or an inverse hyperbolic sine; standardised.

    A fixed one-to-one transformation multiplies the likelihood of every candidate by the same factor.
    """

    transform: Transform = "none"
    middle: float = 0.0
    """What the inverse hyperbolic sine is taken about, and in which unit: the median and the quartiles' distance. The
    logarithm is taken in units of the former, and of nothing below ``FAINT`` of it."""
    width: float = 1.0
    centre: float = 0.0
    """Mean and standard deviation after the transformation."""
    spread: float = 1.0

    def _transformed(self, value: Tensor) -> Tensor:
        match self.transform:
            case "root":
                return (value.clamp_min(0) + 0.375).sqrt()
            case "asinh":
                return torch.asinh((value - self.middle) / self.width)
            case "log":
                return (value / self.middle).clamp_min(FAINT).log()
        return value

    def encode(self, value: Tensor) -> Tensor:
        return (self._transformed(value) - self.centre) / self.spread

    def decode(self, encoded: Tensor) -> Tensor:
        moved = encoded * self.spread + self.centre
        match self.transform:
            case "root":
                return moved.clamp_min(0).square() - 0.375
            case "asinh":
                return torch.sinh(moved.clamp(-20, 20)) * self.width + self.middle
            case "log":
                return moved.clamp(-60, 60).exp() * self.middle
        return moved


@final
class NormalHead(_Scaled):
    """A real entry, by its mean and log spread."""

    kind: Literal["normal"] = "normal"

    @property
    def parameters(self) -> int:
        return 2

    def log_probability(self, parameters: Tensor, encoded: Tensor) -> Tensor:
        log_spread = parameters[..., 1].clamp(*LOG_SPREADS)
        error = (encoded - parameters[..., 0]) * torch.exp(-log_spread)
        return -0.5 * error.square() - log_spread - HALF_LOG_2PI

    def draw(self, settled: Tensor, uniform: Tensor) -> Tensor:
        normal = torch.special.ndtri(uniform[..., 0].double().clamp(1e-6, 1 - 1e-6)).to(settled)
        value: Tensor = settled[0] + torch.exp(settled[1].clamp(*LOG_SPREADS)) * normal
        return value

    def residual(self, settled: Tensor, encoded: Tensor) -> Tensor:
        return encoded - settled[0]

    def shifted(self, parameters: Tensor, shift: Tensor) -> Tensor:
        mean, log_spread = parameters
        moved = mean + shift
        return torch.stack([moved, log_spread.expand_as(moved)])


@final
class LogisticMixtureHead(_Scaled):
    """A real or whole-number entry, by a mixture of logistic components; over whole numbers it is discretised."""

    kind: Literal["mixture"] = "mixture"
    whole: bool = False

    @property
    def parameters(self) -> int:
        return 3 * COMPONENTS

    def encode(self, value: Tensor) -> Tensor:
        return value if self.whole else super().encode(value)

    def decode(self, encoded: Tensor) -> Tensor:
        return encoded if self.whole else super().decode(encoded)

    def _parts(self, parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        share, mean, log_scale = parameters.unflatten(-1, (3, COMPONENTS)).unbind(dim=-2)  # type: ignore[no-untyped-call]
        start = torch.linspace(-1.0, 1.0, COMPONENTS)
        return functional.log_softmax(share, dim=-1), mean + start, log_scale.clamp(*LOG_SPREADS)

    def log_probability(self, parameters: Tensor, encoded: Tensor) -> Tensor:
        share, mean, log_scale = self._parts(parameters)
        if not self.whole:
            size = ((encoded[..., None] - mean) * torch.exp(-log_scale)).abs()
            return (share - size - log_scale - 2 * functional.softplus(-size)).logsumexp(dim=-1)
        upper = (super().encode(encoded + 0.5)[..., None] - mean) * torch.exp(-log_scale)
        lower = (super().encode(encoded - 0.5)[..., None] - mean) * torch.exp(-log_scale)
        lower = torch.where(encoded[..., None] <= 0, torch.full_like(lower, -1e4), lower)
        # The log of a difference of sigmoids: sigmoid(u) sigmoid(-l) (1 - exp(l - u)).
        gap = (upper - lower).clamp_min(1e-6)
        inside = functional.logsigmoid(upper) + functional.logsigmoid(-lower) + torch.log(-torch.expm1(-gap))
        return (share + inside).logsumexp(dim=-1)

    def settled(self, parameters: Tensor) -> Tensor:
        share, mean, log_scale = self._parts(parameters)
        return torch.cat([share.exp(), mean, torch.exp(-log_scale)], dim=-1)

    def settled_log_probability(self, settled: Tensor, encoded: Tensor) -> Tensor:
        # Component by component: what is done to all of one fits a cache.
        parts = zip(*settled.split(COMPONENTS), strict=True)  # type: ignore[no-untyped-call]
        density = self._whole_numbers(encoded) if self.whole else self._numbers(encoded)
        total, *others = (density(*part) for part in parts)
        for other in others:
            total.add_(other)
        return total.clamp_min_(LEAST_DENSITY).log_()

    @staticmethod
    def _numbers(encoded: Tensor) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """The density of one component, by its share, mean and steepness, at real numbers."""

        def density(share: Tensor, mean: Tensor, steepness: Tensor) -> Tensor:
            fall = (encoded - mean).mul_(steepness).abs_().neg_().exp_()
            return fall.div_((1 + fall).square_()).mul_(share * steepness)

        return density

    def _whole_numbers(self, encoded: Tensor) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """The probability that one component gives whole numbers: a difference of two sigmoids."""
        upper, lower = (_Scaled.encode(self, encoded + half) for half in (0.5, -0.5))
        # Nothing lies below zero.
        lower = torch.where(encoded <= 0, -torch.inf, lower)
        gap = upper - lower

        def probability(share: Tensor, mean: Tensor, steepness: Tensor) -> Tensor:
            # sigmoid(u) - sigmoid(l) = (1 - exp(l - u)) / ((1 + exp(-u)) (1 + exp(l))).
            above = (mean - upper).mul_(steepness).clamp_max_(MOST_EXPONENT).exp_().add_(1)
            below = (lower - mean).mul_(steepness).clamp_max_(MOST_EXPONENT).exp_().add_(1)
            return torch.expm1(gap * -steepness).neg_().mul_(share).div_(above.mul_(below))

        return probability

    def quick(self, settled: Tensor, plain: bool) -> tuple[Head, Tensor]:
        share, mean, steepness = settled.split(COMPONENTS)  # type: ignore[no-untyped-call]
        if self.whole:
            # What lies between two whole numbers cannot be seen: nothing below zero, nothing within half a step.
            root = (mean * self.spread + self.centre).clamp_min(LEAST_ROOT)
            step = STEP_SCALE / (root * self.spread)
            mean, steepness = (root - self.centre) / self.spread, (steepness.pow(-2) + step.square()).rsqrt()
        if not plain:
            return REAL_MIXTURE, torch.cat([share, mean, steepness])
        # The spread is a geometric mean, so that a rare wide component does not set it.
        middle = (share * mean).sum(dim=0)
        between = (share * (mean - middle).square()).sum(dim=0)
        within = (LOGISTIC_SPREAD * (share * -steepness.log()).sum(dim=0).exp()).square()
        return STANDARD, torch.stack([middle, 0.5 * (between + within).log()])

    def draw(self, settled: Tensor, uniform: Tensor) -> Tensor:
        share, mean, steepness = settled.split(COMPONENTS)  # type: ignore[no-untyped-call]
        chosen = (uniform[..., 0] > share.cumsum(dim=0)[:-1]).sum(dim=0, keepdim=True)
        mean, steepness = mean.gather(0, chosen)[0], steepness.gather(0, chosen)[0]
        value = mean + torch.logit(uniform[..., 1].clamp(1e-6, 1 - 1e-6)) / steepness
        return super().decode(value).round().clamp_min(0) if self.whole else value

    def residual(self, settled: Tensor, encoded: Tensor) -> Tensor:
        share, mean, _ = settled.split(COMPONENTS)  # type: ignore[no-untyped-call]
        place = super().encode(encoded) if self.whole else encoded
        apart: Tensor = place - (share * mean).sum(dim=0)
        return apart

    def shifted(self, parameters: Tensor, shift: Tensor) -> Tensor:
        share, mean, steepness = parameters.split(COMPONENTS)  # type: ignore[no-untyped-call]
        moved = mean + shift
        return torch.cat([share.expand_as(moved), moved, steepness.expand_as(moved)])


STANDARD, REAL_MIXTURE = NormalHead(), LogisticMixtureHead()
"""For real entries that are encoded already."""
AnyHead = Annotated[BinaryHead | CategoricalHead | NormalHead | LogisticMixtureHead, Field(discriminator="kind")]


@final
class _Before:
    """What is known of the entries of an observation before the one that is looked at.

    Given all that is hidden, an entry is shifted by w r_{y-1} + v mean(r_1 ... r_{y-1}), where r are the residuals of
    the entries before it, each by its own expectation. For two or three Gaussian entries that is any covariance; for
    more of them, neighbours that depend on each other and a disturbance that all have in common.
    """

    def __init__(self, weights: Float[Tensor, "W *#b"]) -> None:
        self.weights = weights
        self._last: Tensor | None = None
        self._total: Tensor | None = None
        self._seen = 0

    def given(self, head: Head, parameters: Tensor) -> Tensor:
        """The parameters (settled or not) of the next entry, given those before it."""
        if self._last is None or self._total is None or not len(self.weights):
            return parameters
        first = max(0, 2 * self._seen - 3)
        shift = self.weights[first] * self._last
        if self._seen > 1:
            shift = shift + self.weights[first + 1] * self._total / self._seen
        return head.shifted(parameters, shift)

    def add(self, head: Head, settled: Tensor, encoded: Tensor) -> None:
        """Takes note of an entry, by its own settled parameters."""
        if not len(self.weights):
            return
        self._last = head.residual(settled, encoded)
        self._total = self._last if self._total is None else self._total + self._last
        self._seen += 1


@final
@dataclass(frozen=True)
class Heads:
    """One head per entry, used as a single head for whole observations."""

    heads: tuple[Any, ...]
    coupled: bool = False
    """Whether entries depend on each other, given the answer and what else is hidden."""

    @cached_property
    def sizes(self) -> list[int]:
        """Network outputs of every entry, and of how entries depend on those before them."""
        return [*(head.parameters for head in self.heads), self._weights]

    @property
    def _weights(self) -> int:
        """One for the entry before, for all but the first, and one for the mean of those before, for all but two."""
        return max(0, 2 * len(self.heads) - 3) if self.coupled else 0

    @property
    def parameters(self) -> int:
        """Network outputs in all."""
        return sum(self.sizes)

    def encode(self, observation: Float[Tensor, "*batch Y"]) -> Float[Tensor, "*batch Y"]:
        """Every entry as its head works with it."""
        return torch.stack([head.encode(observation[..., y]) for y, head in enumerate(self.heads)], dim=-1)

    def decode(self, encoded: Float[Tensor, "*batch Y"]) -> Float[Tensor, "*batch Y"]:
        """The inverse of ``encode``."""
        return torch.stack([head.decode(encoded[..., y]) for y, head in enumerate(self.heads)], dim=-1)

    def log_probability(self, parameters: Float[Tensor, "*#batch P"], encoded: Float[Tensor, "*#batch Y"]) -> Tensor:
        """Log probability (or density) of encoded observations."""
        *own, weights = parameters.split(self.sizes, dim=-1)  # type: ignore[no-untyped-call]
        before, parts = _Before(weights.movedim(-1, 0)), []
        for head, part, entry in zip(self.heads, own, encoded.unbind(dim=-1), strict=True):
            shifted = before.given(head, part.movedim(-1, 0)).movedim(0, -1)
            parts.append(head.log_probability(shifted, entry))
            if self.coupled:
                before.add(head, head.settled(part).movedim(-1, 0), entry)
        value: Tensor = sum(parts[1:], parts[0])
        return value

    def settled(self, parameters: Float[Tensor, "*batch P"]) -> Float[Tensor, "*batch P"]:
        """Parameters of which all that needs no observation is computed."""
        *own, weights = parameters.split(self.sizes, dim=-1)  # type: ignore[no-untyped-call]
        return torch.cat([*(head.settled(part) for head, part in zip(self.heads, own, strict=True)), weights], dim=-1)

    def settled_log_probability(self, settled: Float[Tensor, "P *#b"], encoded: Float[Tensor, "*#b Y"]) -> Tensor:
        """``log_probability`` by settled parameters, whose first axis is their own: for many at a time."""
        *own, weights = settled.split(self.sizes)  # type: ignore[no-untyped-call]
        before, parts = _Before(weights), []
        for head, part, entry in zip(self.heads, own, encoded.unbind(dim=-1), strict=True):
            parts.append(head.settled_log_probability(before.given(head, part), entry))
            before.add(head, part, entry)
        value: Tensor = sum(parts[1:], parts[0])
        return value

    def draw(self, settled: Float[Tensor, "P *#b"], uniform: Float[Tensor, "*#b Y 2"]) -> Float[Tensor, "*#b Y"]:
        """Encoded observations by two uniform numbers per entry."""
        *own, weights = settled.split(self.sizes)  # type: ignore[no-untyped-call]
        before, drawn = _Before(weights), []
        for head, part, numbers in zip(self.heads, own, uniform.unbind(dim=-2), strict=True):
            drawn.append(head.draw(before.given(head, part), numbers))
            before.add(head, part, drawn[-1])
        return torch.stack(drawn, dim=-1)

    def quick(self, settled: Float[Tensor, "P *#b"], plain: bool) -> "tuple[Heads, Tensor]":
        """Heads that are quick and near enough for comparing queries, with their settled parameters.

        Args:
            settled: Settled parameters.
            plain: Whether one Gaussian is near enough for an entry that is a number.
        """
        *own, weights = settled.split(self.sizes)  # type: ignore[no-untyped-call]
        pairs = [head.quick(part, plain) for head, part in zip(self.heads, own, strict=True)]
        return Heads(tuple(head for head, _ in pairs), self.coupled), torch.cat([*(part for _, part in pairs), weights])

    @cached_property
    def listed(self) -> Float[Tensor, "J Y"] | None:
        """All outcomes, encoded, where there are few; else None."""
        counts = [head.outcomes for head in self.heads]
        if any(count is None for count in counts) or math.prod(counts) > MOST_LISTED:
            return None
        grid = torch.cartesian_prod(*[torch.arange(count).float() for count in counts])
        return grid.reshape(-1, len(counts))

    def listed_place(self, encoded: Float[Tensor, "*batch Y"]) -> Int[Tensor, " *batch"]:
        """Where observations stand among all outcomes, where these are listed."""
        place = torch.zeros(encoded.shape[:-1], dtype=torch.long)
        for y, head in enumerate(self.heads):
            place = place * head.outcomes + encoded[..., y].long()
        return place

    @property
    def binary(self) -> Bool[Tensor, " Y"]:
        """Which entries take two values."""
        return torch.tensor([isinstance(head, BinaryHead) for head in self.heads])

    @property
    def between(self) -> Float[Tensor, " Y"]:
        """What lies between the two values of entries that take two; zero for others."""
        middles = [(head.low + head.high) / 2 if isinstance(head, BinaryHead) else 0.0 for head in self.heads]
        return torch.tensor(middles)


def choose_heads(
    pilot: Float[Tensor, "n Y"], heavy_tails: bool = False, declared: Sequence[ObservationKind | None] | None = None
) -> tuple[Any, ...]:
    """The heads that the kinds of observations ask for.

    Args:
        pilot: Simulated observations.
        heavy_tails: Whether real entries have a mixture rather than a Gaussian.
        declared: The kind of each entry, where the problem says so; found from the pilot where it does not.

    Returns:
        One head per entry.
    """
    kinds = declared or (None,) * pilot.shape[-1]
    entries = zip(kinds, pilot.unbind(dim=-1), strict=True)
    return tuple(_choose(kind or find_kind(entry), entry, heavy_tails) for kind, entry in entries)


def has_real_entries(heads: Sequence[Head]) -> bool:
    """Whether some entry is neither two-valued nor categorical nor a whole number."""
    return any(
        isinstance(head, NormalHead) or (isinstance(head, LogisticMixtureHead) and not head.whole) for head in heads
    )


def _choose(kind: ObservationKind, entry: Tensor, heavy_tails: bool) -> Head:
    match kind:
        case YesNo(no=no, yes=yes):
            return BinaryHead(low=min(no, yes), high=max(no, yes))
        case Category():
            return CategoricalHead(values=kind.numbers)
        case Count():
            return LogisticMixtureHead(whole=True, **_scale(entry, "root"))
    low, middle, high = torch.quantile(entry[:100_000].double(), torch.tensor([0.25, 0.5, 0.75]).double()).tolist()
    extreme = float((entry - middle).abs().max()) > 25 * max(high - low, 1e-12)
    over_decades = float(entry.min()) > 0 and high > DECADES * low
    scale = _scale(entry, "log" if over_decades else "asinh" if extreme else "none")
    return LogisticMixtureHead(**scale) if heavy_tails else NormalHead(**scale)


def _scale(entry: Tensor, transform: Transform) -> dict[str, Any]:
    """The constants of a scaled head."""
    low, middle, high = torch.quantile(entry[:100_000].double(), torch.tensor([0.25, 0.5, 0.75]).double()).tolist()
    width = max(high - low, 1e-3 * float(entry.std()), 1e-12)
    moved = _Scaled._transformed(NormalHead(transform=transform, middle=middle, width=width), entry)
    centre, spread = float(moved.mean()), max(float(moved.std()), 1e-12)
    return {"transform": transform, "middle": middle, "width": width, "centre": centre, "spread": spread}
