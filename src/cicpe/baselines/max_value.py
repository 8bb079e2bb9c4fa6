"""Estimates of the largest value without a model: uniform bins and the top 5 % of uniform queries."""

import math
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.agents.base import Proposal
from cicpe.baselines.base import History, Optimiser, fixed_budget_proposal, middle
from cicpe.errors import InvalidInput
from cicpe.problems import Problem

TOP = 0.05
"""Share of the observations whose mean is reported."""


def _require_value(problem: Problem) -> None:
    if problem.answer_space.dim != 1 or problem.answer_space == problem.query_space:
        raise InvalidInput("problem", type(problem).__name__, "one whose answer is the best value")


@final
@dataclass(frozen=True)
class UniformBins(Optimiser):
    """Queries uniformly within ceil(sqrt(budget)) bins in turn; reports the best bin average.

    In more than one dimension the bins are a grid with as many of them, or a few more.
    """

    problem: Problem
    horizon: int
    """The budget."""

    def __post_init__(self) -> None:
        _require_value(self.problem)
        super().__post_init__()

    @property
    def side(self) -> int:
        """Bins along a coordinate."""
        bins, dim = math.ceil(math.sqrt(self.horizon)), self.problem.query_space.dim
        return next(side for side in range(1, bins + 1) if side**dim >= bins)

    def propose(self, state: History, rng: Generator) -> Proposal:
        space, side = self.problem.query_space, self.side
        batch, dim = len(state.query_BTQ), space.dim
        bins = side**dim
        cell = torch.tensor([(state.steps % bins) // side**axis % side for axis in range(dim)])
        share = (cell + torch.rand((batch, dim), generator=rng)) / side
        query = space.project(space.from_unit(2 * share - 1))
        answer = middle(self.problem.answer_space, batch)
        if state.steps:
            answer = self.problem.answer_space.project(self._best_average(state.observation_BTY[..., 0], bins))
        return fixed_budget_proposal(query, answer, state.steps >= self.horizon)

    def _best_average(self, value_BT: Float[Tensor, "batch step"], bins: int) -> Float[Tensor, "batch 1"]:
        averages = [value_BT[:, start::bins].mean(dim=1) for start in range(min(bins, value_BT.shape[1]))]
        return self.sign * (self.sign * torch.stack(averages, dim=1)).amax(dim=1, keepdim=True)


@final
@dataclass(frozen=True)
class UniformTop(Optimiser):
    """Queries uniformly; reports the mean of the best 5 % of the observations, at least one."""

    problem: Problem
    horizon: int
    """The budget."""

    def __post_init__(self) -> None:
        _require_value(self.problem)
        super().__post_init__()

    def propose(self, state: History, rng: Generator) -> Proposal:
        batch = len(state.query_BTQ)
        query = self.problem.query_space.sample(batch, rng)
        answer = middle(self.problem.answer_space, batch)
        if state.steps:
            value = self.sign * state.observation_BTY[..., 0]
            top = value.topk(math.ceil(TOP * state.steps), dim=1).values.mean(dim=1, keepdim=True)
            answer = self.problem.answer_space.project(self.sign * top)
        return fixed_budget_proposal(query, answer, state.steps >= self.horizon)
