"""The particle agent: a posterior over the task's parameters by sequential Monte Carlo, without training.

For problems that say what their hidden parameters are (``parameter_space``, ``parameters`` and
``from_parameters``) and have a likelihood, given or learned (``cicpe.agents.likelihood``). Its confidence
is the largest share of particles that one answer succeeds on, and that answer is its recommendation.
"""

import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Generator, Tensor

from cicpe import trees
from cicpe.agents.base import Agent, Proposal
from cicpe.agents.lookahead import QueryRule, candidate_queries, score_queries
from cicpe.agents.recommendation import View, recommend
from cicpe.agents.smc import (
    IMPOSSIBLE,
    ROWS,
    Cloud,
    LogLikelihood,
    Model,
    effective_size,
    log_likelihoods,
    merge,
    replace_episodes,
    resample,
    settle,
    weights,
)
from cicpe.agents.stopping import StopRule, StopView
from cicpe.errors import InvalidInput
from cicpe.networks.base import Config
from cicpe.problems import Problem, Task


class DegenerateParticles(RuntimeWarning):
    """The particles no longer stand for the posterior: confidence is not to be trusted."""


@final
class ParticleConfig(Config):
    """Sizes of the sampler and the query rule."""

    particles: int = Field(default=1024, ge=8)
    """How many particles an episode has once it is under way."""
    prior_particles: int = Field(default=16384, ge=8)
    """How many it starts with: the first few observations only weight them."""
    prior_steps: int = Field(default=2, ge=1)
    """After how many observations the prior's particles are resampled."""
    restarts: int = Field(default=100, ge=0)
    """Up to how many observations a second cloud is annealed from the prior for the whole history, and merged."""
    moves: int = Field(default=6, ge=1)
    """Metropolis moves after each resampling."""
    ess_threshold: float = Field(default=0.5, gt=0, lt=1)
    """Share of effective particles below which an episode is resampled; tempering keeps it above."""
    global_share: float = Field(default=0.03, ge=0, lt=0.3)
    """Share of moves that are fresh draws from the prior."""
    powers: int = Field(default=40, ge=1)
    """The most tempering powers an observation."""
    query: QueryRule = "agreement"
    """How the next query is chosen."""
    candidates: int = Field(default=48, ge=4)
    """Queries that are compared."""
    lookahead_particles: int = Field(default=256, ge=8)
    """Particles that they are compared on."""
    seed: int = Field(default=0, ge=0, le=2**31)
    """Seed of the sampler. Episodes share its random numbers and are otherwise independent."""


class ParticleState(NamedTuple):
    """The particles of every episode, and its calibrated threshold."""

    cloud: Cloud
    threshold_B: Float[Tensor, " batch"]


@final
@dataclass(frozen=True)
class ParticleAgent(Agent):
    """Believes in particles, queries what would tell most, stops by its stop rule."""

    problem: Problem
    epsilon: float
    stop_rule: StopRule
    horizon: int
    config: ParticleConfig = field(default_factory=ParticleConfig)
    log_likelihood: LogLikelihood | None = None
    """In place of the problem's own."""

    def __post_init__(self) -> None:
        name = type(self.problem).__name__
        if self.problem.parameter_space is None:
            raise InvalidInput("problem", name, "a problem that sets parameter_space, parameters and from_parameters")
        if self.log_likelihood is None and not self.problem.has_likelihood:
            raise InvalidInput("problem", name, "a problem with a log_likelihood; see cicpe.agents.likelihood")
        if self.stop_rule.needs_go_value:
            raise InvalidInput("stop_rule", type(self.stop_rule).__name__, "a rule that goes by confidence")

    def task(self, unit: Float[Tensor, "n parameter"], context: Float[Tensor, "n context"]) -> Task:
        """The tasks of particles."""
        assert self.problem.parameter_space is not None
        return self.problem.from_parameters(self.problem.parameter_space.from_unit(unit), context)

    @cached_property
    def model(self) -> Model:
        """Prior and likelihood, as the sampler takes them."""
        problem, space = self.problem, self.problem.parameter_space
        assert space is not None

        def prior(n: int, rng: Generator) -> Tensor:
            return space.to_unit(problem.parameters(problem.sample(n, rng)))

        def log_prior(unit: Tensor) -> Tensor:
            return problem.log_prior(space.from_unit(unit))

        return Model(prior, log_prior, self.task, self.log_likelihood or problem.log_likelihood)

    def begin(self, context: Float[Tensor, "batch context"]) -> ParticleState:
        return ParticleState(self._from_prior(context, self.config.seed), self.stop_rule.threshold(context))

    def _from_prior(self, context: Tensor, seed: int) -> Cloud:
        batch, n = len(context), max(self.config.prior_particles, self.config.particles)
        with torch.no_grad():
            unit = self.model.prior(n, torch.Generator().manual_seed(seed))
            log_prior = self.model.log_prior(unit)
        zeros = torch.zeros(batch, n)
        return Cloud(
            unit_BNP=unit.expand(batch, -1, -1),
            log_prior_BN=log_prior.expand(batch, -1),
            log_settled_BN=zeros,
            log_pending_BN=zeros,
            settled_B=torch.zeros(batch, dtype=torch.long),
            log_evidence_B=torch.zeros(batch),
            scale_B=torch.ones(batch),
            acceptance_B=torch.ones(batch),
            distinct_B=torch.ones(batch),
            context_BC=context,
            query_BTQ=torch.zeros(batch, 0, self.problem.query_space.dim),
            observation_BTY=torch.zeros(batch, 0, self.problem.observation_dim),
        )

    def observe(
        self,
        state: ParticleState,
        query: Float[Tensor, "batch query"],
        observation: Float[Tensor, "batch observation"],
    ) -> ParticleState:
        config, old = self.config, state.cloud
        cloud = old._replace(
            query_BTQ=torch.cat([old.query_BTQ, query[:, None]], dim=1),
            observation_BTY=torch.cat([old.observation_BTY, observation[:, None]], dim=1),
        )
        steps = cloud.query_BTQ.shape[1]
        with torch.no_grad():
            _, latest = log_likelihoods(self.model, cloud.unit_BNP, cloud, first=steps - 1)
            cloud = cloud._replace(log_pending_BN=cloud.log_pending_BN + latest)
            if steps < config.prior_steps:
                return state._replace(cloud=cloud)
            first = cloud.unit_BNP.shape[1] > config.particles
            due = effective_size(cloud.log_pending_BN) < config.ess_threshold * config.particles
            due = torch.ones_like(due) if first else due
            if bool(due.any()):
                settled = self._settle(trees.select(cloud, due), 2 * steps)
                cloud = settled if bool(due.all()) else replace_episodes(cloud, due.nonzero()[:, 0], settled)
            if steps <= config.restarts and not first:
                fresh = self._fresh(cloud)
                _, pending = log_likelihoods(self.model, fresh.unit_BNP, fresh)
                fresh = self._settle(fresh._replace(log_pending_BN=pending), 2 * steps + 1)
                cloud = merge(cloud, fresh, seed=config.seed + steps)
            _warn_if_degenerate(cloud)
        return state._replace(cloud=cloud)

    def _settle(self, cloud: Cloud, turn: int) -> Cloud:
        c = self.config
        floor = c.ess_threshold * c.particles
        seed = 1 + c.seed + turn * (c.powers + 1)
        return settle(self.model, cloud, c.particles, floor, c.moves, c.global_share, c.powers, seed)

    def _fresh(self, cloud: Cloud) -> Cloud:
        """The same histories, with particles from the prior."""
        fresh = self._from_prior(cloud.context_BC, self.config.seed + cloud.query_BTQ.shape[1])
        return fresh._replace(query_BTQ=cloud.query_BTQ, observation_BTY=cloud.observation_BTY)

    def propose(self, state: ParticleState, rng: Generator) -> Proposal:
        with torch.no_grad():
            return self._propose(state, rng)

    def _propose(self, state: ParticleState, rng: Generator) -> Proposal:
        view = self._view(state.cloud)
        batch = len(view.unit_BNP)
        many = max(1, ROWS // (self.config.candidates * self.config.lookahead_particles))
        parts = []
        for begin in range(0, batch, 8 * many):
            some = trees.select(view, torch.arange(begin, min(batch, begin + 8 * many)))
            recommendation, confidence = recommend(self.problem, some, self.epsilon, self.task)
            query = self._query(some, recommendation, rng)
            mean = (some.weight_BN[..., None] * some.target_BNX).sum(dim=1, keepdim=True)
            variance = (some.weight_BN[..., None] * (some.target_BNX - mean).square()).sum(dim=1)
            parts.append((query, recommendation, confidence, variance.clamp_min(0).sqrt()))
        query, recommendation, confidence, std = (torch.cat(column) for column in zip(*parts, strict=True))
        time = torch.full((batch,), state.cloud.query_BTQ.shape[1])
        seen = StopView(time, confidence, confidence, torch.zeros_like(confidence))
        return Proposal(query, self.stop_rule.decide(seen, state.threshold_B), recommendation, confidence, std)

    def _view(self, cloud: Cloud) -> View:
        """``particles`` weighted particles with their targets, whatever the size of the cloud."""
        unit, weight = cloud.unit_BNP, weights(cloud)
        n = self.config.particles
        if unit.shape[1] > n:
            rng = torch.Generator().manual_seed(self.config.seed)
            ancestor = resample(cloud.log_pending_BN, n, rng)
            unit = unit.gather(1, ancestor[..., None].expand(-1, -1, unit.shape[-1]))
            weight = torch.full(unit.shape[:2], 1 / n)
        context = cloud.context_BC.repeat_interleave(n, dim=0)
        target = self.problem.target(self.task(unit.flatten(0, 1), context))
        return View(unit, weight, target.reshape(len(unit), n, -1), cloud.context_BC)

    def _query(self, view: View, recommendation: Tensor, rng: Generator) -> Tensor:
        config = self.config
        same = self.problem.query_space == self.problem.answer_space
        if config.query == "greedy" and same:
            return recommendation
        m = min(config.lookahead_particles, view.unit_BNP.shape[1])
        chosen = resample(view.weight_BN.clamp_min(1e-30).log(), m, rng)[:, torch.randperm(m, generator=rng)]
        unit = view.unit_BNP.gather(1, chosen[..., None].expand(-1, -1, view.unit_BNP.shape[-1]))
        target = view.target_BNX.gather(1, chosen[..., None].expand(-1, -1, view.target_BNX.shape[-1]))
        if config.query == "thompson" and same:
            return target[:, 0]
        candidates = candidate_queries(
            self.problem.query_space, config.candidates, target if same else None, recommendation, rng
        )
        batch, k = candidates.shape[:2]
        task = self.task(
            unit[:, None].expand(-1, k, -1, -1).reshape(batch * k * m, -1),
            view.context_BC.repeat_interleave(k * m, dim=0),
        )
        observed = self.problem.observe(task, candidates.repeat_interleave(m, dim=1).flatten(0, 1), rng)
        score = score_queries(config.query, observed.reshape(batch, k, m, -1), target, self.epsilon)
        return candidates[torch.arange(batch), score.argmax(dim=1)]


def _warn_if_degenerate(cloud: Cloud) -> None:
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
            stacklevel=3,
        )
