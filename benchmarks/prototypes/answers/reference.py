"""Exact-Bayes references: weighted draws from the prior with the true likelihood, and the same lookahead.

Shapes: B episodes, N draws from the prior, A candidate queries, M pairs, J outcomes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from battery import Family
from belief import Assessment, _mean_shift, even_points
from closeness import Closeness
from queries import answer_kernel, uncertainty
from search import systematic
from torch import Generator, Tensor


class ReferenceState(NamedTuple):
    """Log-likelihoods of every draw."""

    log_BN: Tensor
    time_B: Tensor


@dataclass(frozen=True)
class PriorDraws:
    """Importance sampling from the prior with the true likelihood: exact as long as enough draws keep weight."""

    problem: Family
    aim: float
    draws: int = 8_000
    pairs: int = 128
    candidates: int = 48
    outcomes: int = 16
    goal: str = "information"
    width: float = 0.5
    relative_width: float = 0.15
    local: bool = True

    @cached_property
    def task(self) -> Tensor:
        return self.problem.sample(self.draws, torch.Generator().manual_seed(11))

    @cached_property
    def target(self) -> Tensor:
        return self.problem.target(self.task)

    @cached_property
    def closeness(self) -> Closeness:
        return Closeness(self.problem, torch.Generator().manual_seed(3))

    def begin(self, context: Tensor) -> ReferenceState:
        return ReferenceState(torch.zeros(len(context), self.draws), torch.zeros(len(context), dtype=torch.long))

    def observe(self, state: ReferenceState, query: Tensor, observation: Tensor) -> ReferenceState:
        parts = [
            self.problem.log_p(self.task, q[:, None], y[:, None])
            for q, y in zip(query.split(16), observation.split(16), strict=False)
        ]
        return ReferenceState(state.log_BN + torch.cat(parts), state.time_B + 1)

    @torch.no_grad()
    def assess(
        self, state: ReferenceState, epsilons: Sequence[float], rng: Generator, query: bool = True
    ) -> Assessment:
        numbers = {
            "offset": float(torch.rand((), generator=rng)),
            "even": self.problem.query_space.from_unit(
                even_points(self.problem.query_space, self.candidates, int(torch.randint(2**31, (), generator=rng)))
            ),
            "seed": int(torch.randint(2**31, (), generator=rng)),
            "normal": torch.randn((self.candidates, self.problem.query_space.dim), generator=rng),
            "length": torch.rand((self.candidates, 1), generator=rng),
        }
        parts = [self._assess(some, epsilons, numbers, query) for some in state.log_BN.split(8)]
        asked, recommendation, confidence, std = zip(*parts, strict=False)
        return Assessment(torch.cat(asked), torch.cat(recommendation, 1), torch.cat(confidence, 1), torch.cat(std))

    def _assess(self, log_BN: Tensor, epsilons: Sequence[float], numbers: Any, query: bool) -> Assessment:
        weight = torch.softmax(log_BN.double(), dim=-1)
        order = self.target[:, 0].argsort()
        if self.target.shape[1] == 1:
            weight = weight[:, order]
        else:
            order = torch.arange(self.draws)
        chosen = order[systematic(weight, 1024, numbers["offset"])]
        space = self.problem.answer_space
        some = space.to_unit(self.target[chosen])
        even = torch.full(some.shape[:2], 1 / 1024)
        found = [_mean_shift(self.closeness, space, some, even, eps) for eps in epsilons]
        recommendation = (
            torch.stack([space.from_unit(best) for best, _ in found]) if found else torch.zeros(0, len(some), space.dim)
        )
        confidence = torch.stack([c for _, c in found]) if found else torch.zeros(0, len(some))
        std = some.std(dim=1) * space.unit_scale
        asked = (
            self._query(order[systematic(weight, self.pairs, numbers["offset"])], std, numbers, recommendation)
            if query
            else torch.zeros(len(some), self.problem.query_space.dim)
        )
        return Assessment(asked, recommendation, confidence, std)

    def _query(self, chosen_BM: Tensor, std: Tensor, numbers: Any, recommendation: Tensor) -> Tensor:
        task, target = self.task[chosen_BM], self.target[chosen_BM]
        query_BAQ = numbers["even"].expand(len(task), -1, -1)
        space = self.problem.query_space
        if self.local and space.dim == self.problem.answer_space.dim:
            third = self.candidates // 3
            own = target[:, (torch.arange(third) * target.shape[1]) // third]
            best = recommendation[0][:, None] if len(recommendation) else target.mean(dim=1, keepdim=True)
            size = torch.linalg.vector_norm(target[:, torch.arange(third)] - best, dim=-1, keepdim=True)
            about = best + 3 * numbers["length"][:third] * size * numbers["normal"][:third]
            query_BAQ = torch.cat([query_BAQ, space.project(own), space.project(about)], dim=1)
        batch, a = query_BAQ.shape[:2]
        m, j = self.pairs, self.outcomes
        rng = torch.Generator().manual_seed(numbers["seed"])
        which = (torch.arange(j) * m) // j + m // (2 * j)
        tasks = task[:, None, which].expand(-1, a, -1, -1).flatten(0, 2)
        asked = query_BAQ[:, :, None].expand(-1, -1, j, -1).flatten(0, 2)
        y = self.problem.observe(tasks, asked, rng).reshape(batch, a, j, -1)
        share = torch.full((batch, a, j), 1 / j)
        values = y.unique()
        if y.shape[-1] == 1 and len(values) <= 8:
            y = values.view(1, 1, -1, 1).expand(batch, a, -1, -1)
        log_p = self.problem.log_p(task[:, None, None], query_BAQ[:, :, None, None], y[:, :, :, None])
        if y.shape[-1] == 1 and len(values) <= 8:
            share = log_p.exp().mean(dim=-1)
        spread = torch.linalg.vector_norm(std, dim=-1)
        kernel = answer_kernel(target, self.width * self.aim + self.relative_width * spread)
        if self.closeness.network is not None:
            unit = self.problem.answer_space.to_unit(target)
            kernel = self.closeness.success(unit, unit, self.aim).clamp_min(1e-3)
        left = uncertainty(log_p, share, kernel, self.goal)
        return query_BAQ[torch.arange(batch), left.argmin(dim=1)]
