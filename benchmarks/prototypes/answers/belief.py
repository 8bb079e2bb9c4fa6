"""The general belief: a posterior over answers from simulations alone.

``AnswerBelief`` has ``begin``, ``observe`` and ``assess``; its state is a tree of tensors with the episode first.

Shapes: B episodes, N candidates, K codes, A candidate queries, M pairs, J outcomes, Q query, X answer, Y
observation, E epsilons.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import torch
from closeness import Closeness
from jaxtyping import Float, Int
from particles import ParticleSearch, ParticleState
from queries import answer_kernel, remaining_uncertainty
from search import GridSearch, GridState, Likelihood, Pairs
from torch import Generator, Tensor

from cicpe import trees
from cicpe.problems.base import Problem
from cicpe.spaces import Space, Sphere

State = GridState | ParticleState


class Assessment(NamedTuple):
    """What a belief makes of its histories."""

    query: Float[Tensor, "B Q"]
    recommendation: Float[Tensor, "E B X"]
    confidence: Float[Tensor, "E B"]
    std: Float[Tensor, "B X"]


@final
@dataclass(frozen=True)
class BeliefConfig:
    """How queries are chosen."""

    candidates: int = 48
    """Queries that are compared at a step."""
    stride: int = 4
    """On a line every ``stride``-th query of the table is compared first, and then the best one's neighbours."""
    table: int = 128
    """Queries of the table that a grid keeps where the context is the same for all episodes."""
    pairs: int = 128
    """Draws from the posterior that queries are compared on."""
    outcomes: int = 16
    """Outcomes a query, where they cannot be listed."""
    goal: str = "information"
    """What a query is chosen for: information, agreement or success."""
    width: float = 0.5
    """Width of the kernel on answers in the smallest epsilon."""
    relative_width: float = 0.15
    """The least width of the kernel in the posterior's own spread."""
    work: int = 250_000
    """How many (query, outcome, pair) numbers are held at once: what fits a cache."""


def even_points(space: Space, n: int, seed: int = 0) -> Float[Tensor, "n Q"]:
    """Points spread evenly over a space, in its unit coordinates."""
    if space.dim == 1:
        return -1 + 2 * (torch.arange(n)[:, None] + 0.5) / n
    if isinstance(space, Sphere):
        return space.sample(n, torch.Generator().manual_seed(seed))
    sobol = torch.quasirandom.SobolEngine(space.dim, scramble=True, seed=seed)
    return sobol.draw(n) * 2 - 1


@final
@dataclass(frozen=True)
class AnswerBelief:
    """A posterior over candidate answers under a learned likelihood."""

    likelihood: Likelihood
    search: GridSearch | ParticleSearch
    closeness: Closeness
    aim: float
    """The epsilon that queries are chosen for."""
    fixed_context: Tensor | None
    """The context, where all tasks have the same."""
    config: BeliefConfig = BeliefConfig()

    @property
    def problem(self) -> Problem:
        """The family."""
        return self.likelihood.problem

    # ------------------------------------------------------------ a table of queries for grids

    @cached_property
    def table_queries(self) -> Float[Tensor, "A Q"] | None:
        """Queries whose head parameters are kept for every candidate and code, in unit coordinates."""
        if not isinstance(self.search, GridSearch) or self.fixed_context is None:
            return None
        space = self.problem.query_space
        return even_points(space, self.config.table if space.dim == 1 else 2 * self.config.table)

    @cached_property
    def table_ANKP(self) -> Float[Tensor, "A N K P"]:
        """Head parameters of the table's queries."""
        assert self.table_queries is not None
        assert isinstance(self.search, GridSearch)
        assert self.fixed_context is not None
        with torch.no_grad():
            parts = [
                self.search.parameters(some, self.fixed_context.expand(len(some), -1))
                for some in self.table_queries.split(1)
            ]
        return torch.cat(parts)

    @cached_property
    def _together(self) -> int:
        """How many episodes are assessed at once."""
        listed = self.likelihood.heads.listed()
        outcomes = self.config.outcomes if listed is None else len(listed)
        return max(1, min(32, self.config.work // (self.config.candidates * outcomes * self.config.pairs)))

    # ------------------------------------------------------------ the interface

    def begin(self, context: Float[Tensor, "B C"]) -> State:
        """The state of a batch of episodes before their first query."""
        return self.search.begin(context)

    @torch.no_grad()
    def observe(self, state: Any, query: Float[Tensor, "B Q"], observation: Float[Tensor, "B Y"]) -> State:
        """The state after the observations of the queries."""
        unit = self.problem.query_space.to_unit(query)
        encoded = self.likelihood.heads.encode(observation)
        if isinstance(self.search, ParticleSearch):
            parts = []
            for rows in torch.arange(len(unit)).split(32):
                parts.append(self.search.observe(trees.select(state, rows), unit[rows], encoded[rows]))
            return trees.concatenate(parts)
        parts = []
        for rows in torch.arange(len(unit)).split(64):
            some = trees.select(state, rows)
            parts.append(self.search.observe(some, self._parameters(unit[rows], some.context_BC), encoded[rows]))
        return trees.concatenate(parts)

    def _parameters(self, unit_BQ: Tensor, context_BC: Tensor) -> Float[Tensor, "B N K P"]:
        """Head parameters at one query an episode, from the table where the query is one of its own."""
        assert isinstance(self.search, GridSearch)
        if self.table_queries is not None:
            least_B, place_B = (unit_BQ[:, None] - self.table_queries).abs().amax(dim=-1).min(dim=1)
            found = self.table_ANKP[place_B]
            other = (least_B > 1e-5).nonzero()[:, 0]
            if len(other):
                found[other] = self.search.parameters(unit_BQ[other], context_BC[other])
            return found
        return self.search.parameters(unit_BQ, context_BC)

    @torch.no_grad()
    def assess(self, state: Any, epsilons: Sequence[float], rng: Generator, query: bool = True) -> Assessment:
        """The next query, and for each epsilon what to recommend with which confidence."""
        numbers = _Numbers.draw(self.config, self.problem, rng)
        rows = torch.arange(len(state.time_B)).split(self._together)
        parts = [self._assess(trees.select(state, some), epsilons, numbers, query) for some in rows]
        asked, recommendation, confidence, std = zip(*parts, strict=True)
        return Assessment(
            torch.cat(asked), torch.cat(recommendation, dim=1), torch.cat(confidence, dim=1), torch.cat(std)
        )

    def _assess(self, state: Any, epsilons: Sequence[float], numbers: "_Numbers", query: bool) -> Assessment:
        answer_BNX, weight_BN, joint = self.search.posterior(state)
        found = [self._recommend(answer_BNX, weight_BN, epsilon) for epsilon in epsilons]
        none = torch.zeros(0, len(weight_BN), self.problem.answer_space.dim)
        recommendation = (
            torch.stack([self.problem.answer_space.from_unit(best) for best, _ in found]) if found else none
        )
        confidence = torch.stack([share for _, share in found]).float() if found else none[..., 0]
        mean_BX = (weight_BN[..., None] * answer_BNX).sum(dim=1)
        std_BX = (
            (weight_BN[..., None] * (answer_BNX - mean_BX[:, None]).square()).sum(dim=1).clamp_min(0).sqrt().float()
        )
        asked = (
            self._query(state, joint, numbers, std_BX, mean_BX.float())
            if query
            else torch.zeros(len(std_BX), self.problem.query_space.dim)
        )
        std = std_BX * self.problem.answer_space.unit_scale
        return Assessment(asked, recommendation, confidence, std)

    @torch.no_grad()
    def sample_answers(self, state: Any, n: int, rng: Generator) -> Float[Tensor, "B n X"]:
        """Draws of the target from the posterior of each history."""
        _, _, joint = self.search.posterior(state)
        pairs = self.search.pairs(state, joint, n, float(torch.rand((), generator=rng)))
        order = torch.randperm(n, generator=rng)
        return self.problem.answer_space.from_unit(pairs.answer_BMX[:, order])

    # ------------------------------------------------------------ recommendations

    @cached_property
    def _grid_success(self) -> dict[float, Tensor]:
        return {}

    def _recommend(self, answer_BNX: Tensor, weight_BN: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        """The answer (in unit coordinates) with the largest posterior mass of success, and that mass."""
        if isinstance(self.search, GridSearch):
            candidates = self.search.candidates_NX
            if epsilon not in self._grid_success:
                soft = self.search.step * float(self.problem.answer_space.unit_scale[0])
                success = self.closeness.success(candidates[None], candidates[None], epsilon, soft)[0]
                self._grid_success[epsilon] = success.double()
            mass_BN = weight_BN @ self._grid_success[epsilon].T
            mean = (weight_BN[..., None] * candidates).sum(dim=1, keepdim=True)
            # Where many answers are as good, the one nearest to the mean.
            apart = torch.linalg.vector_norm(candidates - mean, dim=-1)
            best = (mass_BN - 1e-4 * apart).argmax(dim=1)
            return candidates[best], mass_BN.gather(1, best[:, None])[:, 0].clamp(0, 1)
        return _mean_shift(self.closeness, self.problem.answer_space, answer_BNX, weight_BN.float(), epsilon)

    # ------------------------------------------------------------ queries

    def _bandwidth(self, std_BX: Tensor) -> Float[Tensor, " B"]:
        """Width of the kernel on answers, in raw coordinates."""
        space = self.problem.answer_space
        reach = math.sqrt(2 * self.aim) if isinstance(space, Sphere) else self.aim
        spread = torch.linalg.vector_norm(std_BX * space.unit_scale, dim=-1)
        return (self.config.width * reach + self.config.relative_width * spread).float()

    def _kernel(self, pairs: Pairs, std_BX: Tensor) -> Float[Tensor, "B M M"]:
        if self.closeness.network is not None:
            return self.closeness.success(pairs.answer_BMX, pairs.answer_BMX, self.aim).clamp_min(1e-3)
        raw = self.problem.answer_space.from_unit(pairs.answer_BMX)
        return answer_kernel(raw, self._bandwidth(std_BX))

    def _query(self, state: Any, joint: Tensor, numbers: "_Numbers", std_BX: Tensor, best_BX: Tensor) -> Tensor:
        pairs = self.search.pairs(state, joint, self.config.pairs, numbers.offset)
        kernel = self._kernel(pairs, std_BX)
        heads = self.likelihood.heads
        rows = torch.arange(len(std_BX))
        space = self.problem.query_space
        if self.table_queries is not None:
            return space.from_unit(self.table_queries[self._best_of_table(pairs, kernel, numbers)])
        unit_BAQ = self._candidates(pairs, numbers, best_BX)
        network = self.likelihood.network
        code = pairs.vector_BMD[:, None]
        parameters = network(unit_BAQ[:, :, None], pairs.answer_BMX[:, None], state.context_BC[:, None, None], code)
        predictive = heads.predictive(parameters, pairs.sums_BMS[:, None])
        left = remaining_uncertainty(heads, predictive, kernel, numbers.uniform_JY2, self.config.goal)
        return space.from_unit(unit_BAQ[rows, left.argmin(dim=1)])

    def _best_of_table(self, pairs: Pairs, kernel_BMM: Tensor, numbers: "_Numbers") -> Int[Tensor, " B"]:
        """The place in the table of the query that leaves least uncertainty."""
        heads, rows = self.likelihood.heads, torch.arange(len(kernel_BMM))
        flat = self.table_ANKP.flatten(1, 2)
        place_BM = pairs.place_BM * self.table_ANKP.shape[2] + pairs.code_BM

        def best(chosen_BA: Tensor) -> Tensor:
            predictive = heads.predictive(flat[chosen_BA[:, :, None], place_BM[:, None]], pairs.sums_BMS[:, None])
            left = remaining_uncertainty(heads, predictive, kernel_BMM, numbers.uniform_JY2, self.config.goal)
            return chosen_BA[rows, left.argmin(dim=1)]

        if self.problem.query_space.dim > 1:
            return best(numbers.order_A[: self.config.candidates].expand(len(rows), -1))
        stride, size = self.config.stride, len(flat)
        coarse = torch.arange(int(numbers.offset * stride), size, stride)
        near = best(coarse.expand(len(rows), -1))[:, None] + torch.arange(1 - stride, stride)
        return best(near.clamp(0, size - 1))

    def _candidates(self, pairs: Pairs, numbers: "_Numbers", best_BX: Tensor) -> Float[Tensor, "B A Q"]:
        """Candidate queries in unit coordinates: even ones, and, where answers may be queried, places about them."""
        space, answers = self.problem.query_space, self.problem.answer_space
        batch, a = len(best_BX), self.config.candidates
        if space.dim != answers.dim:
            return numbers.even_AQ[:a].expand(batch, -1, -1)
        third = a // 3
        m = pairs.answer_BMX.shape[1]
        chosen = (torch.arange(third) * m) // third
        own = answers.from_unit(pairs.answer_BMX[:, chosen])
        best = answers.from_unit(best_BX)[:, None]
        other = answers.from_unit(pairs.answer_BMX[:, (chosen + m // 2) % m])
        size = torch.linalg.vector_norm(other - best, dim=-1, keepdim=True) / math.sqrt(space.dim)
        about = best + 3 * numbers.length_A1[:third] * size * numbers.normal_AQ[:third]
        local = space.to_unit(space.project(torch.cat([own, about], dim=1)))
        return torch.cat([local, numbers.even_AQ[: a - 2 * third].expand(batch, -1, -1)], dim=1)


class _Numbers(NamedTuple):
    """Random numbers of one step, shared by all episodes."""

    offset: float
    uniform_JY2: Tensor
    order_A: Tensor
    even_AQ: Tensor
    length_A1: Tensor
    normal_AQ: Tensor

    @classmethod
    def draw(cls, config: BeliefConfig, problem: Problem, rng: Generator) -> "_Numbers":
        j, a, dim = config.outcomes, config.candidates, problem.query_space.dim
        strata = (torch.arange(j)[:, None, None] + torch.rand((j, problem.observation_dim, 2), generator=rng)) / j
        shuffled = torch.rand((j, problem.observation_dim, 2), generator=rng).argsort(dim=0)
        seed = int(torch.randint(2**31, (), generator=rng))
        return cls(
            offset=float(torch.rand((), generator=rng)),
            uniform_JY2=strata.gather(0, shuffled),
            order_A=torch.randperm(2 * config.table, generator=rng),
            even_AQ=even_points(problem.query_space, a, seed),
            length_A1=torch.rand((a, 1), generator=rng),
            normal_AQ=torch.randn((a, dim), generator=rng),
        )


def _mean_shift(
    closeness: Closeness, space: Space, answer_BNX: Tensor, weight_BN: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """The answer with the largest mass of success among particles, by mean shift from a few of them."""
    n = answer_BNX.shape[1]
    stride = max(1, n // 1024)
    target_BNX, mass_BN = answer_BNX, weight_BN
    if stride > 1:
        chosen = torch.searchsorted(
            weight_BN.cumsum(dim=-1), (torch.arange(768) + 0.5) / 768 * weight_BN.sum(dim=-1, keepdim=True)
        )
        chosen = chosen.clamp_max(n - 1)
        target_BNX = answer_BNX.gather(1, chosen[..., None].expand(-1, -1, answer_BNX.shape[-1]))
        mass_BN = torch.full(target_BNX.shape[:2], 1 / 768)
        n = 768
    starts = torch.linspace(0, n - 1, 32).long()
    # Heavy particles first: systematic places by weight.
    heavy = torch.searchsorted(
        mass_BN.cumsum(dim=-1), (torch.arange(32) + 0.5) / 32 * mass_BN.sum(dim=-1, keepdim=True)
    )
    heavy = heavy.clamp_max(n - 1)
    mean = (mass_BN[..., None] * target_BNX).sum(dim=1, keepdim=True)
    answers = torch.cat(
        [mean, target_BNX[:, starts], target_BNX.gather(1, heavy[..., None].expand(-1, -1, mean.shape[-1]))], dim=1
    )
    if isinstance(space, Sphere):
        answers = space.project(answers)
    hits = closeness.success(answers, target_BNX, epsilon)
    for _ in range(3):
        best = (hits @ mass_BN[..., None])[..., 0].topk(4, dim=1).indices[..., None]
        old = answers.gather(1, best.expand(-1, -1, answers.shape[-1]))
        hits_old = hits.gather(1, best.expand(-1, -1, hits.shape[-1]))
        weight = hits_old * mass_BN[:, None]
        total = weight.sum(dim=-1, keepdim=True)
        shifted = torch.where(total > 1e-9, weight @ target_BNX / total.clamp_min(1e-9), old)
        shifted = space.project(shifted) if isinstance(space, Sphere) else shifted
        answers = torch.cat([old, shifted], dim=1)
        hits = torch.cat([hits_old, closeness.success(shifted, target_BNX, epsilon)], dim=1)
    confidence, best_B = (hits @ mass_BN[..., None])[..., 0].max(dim=1)
    return answers[torch.arange(len(best_B)), best_B], confidence.clamp(0, 1)
