"""The best arm on the sphere with the exact posterior: a Gaussian likelihood on the uniform prior.

The basis is queried in turn, which is optimal by symmetry. With N_j queries of direction j and their mean
m_j, the posterior on the unit sphere is proportional to exp(-sum_j N_j (m_j - theta_j)^2 / (2 sigma^2)).
It is represented by weighted draws, the same random numbers for every episode:

* Some directions not yet queried: the queried coordinates are drawn from N(m_j, sigma^2 / N_j), and the others
  uniformly on the sphere of what is left, r^2 = 1 - |theta_queried|^2, with the surface's weight r^(k - 2)
  for k directions not queried.
* All queried: z is drawn from that Gaussian and theta = z / |z|. With any density g of the length r = |z|, the
  weight exp(log-likelihood of theta) g(r) / (N(z) r^(d - 1)) is exact; g = N(|m|, sigma^2 / mean N) makes it
  nearly constant.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.agents.base import Proposal
from cicpe.baselines.directions import DirectionAgent, DirectionState
from cicpe.errors import InvalidInput
from cicpe.problems.base import Problem
from cicpe.problems.best_arm import BestArm


@final
@dataclass(frozen=True)
class ConjugateRegression(DirectionAgent):
    """Queries the basis in turn; recommends the better of two directions.

    They are the posterior mean's, and the same with all that is left put on one direction not yet queried:
    with a single one left, its sign is all that is unknown.
    """

    problem: Problem
    epsilon: float
    horizon: int
    draws: int = 1024
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.problem, BestArm):
            raise InvalidInput("problem", type(self.problem).__name__, "best-arm")

    @cached_property
    def normal_KD(self) -> Float[Tensor, "draw dim"]:
        """Standard normal numbers, in pairs of opposite sign."""
        rng = torch.Generator().manual_seed(self.seed)
        half = torch.randn((self.draws // 2, self.problem.query_space.dim), generator=rng, dtype=torch.float64)
        return torch.cat([half, -half])

    def propose(self, state: DirectionState, rng: Generator) -> Proposal:
        theta_BKD, weight_BK = self.posterior(state)
        mean = (weight_BK[..., None] * theta_BKD).sum(dim=1)
        spread = (weight_BK[..., None] * (theta_BKD - mean[:, None]).square()).sum(dim=1)
        missing = state.count_BD == 0
        known = torch.where(missing, 0.0, mean)
        first = missing & (missing.cumsum(dim=-1) == 1)
        rest = (1 - known.square().sum(dim=-1, keepdim=True)).clamp_min(0).sqrt()
        candidates = torch.stack([torch.where(missing.all(dim=-1, keepdim=True), mean, known), known + first * rest])
        candidates = candidates / candidates.norm(dim=-1, keepdim=True).clamp_min(1e-300)
        cosine = torch.einsum("cbd,bkd->cbk", candidates, theta_BKD)
        success = (weight_BK * (cosine >= 1 - self.epsilon)).sum(dim=-1)
        confidence, which = success.max(dim=0)
        chosen = candidates[which, torch.arange(len(which))]
        return Proposal(
            query=torch.eye(mean.shape[-1])[state.count_BD.argmin(dim=-1)][:, None],
            stop=torch.zeros(len(mean), dtype=torch.bool),
            recommendation=self.problem.answer_space.project(chosen.float()),
            confidence=confidence.clamp(0, 1).float(),
            std=spread.clamp_min(0).sqrt().float(),
        )

    def posterior(self, state: DirectionState) -> tuple[Float[Tensor, "batch draw dim"], Float[Tensor, "batch draw"]]:
        """Weighted draws of theta.

        Args:
            state: What was queried and seen.

        Returns:
            Unit vectors, and their weights, which sum to one.
        """
        count = state.count_BD[:, None]
        scale = state.noise_B[:, None, None] / count.clamp_min(1).sqrt()
        mean = state.total_BD[:, None] / count.clamp_min(1)
        gaussian = mean + scale * self.normal_KD
        missing = count == 0
        left = missing.sum(dim=-1)
        some = self._with_missing(gaussian, missing, left)
        all_ = self._all_queried(gaussian, mean, scale, count, state.noise_B[:, None])
        theta = torch.where((left > 0)[..., None], some[0], all_[0])
        return theta, torch.softmax(torch.where(left > 0, some[1], all_[1]), dim=-1)

    def _with_missing(self, gaussian: Tensor, missing: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
        known = torch.where(missing, 0.0, gaussian)
        square = 1 - known.square().sum(dim=-1)
        direction = torch.where(missing, self.normal_KD, 0.0)
        direction = direction / direction.norm(dim=-1, keepdim=True).clamp_min(1e-300)
        theta = known + direction * square.clamp_min(0).sqrt()[..., None]
        # Outside the ball the weight is zero; 1e-12 is what the last digit of an observation can tell.
        log_weight = torch.where(square > 0, 0.5 * (left - 2) * torch.log(square.clamp_min(1e-12)), -1e6 + square)
        return theta / theta.norm(dim=-1, keepdim=True).clamp_min(1e-300), log_weight

    def _all_queried(
        self, z: Tensor, mean: Tensor, scale: Tensor, count: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        length = z.norm(dim=-1)
        theta = z / length[..., None].clamp_min(1e-300)
        log_target = -0.5 * ((theta - mean) / scale).square().sum(dim=-1)
        log_proposal = -0.5 * ((z - mean) / scale).square().sum(dim=-1)
        log_proposal = log_proposal + (z.shape[-1] - 1) * torch.log(length.clamp_min(1e-300))
        usual = noise / count.mean(dim=-1).clamp_min(1).sqrt()
        log_length = -0.5 * ((length - mean.norm(dim=-1)) / usual).square()
        return theta, log_target + log_length - log_proposal
