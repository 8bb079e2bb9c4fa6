"""Whole observations: one head per entry, used as a single one.

Given the answer and what else is hidden, entries are independent, unless simulations show that they are not
(``repeats.py``): then every entry is shifted by how far those before it are from what was expected of them.

The network is learned by its outputs as they are, with P as the last axis. Inference takes them *settled*: all that
needs no observation is computed, and P is the first axis, so that what is done to many of them is done to whole
tensors.

Shapes: P network outputs, Y entries of an observation, J outcomes.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, final

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor

from cicpe.beliefs.answers.heads import BinaryHead, CategoricalHead, Head, LogisticMixtureHead, NormalHead
from cicpe.beliefs.answers.point_masses import PointMassHead

MOST_LISTED = 16
"""Outcomes of a query that are listed rather than drawn."""
AnyHead = Annotated[
    BinaryHead | CategoricalHead | NormalHead | LogisticMixtureHead | PointMassHead, Field(discriminator="kind")
]


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
