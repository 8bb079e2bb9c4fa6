"""Search over candidate answers on a grid: for answers that are a line or a finite set.

Every candidate keeps, for every code, running sums of statistics that add up over observations, so that the nuisance
is marginalised exactly. Answers of several dimensions are searched by ``particles.py``.

Shapes: B episodes, N candidates, K codes, Q query, X answer, Y observation, C context, S statistics, M pairs that are
drawn for a lookahead.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import torch
from answer_prior import AnswerPrior
from heads import Heads
from jaxtyping import Float, Int
from score_network import ScoreNetwork
from torch import Tensor

from cicpe.problems.base import Problem


@final
@dataclass(frozen=True)
class Likelihood:
    """A fitted network with its heads: how pairs of a candidate and a code explain observations."""

    problem: Problem
    heads: Heads
    network: ScoreNetwork


class Pairs(NamedTuple):
    """Equally weighted draws of (answer, code) from the posterior of every episode, with their running sums."""

    answer_BMX: Float[Tensor, "B M X"]
    """In unit coordinates."""
    code_BM: Int[Tensor, "B M"]
    """The place of the code among the network's points, where it is one of them."""
    vector_BMD: Float[Tensor, "B M D"]
    """The code itself."""
    sums_BMS: Float[Tensor, "B M S"]
    place_BM: Int[Tensor, "B M"]
    """The place of the candidate among the search's candidates."""


def systematic(weight_BN: Tensor, n: int, offset: float) -> Int[Tensor, "B n"]:
    """Places of ``n`` systematic draws by weights that need not add up to one; ``offset`` is in [0, 1)."""
    total = weight_BN.double().cumsum(dim=-1)
    ticks = (torch.arange(n, dtype=torch.float64) + offset) / n * total[:, -1:]
    return torch.searchsorted(total, ticks).clamp_max(weight_BN.shape[-1] - 1)


class GridState(NamedTuple):
    """Running sums for every candidate and code."""

    sums_BNKS: Float[Tensor, "B N K S"]
    context_BC: Float[Tensor, "B C"]
    time_B: Int[Tensor, " B"]


@final
@dataclass(frozen=True)
class GridSearch:
    """All candidates are kept: a grid on a line, or the finite set of answers that targets were seen at."""

    likelihood: Likelihood
    prior: AnswerPrior
    points: int

    @cached_property
    def candidates_NX(self) -> Float[Tensor, "N X"]:
        """In unit coordinates."""
        if self.prior.values is not None:
            return self.prior.values
        low, high = self.prior.low[:1], self.prior.high[:1]
        return low + (high - low) * (torch.arange(self.points)[:, None] + 0.5) / self.points

    @cached_property
    def log_prior_N(self) -> Tensor:
        """Log prior mass of every candidate."""
        if self.prior.shares is not None:
            return self.prior.shares.double().log()
        return torch.log_softmax(self.prior.log_density(self.candidates_NX), dim=0)

    @property
    def step(self) -> float:
        """The distance of neighbours on a line in unit coordinates; zero for a finite set."""
        if self.prior.values is not None:
            return 0.0
        return float(self.prior.high[0] - self.prior.low[0]) / self.points

    def begin(self, context: Float[Tensor, "B C"]) -> GridState:
        """Nothing seen."""
        shape = (len(context), len(self.candidates_NX), self.likelihood.network.codes, self.likelihood.heads.kept)
        return GridState(torch.zeros(shape, dtype=torch.float64), context, torch.zeros(len(context), dtype=torch.long))

    def parameters(self, query_BQ: Tensor, context_BC: Tensor) -> Float[Tensor, "B N K P"]:
        """Head parameters of every candidate and code at one query (unit coordinates) an episode."""
        return self.likelihood.network(query_BQ[:, None], self.candidates_NX, context_BC[:, None])

    def observe(self, state: GridState, parameters_BNKP: Tensor, encoded_BY: Tensor) -> GridState:
        """The sums with one more observation, whose head parameters are given."""
        evidence = self.likelihood.heads.evidence(parameters_BNKP, encoded_BY[:, None, None])
        return state._replace(sums_BNKS=state.sums_BNKS + evidence, time_B=state.time_B + 1)

    def log_joint(self, state: GridState) -> Float[Tensor, "B N K"]:
        """Log posterior of candidates and codes, up to a constant an episode."""
        network = self.likelihood.network
        log_mix = network.log_mix(self.candidates_NX, state.context_BC[:, None]).double()
        if network.given:
            log_mix = log_mix + self._dependence_NK
        return self.likelihood.heads.log_likelihood(state.sums_BNKS) + log_mix + self.log_prior_N[:, None]

    @cached_property
    def _dependence_NK(self) -> Tensor:
        """How a nuisance that was read depends on the candidate."""
        points, x = self.likelihood.network.points, self.candidates_NX
        n, k = len(x), len(points)
        joint = torch.cat([x[:, None].expand(-1, k, -1), points.expand(n, -1, -1)], dim=-1)
        return torch.log_softmax(self.prior.dependence(joint) + torch.zeros(n, k).double(), dim=1) + math.log(k)

    def posterior(self, state: GridState) -> tuple[Float[Tensor, "B N X"], Float[Tensor, "B N"], Tensor]:
        """Candidates in unit coordinates, their weights, and the joint with the codes."""
        joint_BNK = torch.softmax(self.log_joint(state).flatten(1), dim=1).view(state.sums_BNKS.shape[:-1])
        return self.candidates_NX.expand(len(joint_BNK), -1, -1), joint_BNK.sum(dim=-1), joint_BNK

    def pairs(self, state: GridState, joint_BNK: Tensor, n: int, offset: float) -> Pairs:
        """Draws of candidate and code; on a line they come in the candidates' order, so they are stratified."""
        codes = joint_BNK.shape[-1]
        chosen_BM = systematic(joint_BNK.flatten(1), n, offset)
        place, code = chosen_BM // codes, chosen_BM % codes
        sums = state.sums_BNKS.flatten(1, 2)
        sums = sums.gather(1, chosen_BM[..., None].expand(-1, -1, sums.shape[-1])).float()
        return Pairs(self.candidates_NX[place], code, self.likelihood.network.points[code], sums, place)
