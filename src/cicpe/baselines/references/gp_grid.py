"""The maximum of a Gaussian process with the exact posterior, on a grid of length scales.

For every length scale l of the grid: the evidence of the observations and the posterior of f on a grid of
places. Paths of the posterior are paths of the prior moved by Matheron's rule,

    f + k(grid, X) (K + sigma^2 I)^-1 (y - f(X) - noise),

with the same prior paths and noise for every episode. Weighted by the evidence, their maxima are the
posterior of the answer.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe import trees
from cicpe.agents.base import Proposal
from cicpe.baselines.base import History, HistoryAgent
from cicpe.baselines.references.gp_prior import prior_kernel
from cicpe.errors import InvalidInput
from cicpe.gp.exact import condition
from cicpe.gp.kernels import Kernel
from cicpe.gp.matheron import lattice_corners, posterior_draws, prior_draws, whitened_error
from cicpe.problems.base import Problem
from cicpe.problems.gp_max import GPMax
from cicpe.statistics import highest_mass_interval

CHUNK = 128
"""Episodes that are assessed together: it bounds the memory."""


class GPGridPosterior(NamedTuple):
    """What is known of f on the grid: moments over everything, and draws of the maximum."""

    mean_BG: Float[Tensor, "batch grid"]
    std_BG: Float[Tensor, "batch grid"]
    maximum_BK: Float[Tensor, "batch draw"]
    weight_BK: Float[Tensor, "batch draw"]


@final
@dataclass(frozen=True)
class GPGrid(HistoryAgent):
    """Queries argmax of mean + beta std; recommends the value that most draws of the maximum are near."""

    problem: Problem
    epsilon: float
    horizon: int
    beta: float = 2.0
    lengthscales: int = 12
    points: int = 128
    """Places of the grid: a quarter of the problem's own, 1 / 6 of the smallest length scale apart."""
    paths: int = 64
    """Prior paths per length scale."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.problem, GPMax) or self.problem.dim != 1:
            raise InvalidInput("problem", type(self.problem).__name__, "gp-max in one dimension")

    @cached_property
    def kernel_L1(self) -> Kernel:
        """The prior's covariance for every length scale, to be broadcast over episodes."""
        kernel_L = prior_kernel(self.lengthscales)
        return kernel_L._replace(lengthscale=kernel_L.lengthscale[:, None], amplitude=kernel_L.amplitude[:, None])

    @cached_property
    def place_G1(self) -> Float[Tensor, "grid 1"]:
        """The grid of places."""
        return torch.linspace(0, 1, self.points, dtype=torch.float64)[:, None]

    @cached_property
    def prior_L1SG(self) -> Float[Tensor, "scale 1 path grid"]:
        """Paths of the prior."""
        rng = torch.Generator().manual_seed(self.seed)
        white = torch.randn((self.paths, self.points), generator=rng, dtype=torch.float64)
        return prior_draws(self.kernel_L1.covariance(self.place_G1, self.place_G1), white, 1e-9)

    @cached_property
    def noise_ST(self) -> Float[Tensor, "path step"]:
        """Standard normal noise of the paths' own observations."""
        rng = torch.Generator().manual_seed(self.seed + 1)
        return torch.randn((self.paths, self.horizon), generator=rng, dtype=torch.float64)

    def propose(self, state: History, rng: Generator) -> Proposal:
        chunks = torch.split(torch.arange(len(state.query_BTQ)), CHUNK)
        return trees.concatenate([self._propose(trees.select(state, rows)) for rows in chunks])

    def _propose(self, history: History) -> Proposal:
        post = self.posterior(history)
        query = self.place_G1[(post.mean_BG + self.beta * post.std_BG).argmax(dim=1)]
        answer, confidence = highest_mass_interval(post.maximum_BK, post.weight_BK, self.epsilon)
        mean = (post.weight_BK * post.maximum_BK).sum(dim=1, keepdim=True)
        spread = (post.weight_BK * (post.maximum_BK - mean).square()).sum(dim=1, keepdim=True).sqrt()
        return Proposal(
            query=query.float()[:, None],
            stop=torch.zeros(len(query), dtype=torch.bool),
            recommendation=self.problem.answer_space.project(answer[:, None].float()),
            confidence=confidence.clamp(0, 1).float(),
            std=spread.float(),
        )

    def posterior(self, history: History) -> GPGridPosterior:
        """Everything that the observations say.

        Args:
            history: Of a batch of episodes.

        Returns:
            Moments of f and draws of its maximum.
        """
        batch, kernel = len(history.query_BTQ), self.kernel_L1
        place_BT1 = history.query_BTQ.double()
        value_BT = history.observation_BTY[..., 0].double()
        variance_B = history.context_BC[:, 0].double().square().clamp_min(1e-8)
        posterior_LB = condition(kernel.covariance(place_BT1, place_BT1), variance_B, value_BT)
        weight_BL = torch.softmax(posterior_LB.log_evidence(), dim=0).T
        rows_LBTG = posterior_LB.whiten(kernel.covariance(place_BT1, self.place_G1))
        mean_LBG, variance_LBG = posterior_LB.predict(rows_LBTG, torch.ones(self.points, dtype=torch.float64))
        mean_BG = torch.einsum("bl,lbg->bg", weight_BL, mean_LBG)
        second_BG = torch.einsum("bl,lbg->bg", weight_BL, variance_LBG + mean_LBG.square())
        noise_BST = variance_B.sqrt()[:, None, None] * self.noise_ST[:, : history.steps]
        error_LBST = whitened_error(posterior_LB.root, value_BT, self._prior_at(place_BT1), noise_BST)
        draw_LBSG = posterior_draws(self.prior_L1SG, error_LBST, rows_LBTG)
        maximum_BK = draw_LBSG.amax(dim=-1).permute(1, 0, 2).reshape(batch, -1)
        weight_BK = weight_BL.repeat_interleave(self.paths, dim=1) / self.paths
        return GPGridPosterior(mean_BG, (second_BG - mean_BG.square()).clamp_min(0).sqrt(), maximum_BK, weight_BK)

    def _prior_at(self, place_BT1: Tensor) -> Float[Tensor, "scale batch path step"]:
        """Prior paths at the queries; between places of the grid a path is a straight line."""
        corner_BTC, share_BTC = lattice_corners(place_BT1, self.points)
        return (self.prior_L1SG[:, 0][..., corner_BTC] * share_BTC).sum(dim=-1).transpose(1, 2)
