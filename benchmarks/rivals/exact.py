"""Exact Bayes for experiments with a curve: points of the hidden parameters with the true likelihood, in a box that shrinks with the posterior.

Every episode has one Sobol lattice of points in its own box of the parameters, which starts as the whole prior. A measurement multiplies the
weights by its likelihood; where the weight has drawn together, the lattice is laid anew in the smaller box and all measurements are weighed
again. It shares no inference with the library's beliefs, only the problem's own likelihood.

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
from cicpe.statistics import effective_size, highest_mass_interval, sobol_points, systematic

FAR = 12.0
"""Below the largest, in nats: a point with so little weight is left outside a new box."""
FEWEST = 256
"""Points that a new box holds at least."""
WORTH = 0.7
"""A box is laid anew where the new one has at most this share of the volume."""
MARGIN = 0.05
"""Of the old box, that is added on both sides of the new one."""
ANSWERS = 1024
"""Draws on which the answer and its probability are found."""
GROUPS = 16


class BoxState(NamedTuple):
    low_BP: Tensor
    high_BP: Tensor
    log_BN: Tensor
    """The log-likelihood of every point."""
    query_BTQ: Tensor
    observation_BTY: Tensor


@final
@dataclass(frozen=True)
class BoxBayes:
    """A player with the exact posterior."""

    problem: Any
    """An experiment with a curve: a likelihood, and a prior that is uniform in a unit cube of parameters."""
    epsilon: float
    horizon: int
    utility: Literal["information", "variance"] = "information"
    """Of a setting: what it is expected to tell about the answer, or the variance of the mean that is predicted there."""
    points: int = 4096
    draws: int = 256
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

    def begin(self, context: Tensor) -> BoxState:
        batch, dim = len(context), self.problem.parameter_space.dim
        queries, seen = torch.zeros(batch, 0, self.problem.query_space.dim), torch.zeros(batch, 0, 1)
        low, high = torch.zeros(batch, dim), torch.ones(batch, dim)
        return BoxState(low, high, torch.zeros(batch, self.points), queries, seen)

    def parameters(self, state: BoxState) -> Tensor:
        """The points of every episode: B x N x P."""
        return state.low_BP[:, None] + self.unit_NP * (state.high_BP - state.low_BP)[:, None]

    def observe(self, state: BoxState, query: Tensor, observation: Tensor) -> BoxState:
        added = self.problem.log_likelihood(self.parameters(state), query, observation)
        after = BoxState(
            state.low_BP,
            state.high_BP,
            state.log_BN + added,
            torch.cat([state.query_BTQ, query], dim=1),
            torch.cat([state.observation_BTY, observation], dim=1),
        )
        return self._laid_anew(after)

    def _laid_anew(self, state: BoxState) -> BoxState:
        """The state with smaller boxes where the weight has drawn together."""
        points = self.parameters(state)
        cut = torch.minimum(state.log_BN.amax(dim=1) - FAR, state.log_BN.topk(FEWEST, dim=1).values[:, -1])
        outside = (state.log_BN < cut[:, None])[..., None]
        margin = MARGIN * (state.high_BP - state.low_BP)
        low = (points.masked_fill(outside, math.inf).amin(dim=1) - margin).maximum(state.low_BP)
        high = (points.masked_fill(outside, -math.inf).amax(dim=1) + margin).minimum(state.high_BP)
        share = ((high - low) / (state.high_BP - state.low_BP)).prod(dim=1)
        rows = (share <= WORTH).nonzero()[:, 0]
        if len(rows) == 0:
            return state
        low_BP, high_BP, log_BN = state.low_BP.clone(), state.high_BP.clone(), state.log_BN.clone()
        low_BP[rows], high_BP[rows] = low[rows], high[rows]
        moved = state._replace(low_BP=low_BP, high_BP=high_BP)
        new = self.parameters(moved)[rows]
        total = torch.zeros(len(rows), self.points)
        for step in range(state.query_BTQ.shape[1]):
            at, seen = state.query_BTQ[rows, step, None], state.observation_BTY[rows, step, None]
            total += self.problem.log_likelihood(new, at, seen)
        log_BN[rows] = total
        return moved._replace(log_BN=log_BN)

    def effective_points(self, state: BoxState) -> Tensor:
        """How many points of equal weight would say as much, per episode."""
        return effective_size(state.log_BN)

    def propose(self, state: BoxState, rng: Generator) -> Proposal:
        weight, points = torch.softmax(state.log_BN.double(), dim=1), self.parameters(state)
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


def _rows(values_BNP: Tensor, index_BM: Tensor) -> Tensor:
    return values_BNP.gather(1, index_BM[..., None].expand(-1, -1, values_BNP.shape[-1]))


def _binary_entropy(p: Tensor) -> Tensor:
    return -p * p.clamp_min(1e-12).log() - (1 - p) * (1 - p).clamp_min(1e-12).log()
