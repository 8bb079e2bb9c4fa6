"""TPE, CMA-ES and GP with log expected improvement, through Optuna's ask and tell: one study per episode."""

import warnings
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, final

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.agents.base import Agent, Proposal
from cicpe.baselines.base import (
    History,
    best_observed,
    extra,
    fixed_budget_proposal,
    middle,
    require_box,
    require_orientation,
    seeds,
)
from cicpe.errors import InvalidInput
from cicpe.problems import Problem

SamplerName = Literal["tpe", "cma-es", "gp-logei"]
SAMPLERS = {"tpe": "TPESampler", "cma-es": "CmaEsSampler", "gp-logei": "GPSampler"}
STARTUP_TRIALS = 3
"""Random queries before a sampler looks at what was observed."""


class OptunaState(NamedTuple):
    """Every episode's history, and the same as Optuna's finished trials."""

    history: History
    trials: npt.NDArray[np.object_]
    """One tuple of ``FrozenTrial`` per episode."""


@final
@dataclass(frozen=True)
class OptunaAgent(Agent):
    """Optimises the observation for ``horizon`` queries and recommends the best that it saw.

    The samplers have Optuna's own defaults with one exception. TPE and GP-logEI would spend their first ten trials at
    random; with the seven or eight queries that our agents need, they would be nothing but random search. They get
    ``n_startup_trials`` random queries here, three by default: that many are needed before TPE has a better and a worse
    part to compare, and a Gaussian process a spread to fit. CMA-ES keeps Optuna's single one, because it starts from
    the middle of the box and does not use its start-up trials. Its first generation, 4 + floor(3 ln dim) queries, does
    not depend on the observations either; that is how the method works.

    A study is made anew from its finished trials at every step, so that a state can be used twice. What a
    sampler keeps for itself lies in the trials' attributes. CMA-ES is the only one that does: it is asked once
    more when an observation comes, for its attributes, which do not depend on the query that it would draw.
    """

    problem: Problem
    sampler: SamplerName
    horizon: int
    """The budget."""
    n_startup_trials: int = STARTUP_TRIALS
    """Random queries of TPE and GP-logEI before they look at what was observed."""
    sign: int = field(init=False)

    def __post_init__(self) -> None:
        if self.sampler not in SAMPLERS:
            raise InvalidInput("sampler", self.sampler, f"one of {', '.join(SAMPLERS)}")
        if not isinstance(self.n_startup_trials, int) or self.n_startup_trials < 1:
            raise InvalidInput("n_startup_trials", self.n_startup_trials, "a whole number of at least 1")
        require_box(self.problem)
        object.__setattr__(self, "sign", require_orientation(self.problem))
        extra("optuna").logging.set_verbosity(extra("optuna").logging.WARNING)
        if self.sampler == "cma-es":
            extra("cmaes")

    def begin(self, context: Float[Tensor, "batch context"]) -> OptunaState:
        batch, problem = len(context), self.problem
        query = torch.zeros(batch, 0, problem.query_space.dim)
        history = History(context, query, torch.zeros(batch, 0, problem.observation_dim))
        return OptunaState(history, _object_array([()] * batch))

    def propose(self, state: OptunaState, rng: Generator) -> Proposal:
        history, space = state.history, self.problem.query_space
        best = best_observed(self.problem, history, self.sign)
        if history.steps >= self.horizon:
            return fixed_budget_proposal(middle(space, len(best)), best, done=True)
        asked = [
            self._study(trials, seed).ask(self._distributions()).params
            for trials, seed in zip(state.trials, seeds(len(best), rng), strict=True)
        ]
        unit = torch.tensor([list(params.values()) for params in asked], dtype=torch.float32)
        return fixed_budget_proposal(space.project(space.from_unit(unit)), best, done=False)

    def update(
        self, state: OptunaState, query: Float[Tensor, "batch query"], observation: Float[Tensor, "batch observation"]
    ) -> OptunaState:
        unit = self.problem.query_space.to_unit(query).clamp(-1, 1)
        names = list(self._distributions())
        rows = [
            self._told(trials, dict(zip(names, place, strict=True)), value)
            for trials, place, value in zip(state.trials, unit.tolist(), observation[:, 0].tolist(), strict=True)
        ]
        return OptunaState(state.history.after(query, observation), _object_array(rows))

    def _told(self, trials: tuple[Any, ...], params: dict[str, float], value: float) -> tuple[Any, ...]:
        """The trials with one more."""
        distributions, attributes = self._distributions(), {}
        if self.sampler == "cma-es":
            study = self._study(trials, seed=len(trials))
            study.ask(distributions)
            attributes = study.get_trials(deepcopy=False)[-1].system_attrs
        create = extra("optuna").trial.create_trial
        return (*trials, create(params=params, distributions=distributions, value=value, system_attrs=attributes))

    def _study(self, trials: tuple[Any, ...], seed: int) -> Any:
        optuna = extra("optuna")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            startup = 1 if self.sampler == "cma-es" else self.n_startup_trials
            sampler = getattr(optuna.samplers, SAMPLERS[self.sampler])(seed=seed, n_startup_trials=startup)
        direction = "maximize" if self.sign > 0 else "minimize"
        study = optuna.create_study(direction=direction, sampler=sampler)
        study.add_trials(trials)
        return study

    def _distributions(self) -> dict[str, Any]:
        """Every coordinate of a query, scaled to [-1, 1]."""
        distribution = extra("optuna").distributions.FloatDistribution(-1.0, 1.0)
        return {f"x{i:03d}": distribution for i in range(self.problem.query_space.dim)}


def _object_array(rows: list[tuple[Any, ...]]) -> npt.NDArray[np.object_]:
    array = np.empty(len(rows), dtype=object)
    for row, value in enumerate(rows):
        array[row] = value
    return array
