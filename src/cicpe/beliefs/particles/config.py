"""An agent of particles: nothing is trained but, where need be, a likelihood."""

import time
from typing import Literal, final

import torch
from pydantic import Field

from cicpe.beliefs.base import (
    COMPUTED_PLAN,
    Belief,
    CalibrationPlan,
    ComputedBeliefConfig,
    FitRequest,
    FittedBelief,
    Sampling,
    TaskShape,
)
from cicpe.beliefs.particles.belief import ParticleBelief, ParticleConfig
from cicpe.beliefs.particles.likelihood import LearnedLikelihood, fit_likelihood
from cicpe.beliefs.sampled import SampledQueries
from cicpe.problems import Problem


@final
class ParticleBeliefConfig(ComputedBeliefConfig):
    """A posterior over the task's parameters by sequential Monte Carlo."""

    kind: Literal["particles"] = "particles"
    actor: Literal["particles"] | Sampling = "particles"
    """Queries are chosen on the particles, as ``particles.query`` says; or by one of the paper's rules."""
    fit_seconds: float = Field(default=90.0, gt=0)
    """Wall-clock for fitting a likelihood, at most a quarter of a budget in minutes."""
    particles: ParticleConfig = ParticleConfig()
    """The sampler and the query rule."""
    likelihood: Literal["exact", "learned"] = "exact"
    """The problem's own, or one fitted to simulations."""
    hidden: int = Field(default=64, ge=1)
    """Width of the learned likelihood."""

    @property
    def calibration(self) -> CalibrationPlan:
        return COMPUTED_PLAN._replace(min_share=0.0, n_context_knots=3, chunk=64, shortens=True, hasty=0.995)

    def fit(self, request: FitRequest) -> FittedBelief:
        began, budget = time.perf_counter(), request.budget
        learned = None
        if self.likelihood == "learned":
            limit = budget.part(self.fit_share, self.fit_seconds)
            learned = fit_likelihood(request.problem, limit, request.seed, hidden=self.hidden, updates=budget.updates)
        belief = self._belief(request.problem, self.horizon, learned)
        return FittedBelief(belief, self, budget.updates or 0, time.perf_counter() - began)

    def build(self, shape: TaskShape, horizon: int) -> tuple[Belief, torch.nn.Module]:
        problem = shape.make_problem()
        learned = None if self.likelihood == "exact" else LearnedLikelihood(problem, self.hidden)
        return self._belief(problem, horizon, learned), learned or torch.nn.Module()

    def _belief(self, problem: Problem, horizon: int, learned: LearnedLikelihood | None) -> Belief:
        if self.actor == "particles":
            return ParticleBelief(problem, horizon, self.particles, self.aim, learned)
        unasked = self.particles.model_copy(update={"query": "greedy"})  # quick, since it is not made
        return SampledQueries(ParticleBelief(problem, horizon, unasked, self.aim, learned), self.actor)

    def describe(self) -> str:
        return f"{self.particles.particles} particles, {self.likelihood} likelihood"
