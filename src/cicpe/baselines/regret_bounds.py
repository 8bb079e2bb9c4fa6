"""Bayesian optimisation stopped by probabilistic regret bounds (Wilson, 2024).

A Gaussian process is fitted at every step as for GP-UCB, paths of its posterior are drawn on candidate
places, and the episode stops once the share of paths on which the recommendation is within epsilon reaches
1 - delta. "Within epsilon" is the problem's own success: where the answer is a place, near the path's best
place; where it is a value, near the path's best value. The promise is as good as the fitted model is.
"""

from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor

from cicpe import trees
from cicpe.agents.base import Proposal
from cicpe.baselines.base import History, Optimiser, best_observed, extra, fixed_budget_proposal, seeds
from cicpe.baselines.gp_model import design_point, fit_gps, from_cube, to_cube
from cicpe.problems import Problem
from cicpe.statistics import highest_mass_interval, sobol_points

NEAR = 0.05
"""Spread of the candidates about the best query so far, in the unit cube."""


@final
@dataclass(frozen=True)
class RegretBounds(Optimiser):
    """Queries the candidate with the largest mean + 2 std; recommends what most paths agree with."""

    problem: Problem
    epsilon: float
    delta: float
    horizon: int
    initial: int = 5
    """Queries of a Sobol design before the first fit."""
    candidates: int = 256
    paths: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        extra("botorch")

    def propose(self, state: History, rng: Generator) -> Proposal:
        space = self.problem.query_space
        if state.steps < self.initial:
            query = from_cube(space, design_point(state, space, rng))
            return fixed_budget_proposal(query, best_observed(self.problem, state, self.sign), done=False)
        rows = [self._assess(state, row, seed) for row, seed in enumerate(seeds(len(state.query_BTQ), rng))]
        query, recommendation, confidence, std = (torch.stack(column) for column in zip(*rows, strict=True))
        return Proposal(query[:, None], confidence >= 1 - self.delta, recommendation, confidence, std)

    def _assess(self, history: History, episode: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Query, recommendation, confidence and spread of one episode."""
        space, rng = self.problem.query_space, torch.Generator().manual_seed(seed)
        places = self._candidates(history, episode, seed, rng)
        model = fit_gps(trees.select(history, torch.tensor([episode])), space, self.sign)
        with torch.no_grad():
            posterior = model.posterior(places[None])
            mean, std = posterior.mean[0, :, 0], posterior.variance[0, :, 0].clamp_min(0).sqrt()
            # Near candidates are nearly the same: an eigendecomposition does not mind.
            power, vector = torch.linalg.eigh(posterior.distribution.covariance_matrix[0])
            white = torch.randn((self.paths, len(places)), generator=rng, dtype=torch.float64)
            path = mean + (white * power.clamp_min(0).sqrt()) @ vector.mT
        query = from_cube(space, places[(mean + 2 * std).argmax()])
        value, place = path.max(dim=1)
        if space != self.problem.answer_space:
            answer, confidence = highest_mass_interval(
                value[None], torch.full_like(value, 1 / self.paths)[None], self.epsilon
            )
            answer = self.problem.answer_space.project((self.sign * answer).float())
            return query, answer, confidence[0].float(), value.std().float()[None]
        target = from_cube(space, places)
        near = space.distance(target[:, None], target[place]) <= self.epsilon
        confidence, chosen = near.float().mean(dim=1).max(dim=0)
        return query, target[chosen], confidence, target[place].std(dim=0)

    def _candidates(self, history: History, episode: int, seed: int, rng: Generator) -> Tensor:
        """Half spread evenly, half about the best query so far."""
        space = self.problem.query_space
        half = self.candidates // 2
        best = (self.sign * history.observation_BTY[episode, :, 0]).argmax()
        centre = to_cube(space, history.query_BTQ[episode, best])
        near = centre + NEAR * torch.randn((half, space.dim), generator=rng, dtype=torch.float64)
        return torch.cat([sobol_points(self.candidates - half, space.dim, seed), near.clamp(0, 1)])
