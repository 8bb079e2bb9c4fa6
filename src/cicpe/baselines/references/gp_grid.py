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

from cicpe.agents.base import Proposal
from cicpe.baselines.base import History, HistoryAgent
from cicpe.errors import InvalidInput
from cicpe.problems.base import Problem
from cicpe.problems.gp_max import LENGTHSCALE, GPMax
from cicpe.statistics import highest_mass_interval

CHUNK = 128
"""Episodes that are looked at together: it bounds the memory."""


class Posterior(NamedTuple):
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
    """Prior paths a length scale."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.problem, GPMax) or self.problem.dim != 1:
            raise InvalidInput("problem", type(self.problem).__name__, "gp-max in one dimension")

    @cached_property
    def scale_L(self) -> Float[Tensor, " scale"]:
        """Length scales: the middles of equal parts of their range."""
        low, high = LENGTHSCALE
        return low + (high - low) * (torch.arange(self.lengthscales, dtype=torch.float64) + 0.5) / self.lengthscales

    @cached_property
    def place_G(self) -> Float[Tensor, " grid"]:
        """The grid of places."""
        return torch.linspace(0, 1, self.points, dtype=torch.float64)

    @cached_property
    def prior_LSG(self) -> Float[Tensor, "scale path grid"]:
        """Paths of the prior."""
        rng = torch.Generator().manual_seed(self.seed)
        cover = self._kernel(self.place_G[:, None] - self.place_G) + 1e-9 * torch.eye(self.points)
        white = torch.randn((self.paths, self.points), generator=rng, dtype=torch.float64)
        root: Tensor = torch.linalg.cholesky(cover)
        return white @ root.mT

    @cached_property
    def noise_ST(self) -> Float[Tensor, "path step"]:
        """Standard normal noise of the paths' own observations."""
        rng = torch.Generator().manual_seed(self.seed + 1)
        return torch.randn((self.paths, self.horizon), generator=rng, dtype=torch.float64)

    def _kernel(self, lag: Tensor) -> Tensor:
        """The covariance at each lag, for every length scale: a first dimension more."""
        shape = (-1, *[1] * lag.ndim)
        return torch.exp(-0.5 * (lag / self.scale_L.view(shape)).square())

    def propose(self, state: History, rng: Generator) -> Proposal:
        batch = len(state.query_BTQ)
        parts = [self._propose(_rows(state, begin)) for begin in range(0, batch, CHUNK)]
        return Proposal(*(torch.cat(column) for column in zip(*parts, strict=True)))

    def _propose(self, history: History) -> Proposal:
        post = self.posterior(history)
        query = self.place_G[(post.mean_BG + self.beta * post.std_BG).argmax(dim=1)]
        answer, confidence = highest_mass_interval(post.maximum_BK, post.weight_BK, self.epsilon)
        mean = (post.weight_BK * post.maximum_BK).sum(dim=1, keepdim=True)
        spread = (post.weight_BK * (post.maximum_BK - mean).square()).sum(dim=1, keepdim=True).sqrt()
        return Proposal(
            query=query[:, None].float(),
            stop=torch.zeros(len(query), dtype=torch.bool),
            recommendation=self.problem.answer_space.project(answer[:, None].float()),
            confidence=confidence.clamp(0, 1).float(),
            std=spread.float(),
        )

    def posterior(self, history: History) -> Posterior:
        """Everything that the observations say."""
        steps, batch = history.steps, len(history.query_BTQ)
        place_BT = history.query_BTQ[..., 0].double()
        value_BT = history.observation_BTY[..., 0].double()
        variance_B = history.context_BC[:, 0].double().square().clamp_min(1e-8)
        cover_LBTT = self._kernel(place_BT[:, :, None] - place_BT[:, None])
        cover_LBTT = cover_LBTT + variance_B[:, None, None] * torch.eye(steps, dtype=torch.float64)
        root = torch.linalg.cholesky(cover_LBTT)
        white = torch.linalg.solve_triangular(root, value_BT[..., None], upper=False)[..., 0]
        log_evidence = -0.5 * white.square().sum(-1) - root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        weight_BL = torch.softmax(log_evidence, dim=0).T
        cross_LBTG = self._kernel(place_BT[..., None] - self.place_G)
        half = torch.linalg.solve_triangular(root, cross_LBTG, upper=False)
        mean_LBG = torch.einsum("lbtg,lbt->lbg", half, white)
        variance_LBG = (1 - half.square().sum(dim=2)).clamp_min(0)
        mean_BG = torch.einsum("bl,lbg->bg", weight_BL, mean_LBG)
        second = torch.einsum("bl,lbg->bg", weight_BL, variance_LBG + mean_LBG.square())
        draw_LBSG = self._paths(place_BT, value_BT, variance_B, root, half)
        maximum_BK = draw_LBSG.amax(dim=-1).permute(1, 0, 2).reshape(batch, -1)
        weight_BK = weight_BL.repeat_interleave(self.paths, dim=1) / self.paths
        return Posterior(mean_BG, (second - mean_BG.square()).clamp_min(0).sqrt(), maximum_BK, weight_BK)

    def _paths(
        self, place_BT: Tensor, value_BT: Tensor, variance_B: Tensor, root: Tensor, half: Tensor
    ) -> Float[Tensor, "scale batch path grid"]:
        """Posterior paths by Matheron's rule; between places of the grid a prior path is a straight line."""
        at = (place_BT * (self.points - 1)).clamp(0, self.points - 1)
        cell = at.floor().clamp_max(self.points - 2).long()
        share = at - cell
        seen = (1 - share) * self.prior_LSG[:, :, cell] + share * self.prior_LSG[:, :, cell + 1]
        noise = variance_B.sqrt()[:, None] * self.noise_ST[:, None, : place_BT.shape[1]]
        left_LBTS = (value_BT - seen - noise).permute(0, 2, 3, 1)
        white = torch.linalg.solve_triangular(root, left_LBTS, upper=False)
        return self.prior_LSG[:, None] + torch.einsum("lbts,lbtg->lbsg", white, half)


def _rows(history: History, begin: int) -> History:
    return History(*(leaf[begin : begin + CHUNK] for leaf in history))
