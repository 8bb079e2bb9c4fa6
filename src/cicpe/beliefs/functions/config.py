"""A belief over functions: Gaussian processes are fitted to simulated tasks, and nothing else is trained."""

import time
from typing import Any, Literal, final, get_args

from pydantic import Field

from cicpe.beliefs.base import COMPUTED_PLAN, CalibrationPlan, ComputedBeliefConfig, FitRequest, FittedBelief, TaskShape
from cicpe.beliefs.functions.belief import FunctionBelief, FunctionConfig
from cicpe.beliefs.functions.fit import fit_gp_mixture
from cicpe.beliefs.sampling import Sampling
from cicpe.errors import InvalidInput
from cicpe.gp.mixture import KINDS, GPMixture


@final
class FunctionBeliefConfig(ComputedBeliefConfig):
    """Functions of the query, drawn from a mixture of Gaussian processes."""

    kind: Literal["functions"] = "functions"
    actor: Literal["functions"] = "functions"
    """Queries are chosen on drawn functions; ``functions.query`` says how."""
    fit_seconds: float = Field(default=90.0, gt=0)
    """Wall-clock for fitting the processes, at most a quarter of a budget in minutes."""
    functions: FunctionConfig = FunctionConfig()
    """What is asked of the functions, and how many are drawn."""
    kinds: int = Field(default=KINDS, ge=1, le=256)
    """How many kinds of process are mixed."""

    @property
    def calibration(self) -> CalibrationPlan:
        return COMPUTED_PLAN._replace(max_episodes=8192, shortens=True, hasty=0.9995)

    @property
    def query_rule(self) -> str:
        return self.functions.query if self.functions.query in get_args(Sampling) else self.kind

    def with_actor(self, actor: str) -> "FunctionBeliefConfig":
        if actor not in get_args(Sampling):
            rules = ", ".join(get_args(Sampling))
            raise InvalidInput("actor", actor, f"one of {rules} with the recipe functions, or left out")
        if self.functions.answer == "height" and actor != "uniform":
            why = "ts and ttps query plausible answers, so both spaces must be one"
            raise InvalidInput("actor", actor, f"uniform with the recipe functions, or left out: {why}")
        return self.model_copy(update={"functions": self.functions.model_copy(update={"query": actor})})

    def fit(self, request: FitRequest) -> FittedBelief:
        began, problem, budget = time.perf_counter(), request.problem, request.budget
        limit = budget.part(self.fit_share, self.fit_seconds)
        mixture = fit_gp_mixture(problem, request.seed, self.kinds, budget.updates, limit)
        spaces = problem.query_space, problem.answer_space
        belief = FunctionBelief(*spaces, mixture, self.horizon, self.functions, self.aim)
        return FittedBelief(belief, self, budget.updates or 0, time.perf_counter() - began)

    def build(self, shape: TaskShape, horizon: int) -> tuple[FunctionBelief, GPMixture]:
        mixture = GPMixture(self.kinds, shape.query_space.dim, len(shape.context_names))
        belief = FunctionBelief(shape.query_space, shape.answer_space, mixture, horizon, self.functions, self.aim)
        return belief, mixture

    @classmethod
    def migrate(cls, data: dict[str, Any]) -> dict[str, Any]:
        functions = data.get("functions", {})
        return data | {"functions": functions | {"query": "ts"}} if functions.get("query") == "thompson" else data

    def describe(self) -> str:
        return f"{self.functions.functions} functions of {self.kinds} kinds of Gaussian process"
