"""Actor rules: which query to make next, given the belief."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.errors import InvalidInput
from cicpe.networks.network import Belief
from cicpe.spaces import Space

ActorName = Literal["ts", "ttps", "uniform"]


class Actor(ABC):
    """Proposes a query for every episode from its belief (one prefix each)."""

    @abstractmethod
    def propose(self, belief: Belief, rng: Generator, scale: Tensor | float) -> Float[Tensor, "batch query"]:
        """One query an episode. ``scale`` multiplies the posterior's spread: 0 is greedy, 1 as sampled."""


@final
@dataclass(frozen=True)
class Thompson(Actor):
    """A ~ I(. | h): query a plausible target (greedy: the recommendation). Needs X = A."""

    query_space: Space

    def propose(self, belief: Belief, rng: Generator, scale: Tensor | float) -> Float[Tensor, "batch query"]:
        draw = belief.posterior.sample(rng, scale)[:, 0]
        return self.query_space.project(draw)


@final
@dataclass(frozen=True)
class TopTwo(Actor):
    """Top-two posterior sampling: half of the time, a challenger that lies farther from the mean.

    The distance is the answer space's own: Euclidean in a box, one minus the cosine on the sphere.
    """

    query_space: Space

    def propose(self, belief: Belief, rng: Generator, scale: Tensor | float) -> Float[Tensor, "batch query"]:
        first = belief.posterior.sample(rng, scale)[:, 0]
        challenger = belief.posterior.sample(rng, scale)[:, 0]
        mean = belief.posterior.recommendation[:, 0]
        farther = self.query_space.distance(challenger, mean) > self.query_space.distance(first, mean)
        challenged = torch.rand(len(first), generator=rng) < 0.5
        return self.query_space.project(torch.where((challenged & farther)[:, None], challenger, first))


@final
@dataclass(frozen=True)
class Uniform(Actor):
    """Uniform over the query space: the control that isolates what active querying buys."""

    query_space: Space

    def propose(self, belief: Belief, rng: Generator, scale: Tensor | float) -> Float[Tensor, "batch query"]:
        return self.query_space.sample(belief.posterior.recommendation.shape[0], rng)


def make_actor(name: ActorName, query_space: Space, answer_space: Space) -> Actor:
    """The actor of that name, refused where the spaces do not allow it."""
    if name == "uniform":
        return Uniform(query_space)
    if name not in ("ts", "ttps"):
        raise InvalidInput("actor", name, "ts, ttps or uniform")
    if query_space != answer_space:
        raise InvalidInput("actor", name, "uniform: ts and ttps query plausible answers, so both spaces must be one")
    return Thompson(query_space) if name == "ts" else TopTwo(query_space)
