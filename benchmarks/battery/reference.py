"""Exact Bayes for families with a known likelihood: sequential Monte Carlo, and a one-step lookahead.

It shares no inference with the library. Every episode has its own weighted draws of the hidden numbers, first from the
prior. Where an observation leaves too few of them with weight, it is let in by powers, and after each the draws are
chosen anew and moved by Metropolis steps with the true likelihood of the whole history. The hidden numbers of the families
here are independent, so that a quantile transform of each makes the prior standard normal, whatever its shape.

Shapes: B episodes, N draws, P hidden numbers, T observations, A candidate queries, M draws that a lookahead compares on,
J outcomes, Q query, Y observation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch
from families import Family
from torch import Generator, Tensor

from cicpe.beliefs.base import Assessment, Belief
from cicpe.spaces import Space

WIDTH, RELATIVE_WIDTH = 0.5, 0.15
"""Width of the kernel on answers, in the smallest epsilon and in the posterior's spread."""


LEAST = 0.25
"""Share of the draws that has to keep weight, by their effective number; else they are moved."""
KEPT = 0.5
"""The same after each power of an observation."""
MOVES, MOVES_EACH, FEW_NUMBERS = 8, 4, 3
"""Metropolis steps after each power; so many per hidden number where there are more than a few."""
FEW_VALUES = 64
"""A hidden number with at most so many values is discrete."""


class ReferenceState(NamedTuple):
    latent_BNP: Tensor
    log_BN: Tensor
    query_BTQ: Tensor
    observation_BTY: Tensor
    time_B: Tensor


def systematic(weight_BN: Tensor, n: int, offset: float) -> Tensor:
    total = weight_BN.cumsum(dim=-1)
    ticks = (torch.arange(n, dtype=torch.float64) + offset) / n * total[:, -1:]
    return torch.searchsorted(total, ticks).clamp_max(weight_BN.shape[-1] - 1)


def effective(log_N: Tensor) -> float:
    """How many draws carry the weight."""
    return float(1 / torch.softmax(log_N, dim=-1).square().sum())


@dataclass(frozen=True)
class ExactBayes(Belief):
    """The posterior by sequential Monte Carlo; queries for information about the answer."""

    problem: Family
    horizon: int
    aim: float
    draws: int = 4096
    quantiles: int = 200_000
    lookahead: int = 128
    candidates: int = 48
    outcomes: int = 16
    most_at_once: int = 64
    least: list[float] = field(default_factory=lambda: [math.inf])
    """The least effective number of draws so far that a decision was made on."""

    @property
    def query_space(self) -> Space:
        return self.problem.query_space

    @property
    def answer_space(self) -> Space:
        return self.problem.answer_space

    @cached_property
    def _sorted_PN(self) -> Tensor:
        """The values of every hidden number under the prior, from the least up."""
        return self.problem.sample(self.quantiles, torch.Generator().manual_seed(11)).T.sort(dim=1).values.contiguous()

    @cached_property
    def _discrete_P(self) -> Tensor:
        return torch.tensor([len(values.unique()) <= FEW_VALUES for values in self._sorted_PN])

    def task(self, latent_NP: Tensor) -> Tensor:
        """The hidden numbers at standard normal coordinates."""
        known = self._sorted_PN
        place_PN = torch.special.ndtr(latent_NP.T.contiguous()) * (known.shape[1] - 1)
        low_PN = place_PN.long().clamp(0, known.shape[1] - 2)
        below, above = known.gather(1, low_PN), known.gather(1, low_PN + 1)
        between = below + (place_PN - low_PN).float() * (above - below)
        return torch.where(self._discrete_P[:, None], below, between).T

    @cached_property
    def _prior(self) -> Tensor:
        """Latent draws from the prior in the order of their answers, so that systematic draws are stratified by them."""
        latent = torch.randn((self.draws, len(self._sorted_PN)), generator=torch.Generator().manual_seed(12))
        return self._in_order(latent.double())

    def _in_order(self, latent_NP: Tensor) -> Tensor:
        return latent_NP[self.problem.target(self.task(latent_NP))[:, 0].argsort()]

    def begin(self, context: Tensor) -> ReferenceState:
        b, problem = len(context), self.problem
        latent = self._prior.expand(b, -1, -1)
        if problem.known:
            latent = latent.clone()
            for i, number in enumerate(problem.known):
                rank = torch.searchsorted(self._sorted_PN[number], context[:, i].contiguous()) + 0.5
                latent[:, :, number] = torch.special.ndtri(rank.double() / (self.quantiles + 1))[:, None]
        return ReferenceState(
            latent,
            torch.zeros(b, self.draws, dtype=torch.float64),
            torch.zeros(b, 0, problem.query_space.dim),
            torch.zeros(b, 0, problem.observation_dim),
            torch.zeros(b, dtype=torch.long),
        )

    def update(self, state: ReferenceState, query: Tensor, observation: Tensor) -> ReferenceState:
        queries = torch.cat([state.query_BTQ, query[:, None]], dim=1)
        seen = torch.cat([state.observation_BTY, observation[:, None]], dim=1)
        parts = [
            self._updated(*episode, int(time))
            for *episode, time in zip(state.latent_BNP, state.log_BN, queries, seen, state.time_B, strict=True)
        ]
        latent, log = (torch.stack(column) for column in zip(*parts, strict=True))
        return ReferenceState(latent, log, queries, seen, state.time_B + 1)

    def _updated(self, latent: Tensor, log: Tensor, query: Tensor, seen: Tensor, time: int) -> tuple[Tensor, Tensor]:
        """Draws and log weights of one episode after its last observation."""
        gain = self._log_p(latent, query[-1:], seen[-1:])
        if effective(log + gain) >= LEAST * self.draws:
            return latent, log + gain
        rng, phi = torch.Generator().manual_seed(1000 + time), 0.0
        while phi < 1:
            step = self._step(log, gain, 1 - phi)
            phi = 1.0 if step >= 1 - phi else phi + step
            chosen = systematic(torch.softmax(log + step * gain, dim=-1)[None], self.draws, 0.5)[0]
            latent = self._moved(latent[chosen], query, seen, phi, rng)
            log, gain = torch.zeros_like(log), self._log_p(latent, query[-1:], seen[-1:])
        return self._in_order(latent), log

    def _step(self, log: Tensor, gain: Tensor, left: float) -> float:
        """How much of what is left of an observation can be let in at once."""
        if effective(log + left * gain) >= KEPT * self.draws:
            return left
        low, high = 0.0, left
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (middle, high) if effective(log + middle * gain) >= KEPT * self.draws else (low, middle)
        return max(low, 1e-4)

    def _moved(self, latent: Tensor, query: Tensor, seen: Tensor, phi: float, rng: Generator) -> Tensor:
        """Metropolis steps along differences of other draws, for the prior and the history up to a power of its last."""
        n, p = latent.shape
        at = self._log_posterior(latent, query, seen, phi)
        for step in range(MOVES if p <= FEW_NUMBERS else MOVES_EACH * p):
            first, second = (latent[torch.randperm(n, generator=rng)] for _ in range(2))
            size = 1.0 if step % 4 == 3 else 2.38 / math.sqrt(2 * p) * float(torch.rand((), generator=rng) + 0.3)
            asked = (
                latent + size * (first - second) + 1e-3 * torch.randn(latent.shape, generator=rng, dtype=latent.dtype)
            )
            asked[:, list(self.problem.known)] = latent[:, list(self.problem.known)]
            value = self._log_posterior(asked, query, seen, phi)
            accepted = torch.rand(n, generator=rng, dtype=torch.float64).log() < value - at
            latent, at = torch.where(accepted[:, None], asked, latent), torch.where(accepted, value, at)
        return latent

    def _log_posterior(self, latent: Tensor, query: Tensor, seen: Tensor, phi: float) -> Tensor:
        before = self._log_p(latent, query[:-1], seen[:-1]) + phi * self._log_p(latent, query[-1:], seen[-1:])
        return before - 0.5 * latent.square().sum(dim=-1)

    def _log_p(self, latent_NP: Tensor, query_TQ: Tensor, seen_TY: Tensor) -> Tensor:
        """The log-likelihood of some observations at every draw."""
        task = self.task(latent_NP)
        if len(query_TQ) == 0:
            return torch.zeros(len(task), dtype=torch.float64)
        return self.problem.log_p(task[None], query_TQ[:, None], seen_TY[:, None]).double().sum(dim=0)

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def sample_answers(self, state: ReferenceState, n: int, rng: Generator) -> Tensor:
        chosen = systematic(torch.softmax(state.log_BN, dim=-1), n, float(torch.rand((), generator=rng)))
        rows = [self.task(latent[place]) for latent, place in zip(state.latent_BNP, chosen, strict=True)]
        return torch.stack([self.problem.target(row) for row in rows])

    @torch.no_grad()
    def assess(
        self,
        state: ReferenceState,
        epsilons: Sequence[float],
        rng: Generator,
        query_spread: float = 0.0,
        costs: Sequence[Tensor] = (),
    ) -> Assessment:
        numbers = torch.Generator().manual_seed(int(torch.randint(2**31, (), generator=rng)))
        parts = [
            self._assess(latent, log, epsilons, numbers.clone_state())
            for latent, log in zip(state.latent_BNP, state.log_BN, strict=True)
        ]
        query, answers, confidence, std = (torch.stack(column) for column in zip(*parts, strict=True))
        none = torch.zeros(len(epsilons), 0, len(query))
        return Assessment(state.time_B, query[:, None], answers.transpose(0, 1), confidence.T, confidence.T, none, std)

    def _assess(
        self, latent_NP: Tensor, log_N: Tensor, epsilons: Sequence[float], rng: Generator
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        weight = torch.softmax(log_N, dim=-1)
        self.least[0] = min(self.least[0], effective(log_N))
        offset = float(torch.rand((), generator=rng))
        task = self.task(latent_NP[systematic(weight[None], 1024, offset)[0]])
        target = self.problem.target(task)
        best = [self._recommend(task, target, epsilon) for epsilon in epsilons]
        few = self.task(latent_NP[systematic(weight[None], self.lookahead, offset)[0]])
        query = self._query(few, self.problem.target(few), target.std(dim=0), best[0][0], rng)
        answers, shares = zip(*best, strict=True)
        return query, torch.stack(answers), torch.stack(shares).float(), target.std(dim=0)

    def _losses(self, task: Tensor, answer: Tensor) -> Tensor:
        """The loss of every answer on every task: answers x tasks."""
        if self.problem.has_distance_loss:
            return torch.cdist(answer, self.problem.target(task))
        rows = [self.problem.loss(task, one.expand(len(task), -1)) for one in answer]
        return torch.stack(rows)

    def _recommend(self, task: Tensor, target: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        answers = torch.cat([target.mean(dim=0, keepdim=True), target[:: len(target) // 64]])
        for _ in range(3):
            hits = (self._losses(task, answers) <= epsilon).float()
            top = hits.mean(dim=1).topk(6).indices
            shifted = hits[top] @ target / hits[top].sum(dim=1, keepdim=True).clamp_min(1)
            answers = torch.cat([answers[top], shifted])
        share, place = (self._losses(task, answers) <= epsilon).float().mean(dim=1).max(dim=0)
        return answers[place], share

    def _query(self, task: Tensor, target: Tensor, std: Tensor, best: Tensor, rng: Generator) -> Tensor:
        space, (m, j) = self.problem.query_space, (self.lookahead, self.outcomes)
        asked = space.sample(self.candidates, rng)
        if space.dim == 1:
            low, high = (space.from_unit(torch.tensor([end])) for end in (-1.0, 1.0))
            asked = low + (high - low) * (torch.arange(128)[:, None] + 0.5) / 128
        elif space.dim == self.problem.answer_space.dim:
            own = target[torch.randperm(m, generator=rng)[:16]]
            size = torch.linalg.vector_norm(own - best, dim=-1, keepdim=True) / math.sqrt(space.dim)
            about = best + 3 * torch.rand((16, 1), generator=rng) * size * torch.randn(own.shape, generator=rng)
            asked = torch.cat([asked, space.project(own), space.project(about)])
        a = len(asked)
        which = (torch.arange(j) * m) // j + m // (2 * j)
        pairs = task[which].repeat(a, 1), asked.repeat_interleave(j, dim=0)
        y = self.problem.observe(*pairs, rng).reshape(a, j, -1)
        values = y.unique()
        listed = y.shape[-1] == 1 and len(values) <= 8
        if listed:
            y = values.view(1, -1, 1).expand(a, -1, -1)
        log_p = self.problem.log_p(task[None, None], asked[:, None, None], y[:, :, None])
        share = log_p.exp().mean(dim=-1) if listed else torch.full((a, j), 1 / j)
        weight = torch.softmax(log_p, dim=-1)
        smooth = (weight @ self._kernel(task, target, std)).clamp_min(1e-12)
        left = (share * -(weight * smooth.log()).sum(dim=-1)).sum(dim=-1)
        return asked[left.argmin()]

    def _kernel(self, task: Tensor, target: Tensor, std: Tensor) -> Tensor:
        width = WIDTH * self.aim + RELATIVE_WIDTH * float(torch.linalg.vector_norm(std))
        return 1 / (1 + (self._losses(task, target) / width).square())
