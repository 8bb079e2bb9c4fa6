"""GP-UCB through BoTorch, for a fixed budget."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor

from cicpe.agents.base import Proposal
from cicpe.baselines.base import (
    History,
    Optimiser,
    best_observed,
    extra,
    fixed_budget_proposal,
    middle,
    seeds,
)
from cicpe.baselines.gp_model import design_point, fit_gp, from_cube
from cicpe.problems import Problem


@final
@dataclass(frozen=True)
class GPUCB(Optimiser):
    """Queries argmax of mean + sqrt(beta) std; recommends the best query it saw."""

    problem: Problem
    horizon: int
    """The budget."""
    initial: int = 5
    """Queries of a Sobol design before the first fit."""
    beta: float = 4.0
    restarts: int = 4
    """Starts of the search for the next query."""
    raw_samples: int = 64
    """Points that the starts are picked from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        extra("botorch")

    def propose(self, state: History, rng: Generator) -> Proposal:
        best = best_observed(self.problem, state, self.sign)
        space, batch = self.problem.query_space, len(best)
        if state.steps >= self.horizon:
            return fixed_budget_proposal(middle(space, batch), best, done=True)
        if state.steps < self.initial:
            return fixed_budget_proposal(from_cube(space, design_point(state, space, rng)), best, done=False)
        cube = torch.stack([self._next(state, row, seed) for row, seed in enumerate(seeds(batch, rng))])
        return fixed_budget_proposal(from_cube(space, cube), best, done=False)

    def _next(self, history: History, episode: int, seed: int) -> Tensor:
        """The next query of one episode, in the unit cube."""
        space = self.problem.query_space
        model = fit_gp(history, episode, space, self.sign)
        acquisition = extra("botorch.acquisition").UpperConfidenceBound(model, beta=self.beta)
        bounds = torch.tensor([[0.0] * space.dim, [1.0] * space.dim], dtype=torch.float64)
        with extra("botorch.utils.sampling").manual_seed(seed):  # restores the global generator
            point, _ = extra("botorch.optim").optimize_acqf(
                acquisition, bounds, q=1, num_restarts=self.restarts, raw_samples=self.raw_samples
            )
        query: Tensor = point[0].detach()
        return query
