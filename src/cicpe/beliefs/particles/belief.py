"""Particles: a posterior over the task's parameters by sequential Monte Carlo, without training.

For problems whose tasks are numbers (``cicpe.beliefs.particles.parametrisation``) and that have a likelihood, given or
learned (``cicpe.beliefs.particles.likelihood``). Its confidence is the largest share of particles that one answer
succeeds on, and that answer is its recommendation.
"""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, final

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Generator, Tensor

from cicpe import trees
from cicpe.beliefs.base import Assessment, Belief
from cicpe.beliefs.lookahead import QueryRule, candidate_queries, score_queries
from cicpe.beliefs.particles.likelihood import LearnedLikelihood
from cicpe.beliefs.particles.parametrisation import Parametrisation, parameter_count, parametrisation
from cicpe.beliefs.particles.prediction import simulate_prediction
from cicpe.beliefs.particles.recommendation import View, recommend
from cicpe.beliefs.predictors import Prediction, two_values
from cicpe.beliefs.smc import (
    IMPOSSIBLE,
    ParticleCloud,
    SMCTarget,
    combinations,
    latest_log_likelihood,
    log_priors,
    merge,
    prior_cloud,
    replace_episodes,
    resample,
    temper_and_move,
    weights,
)
from cicpe.config import Config
from cicpe.errors import InvalidInput
from cicpe.problems import Problem, Task
from cicpe.spaces import Space
from cicpe.statistics import effective_size, first_of_best, weighted_std

EPISODES = 16
"""How many are looked at together: what fits a cache."""


class DegenerateParticles(RuntimeWarning):
    """The particles no longer stand for the posterior: confidence is not to be trusted."""


@final
class ParticleConfig(Config):
    """Sizes of the sampler and the query rule."""

    particles: int = Field(default=1024, ge=8, le=10**6)
    """How many particles an episode has once it is under way."""
    prior_particles: int = Field(default=16384, ge=8, le=10**7)
    """How many it starts with: the first few observations only weight them."""
    prior_steps: int = Field(default=2, ge=1)
    """After how many observations the prior's particles are resampled."""
    restart_confidence: float = Field(default=0.4, ge=0)
    """Confidence from which a second cloud is annealed from the prior for the whole history, and merged."""
    moves: int = Field(default=4, ge=1, le=1000)
    """Metropolis moves after each resampling."""
    ess_threshold: float = Field(default=0.5, gt=0, lt=1)
    """Share of effective particles below which an episode is resampled; tempering keeps it above."""
    global_share: float = Field(default=0.03, ge=0, lt=0.3)
    """Share of moves that are fresh draws from the prior."""
    powers: int = Field(default=40, ge=1, le=10_000)
    """The most tempering powers per observation."""
    query: QueryRule = "agreement"
    """How the next query is chosen."""
    candidates: int = Field(default=48, ge=4, le=10**5)
    """Queries that are compared."""
    lookahead_particles: int = Field(default=256, ge=8, le=10**6)
    """Particles that they are compared on."""
    seed: int = Field(default=0, ge=0, le=2**31)
    """Seed of the sampler. Episodes share its random numbers and are otherwise independent."""


class ParticleState(NamedTuple):
    """The particles of every episode, and how well the prior's own draws explain its history."""

    cloud: ParticleCloud
    log_prior_draws_BM: Float[Tensor, "batch draw"]
    """Log-likelihood of the whole history for every draw from the prior; each step starts a fresh cloud from them."""


@final
@dataclass(frozen=True)
class ParticleBelief(Belief):
    """Believes in particles and queries what would tell most about the target."""

    problem: Problem
    horizon: int
    config: ParticleConfig = field(default_factory=ParticleConfig)
    aim: float = 0.1
    """The epsilon that queries are chosen for."""
    learned: LearnedLikelihood | None = None
    """In place of the problem's own likelihood."""
    most_at_once: int = 256

    def __post_init__(self) -> None:
        name = type(self.problem).__name__
        if self.problem.parameter_space is None and (
            self.learned is not None or parameter_count(self.problem) == math.inf
        ):
            raise InvalidInput(
                "problem",
                name,
                "a problem whose tasks are tensors of numbers, or that sets parameter_space, parameters and "
                "from_parameters (which a learned likelihood needs)",
            )
        if self.learned is None and not self.problem.has_likelihood:
            raise InvalidInput(
                "problem", name, "a problem with a log_likelihood; see cicpe.beliefs.particles.likelihood"
            )

    @property
    def query_space(self) -> Space:
        return self.problem.query_space

    @property
    def answer_space(self) -> Space:
        return self.problem.answer_space

    def predict(self, state: ParticleState, query: Float[Tensor, "batch query"]) -> Prediction:
        return simulate_prediction(self, state, query)

    @cached_property
    def observed_values(self) -> tuple[Bool[Tensor, " observation"], Float[Tensor, " observation"]]:
        """Which entries of an observation take two values, and what lies between the two."""
        problem, rng = self.problem, torch.Generator().manual_seed(0)
        seen = problem.observe(problem.sample(512, rng), problem.query_space.sample(512, rng), rng)
        return two_values(torch.as_tensor(seen, dtype=torch.float32).reshape(512, -1))

    def sample_answers(self, state: ParticleState, n: int, rng: Generator) -> Float[Tensor, "batch draw answer"]:
        view = self._view(state.cloud)
        chosen = resample(view.weight_BN.clamp_min(1e-30).log(), n, rng)
        return view.target_BNX.gather(1, chosen[..., None].expand(-1, -1, view.target_BNX.shape[-1]))

    def tensors(self) -> Mapping[str, Tensor]:
        return {} if self.learned is None else self.learned.state_dict()

    def task(self, unit: Float[Tensor, "n parameter"], context: Float[Tensor, "n context"]) -> Task:
        """The tasks of particles."""
        ways = self.parametrisation
        return ways.task(ways.space.from_unit(unit), context)

    @cached_property
    def parametrisation(self) -> Parametrisation:
        """How tasks are numbers."""
        ways = parametrisation(self.problem)
        assert ways is not None
        return ways

    @cached_property
    def model(self) -> SMCTarget:
        """Prior and likelihood, as the sampler takes them."""
        ways = self.parametrisation
        half = ways.space.unit_scale
        return SMCTarget(
            centre_P=ways.space.from_unit(torch.zeros_like(half)),
            half_P=half,
            prior=lambda n, rng: ways.space.to_unit(ways.prior(n, rng)),
            log_prior=ways.log_prior,
            task=ways.task,
            log_likelihood=self.learned or self.problem.log_likelihood,
            broadcasts=self.learned is None and ways.broadcasts,
        )

    @cached_property
    def prior_draws(self) -> tuple[Float[Tensor, "draw parameter"], Float[Tensor, " draw"]]:
        """Draws from the prior, the same for every episode, and their log density."""
        n, model = max(self.config.prior_particles, self.config.particles), self.model
        with torch.no_grad():
            unit = model.prior(n, torch.Generator().manual_seed(self.config.seed)).T.contiguous().T
            return unit, log_priors(model, unit.T[:, None])[0]

    def begin(self, context: Float[Tensor, "batch context"]) -> ParticleState:
        batch = len(context)
        query = torch.zeros(batch, 0, self.problem.query_space.dim)
        observation = torch.zeros(batch, 0, self.problem.observation_dim)
        zeros = torch.zeros(batch, len(self.prior_draws[0]), dtype=torch.float64)
        return ParticleState(self._fresh(context, query, observation, zeros), zeros)

    def _fresh(
        self, context_BC: Tensor, query_BTQ: Tensor, observation_BTY: Tensor, log_draws_BM: Tensor
    ) -> ParticleCloud:
        """The prior's draws, weighted by a history."""
        return prior_cloud(*self.prior_draws, log_draws_BM, context_BC, query_BTQ, observation_BTY)

    def update(
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
            draws_PBM = self.prior_draws[0].T[:, None].expand(-1, len(query), -1)
            log_draws = state.log_prior_draws_BM + latest_log_likelihood(self.model, draws_PBM, cloud)
            if steps > config.prior_steps:
                cloud = self._checked(self._updated(cloud, 2 * steps), log_draws, 2 * steps + 1)
            else:
                cloud = self._fresh(cloud.context_BC, cloud.query_BTQ, cloud.observation_BTY, log_draws)
                cloud = self._settle(cloud, config.particles, 2 * steps) if steps == config.prior_steps else cloud
            _warn_if_degenerate(cloud)
        return ParticleState(cloud, log_draws)

    def _checked(self, cloud: ParticleCloud, log_draws_BM: Tensor, turn: int) -> ParticleCloud:
        """Clouds near a decision, merged with a second one from the prior: one cloud alone may miss a mode."""
        views = _portions(self._view(cloud), EPISODES)
        confidence = torch.cat([recommend(self.problem, view, (self.aim,), self.task)[1][0] for view in views])
        due = confidence >= self.config.restart_confidence
        if not bool(due.any()):
            return cloud
        first = trees.select(cloud, due)
        fresh = self._fresh(first.context_BC, first.query_BTQ, first.observation_BTY, log_draws_BM[due])
        merged = merge(first, self._settle(fresh, self.config.particles, turn), seed=self.config.seed + turn)
        return replace_episodes(cloud, due.nonzero()[:, 0], merged)

    def _updated(self, cloud: ParticleCloud, turn: int) -> ParticleCloud:
        """The cloud with its latest observation: as weights where they stay even, else by moves."""
        config = self.config
        gain_BN = latest_log_likelihood(self.model, cloud.unit_BNP.permute(2, 0, 1), cloud)
        cloud = cloud._replace(log_pending_BN=cloud.log_pending_BN + gain_BN)
        due = effective_size(cloud.log_pending_BN) < config.ess_threshold * config.particles
        if not bool(due.any()):
            return cloud
        settled = self._settle(trees.select(cloud, due), config.particles, turn)
        return settled if bool(due.all()) else replace_episodes(cloud, due.nonzero()[:, 0], settled)

    def _settle(self, cloud: ParticleCloud, particles: int, turn: int) -> ParticleCloud:
        c = self.config
        seed = 1 + c.seed + turn * (c.powers + 1)
        floor = c.ess_threshold * particles
        return temper_and_move(self.model, cloud, particles, floor, c.moves, c.global_share, c.powers, seed)

    def assess(
        self,
        state: ParticleState,
        epsilons: Sequence[float],
        rng: Generator,
        query_spread: float = 0.0,
        costs: Sequence[Float[Tensor, " batch"]] = (),
    ) -> Assessment:
        self.refuse_costs(costs)
        with torch.no_grad():
            view = self._view(state.cloud)
            parts = [self._looked(some, epsilons, rng) for some in _portions(view, EPISODES)]
            query, recommendation, confidence, std = (torch.cat(column) for column in zip(*parts, strict=True))
        batch = len(query)
        time = torch.full((batch,), state.cloud.query_BTQ.shape[1])
        none = torch.zeros(len(epsilons), 0, batch)
        return Assessment(time, query[:, None], recommendation.transpose(0, 1), confidence.T, confidence.T, none, std)

    def _looked(self, view: View, epsilons: Sequence[float], rng: Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Query, recommendations and confidences per epsilon, and spread of the target, with the episode first."""
        answer_EBX, confidence_EB = recommend(self.problem, view, (self.aim, *epsilons), self.task)
        query = self._query(view, answer_EBX[0], rng)
        std = weighted_std(view.weight_BN, view.target_BNX)
        return query, answer_EBX[1:].transpose(0, 1), confidence_EB[1:].T, std

    def _view(self, cloud: ParticleCloud) -> View:
        """``particles`` weighted particles with their targets, whatever the size of the cloud."""
        unit, n = cloud.unit_BNP, self.config.particles
        if unit.shape[1] > n:
            rng = torch.Generator().manual_seed(self.config.seed)
            ancestor = resample(cloud.log_pending_BN, n, rng)
            unit = unit.gather(1, ancestor[..., None].expand(-1, -1, unit.shape[-1]))
            weight = torch.full(unit.shape[:2], 1 / n, dtype=torch.float64)
        else:
            weight = weights(cloud)
        # One episode at a time, so that a target does not depend on the batch, whatever the problem does.
        contexts = cloud.context_BC[:, None].expand(-1, n, -1)
        tasks = [self.task(unit_NP, context) for unit_NP, context in zip(unit, contexts, strict=True)]
        target = [self.problem.target(task).reshape(n, -1) for task in tasks]
        return View(unit, weight, torch.stack(target), cloud.context_BC)

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
        observed = self._simulated(unit, candidates, view.context_BC, rng)
        score = score_queries(config.query, observed, target, self.aim)
        return candidates[torch.arange(len(score)), first_of_best(score)]

    def _simulated(
        self, unit_BMP: Tensor, query_BKQ: Tensor, context_BC: Tensor, rng: Generator
    ) -> Float[Tensor, "batch query particle observation"]:
        """One observation of every query by every particle."""
        (batch, m, _), k, model = unit_BMP.shape, query_BKQ.shape[1], self.model
        parameter, query, context = combinations(
            (batch, k, m),
            not self.parametrisation.broadcasts,
            (unit_BMP * model.half_P + model.centre_P)[:, None],
            query_BKQ[:, :, None],
            context_BC[:, None, None],
        )
        return self.problem.observe(model.task(parameter, context), query, rng).reshape(batch, k, m, -1)


def _portions(tree: View, size: int) -> Iterator[View]:
    """``size`` episodes at a time."""
    for begin in range(0, len(tree.unit_BNP), size):
        yield trees.map_leaves(lambda leaf, begin=begin: leaf[begin : begin + size], tree)


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
            stacklevel=3,
        )
