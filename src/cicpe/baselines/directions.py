"""What agents on the sphere share: the basis is queried, and all that counts is how often and with what sum."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from cicpe.agents.base import Agent
from cicpe.problems.base import Problem

LEAST_NOISE = 1e-6
"""An observation's last digit: with no noise at all there would be no density."""


class DirectionState(NamedTuple):
    """How often each direction was queried, and the sum of what came back, in double precision."""

    noise_B: Float[Tensor, " batch"]
    count_BD: Float[Tensor, "batch dim"]
    total_BD: Float[Tensor, "batch dim"]


class DirectionAgent(Agent):
    """An agent that queries one direction of the basis at a time; the first context is the noise."""

    problem: Problem

    def begin(self, context: Float[Tensor, "batch context"]) -> DirectionState:
        zeros = torch.zeros(len(context), self.problem.query_space.dim, dtype=torch.float64)
        return DirectionState(context[:, 0].double().clamp_min(LEAST_NOISE), zeros, zeros)

    def update(
        self,
        state: DirectionState,
        query: Float[Tensor, "batch query"],
        observation: Float[Tensor, "batch observation"],
    ) -> DirectionState:
        direction = query.double()
        total = state.total_BD + direction * observation.double()
        return DirectionState(state.noise_B, state.count_BD + direction, total)
