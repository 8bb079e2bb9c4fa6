"""What a belief is: everything of an agent that does not depend on epsilon and delta."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from cicpe.spaces import Space

EDGE = 1e-6
"""Confidences are kept this far from 0 and 1 where their log-odds are taken."""


class StopView(NamedTuple):
    """What a stop rule may look at, for every episode."""

    time: Tensor
    confidence: Float[Tensor, " batch"]
    stop_value: Float[Tensor, " batch"]
    continue_value: Float[Tensor, " batch"]


class Assessment(NamedTuple):
    """What a core makes of its histories, for E epsilons and C costs of a query."""

    time: Int[Tensor, " batch"]
    query: Float[Tensor, "batch query"]
    """The next one."""
    recommendation: Float[Tensor, "epsilon batch answer"]
    confidence: Float[Tensor, "epsilon batch"]
    """Probability that the recommendation is within epsilon."""
    stop_value: Float[Tensor, "epsilon batch"]
    """The same as the Bellman rule takes it."""
    continue_value: Float[Tensor, "epsilon cost batch"]
    """The value of making the query."""
    std: Float[Tensor, "batch answer"]

    def view(self, epsilon: int, cost: int | None = None) -> StopView:
        """What a stop rule sees at one epsilon (and cost), by their positions."""
        go = torch.zeros_like(self.confidence[0]) if cost is None else self.continue_value[epsilon, cost]
        return StopView(self.time, self.confidence[epsilon], self.stop_value[epsilon], go)


class Belief(ABC):
    """The part of an agent that does not depend on epsilon and delta."""

    horizon: int
    """The most queries of an episode."""
    most_at_once: int = 4096
    """Episodes that are to be played together at most: their states have to fit in memory."""

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: not what is cached, which is made anew and may hold functions that cannot be pickled."""
        kept = {name for name in vars(self) if not isinstance(getattr(type(self), name, None), cached_property)}
        return {name: vars(self)[name] for name in kept}

    @property
    @abstractmethod
    def query_space(self) -> Space:
        """Where queries lie."""

    @property
    @abstractmethod
    def answer_space(self) -> Space:
        """Where recommendations lie."""

    @abstractmethod
    def begin(self, context: Float[Tensor, "batch context"]) -> Any:
        """The state of a batch of episodes before their first query."""

    @abstractmethod
    def assess(
        self,
        state: Any,
        epsilons: Sequence[float],
        rng: Generator,
        scale: float = 0.0,
        costs: Sequence[Float[Tensor, " batch"]] = (),
    ) -> Assessment:
        """The next query, and for each epsilon what to recommend; ``scale`` is the spread of queries."""

    @abstractmethod
    def observe(
        self, state: Any, query: Float[Tensor, "batch query"], observation: Float[Tensor, "batch observation"]
    ) -> Any:
        """The state after the observations of the queries."""

    @abstractmethod
    def sample_answers(self, state: Any, n: int, rng: Generator) -> Float[Tensor, "batch draw answer"]:
        """Draws of the target from the posterior of each history."""

    @abstractmethod
    def tensors(self) -> Mapping[str, Tensor]:
        """Everything that was learned."""
