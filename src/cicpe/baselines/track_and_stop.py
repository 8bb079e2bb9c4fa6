"""Lazy Track-and-Stop for the best arm on the sphere (Jedra and Proutiere, 2020, continuous set of arms).

The basis is queried in turn and theta estimated by least squares. With N_j queries of direction j, the
generalised likelihood ratio of the estimate's direction against its worst competitor, which lies at a
gap of epsilon, is bounded from below by

    Z_t = min_j N_j |theta_hat| epsilon        (equal to it whenever every N_j is the same),

and the episode stops once, with u = c = 1 and V = diag(N),

    Z_t >= beta(delta, t) = (1 + u) sigma^2 log(det(V / (u c) + I)^(1/2) / delta)
    min_j N_j >= max(c, rho(delta, t) / |theta_hat|^2),   rho = 8 beta.

On the event that the ellipsoid (theta_hat - theta)' V (theta_hat - theta) <= 2 beta holds, the first line
makes the recommendation epsilon-good; the second keeps the error of theta_hat below half of its length.
"""

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.agents.base import Proposal
from cicpe.baselines.directions import DirectionAgent, DirectionState
from cicpe.errors import InvalidInput
from cicpe.problems import Problem
from cicpe.spaces import Sphere

U, C = 1.0, 1.0


@final
@dataclass(frozen=True)
class TrackAndStop(DirectionAgent):
    """Knows that observations are linear and how noisy they are; knows no prior.

    Its confidence is the largest 1 - delta at which it would stop by the likelihood ratio.
    """

    problem: Problem
    epsilon: float
    delta: float
    horizon: int
    uniform: bool = False
    """Queries a random direction among those queried least, rather than the first of them."""

    def __post_init__(self) -> None:
        sphere = isinstance(self.problem.query_space, Sphere) and self.problem.query_space == self.problem.answer_space
        if not sphere or tuple(self.problem.context_names)[:1] != ("noise",):
            name = type(self.problem).__name__
            raise InvalidInput("problem", name, "one of directions on a sphere whose noise is told")

    def propose(self, state: DirectionState, rng: Generator) -> Proposal:
        estimate = state.total_BD / state.count_BD.clamp_min(1)
        length = estimate.norm(dim=-1)
        fewest = state.count_BD.amin(dim=-1)
        variance = state.noise_B.square()
        ratio = fewest * length * self.epsilon
        half_log_det = 0.5 * torch.log1p(state.count_BD / (U * C)).sum(dim=-1)
        # Z = beta(delta) solved for delta.
        least_delta = torch.exp(half_log_det - ratio / ((1 + U) * variance)).clamp_max(1)
        beta = (1 + U) * variance * (half_log_det - torch.log(torch.tensor(self.delta)))
        covered = fewest >= torch.clamp_min(8 * beta / length.square().clamp_min(1e-300), C)
        space = self.problem.answer_space
        return Proposal(
            query=self._next(state.count_BD, rng)[:, None],
            stop=(ratio >= beta) & covered,
            recommendation=space.project(estimate.float()),
            confidence=torch.where(covered, 1 - least_delta, 0.0).float(),
            std=(variance[:, None] / state.count_BD.clamp_min(1)).sqrt().clamp_max(1).float(),
        )

    def _next(self, count_BD: Tensor, rng: Generator) -> Float[Tensor, "batch query"]:
        if self.uniform:
            count_BD = count_BD + 0.5 * torch.rand(count_BD.shape, generator=rng)
        basis = torch.eye(count_BD.shape[-1])
        return basis[count_BD.argmin(dim=-1)]
