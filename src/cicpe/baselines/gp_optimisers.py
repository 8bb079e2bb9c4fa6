"""GP-UCB and GP-logEI through BoTorch, for a fixed budget: all episodes of a batch in one batched model."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.agents.base import Proposal
from cicpe.baselines.base import (
    History,
    Optimiser,
    best_observed,
    extra,
    fixed_budget_proposal,
    middle,
)
from cicpe.baselines.gp_model import design_point, fit_gps, from_cube
from cicpe.problems import Problem
from cicpe.statistics import sobol_points

ITERATIONS = 100
"""Steps of the search for the next query, at most."""


class GPOptimiser(Optimiser):
    """Queries the largest value of an acquisition function; recommends the best query that it saw.

    The processes of a batch are one BoTorch model with a batch dimension, and the next queries of all episodes are
    looked for together: a query takes some milliseconds of a large batch, and a tenth of a second alone.
    """

    problem: Problem
    horizon: int
    initial: int
    restarts: int
    raw_samples: int
    most_at_once = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        extra("botorch")

    @abstractmethod
    def acquisition(self, model: Any, history: History) -> Any:
        """BoTorch's acquisition function, of a batched model."""

    def propose(self, state: History, rng: Generator) -> Proposal:
        best = best_observed(self.problem, state, self.sign)
        space, batch = self.problem.query_space, len(best)
        if state.steps >= self.horizon:
            return fixed_budget_proposal(middle(space, batch), best, done=True)
        if state.steps < self.initial:
            return fixed_budget_proposal(from_cube(space, design_point(state, space, rng)), best, done=False)
        return fixed_budget_proposal(from_cube(space, self._next(state, rng)), best, done=False)

    def _next(self, history: History, rng: Generator) -> Float[Tensor, "batch query"]:
        """The next query of every episode, in the unit cube: the best of searches from the best of even points."""
        batch, dim = len(history.query_BTQ), self.problem.query_space.dim
        acquisition = self.acquisition(fit_gps(history, self.problem.query_space, self.sign), history)
        even_S1Q = sobol_points(self.raw_samples, dim, seed=0)[:, None]
        raw_SBQ = (even_S1Q + torch.rand((batch, dim), generator=rng, dtype=torch.float64)).frac()
        with torch.no_grad():
            start_RB = acquisition(raw_SBQ[:, :, None]).topk(self.restarts, dim=0).indices
        point_RB1Q, value_RB = extra("botorch.generation.gen").gen_candidates_scipy(
            raw_SBQ.gather(0, start_RB[..., None].expand(-1, -1, dim))[:, :, None],
            acquisition,
            lower_bounds=0.0,
            upper_bounds=1.0,
            options={"maxiter": ITERATIONS},
            use_parallel_mode=False,  # which takes each start for a problem of its own, and cannot batch the model
        )
        query_BQ: Tensor = point_RB1Q.detach()[value_RB.argmax(dim=0), torch.arange(batch), 0]
        return query_BQ


@final
@dataclass(frozen=True)
class GPUCB(GPOptimiser):
    """Queries argmax of mean + sqrt(beta) std; recommends the best query it saw."""

    problem: Problem
    horizon: int
    """The budget."""
    initial: int = 5
    """Queries of a Sobol design before the first fit."""
    beta: float = 4.0
    restarts: int = 4
    """Starts of the search for the next query."""
    raw_samples: int = 256
    """Points that the starts are picked from."""

    def acquisition(self, model: Any, history: History) -> Any:
        return extra("botorch.acquisition").UpperConfidenceBound(model, beta=self.beta)


@final
@dataclass(frozen=True)
class GPLogEI(GPOptimiser):
    """Queries argmax of the log expected improvement on the best observation; recommends the best query it saw."""

    problem: Problem
    horizon: int
    """The budget."""
    initial: int = 3
    """Queries of a Sobol design before the first fit: as many as the samplers of Optuna make at random here."""
    restarts: int = 4
    """Starts of the search for the next query."""
    raw_samples: int = 256
    """Points that the starts are picked from."""

    def acquisition(self, model: Any, history: History) -> Any:
        best_B1 = (self.sign * history.observation_BTY[..., 0].double()).amax(dim=1, keepdim=True)
        return extra("botorch.acquisition").LogExpectedImprovement(model, best_f=best_B1)
