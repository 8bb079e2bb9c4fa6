"""Observation heads: how the outputs of a network become the probability of one entry of an observation.

The network is learned by its outputs as they are, with P as the last axis. Inference takes them *settled*: all that
needs no observation is computed, and P is the first axis, so that what is done to many of them is done to whole
tensors.

Shapes: P network outputs.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from cicpe.config import GrownConfig

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
COMPONENTS = 3
"""Components of a mixture."""
MOST_EXPONENT = 40.0
"""Of the exponentials of a sigmoid, whose product is to stay finite."""
LOGISTIC_SPREAD = 1.8
"""Standard deviation of a logistic distribution, in its scales."""
LEAST_ROOT, STEP_SCALE = 0.375**0.5, 0.25 / LOGISTIC_SPREAD
"""The root of no count, as it is transformed, and the scale of half a step between two counts, times that root."""
HALF_STEP = 0.5 / LOGISTIC_SPREAD
"""The scale of half a step, where numbers are not transformed."""
LEAST_DENSITY = 1e-30
"""Of a mixture, where its components are not added up as logarithms."""
FAINT = 1e-12
"""The least number that has a logarithm, in medians."""
LOG_SPREADS = (-7.0, 3.0)
"""Log spreads are kept in this range, in standardised units."""


class Head(GrownConfig, ABC):
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

    @property
    def is_real(self) -> bool:
        """Whether it is a density, at least in part."""
        return False

    @property
    def is_mixture(self) -> bool:
        """Whether it has several components."""
        return False

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

    def transformed(self, value: Tensor) -> Tensor:
        match self.transform:
            case "root":
                return (value.clamp_min(0) + 0.375).sqrt()
            case "asinh":
                return torch.asinh((value - self.middle) / self.width)
            case "log":
                return (value / self.middle).clamp_min(FAINT).log()
        return value

    def encode(self, value: Tensor) -> Tensor:
        return (self.transformed(value) - self.centre) / self.spread

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

    @property
    def is_real(self) -> bool:
        return True

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
    """A real or whole-number entry, by a mixture of logistic components; over whole numbers it is discretised.

    Readings in steps are whole numbers of them, counted from an origin.
    """

    LATER: ClassVar[frozenset[str]] = frozenset({"signed", "step", "origin"})

    kind: Literal["mixture"] = "mixture"
    whole: bool = False
    signed: bool = False
    """Whether whole numbers may be negative."""
    step: float = 1.0
    origin: float = 0.0

    @property
    def parameters(self) -> int:
        return 3 * COMPONENTS

    @property
    def is_real(self) -> bool:
        return not self.whole

    @property
    def is_mixture(self) -> bool:
        return True

    def encode(self, value: Tensor) -> Tensor:
        return ((value - self.origin) / self.step).round() if self.whole else super().encode(value)

    def decode(self, encoded: Tensor) -> Tensor:
        return encoded * self.step + self.origin if self.whole else super().decode(encoded)

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
        if not self.signed:
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
        if not self.signed:  # nothing lies below zero
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
        if self.whole and self.transform == "none":
            steepness = (steepness.pow(-2) + (HALF_STEP / self.spread) ** 2).rsqrt()
        elif self.whole:
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
        value: Tensor = mean + torch.logit(uniform[..., 1].clamp(1e-6, 1 - 1e-6)) / steepness
        if not self.whole:
            return value
        counted: Tensor = super().decode(value).round()
        return counted if self.signed else counted.clamp_min(0)

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
