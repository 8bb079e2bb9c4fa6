"""The maximum of a Gaussian process, its place or its height, with the exact posterior and any number of queries.

A function on the problem's grid is f = Psi w: Psi holds the leading eigenvectors of the prior's covariance, averaged
over length scales, and beyond them lies less than the rounding of the functions themselves. Given a length scale, w
is Gaussian, and an observation (or the average of many at one place) moves its moments by a rank-one step, so that
the work of a step does not grow with the number of queries, as that of ``gp.exact`` does.

Both questions are asked in the same way: the next query is the place whose value, were it known better, would explain
most of what is open about the answer X,

    argmax_x Cov(X, f(x))^2 / (Var f(x) + sigma^2 / m),

by draws of f from the posterior.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from cicpe.agents.base import Agent, Proposal
from cicpe.baselines.references.gp_prior import prior_kernel
from cicpe.errors import InvalidInput
from cicpe.gp.exact import log_density
from cicpe.problems import Problem
from cicpe.problems.gp_argmax import GPArgmax
from cicpe.problems.gp_max import GRID, GPMax
from cicpe.statistics import highest_mass_interval

JITTER = 1e-11
"""Added to the variance of every feature: a roughness of 1e-6 of f, and covariances that can be factorised."""


class PeakState(NamedTuple):
    """The posterior of w for every length scale, in float64."""

    noise_B: Float[Tensor, " batch"]
    mean_BLM: Float[Tensor, "batch scale feature"]
    cover_BLMM: Float[Tensor, "batch scale feature feature"]
    log_evidence_BL: Float[Tensor, "batch scale"]


class PeakDraws(NamedTuple):
    """Functions from the posterior, and the answer to the question for each."""

    value_BSG: Float[Tensor, "batch draw grid"]
    answer_BS: Float[Tensor, "batch draw"]


@final
@dataclass(frozen=True)
class GPPeak(Agent):
    """Asks what explains most of the answer; recommends what most draws are near. It has no stop of its own."""

    problem: Problem
    """``gp-max`` in one dimension, or ``gp_argmax``: it says which question is asked."""
    epsilon: float
    horizon: int
    lengthscales: int = 12
    features: int = 56
    draws: int = 256

    def __post_init__(self) -> None:
        asked = self.problem
        if not (isinstance(asked, GPArgmax) or (isinstance(asked, GPMax) and asked.dim == 1)):
            raise InvalidInput("problem", type(asked).__name__, "gp-max in one dimension, or gp_argmax")

    @cached_property
    def place_G(self) -> Float[Tensor, " grid"]:
        """The problem's grid."""
        return torch.linspace(0, 1, GRID[1], dtype=torch.float64)

    @cached_property
    def _prior(self) -> tuple[Tensor, Tensor]:
        """Psi (grid x feature) and the covariance of w for every length scale."""
        place_G1 = self.place_G[:, None]
        kernel_LGG = prior_kernel(self.lengthscales).covariance(place_G1, place_G1)
        basis_GM = torch.linalg.eigh(kernel_LGG.mean(dim=0)).eigenvectors[:, -self.features :]
        eye = torch.eye(self.features, dtype=torch.float64)
        return basis_GM, basis_GM.mT @ kernel_LGG @ basis_GM + JITTER * eye

    def begin(self, context: Float[Tensor, "batch context"]) -> PeakState:
        batch, (_, cover_LMM) = len(context), self._prior
        zeros = torch.zeros(batch, self.lengthscales, dtype=torch.float64)
        mean = zeros[..., None].expand(-1, -1, self.features)
        return PeakState(context[:, 0].double(), mean, cover_LMM.expand(batch, -1, -1, -1), zeros)

    def update(
        self, state: PeakState, query: Float[Tensor, "batch query"], observation: Float[Tensor, "batch observation"]
    ) -> PeakState:
        return self.average(state, (query[:, 0] * (GRID[1] - 1)).round().long(), observation[:, 0], 1)

    def average(self, belief: PeakState, place_B: Int[Tensor, " batch"], value_B: Tensor, count: int) -> PeakState:
        """The belief after the average of ``count`` observations at one place of the grid each.

        Args:
            belief: Of every episode.
            place_B: Indices into the grid.
            value_B: The averages.
            count: Observations in each.

        Returns:
            The belief of every episode afterwards.
        """
        basis_GM, _ = self._prior
        at_BM = basis_GM[place_B]
        gain_BLM = torch.einsum("blmn,bn->blm", belief.cover_BLMM, at_BM)
        variance_BL = torch.einsum("blm,bm->bl", gain_BLM, at_BM) + (belief.noise_B.square() / count)[:, None]
        error_BL = value_B.double()[:, None] - torch.einsum("blm,bm->bl", belief.mean_BLM, at_BM)
        std_BL = variance_BL.sqrt()
        step_BLM = gain_BLM / variance_BL[..., None]
        return belief._replace(
            mean_BLM=belief.mean_BLM + step_BLM * error_BL[..., None],
            cover_BLMM=belief.cover_BLMM - step_BLM[..., None] * gain_BLM[..., None, :],
            log_evidence_BL=belief.log_evidence_BL + log_density(error_BL / std_BL, std_BL),
        )

    def draw(self, belief: PeakState, rng: Generator) -> PeakDraws:
        """Functions from the posterior; each draws its length scale first.

        Args:
            belief: Of every episode.
            rng: Draws them.

        Returns:
            Functions on the grid, and the answer of each.
        """
        basis_GM, _ = self._prior
        batch, scales = belief.log_evidence_BL.shape
        weight_BL = torch.softmax(belief.log_evidence_BL, dim=1)
        scale_BS = torch.multinomial(weight_BL, self.draws, replacement=True, generator=rng)
        # Few pairs of an episode and a length scale have draws at all: only those are factorised.
        pair_N, order_N = (torch.arange(batch)[:, None] * scales + scale_BS).flatten().sort()
        count = torch.bincount(pair_N, minlength=batch * scales)
        pair_P, count_P = count.nonzero()[:, 0], count[count > 0]
        eye = torch.eye(self.features, dtype=torch.float64)
        root_PMM = torch.linalg.cholesky(belief.cover_BLMM.flatten(0, 1)[pair_P] + JITTER * eye)
        mean_PM = belief.mean_BLM.flatten(0, 1)[pair_P]
        white_NM = torch.randn((batch * self.draws, self.features), generator=rng, dtype=torch.float64)
        parts = zip(torch.split(white_NM, count_P.tolist()), mean_PM, root_PMM, strict=True)
        w_NM = torch.cat([mean + white @ root.mT for white, mean, root in parts])
        w_BSM = torch.empty_like(w_NM).index_copy_(0, order_N, w_NM).view(batch, self.draws, self.features)
        value_BSG = w_BSM.float() @ basis_GM.float().mT
        top_BS, place_BS = value_BSG.max(dim=2)
        answer = self.place_G.float()[place_BS] if isinstance(self.problem, GPArgmax) else top_BS
        return PeakDraws(value_BSG, answer)

    def best_query(self, belief: PeakState, draws: PeakDraws, count: int) -> Int[Tensor, " batch"]:
        """The place of the grid whose value, averaged over ``count`` observations, explains most of the answer.

        Args:
            belief: Of every episode.
            draws: Functions from it.
            count: Observations that the next query stands for.

        Returns:
            An index into the grid for every episode.
        """
        centred_BSG = draws.value_BSG - draws.value_BSG.mean(dim=1, keepdim=True)
        open_BS = draws.answer_BS - draws.answer_BS.mean(dim=1, keepdim=True)
        together_BG = torch.einsum("bs,bsg->bg", open_BS, centred_BSG)
        alone_BG = centred_BSG.square().sum(dim=1)
        noise_B = self.draws * belief.noise_B.float().square() / count
        return (together_BG.square() / (alone_BG + noise_B[:, None]).clamp_min(1e-30)).argmax(dim=1)

    def answer(self, draws: PeakDraws, epsilon: float) -> tuple[Tensor, Tensor]:
        """The answer that most draws are within epsilon of.

        Args:
            draws: Functions from the posterior.
            epsilon: How near is near enough.

        Returns:
            The answers, and the share of the draws that are near.
        """
        even = torch.full_like(draws.answer_BS, 1 / self.draws)
        return highest_mass_interval(draws.answer_BS, even, epsilon)

    def propose(self, state: PeakState, rng: Generator) -> Proposal:
        draws = self.draw(state, rng)
        answer, confidence = self.answer(draws, self.epsilon)
        query = self.place_G.float()[self.best_query(state, draws, 1)]
        return Proposal(
            query=query[:, None, None],
            stop=torch.zeros(len(query), dtype=torch.bool),
            recommendation=self.problem.answer_space.project(answer[:, None]),
            confidence=confidence.clamp(0, 1),
            std=draws.answer_BS.std(dim=1, keepdim=True),
        )


def batch_sizes(most: float, share: float = 0.25) -> list[int]:
    """Queries of every round up to ``most`` in all: one, and later a share of all before, at one place per round."""
    sizes, total = [], 0
    while total < most:
        sizes.append(max(1, math.floor(share * total)))
        total += sizes[-1]
    return sizes
