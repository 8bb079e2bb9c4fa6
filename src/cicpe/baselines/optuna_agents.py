"""TPE, CMA-ES and GP with log expected improvement, through Optuna's ask and tell: one study an episode."""

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
from cicpe.problems import Problem

SamplerName = Literal["tpe", "cma-es", "gp-logei"]
SAMPLERS = {"tpe": "TPESampler", "cma-es": "CmaEsSampler", "gp-logei": "GPSampler"}


class OptunaState(NamedTuple):
    """Every episode's history, and the same as Optuna's finished trials."""

    history: History
    trials: npt.NDArray[np.object_]
    """One tuple of ``FrozenTrial`` an episode."""


@final
@dataclass(frozen=True)
class OptunaAgent(Agent):
    """Optimises the observation for ``budget`` queries with Optuna's defaults; recommends the best it saw.

    A study is made anew from its finished trials at every step, so that a state can be used twice. What a
    sampler keeps for itself lies in the trials' attributes. CMA-ES is the only one that does: it is asked once
    more when an observation comes, for its attributes, which do not depend on the query that it would draw.
    """

    problem: Problem
    sampler: SamplerName
    horizon: int
    """The budget."""
    sign: int = field(init=False)

    def __post_init__(self) -> None:
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

    def observe(
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
            sampler = getattr(optuna.samplers, SAMPLERS[self.sampler])(seed=seed)
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
