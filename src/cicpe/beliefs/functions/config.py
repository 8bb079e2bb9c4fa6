"""A belief over functions: Gaussian processes are fitted to simulated tasks, and nothing else is trained."""

import time
from typing import Literal, final

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
from cicpe.beliefs.functions.belief import FunctionBelief, FunctionConfig
from cicpe.beliefs.functions.fit import fit_gp_mixture
from cicpe.beliefs.sampled import SampledQueries
from cicpe.gp.mixture import KINDS, GPMixture
from cicpe.spaces import Space


@final
class FunctionBeliefConfig(ComputedBeliefConfig):
    """Functions of the query, drawn from a mixture of Gaussian processes."""

    kind: Literal["functions"] = "functions"
    actor: Literal["functions"] | Sampling = "functions"
    """Queries are chosen on drawn functions, as ``functions.query`` says; or by one of the paper's rules."""
    fit_seconds: float = Field(default=90.0, gt=0)
    """Wall-clock for fitting the processes, at most a quarter of a budget in minutes."""
    functions: FunctionConfig = FunctionConfig()
    """What is asked of the functions, and how many are drawn."""
    kinds: int = Field(default=KINDS, ge=1, le=256)
    """How many kinds of process are mixed."""

    @property
    def calibration(self) -> CalibrationPlan:
        return COMPUTED_PLAN._replace(max_episodes=8192, shortens=True, hasty=0.9995)

    def fit(self, request: FitRequest) -> FittedBelief:
        began, problem, budget = time.perf_counter(), request.problem, request.budget
        limit = budget.part(self.fit_share, self.fit_seconds)
        mixture = fit_gp_mixture(problem, request.seed, self.kinds, budget.updates, limit)
        belief = self._belief(problem.query_space, problem.answer_space, mixture, self.horizon)
        return FittedBelief(belief, self, budget.updates or 0, time.perf_counter() - began)

    def build(self, shape: TaskShape, horizon: int) -> tuple[Belief, GPMixture]:
        mixture = GPMixture(self.kinds, shape.query_space.dim, len(shape.context_names))
        return self._belief(shape.query_space, shape.answer_space, mixture, horizon), mixture

    def _belief(self, queries: Space, answers: Space, mixture: GPMixture, horizon: int) -> Belief:
        if self.actor == "functions":
            return FunctionBelief(queries, answers, mixture, horizon, self.functions, self.aim)
        unasked = self.functions.model_copy(update={"query": "thompson"})  # quick, since it is not made
        return SampledQueries(FunctionBelief(queries, answers, mixture, horizon, unasked, self.aim), self.actor)

    def describe(self) -> str:
        return f"{self.functions.functions} functions of {self.kinds} kinds of Gaussian process"
