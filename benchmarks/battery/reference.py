"""Exact Bayes for families with a known likelihood: weighted draws from the prior, and a one-step lookahead.

It shares no inference with the library: importance sampling from the prior with the true likelihood, which is exact as
long as enough draws keep weight. Where they do not, the least effective size of the run says so.

Shapes: B episodes, N draws from the prior, A candidate queries, M draws that a lookahead compares on, J outcomes.
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


class ReferenceState(NamedTuple):
    log_BN: Tensor
    time_B: Tensor


def systematic(weight_BN: Tensor, n: int, offset: float) -> Tensor:
    total = weight_BN.cumsum(dim=-1)
    ticks = (torch.arange(n, dtype=torch.float64) + offset) / n * total[:, -1:]
    return torch.searchsorted(total, ticks).clamp_max(weight_BN.shape[-1] - 1)


@dataclass(frozen=True)
class ExactBayes(Belief):
    """The posterior by importance sampling from the prior; queries for information about the answer."""

    problem: Family
    horizon: int
    aim: float
    draws: int = 60_000
    lookahead: int = 128
    candidates: int = 48
    outcomes: int = 16
    most_at_once: int = 64
    least: list[float] = field(default_factory=lambda: [math.inf])
    """The least effective number of draws so far."""

    @property
    def query_space(self) -> Space:
        return self.problem.query_space

    @property
    def answer_space(self) -> Space:
        return self.problem.answer_space

    @cached_property
    def task(self) -> Tensor:
        task = self.problem.sample(self.draws, torch.Generator().manual_seed(11))
        return task[self.problem.target(task)[:, 0].argsort()]  # so that systematic draws are stratified by the answer

    @cached_property
    def target(self) -> Tensor:
        return self.problem.target(self.task)

    def begin(self, context: Tensor) -> ReferenceState:
        zeros = torch.zeros(len(context), self.draws, dtype=torch.float64)
        return ReferenceState(zeros, torch.zeros(len(context), dtype=torch.long))

    def update(self, state: ReferenceState, query: Tensor, observation: Tensor) -> ReferenceState:
        parts = [self.problem.log_p(self.task, q[None], y[None]) for q, y in zip(query, observation, strict=True)]
        return ReferenceState(state.log_BN + torch.stack(parts).double(), state.time_B + 1)

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def sample_answers(self, state: ReferenceState, n: int, rng: Generator) -> Tensor:
        return self.target[systematic(torch.softmax(state.log_BN, dim=-1), n, float(torch.rand((), generator=rng)))]

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
        parts = [self._assess(log_N, epsilons, numbers.clone_state()) for log_N in state.log_BN]
        query, answers, confidence, std = (torch.stack(column) for column in zip(*parts, strict=True))
        none = torch.zeros(len(epsilons), 0, len(query))
        return Assessment(state.time_B, query[:, None], answers.transpose(0, 1), confidence.T, confidence.T, none, std)

    def _assess(
        self, log_N: Tensor, epsilons: Sequence[float], rng: Generator
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        weight = torch.softmax(log_N, dim=-1)
        self.least[0] = min(self.least[0], float(1 / weight.square().sum()))
        offset = float(torch.rand((), generator=rng))
        chosen = systematic(weight[None], 1024, offset)[0]
        task, target = self.task[chosen], self.target[chosen]
        best = [self._recommend(task, target, epsilon) for epsilon in epsilons]
        few = systematic(weight[None], self.lookahead, offset)[0]
        query = self._query(self.task[few], self.target[few], target.std(dim=0), best[0][0], rng)
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
