"""Inference by a particle filter over answers and what else is hidden, under a learned likelihood.

Particles move in coordinates that are uniform in [-1, 1] under the prior. A network is no elementwise function: how its
products are rounded depends on their shape. So it is asked for one episode at a time, and what an episode does is the
same whatever else is in the batch.

Shapes: B episodes, N particles, V coordinates, T steps, Q query, Y observation, C context.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from cicpe import trees
from cicpe.beliefs.answers.grid import WeightedAnswers
from cicpe.beliefs.answers.model import AnswerModel
from cicpe.beliefs.answers.recommendation import recommend
from cicpe.beliefs.base import without_caches
from cicpe.beliefs.particle_filter import FilterSizes, FilterState, ParticleFilter
from cicpe.beliefs.smc import ParticleCloud, SMCTarget, weights
from cicpe.statistics import systematic

EDGE = 1e-6
"""Probability beyond which latent coordinates are cut off."""


class SearchState(NamedTuple):
    """The particles of every episode, what is known of it, and how many observations it has."""

    followed: FilterState
    before: WeightedAnswers
    """Answers and their weights one observation ago."""
    context_BC: Float[Tensor, "B C"]
    time_B: Int[Tensor, " B"]


@final
@dataclass(frozen=True)
class ParticleSearch:
    """A particle filter in the prior's own coordinates."""

    model: AnswerModel
    aim: float
    """The epsilon that a decision is about."""
    particles: int = 512
    prior_particles: int = 4096
    doubt: float = 0.4
    """Confidence from which a second cloud is annealed from the prior."""
    has_candidates: ClassVar[bool] = False
    """Answers are particles, and not compared one by one."""

    def __getstate__(self) -> dict[str, Any]:
        return without_caches(self)

    @cached_property
    def filter(self) -> ParticleFilter:
        """Follows the posterior."""
        sizes = FilterSizes(self.particles, self.prior_particles)
        return ParticleFilter(likelihood_target(self.model), sizes, self._may_decide)

    def begin(self, context: Float[Tensor, "B C"]) -> SearchState:
        """Nothing seen."""
        followed = self.filter.begin(context, self.model.query_space.dim, len(self.model.heads.heads))
        before = self._weighted(self._few(followed.cloud))
        return SearchState(followed, before, context, torch.zeros(len(context), dtype=torch.long))

    def observe(self, state: SearchState, query_BQ: Tensor, encoded_BY: Tensor) -> SearchState:
        """The particles with one more observation (of a query in unit coordinates)."""
        followed = self.filter.update(state.followed, query_BQ, encoded_BY)
        return SearchState(followed, self.posterior(state), state.context_BC, state.time_B + 1)

    def _may_decide(self, cloud: ParticleCloud) -> Bool[Tensor, " B"]:
        """Whether an answer may be good enough already."""
        space, success = self.model.answer_space, self.model.success
        each = (self._weighted(trees.select(cloud, torch.tensor([b]))) for b in range(len(cloud.settled_B)))
        best = [recommend(success, space, posterior, (self.aim,))[0][1] for posterior in each]
        return torch.cat(best) >= self.doubt

    def _weighted(self, cloud: ParticleCloud) -> WeightedAnswers:
        places = self._places(cloud.unit_BNP)
        return WeightedAnswers(places[..., : self.model.answer_space.dim], weights(cloud), places)

    def _places(self, unit: Float[Tensor, "*batch V"]) -> Float[Tensor, "*batch W"]:
        return self.model.prior.places(latent_of(unit))

    def posterior(self, state: SearchState) -> WeightedAnswers:
        """Answers and their weights."""
        return self._weighted(self._few(state.followed.cloud))

    def _few(self, cloud: ParticleCloud) -> ParticleCloud:
        """No more than as many particles as an episode has under way, where it still has the prior's."""
        if cloud.unit_BNP.shape[1] <= self.particles:
            return cloud
        chosen = systematic(weights(cloud), self.particles, 0.5)
        unit = cloud.unit_BNP.gather(1, chosen[..., None].expand(-1, -1, cloud.unit_BNP.shape[-1]))
        return cloud._replace(unit_BNP=unit, log_pending_BN=torch.zeros(chosen.shape, dtype=torch.float64))

    def draws(self, state: SearchState, n: int, offset: float) -> Float[Tensor, "B n V"]:
        """Draws of places."""
        cloud = state.followed.cloud
        chosen = systematic(weights(cloud), n, offset)
        return self._places(cloud.unit_BNP.gather(1, chosen[..., None].expand(-1, -1, cloud.unit_BNP.shape[-1])))


def latent_of(unit: Float[Tensor, "*batch V"]) -> Float[Tensor, "*batch V"]:
    """Latent coordinates of points whose coordinates are uniform in [-1, 1] under the prior."""
    value: Tensor = torch.special.ndtri(((1 + unit.double()) / 2).clamp(EDGE, 1 - EDGE)).float()
    return value


def unit_of(latent: Float[Tensor, "*batch V"]) -> Float[Tensor, "*batch V"]:
    """The inverse of ``latent_of``."""
    value: Tensor = (2 * torch.special.ndtr(latent.double()) - 1).float()
    return value


def likelihood_target(model: AnswerModel) -> SMCTarget:
    """Prior and likelihood of a learned family, as the sampler takes them.

    Args:
        model: What was learned.

    Returns:
        Both, in coordinates that are uniform in [-1, 1] under the prior.
    """
    drawn_MV, tilt = model.prior.latent_MV, model.prior.tilt
    v = drawn_MV.shape[1]

    def prior(n: int, rng: Generator) -> Tensor:
        if tilt is None:
            return 2 * torch.rand((n, v), generator=rng) - 1
        return unit_of(drawn_MV[torch.randint(len(drawn_MV), (n,), generator=rng)])

    def log_prior(unit_NP: Tensor) -> Float[Tensor, " N"]:
        assert tilt is not None
        value: Tensor = tilt(latent_of(unit_NP)).double()
        return value

    network, heads = model.frozen_network(), model.heads

    def log_likelihood(
        unit_PBN: Tensor, context_BC: Tensor, query_BTQ: Tensor, encoded_BTY: Tensor
    ) -> Float[Tensor, "B T N"]:
        latent_BNV = latent_of(unit_PBN.permute(1, 2, 0))
        # A function of the nuisance is a network, too: one episode at a time.
        alone = model.prior.answer_map is not None
        each = model.prior.places
        places_BNV = [each(latent_NV) for latent_NV in latent_BNV] if alone else each(latent_BNV)
        places = [network.prepare(place_NV) for place_NV in places_BNV]
        places = places * len(context_BC) if len(places) == 1 else places
        episodes = zip(places, network.known(context_BC), query_BTQ, encoded_BTY, strict=True)
        return torch.stack(
            [
                heads.log_probability(network(query_TQ, some, known_M1), encoded_TY[:, None])
                for some, known_M1, query_TQ, encoded_TY in episodes
            ]
        )

    return SMCTarget(v, prior, None if tilt is None else log_prior, log_likelihood)
