"""Particles: a posterior over the task's parameters by sequential Monte Carlo, without training.

For problems whose tasks are numbers (``cicpe.beliefs.particles.parametrisation``) and that have a likelihood, given or
learned (``cicpe.beliefs.particles.likelihood``). Its confidence is the largest share of particles that one answer
succeeds on, and that answer is its recommendation.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import final

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Generator, Tensor

from cicpe import trees
from cicpe.beliefs.base import Assessment, Belief
from cicpe.beliefs.lookahead import QueryRule, candidate_queries, score_queries
from cicpe.beliefs.particle_filter import FilterSizes, FilterState, ParticleFilter
from cicpe.beliefs.particles.likelihood import LearnedLikelihood
from cicpe.beliefs.particles.parametrisation import Parametrisation, parameter_count, parametrisation
from cicpe.beliefs.particles.prediction import simulate_prediction
from cicpe.beliefs.particles.recommendation import View, recommend
from cicpe.beliefs.particles.target import combinations, task_target
from cicpe.beliefs.predictors import Prediction, two_values
from cicpe.beliefs.smc import ParticleCloud, SMCTarget, resample, weights
from cicpe.config import Config
from cicpe.errors import InvalidInput
from cicpe.problems import Problem, Task
from cicpe.spaces import Space
from cicpe.statistics import first_of_best, weighted_std

EPISODES = 16
"""How many are looked at together: what fits a cache."""


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

    def predict(self, state: FilterState, query: Float[Tensor, "batch query"]) -> Prediction:
        return simulate_prediction(self, state, query)

    @cached_property
    def observed_values(self) -> tuple[Bool[Tensor, " observation"], Float[Tensor, " observation"]]:
        """Which entries of an observation take two values, and what lies between the two."""
        problem, rng = self.problem, torch.Generator().manual_seed(0)
        seen = problem.observe(problem.sample(512, rng), problem.query_space.sample(512, rng), rng)
        return two_values(torch.as_tensor(seen, dtype=torch.float32).reshape(512, -1))

    def sample_answers(self, state: FilterState, n: int, rng: Generator) -> Float[Tensor, "batch draw answer"]:
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
        likelihood = self.learned or self.problem.log_likelihood
        return task_target(self.parametrisation, likelihood, self.learned is None and self.parametrisation.broadcasts)

    @cached_property
    def filter(self) -> ParticleFilter:
        """Follows the posterior."""
        c = self.config
        sizes = FilterSizes(
            c.particles,
            c.prior_particles,
            c.prior_steps,
            c.moves,
            c.ess_threshold,
            c.global_share,
            c.powers,
            seed=c.seed,
        )
        return ParticleFilter(self.model, sizes, self._may_decide)

    def _may_decide(self, cloud: ParticleCloud) -> Bool[Tensor, " batch"]:
        views = _portions(self._view(cloud), EPISODES)
        confidence = torch.cat([recommend(self.problem, view, (self.aim,), self.task)[1][0] for view in views])
        return confidence >= self.config.restart_confidence

    def begin(self, context: Float[Tensor, "batch context"]) -> FilterState:
        return self.filter.begin(context, self.problem.query_space.dim, self.problem.observation_dim)

    def update(
        self,
        state: FilterState,
        query: Float[Tensor, "batch query"],
        observation: Float[Tensor, "batch observation"],
    ) -> FilterState:
        return self.filter.update(state, query, observation)

    def assess(
        self,
        state: FilterState,
        epsilons: Sequence[float],
        rng: Generator,
        query_spread: float = 0.0,
        costs: Sequence[Float[Tensor, " batch"]] = (),
    ) -> Assessment:
        self.refuse_costs(costs)
        with torch.no_grad():
            view, step = self._view(state.cloud), state.cloud.query_BTQ.shape[1]
            parts = [self._looked(some, epsilons, step, rng) for some in _portions(view, EPISODES)]
            query, recommendation, confidence, std = (torch.cat(column) for column in zip(*parts, strict=True))
        batch = len(query)
        time = torch.full((batch,), step)
        none = torch.zeros(len(epsilons), 0, batch)
        return Assessment(time, query[:, None], recommendation.transpose(0, 1), confidence.T, confidence.T, none, std)

    def _looked(
        self, view: View, epsilons: Sequence[float], step: int, rng: Generator
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Query, recommendations and confidences per epsilon, and spread of the target, with the episode first."""
        answer_EBX, confidence_EB = recommend(self.problem, view, (self.aim, *epsilons), self.task)
        query = self._query(view, answer_EBX[0], step, rng)
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

    def _query(self, view: View, recommendation: Tensor, step: int, rng: Generator) -> Tensor:
        config = self.config
        same = self.problem.query_space == self.problem.answer_space
        if config.query == "greedy" and same:
            return recommendation
        m = min(config.lookahead_particles, view.unit_BNP.shape[1])
        # What is compared depends on the step alone. Were it drawn for every block, the episodes of one would begin
        # with the same query, another than those of other blocks, and would succeed and fail together.
        shared = rng if config.query == "thompson" else torch.Generator().manual_seed(step)
        chosen = resample(view.weight_BN.clamp_min(1e-30).log(), m, shared)[:, torch.randperm(m, generator=shared)]
        unit = view.unit_BNP.gather(1, chosen[..., None].expand(-1, -1, view.unit_BNP.shape[-1]))
        target = view.target_BNX.gather(1, chosen[..., None].expand(-1, -1, view.target_BNX.shape[-1]))
        if config.query == "thompson" and same:
            return target[:, 0]
        candidates = candidate_queries(
            self.problem.query_space, config.candidates, target if same else None, recommendation, shared
        )
        observed = self._simulated(unit, candidates, view.context_BC, rng)
        score = score_queries(config.query, observed, target, self.aim)
        return candidates[torch.arange(len(score)), first_of_best(score)]

    def _simulated(
        self, unit_BMP: Tensor, query_BKQ: Tensor, context_BC: Tensor, rng: Generator
    ) -> Float[Tensor, "batch query particle observation"]:
        """One observation of every query by every particle."""
        (batch, m, _), k = unit_BMP.shape, query_BKQ.shape[1]
        parameter, query, context = combinations(
            (batch, k, m),
            not self.parametrisation.broadcasts,
            self.parametrisation.space.from_unit(unit_BMP)[:, None],
            query_BKQ[:, :, None],
            context_BC[:, None, None],
        )
        return self.problem.observe(self.parametrisation.task(parameter, context), query, rng).reshape(batch, k, m, -1)


def _portions(tree: View, size: int) -> Iterator[View]:
    """``size`` episodes at a time."""
    for begin in range(0, len(tree.unit_BNP), size):
        yield trees.map_leaves(lambda leaf, begin=begin: leaf[begin : begin + size], tree)
