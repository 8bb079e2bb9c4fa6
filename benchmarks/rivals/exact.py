"""Exact Bayes for experiments with a curve: weighted points of the hidden parameters with the true likelihood.

Every episode starts with one Sobol lattice over the whole prior. A measurement multiplies the weights by its likelihood. Where few points keep
weight, they are laid anew, some evenly in a box about what is left and the others by a Student distribution with its moments, and all
measurements are weighed again: importance sampling, which is exact up to the number of points. It shares no inference with the library's
beliefs, only the problem's own likelihood.

Shapes: B episodes, N points, P parameters, M draws that a lookahead compares on, S settings, J outcomes, K groups of draws.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, final

import torch
from torch import Generator, Tensor

from cicpe.agents.base import Proposal
from cicpe.experiments.scales import settable_query
from cicpe.statistics import highest_mass_interval, sobol_points, systematic

FAR = 12.0
"""Below the largest, in nats: a point with so little weight is left outside a new box."""
FEWEST = 64
"""Points that a new box holds at least."""
MARGIN = 0.05
"""Of the old points' reach, that is added on both sides of a new box."""
FEW, ROUNDS = 0.15, 2
"""Share of effective points below which they are laid anew, and how often after one measurement."""
EVENLY, FREEDOM = 0.3, 5
"""Share of new points that lie evenly in the box, and degrees of freedom of the others."""
ANSWERS = 1024
"""Draws on which the answer and its probability are found."""
GROUPS = 16


class PointState(NamedTuple):
    point_BNP: Tensor
    log_BN: Tensor
    """The log-likelihood of every point; minus infinity outside the prior."""
    density_BN: Tensor
    """The log density by which the points were laid."""
    query_BTQ: Tensor
    observation_BTY: Tensor

    @property
    def weight_BN(self) -> Tensor:
        return torch.softmax((self.log_BN - self.density_BN).double(), dim=1)

    def effective(self) -> Tensor:
        """How many points of equal weight would say as much, per episode."""
        return 1 / self.weight_BN.square().sum(dim=1)


@final
@dataclass(frozen=True)
class PointBayes:
    """A player with the exact posterior."""

    problem: Any
    """An experiment with a curve: a likelihood, and a prior that is uniform in a unit cube of parameters."""
    epsilon: float
    horizon: int
    utility: Literal["information", "variance"] = "information"
    """Of a setting: what it is expected to tell about the answer, or the variance of the mean that is predicted there."""
    points: int = 2048
    draws: int = 144
    outcomes: int = 12
    settings: int = 81
    """Settings among which the next is chosen, at most."""

    @cached_property
    def unit_NP(self) -> Tensor:
        return sobol_points(self.points, self.problem.parameter_space.dim, 5).float()

    @cached_property
    def setting_SQ(self) -> Tensor:
        """Evenly spaced settings that the instrument can be set to."""
        line = torch.linspace(0, 1, self.settings)[:, None]
        return settable_query(self.problem.units.settings, line).unique(dim=0)

    @cached_property
    def student_NP(self) -> Tensor:
        """Points of the standard Student distribution."""
        dim = self.problem.parameter_space.dim
        white = torch.special.ndtri(sobol_points(self.points, dim, 6).clamp(1e-6, 1 - 1e-6))
        rng = torch.Generator().manual_seed(7)
        chi = torch.randn((self.points, FREEDOM), generator=rng, dtype=torch.float64).square().sum(dim=1, keepdim=True)
        return (white * (FREEDOM / chi).sqrt()).float()

    def begin(self, context: Tensor) -> PointState:
        batch = len(context)
        queries, seen = torch.zeros(batch, 0, self.problem.query_space.dim), torch.zeros(batch, 0, 1)
        even = torch.zeros(batch, self.points)
        return PointState(self.unit_NP.expand(batch, -1, -1), even, even, queries, seen)

    def observe(self, state: PointState, query: Tensor, observation: Tensor) -> PointState:
        after = state._replace(
            log_BN=state.log_BN + self.problem.log_likelihood(state.point_BNP, query, observation),
            query_BTQ=torch.cat([state.query_BTQ, query], dim=1),
            observation_BTY=torch.cat([state.observation_BTY, observation], dim=1),
        )
        for _ in range(ROUNDS):
            few = after.effective() < FEW * self.points
            if not bool(few.any()):
                break
            after = self._laid_anew(after, few)
        return after

    def _laid_anew(self, state: PointState, which: Tensor) -> PointState:
        """The state with new points in some episodes, where that leaves more effective ones."""
        old = PointState(*(part[which] for part in state))
        low, high = _reach(old)
        mean, root = _moments(old)
        n = round(EVENLY * self.points)
        even = low[:, None] + self.unit_NP[:n] * (high - low)[:, None]
        others = mean[:, None] + self.student_NP[n:] @ root.mT
        point = torch.cat([even, others], dim=1)
        inside = ((point >= low[:, None]) & (point <= high[:, None])).all(dim=-1)
        log_even = math.log(EVENLY) - (high - low).log().sum(dim=1, keepdim=True)
        log_student = math.log(1 - EVENLY) + _student_density(point, mean, root)
        density = torch.logaddexp(torch.where(inside, log_even, -math.inf), log_student)
        within = ((point >= 0) & (point <= 1)).all(dim=-1)
        new = old._replace(point_BNP=point.clamp(0, 1), log_BN=torch.zeros_like(density), density_BN=density)
        new = new._replace(log_BN=torch.where(within, self._weighed(new), -math.inf))
        better = (new.effective() > old.effective()).nonzero()[:, 0]
        rows = which.nonzero()[:, 0][better]
        kept = [part.clone() for part in state[:3]]
        for part, changed in zip(kept, new[:3], strict=True):
            part[rows] = changed[better]
        return PointState(*kept, state.query_BTQ, state.observation_BTY)

    def _weighed(self, state: PointState) -> Tensor:
        """The log-likelihood of all measurements at every point."""
        total = torch.zeros(state.point_BNP.shape[:2])
        for step in range(state.query_BTQ.shape[1]):
            at, seen = state.query_BTQ[:, step, None], state.observation_BTY[:, step, None]
            total += self.problem.log_likelihood(state.point_BNP, at, seen)
        return total

    def propose(self, state: PointState, rng: Generator) -> Proposal:
        weight, points = state.weight_BN, state.point_BNP
        offset = float(torch.rand((), generator=rng))
        drawn = _rows(points, systematic(weight, ANSWERS, offset))
        target = self.problem.target(drawn)[..., 0]
        mean, std = target.mean(dim=1), target.std(dim=1)
        answer, confidence = highest_mass_interval(target, torch.full_like(target, 1 / ANSWERS), self.epsilon)
        if self.utility == "variance":
            answer = mean
        few = _rows(points, systematic(weight, self.draws, offset))
        few = _rows(few, self.problem.target(few)[..., 0].argsort(dim=1))
        value = self._variance(few) if self.utility == "variance" else self._information(few, rng)
        query = self.setting_SQ[value.argmax(dim=1)]
        return Proposal(query[:, None], confidence > 2, answer[:, None], confidence, std[:, None])

    def _means(self, drawn_BMP: Tensor) -> Tensor:
        """What is expected at every setting: B x M x S."""
        mean: Tensor = self.problem.mean(drawn_BMP[:, :, None], self.setting_SQ)
        return mean

    def _variance(self, drawn_BMP: Tensor) -> Tensor:
        return self._means(drawn_BMP).var(dim=1)

    def _information(self, drawn_BMP: Tensor, rng: Generator) -> Tensor:
        """How much the next measurement at every setting tells of the answer: B x S, up to a constant per episode.

        The draws are in the order of their answers; groups of neighbours stand for answers that differ.
        """
        mean_BMS = self._means(drawn_BMP)
        if self.problem.form.kind == "yes/no":
            group_BKS = mean_BMS.unflatten(1, (GROUPS, -1)).mean(dim=2)
            return _binary_entropy(group_BKS.mean(dim=1)) - _binary_entropy(group_BKS).mean(dim=1)
        noise_BM = self.problem.noise(drawn_BMP).expand(drawn_BMP.shape[:2])
        every = self.draws // self.outcomes
        which = torch.arange(self.outcomes) * every + every // 2
        comb = torch.special.ndtri((torch.randperm(self.outcomes, generator=rng) + 0.5) / self.outcomes)
        seen_BJS = mean_BMS[:, which] + (noise_BM[:, which] * comb)[..., None]
        error_BJMS = (seen_BJS[:, :, None] - mean_BMS[:, None]) / noise_BM[:, None, :, None]
        log_BJMS = -0.5 * error_BJMS.square() - noise_BM.log()[:, None, :, None]
        group_BJKS = torch.softmax(log_BJMS, dim=2).unflatten(2, (GROUPS, -1)).sum(dim=3)
        return (group_BJKS * group_BJKS.clamp_min(1e-12).log()).sum(dim=2).mean(dim=1)


def _reach(state: PointState) -> tuple[Tensor, Tensor]:
    """The ends of what keeps weight, with a margin, within the prior."""
    log_BN = state.log_BN - state.density_BN
    cut = torch.minimum(log_BN.amax(dim=1) - FAR, log_BN.topk(FEWEST, dim=1).values[:, -1])
    outside = (log_BN < cut[:, None])[..., None]
    low = state.point_BNP.masked_fill(outside, math.inf).amin(dim=1)
    high = state.point_BNP.masked_fill(outside, -math.inf).amax(dim=1)
    margin = MARGIN * (high - low) + 1e-4
    return (low - margin).clamp_min(0), (high + margin).clamp_max(1)


def _moments(state: PointState) -> tuple[Tensor, Tensor]:
    """Mean and lower root of the covariance of the weighted points."""
    weight, point = state.weight_BN[..., None], state.point_BNP.double()
    mean = (weight * point).sum(dim=1)
    off = point - mean[:, None]
    covariance = (weight * off).mT @ off + 1e-6 * torch.eye(point.shape[-1], dtype=torch.float64)
    root: Tensor = torch.linalg.cholesky(covariance)
    return mean.float(), root.float()


def _student_density(point_BNP: Tensor, mean_BP: Tensor, root_BPP: Tensor) -> Tensor:
    dim = point_BNP.shape[-1]
    white: Tensor = torch.linalg.solve_triangular(root_BPP, (point_BNP - mean_BP[:, None]).mT, upper=False)
    constant = math.lgamma((FREEDOM + dim) / 2) - math.lgamma(FREEDOM / 2) - dim / 2 * math.log(FREEDOM * math.pi)
    size = root_BPP.diagonal(dim1=-2, dim2=-1).log().sum(dim=1, keepdim=True)
    return constant - size - (FREEDOM + dim) / 2 * torch.log1p(white.square().sum(dim=1) / FREEDOM)


def _rows(values_BNP: Tensor, index_BM: Tensor) -> Tensor:
    return values_BNP.gather(1, index_BM[..., None].expand(-1, -1, values_BNP.shape[-1]))


def _binary_entropy(p: Tensor) -> Tensor:
    return -p * p.clamp_min(1e-12).log() - (1 - p) * (1 - p).clamp_min(1e-12).log()
