"""A distribution over the places of a lattice: a posterior with as many modes as there are places."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Generator, Tensor, nn

from cicpe.beliefs.network.layers import LOG_STD
from cicpe.beliefs.network.memories.base import Memory, MemoryFeatures
from cicpe.beliefs.network.posteriors.gaussian import Posterior
from cicpe.config import Config
from cicpe.errors import InvalidInput
from cicpe.spaces import Space

COLDEST = 1e-3
"""The smallest temperature of draws; at 0 the recommendation is taken."""


class Places(NamedTuple):
    """The lattice of a posterior, in unit coordinates."""

    unit_KX: Float[Tensor, "place answer"]
    log_std: Float[Tensor, ""]
    """Of the target about the place that it belongs to."""
    window: float
    """How close counts as success when the recommendation is chosen."""


@final
@dataclass(frozen=True)
class LatticePosterior(Posterior):
    """sum_k w_k N(x_k, s^2 I) over the places x_k of a lattice, in unit coordinates."""

    space: Space
    places: Places
    scores: Float[Tensor, "*batch place"]

    @cached_property
    def recommendation(self) -> Float[Tensor, "*batch answer"]:
        """The place with most of the posterior about it, and from there to the mean of what lies about it."""
        with torch.no_grad():
            unit_KX, window, share = self.places.unit_KX, self.places.window, self.scores.softmax(dim=-1)
            apart_KK = torch.cdist(unit_KX, unit_KX, compute_mode="donot_use_mm_for_euclid_dist")
            near_KK = torch.exp(-(apart_KK / window).square() / 2)
            pull = share * near_KK[(share @ near_KK).argmax(dim=-1)]
            return self.space.project(self.space.from_unit(pull @ unit_KX / pull.sum(dim=-1, keepdim=True)))

    @property
    def std(self) -> Float[Tensor, "*batch answer"]:
        share, unit_KX = self.scores.softmax(dim=-1), self.places.unit_KX
        variance = share @ unit_KX.square() - (share @ unit_KX).square() + (2 * self.places.log_std).exp()
        return variance.clamp_min(1e-12).sqrt() * self.space.unit_scale

    def nll(self, target: Float[Tensor, "*#batch answer"]) -> Float[Tensor, "*batch"]:
        """The joint negative log density, divided by the number of coordinates."""
        dim, log_std = target.shape[-1], self.places.log_std
        z = (self.space.to_unit(target)[..., None, :] - self.places.unit_KX) * torch.exp(-log_std)
        log_density = -z.square().sum(dim=-1) / 2 - dim * (log_std + math.log(2 * math.pi) / 2)
        return -(self.scores.log_softmax(dim=-1) + log_density).logsumexp(dim=-1) / dim

    def sample(self, rng: Generator, scale: Tensor | float = 1.0) -> Float[Tensor, "*batch answer"]:
        """One draw with the temperature ``scale``: below 1 of likelier places; the recommendation for 0."""
        with torch.no_grad():
            temperature = torch.as_tensor(scale).clamp_min(COLDEST)
            share = (self.scores / temperature).softmax(dim=-1)
            chosen = torch.multinomial(share.flatten(0, -2), 1, generator=rng).view(share.shape[:-1])
            unit = self.places.unit_KX[chosen]
            unit = unit + self.places.log_std.exp() * torch.randn(unit.shape, generator=rng)
            draw = self.space.project(self.space.from_unit(unit))
            return torch.where(torch.as_tensor(scale) > 0, draw, self.recommendation)


@final
class LatticePosteriorConfig(Config):
    """A distribution over the places that the memory scores; needs the memory lattice."""

    kind: Literal["lattice"] = "lattice"
    window: float = Field(default=0.2, gt=0)
    """How close counts as success when the recommendation is chosen: about epsilon / 2 in unit coordinates."""

    def build(self, memory: Memory, space: Space) -> "LatticeHead":
        """The head that this describes."""
        return LatticeHead(self, memory, space)


@final
class LatticeHead(nn.Module):
    """Makes a distribution of the memory's scores; only its spread about a place is its own."""

    places_KX: Tensor

    def __init__(self, config: LatticePosteriorConfig, memory: Memory, space: Space) -> None:
        super().__init__()
        places_KX = memory.scored_places
        if places_KX is None:
            raise InvalidInput("posterior", "lattice", "used with the memory lattice: other memories score no places")
        self.space, self.window = space, config.window
        self.register_buffer("places_KX", places_KX.detach().clone())
        cell = 2 / (len(places_KX) ** (1 / space.dim) - 1)
        self.log_std = nn.Parameter(torch.tensor(math.log(cell / 2)))

    def forward(self, memory_features: MemoryFeatures) -> LatticePosterior:
        """The posterior at every prefix that was read."""
        assert memory_features.place_scores is not None
        places = Places(self.places_KX, self.log_std.clamp(*LOG_STD), self.window)
        return LatticePosterior(self.space, places, memory_features.place_scores)
