"""Exact Bayes for the peak of a smooth function: Gaussian processes over a grid of length scales and noises, and draws of the whole function.

Draws of the prior are moved to draws of the posterior by Matheron's rule on a lattice of settings; the length scales and the noise of a draw
are picked by their evidence. The peak's posterior is that of the draws' highest places.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, final

import torch
from torch import Generator, Tensor

from cicpe.agents.base import Proposal
from cicpe.experiments.scales import noise_range_of, settable_query
from cicpe.experiments.smooth import WAVES, SmoothExperiment, SmoothTask, length_ranges
from cicpe.gp.exact import condition
from cicpe.gp.kernels import SQUARED_EXPONENTIAL, Kernel
from cicpe.gp.matheron import posterior_draws, whitened_error
from cicpe.statistics import systematic

SEED = 9


class PeakHistory(NamedTuple):
    place_BT: Tensor
    """Indices into the lattice."""
    value_BT: Tensor


@final
@dataclass(frozen=True)
class SmoothPeakBayes:
    """A player with the exact posterior of the function; the next setting is the one that explains most of the peak's place."""

    problem: SmoothExperiment
    epsilon: float
    horizon: int
    side: int = 25
    """Points of the lattice along each setting."""
    levels: int = 4
    """Length scales along each setting, and three quarters as many noises."""
    draws: int = 256
    rule: Literal["explained", "upper"] = "explained"

    @cached_property
    def lattice_LQ(self) -> Tensor:
        settings = self.problem.units.settings
        lines = [torch.linspace(0, one.extent, self.side) for one in settings]
        return settable_query(settings, torch.cartesian_prod(*lines).view(-1, len(lines)))

    @cached_property
    def length_CQ(self) -> Tensor:
        """Length scales in the model's coordinates: middles of equal factors of their ranges."""
        plan, settings = self.problem.plan, self.problem.units.settings
        ranges = zip(settings, length_ranges(plan), strict=True)
        lines = [_factors(low * one.extent, high * one.extent, self.levels) for one, (low, high) in ranges]
        return torch.cartesian_prod(*lines).view(-1, len(settings))

    @cached_property
    def noise_V(self) -> Tensor:
        """Noises, likewise."""
        readout = self.problem.units.readout
        assert readout is not None
        low, high = (one / abs(readout.scale) for one in noise_range_of(self.problem.plan))
        return _factors(low, high, max(1, 3 * self.levels // 4))

    @cached_property
    def covariance_CLL(self) -> Tensor:
        kernel = Kernel(self.length_CQ, torch.ones(len(self.length_CQ)), SQUARED_EXPONENTIAL)
        return kernel.covariance(self.lattice_LQ, self.lattice_LQ)

    @cached_property
    def prior_CJL(self) -> Tensor:
        """Functions of every length scale on the lattice, of the family's own form."""
        rng = torch.Generator().manual_seed(SEED)
        dim, shape = self.length_CQ.shape[1], (self.draws, WAVES)
        white = torch.randn((*shape, dim), generator=rng)
        cosine, sine = (torch.randn(shape, generator=rng)[:, None] / WAVES**0.5 for _ in range(2))
        tasks = [
            SmoothTask((white / length)[:, None], cosine, sine, torch.zeros(1), torch.zeros(1, dim))
            for length in self.length_CQ
        ]
        return torch.stack([self.problem.value(task, self.lattice_LQ) for task in tasks])

    def begin(self, context: Tensor) -> PeakHistory:
        return PeakHistory(torch.zeros(len(context), 0, dtype=torch.long), torch.zeros(len(context), 0))

    def observe(self, state: PeakHistory, query: Tensor, observation: Tensor) -> PeakHistory:
        place = torch.cdist(query[:, 0], self.lattice_LQ).argmin(dim=1)
        return PeakHistory(
            torch.cat([state.place_BT, place[:, None]], dim=1), torch.cat([state.value_BT, observation[:, 0]], dim=1)
        )

    def propose(self, state: PeakHistory, rng: Generator) -> Proposal:
        rows = [self._assess(place, value, rng) for place, value in zip(*state, strict=True)]
        query, answer, confidence, std = (torch.stack(column) for column in zip(*rows, strict=True))
        return Proposal(query[:, None], confidence > 2, answer, confidence, std)

    def _assess(self, place_T: Tensor, value_T: Tensor, rng: Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        value_JL, noise = self.posterior(place_T, value_T, rng)
        peak_JQ = self.lattice_LQ[value_JL.argmax(dim=1)]
        near_LJ = self.problem.answer_space.distance(self.lattice_LQ[:, None], peak_JQ) <= self.epsilon
        confidence = near_LJ.float().mean(dim=1)
        # Of all places that as many draws are near to, their middle.
        best = confidence >= confidence.max() - 1e-6
        answer = self.lattice_LQ[best].mean(dim=0)
        return self.lattice_LQ[self._next(value_JL, peak_JQ, noise)], answer, confidence.max(), peak_JQ.std(dim=0)

    def posterior(self, place_T: Tensor, value_T: Tensor, rng: Generator) -> tuple[Tensor, Tensor]:
        """Draws of the function on the lattice, J x L, and the mean variance of the noise."""
        inside = self.covariance_CLL[:, place_T][:, :, place_T]
        found = condition(inside[:, None], self.noise_V.square() + 1e-6, value_T)
        weight_CV = torch.softmax(found.log_evidence().double().flatten(), dim=0).view(-1, len(self.noise_V))
        chosen = systematic(weight_CV.view(1, -1), self.draws, float(torch.rand((), generator=rng)))[0]
        chosen = chosen[torch.randperm(self.draws, generator=rng)]
        length, level = chosen // len(self.noise_V), chosen % len(self.noise_V)
        prior_JL = self.prior_CJL[length, torch.arange(self.draws)]
        noise = self.noise_V[level, None] * torch.randn((self.draws, len(place_T)), generator=rng)
        moved = torch.empty_like(prior_JL)
        for pair in chosen.unique():
            own, c, v = chosen == pair, pair // len(self.noise_V), pair % len(self.noise_V)
            error = whitened_error(found.root[c, v], value_T, prior_JL[own][:, place_T], noise[own])
            rows = found.at(c, v).whiten(self.covariance_CLL[c][place_T])
            moved[own] = posterior_draws(prior_JL[own], error, rows)
        return moved, weight_CV.sum(dim=0).float() @ self.noise_V.square()

    def _next(self, value_JL: Tensor, peak_JQ: Tensor, noise: Tensor) -> Tensor:
        """The place whose value explains most of where the peak is; or with the highest mean plus two standard deviations."""
        if self.rule == "upper":
            return (value_JL.mean(dim=0) + 2 * value_JL.std(dim=0)).argmax()
        centred, off = value_JL - value_JL.mean(dim=0), peak_JQ - peak_JQ.mean(dim=0)
        together = (off.T @ centred).square().sum(dim=0)
        return (together / (centred.square().sum(dim=0) + self.draws * noise)).argmax()


def _factors(low: float, high: float, n: int) -> Tensor:
    """Middles of ``n`` equal factors of a range."""
    return low * (high / low) ** ((torch.arange(n) + 0.5) / n)
