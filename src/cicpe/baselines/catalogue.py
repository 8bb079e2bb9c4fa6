"""Every method by name: how it is made for a problem. One that does not suit refuses with its reason."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from cicpe.agents.base import Agent
from cicpe.agents.belief_agent import BeliefAgent
from cicpe.agents.stop_rules import STOP_RULES
from cicpe.baselines.gp_optimisers import GPUCB, GPLogEI
from cicpe.baselines.max_value import UniformBins, UniformTop
from cicpe.baselines.optuna_agents import OptunaAgent
from cicpe.baselines.references.conjugate import ConjugateRegression
from cicpe.baselines.references.gp_grid import GPGrid
from cicpe.baselines.references.gp_peak import GPPeak
from cicpe.baselines.references.grid import GridReference
from cicpe.baselines.regret_bounds import RegretBounds
from cicpe.baselines.tbal import TBAL, plan_for
from cicpe.baselines.track_and_stop import TrackAndStop
from cicpe.beliefs.particles.belief import ParticleBelief
from cicpe.errors import InvalidInput
from cicpe.problems import Problem
from cicpe.problems.binary_search import BinarySearch
from cicpe.problems.gp_argmax import GPArgmax

PLAYABLE = 100_000
"""The most queries of an episode that are played one by one."""


class ComparisonSetting(NamedTuple):
    """What a method is made for."""

    problem: Problem
    epsilon: float
    delta: float
    budget: int
    """Queries of a method that cannot stop by itself."""

    @property
    def limit(self) -> int:
        """Queries of a method that can, at most."""
        return min(self.problem.horizon, 3 * self.budget + 5)


class Method(NamedTuple):
    """How to make an agent, and how to compare it."""

    make: Callable[[ComparisonSetting], Agent]
    published: str | None = None
    """Its name in the paper's tables."""
    tasks: int | None = None
    """The most tasks that it plays unless told otherwise, where it is slow."""
    calibration: int = 0
    """Held-out tasks that its threshold is chosen on; 0 where it stops by its own rule."""


def _tbal(setting: ComparisonSetting) -> Agent:
    plan = plan_for(setting.problem, setting.epsilon, setting.delta)
    if plan.queries > PLAYABLE:
        allowed = f"large enough for a plan of at most {PLAYABLE:,} queries; this one has {plan.queries:.2g}"
        raise InvalidInput("epsilon", setting.epsilon, allowed)
    return TBAL(plan)


def _argmax(setting: ComparisonSetting) -> Agent:
    if not isinstance(setting.problem, GPArgmax):
        raise InvalidInput("problem", type(setting.problem).__name__, "gp_argmax")
    return GPPeak(setting.problem, setting.epsilon, setting.limit)


def _never(context: Tensor) -> Tensor:
    """A threshold that no confidence reaches."""
    return torch.full((len(context),), math.inf)


def _particles(setting: ComparisonSetting) -> Agent:
    if isinstance(setting.problem, BinarySearch):
        raise InvalidInput("problem", "binary-search", "one without a closed-form posterior")
    belief = ParticleBelief(setting.problem, min(setting.limit, 2 * setting.budget), aim=setting.epsilon)
    return BeliefAgent(belief, STOP_RULES["confidence"], _never, setting.epsilon, setting.epsilon)


METHODS: Mapping[str, Method] = {
    "tpe": Method(lambda s: OptunaAgent(s.problem, "tpe", s.budget), "TPE", tasks=300),
    "cma-es": Method(lambda s: OptunaAgent(s.problem, "cma-es", s.budget), "CMA-ES", tasks=300),
    "gp-logei": Method(lambda s: OptunaAgent(s.problem, "gp-logei", s.budget), "GP-logEI", tasks=100),
    "gp-logei-botorch": Method(lambda s: GPLogEI(s.problem, s.budget), "GP-logEI", tasks=100),
    "gp-ucb": Method(lambda s: GPUCB(s.problem, s.budget), "GP-UCB", tasks=100),
    "uniform-bins": Method(lambda s: UniformBins(s.problem, s.budget), "Uniform bin"),
    "uniform-top": Method(lambda s: UniformTop(s.problem, s.budget), "Uniform top 5%"),
    "track-and-stop": Method(lambda s: TrackAndStop(s.problem, s.epsilon, s.delta, PLAYABLE), "LT&S round-robin"),
    "track-and-stop-uniform": Method(
        lambda s: TrackAndStop(s.problem, s.epsilon, s.delta, PLAYABLE, uniform=True), "LT&S uniform"
    ),
    "t-bal": Method(_tbal),
    "regret-bounds": Method(lambda s: RegretBounds(s.problem, s.epsilon, s.delta, s.limit), tasks=20),
    "reference-grid": Method(lambda s: GridReference(s.problem, s.epsilon, s.limit), calibration=1000),
    "reference-grid-mean": Method(lambda s: GridReference(s.problem, s.epsilon, s.limit, "mean"), calibration=1000),
    "reference-conjugate": Method(lambda s: ConjugateRegression(s.problem, s.epsilon, s.limit), calibration=1000),
    "reference-gp": Method(lambda s: GPGrid(s.problem, s.epsilon, s.limit), tasks=500, calibration=500),
    "reference-argmax": Method(_argmax, tasks=100, calibration=100),
    "reference-particles": Method(_particles, tasks=50, calibration=50),
}
"""Name -> method. Ours (``cicpe`` and ``random``) need a trained model and are not here."""
