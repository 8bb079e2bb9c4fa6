"""Plates: the queries of one step, which are made before any of their observations is known.

Agents and beliefs propose plates (``batch q query``) and take their observations (``batch q observation``). All of ours
propose one query per step (q = 1), and learn from a plate one query at a time, in its order.
"""

from abc import ABC, abstractmethod
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.errors import InvalidInput


class LearnsFromPlates(ABC):
    """Whoever takes plates, one query at a time: what agents and beliefs have in common."""

    def observe(
        self, state: Any, query: Float[Tensor, "batch q query"], observation: Float[Tensor, "batch q observation"]
    ) -> Any:
        """The state after the observations of a plate."""
        for single_query, its_observation in zip(query.unbind(dim=1), observation.unbind(dim=1), strict=True):
            state = self.update(state, single_query, its_observation)
        return state

    @abstractmethod
    def update(
        self, state: Any, query: Float[Tensor, "batch query"], observation: Float[Tensor, "batch observation"]
    ) -> Any:
        """The state after one more observation of every episode."""


@runtime_checkable
class AnswersQueries(Protocol):
    """Whoever answers one query per task."""

    def observe(self, query: Float[Tensor, "batch query"], rng: Generator) -> Float[Tensor, "batch observation"]:
        """One observation of each task at its query."""


def observe_plate(
    tasks: AnswersQueries, query: Float[Tensor, "batch q query"], rng: Generator
) -> Float[Tensor, "batch q observation"]:
    """What the tasks answer to a plate, one query after the other."""
    return torch.stack([tasks.observe(single, rng) for single in query.unbind(dim=1)], dim=1)


def only_query(plate: Float[Tensor, "batch q dim"]) -> Float[Tensor, "batch dim"]:
    """The query (or the observation) of a plate of one, for whoever speaks of one query at a time."""
    if plate.shape[1] != 1:
        raise InvalidInput("plate", f"{plate.shape[1]} queries", "a single query per step here")
    return plate[:, 0]
