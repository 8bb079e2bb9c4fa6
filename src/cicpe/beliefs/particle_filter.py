"""A particle filter: what is known of a task's parameters, followed observation by observation.

The first few observations weigh draws of the prior. From then on a cloud of fewer particles is followed, which is
tempered and moved when too few of them carry the weight (``smc.py``). One cloud may miss a mode. So where a decision is
near, a second one is annealed from the prior for the whole history, and the two are merged, each with its evidence as
weight.

Shape suffixes: B episodes, N particles, M draws of the prior, P parameters, Q query, Y observation, C context.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cicpe import trees
from cicpe.beliefs.smc import (
    IMPOSSIBLE,
    ParticleCloud,
    SMCTarget,
    latest_log_likelihood,
    log_priors,
    merge,
    prior_cloud,
    replace_episodes,
    temper_and_move,
)
from cicpe.statistics import effective_size

LONG = 8
"""Observations of twice which a history is long: a second cloud, which takes the whole of it in anew, is then annealed
less often, at about every eighth part of it."""


class DegenerateParticles(RuntimeWarning):
    """The particles no longer stand for the posterior: confidence is not to be trusted."""


class FilterSizes(NamedTuple):
    """How large a filter is and how it moves."""

    particles: int
    """How many particles an episode has once it is under way."""
    prior_particles: int
    """How many it starts with."""
    prior_steps: int = 2
    """After how many observations the prior's particles are resampled."""
    moves: int = 4
    """Metropolis moves after each resampling."""
    ess_threshold: float = 0.5
    """Share of effective particles below which an episode is resampled; tempering keeps it above."""
    global_share: float = 0.03
    """Share of moves that are fresh draws from the prior."""
    powers: int = 40
    """The most tempering powers per observation."""
    seed: int = 0
    """Seed of the sampler. Episodes share its random numbers and are otherwise independent."""


class FilterState(NamedTuple):
    """The particles of every episode, and how well the prior's own draws explain its history."""

    cloud: ParticleCloud
    log_prior_draws_BM: Float[Tensor, "batch draw"]
    """Log-likelihood of the whole history for every draw from the prior; a second cloud starts from them."""


@final
@dataclass(frozen=True)
class ParticleFilter:
    """Follows the posterior of a batch of episodes."""

    target: SMCTarget
    sizes: FilterSizes
    may_decide: Callable[[ParticleCloud], Bool[Tensor, " batch"]]
    """Which episodes are near a decision, so that their cloud is merged with a second one."""

    @cached_property
    def prior_draws(self) -> tuple[Float[Tensor, "draw parameter"], Float[Tensor, " draw"]]:
        """Draws from the prior, the same for every episode, and their log density."""
        n = max(self.sizes.prior_particles, self.sizes.particles)
        with torch.no_grad():
            unit = self.target.prior(n, torch.Generator().manual_seed(self.sizes.seed)).T.contiguous().T
            return unit, log_priors(self.target, unit.T[:, None])[0]

    def begin(self, context_BC: Float[Tensor, "batch context"], query: int, observation: int) -> FilterState:
        """Nothing seen.

        Args:
            context_BC: What is known of each episode.
            query: Coordinates of a query.
            observation: Entries of an observation.

        Returns:
            The prior's draws.
        """
        batch = len(context_BC)
        zeros = torch.zeros(batch, len(self.prior_draws[0]), dtype=torch.float64)
        nothing = torch.zeros(batch, 0, query), torch.zeros(batch, 0, observation)
        return FilterState(self._fresh(context_BC, *nothing, zeros), zeros)

    def _fresh(
        self, context_BC: Tensor, query_BTQ: Tensor, observation_BTY: Tensor, log_draws_BM: Tensor
    ) -> ParticleCloud:
        """The prior's draws, weighted by a history."""
        return prior_cloud(*self.prior_draws, log_draws_BM, context_BC, query_BTQ, observation_BTY)

    @torch.no_grad()
    def update(
        self,
        state: FilterState,
        query_BQ: Float[Tensor, "batch query"],
        observation_BY: Float[Tensor, "batch observation"],
    ) -> FilterState:
        """The state after one more observation.

        Args:
            state: Before it.
            query_BQ: What was queried.
            observation_BY: What was observed.

        Returns:
            The new state; the old one stays as it was.
        """
        sizes, old = self.sizes, state.cloud
        cloud = old._replace(
            query_BTQ=torch.cat([old.query_BTQ, query_BQ[:, None]], dim=1),
            observation_BTY=torch.cat([old.observation_BTY, observation_BY[:, None]], dim=1),
        )
        steps = cloud.query_BTQ.shape[1]
        draws_P1M = self.prior_draws[0].T[:, None]
        log_draws = state.log_prior_draws_BM + latest_log_likelihood(self.target, draws_P1M, cloud)
        if steps > sizes.prior_steps:
            cloud = self._checked(self._updated(cloud, 2 * steps), log_draws, 2 * steps + 1)
        else:
            cloud = self._fresh(cloud.context_BC, cloud.query_BTQ, cloud.observation_BTY, log_draws)
            cloud = self._settle(cloud, 2 * steps) if steps == sizes.prior_steps else cloud
        _warn_if_degenerate(cloud)
        return FilterState(cloud, log_draws)

    def _checked(self, cloud: ParticleCloud, log_draws_BM: Tensor, turn: int) -> ParticleCloud:
        """Clouds near a decision, merged with a second one from the prior: one cloud alone may miss a mode."""
        steps = cloud.query_BTQ.shape[1]
        if steps % max(1, steps // LONG):
            return cloud
        due = self.may_decide(cloud)
        if not bool(due.any()):
            return cloud
        first = trees.select(cloud, due)
        fresh = self._fresh(first.context_BC, first.query_BTQ, first.observation_BTY, log_draws_BM[due])
        merged = merge(first, self._settle(fresh, turn), seed=self.sizes.seed + turn)
        return replace_episodes(cloud, due.nonzero()[:, 0], merged)

    def _updated(self, cloud: ParticleCloud, turn: int) -> ParticleCloud:
        """The cloud with its latest observation: as weights where they stay even, else by moves."""
        gain_BN = latest_log_likelihood(self.target, cloud.unit_BNP.permute(2, 0, 1), cloud)
        cloud = cloud._replace(log_pending_BN=cloud.log_pending_BN + gain_BN)
        due = effective_size(cloud.log_pending_BN) < self.sizes.ess_threshold * self.sizes.particles
        if not bool(due.any()):
            return cloud
        settled = self._settle(trees.select(cloud, due), turn)
        return settled if bool(due.all()) else replace_episodes(cloud, due.nonzero()[:, 0], settled)

    def _settle(self, cloud: ParticleCloud, turn: int) -> ParticleCloud:
        s, n = self.sizes, self.sizes.particles
        seed = 1 + s.seed + turn * (s.powers + 1)
        return temper_and_move(self.target, cloud, n, s.ess_threshold * n, s.moves, s.global_share, s.powers, seed)


def _warn_if_degenerate(cloud: ParticleCloud) -> None:
    none_fits = (cloud.log_settled_BN + cloud.log_pending_BN).amax(dim=-1) <= IMPOSSIBLE / 2
    bad = (cloud.acceptance_B < 0.01) | (cloud.distinct_B < 0.2) | none_fits
    if bool(bad.any()):
        worst = int(torch.where(bad, cloud.distinct_B, 2.0).argmin())
        warnings.warn(
            f"{int(bad.sum())} of {len(bad)} episodes have degenerate particles (in the worst, "
            f"{cloud.distinct_B[worst]:.0%} are distinct and {cloud.acceptance_B[worst]:.1%} of moves are accepted; "
            f"in {int(none_fits.sum())} no particle can explain the observations): use more particles or more moves, "
            "or a likelihood that allows for model error",
            DegenerateParticles,
            stacklevel=4,
        )
