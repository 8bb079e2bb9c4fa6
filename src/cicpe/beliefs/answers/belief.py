"""A posterior over answers under a likelihood that was learned from simulations.

Shapes: B episodes, N candidates, M draws, A candidate queries, J outcomes, Q query, X answer, Y observation.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Generator, Tensor

from cicpe import trees
from cicpe.beliefs.answers.even_queries import EvenQueries, even_points
from cicpe.beliefs.answers.grid import AnswerGridState, GridSearch, ListedTable, QueryTable, WeightedAnswers
from cicpe.beliefs.answers.joint_heads import Heads
from cicpe.beliefs.answers.model import AnswerModel
from cicpe.beliefs.answers.particles import ParticleSearch
from cicpe.beliefs.answers.queries import (
    Goal,
    answer_kernel,
    listed_uncertainty,
    present_uncertainty,
    remaining_uncertainty,
)
from cicpe.beliefs.answers.query_scale import QueryScale
from cicpe.beliefs.answers.recommendation import recommend
from cicpe.beliefs.base import Assessment, Belief
from cicpe.beliefs.predictors import Prediction
from cicpe.config import Config
from cicpe.spaces import Space
from cicpe.statistics import first_of_best

WORK = 250_000
"""Numbers of (query, outcome, draw) that are held at once."""
MANY = 16
"""Episodes from which on a table of queries pays."""
TOGETHER = 16
"""Episodes of a grid that are updated together: what fits a cache."""
LEAST_DOUBT = 1e-3
"""What is left of doubt where all particles agree."""
PLAIN = 0.02
"""Nats per observation that may be lost where queries are compared as if observations were Gaussian, which is quick."""
LEAST_GAIN = 1e-3
"""Uncertainty that the best of the queries that are compared first has to take away; else all are compared."""


@final
class QueryConfig(Config):
    """How queries are chosen."""

    goal: Goal = "information"
    """What a query is to tell."""
    candidates: int = Field(default=40, ge=4, le=10**5)
    """Queries that are compared."""
    stride: int = Field(default=4, ge=1)
    """On a line every ``stride``-th of the even queries is compared first, and then the neighbours of the best."""
    even: int = Field(default=128, ge=4, le=10**5)
    """Even queries on a line."""
    draws: int = Field(default=96, ge=8, le=10**6)
    """Draws from the posterior that queries are compared on."""
    outcomes: int = Field(default=8, ge=2, le=10_000)
    """Outcomes per query, where they cannot be listed."""
    width: float = Field(default=0.5, gt=0)
    """Width of the kernel on answers, in the epsilon that queries are chosen for."""
    relative_width: float = Field(default=0.15, ge=0)
    """What is added to it, in the spread of the posterior."""


def steadied(confidence: Float[Tensor, "*batch"], before: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """A confidence held to the one before it: its doubt is the geometric mean of the two.

    1 - c = sqrt((1 - c_t) (1 - c_{t-1})), each doubt at least ``LEAST_DOUBT``.
    """
    doubts = [(1 - part).clamp_min(LEAST_DOUBT) for part in (confidence, before)]
    return 1 - (doubts[0] * doubts[1]).sqrt()


@final
@dataclass(frozen=True)
class AnswerBelief(Belief):
    """Weighs candidate answers, and queries what would tell most about the right one."""

    model: AnswerModel
    search: GridSearch | ParticleSearch
    horizon: int
    aim: float
    """The epsilon that queries are chosen for."""
    config: QueryConfig = field(default_factory=QueryConfig)
    fixed_context: Tensor | None = None
    """The context, where all tasks have the same."""
    even_queries: int = 0
    """Queries of several coordinates that are compared, the same at every step; 0 where others are drawn at every step.
    On a line they are ``config.even``."""
    steady: bool = False
    """Whether confidence is held to what it was one observation ago: particles that have missed a mode are sure of
    another all of a sudden, and the next observation tells."""
    most_at_once: int = 256

    @property
    def query_space(self) -> Space:
        return self.model.query_space

    @property
    def _scale(self) -> QueryScale:
        return self.model.query_scale

    @property
    def answer_space(self) -> Space:
        return self.model.answer_space

    def tensors(self) -> Mapping[str, Tensor]:
        return self.model.state_dict()

    @torch.no_grad()
    def prepare(self) -> None:
        self._table(make=True)

    def forget(self) -> None:
        if isinstance(self.search, GridSearch):
            self.search.tables.clear()

    def begin(self, context: Float[Tensor, "batch context"]) -> Any:
        return self.search.begin(context)

    @torch.no_grad()
    def update(
        self, state: Any, query: Float[Tensor, "batch query"], observation: Float[Tensor, "batch observation"]
    ) -> Any:
        unit = self._scale.to_unit(query)
        encoded = self.model.heads.encode(observation)
        if isinstance(self.search, ParticleSearch):
            return self.search.observe(state, unit, encoded)
        self._table(make=len(unit) >= MANY)
        weight_BG = torch.empty(state.weight_BG.shape)
        for rows in trees.slices(len(unit), TOGETHER):
            weight_BG[rows] = self._observed(unit[rows], encoded[rows], trees.select(state, rows)).weight_BG
        return state._replace(weight_BG=weight_BG, time_B=state.time_B + 1)

    def random_queries(self, n: int, rng: Generator) -> Float[Tensor, "n query"]:
        # Some of those that are compared, where these stay: others are in no table, and take a network pass each.
        if not self._stay:
            return self._scale.sample(n, rng)
        return self._scale.from_unit(self._even.points_AQ[torch.randint(len(self._even), (n,), generator=rng)])

    # ------------------------------------------------------------ a table of queries for grids

    @property
    def _stay(self) -> bool:
        """Whether the queries that are compared are the same at every step."""
        return self.query_space.dim == 1 or self.even_queries > 0

    @cached_property
    def _even(self) -> EvenQueries:
        """The queries that are compared, where they stay."""
        many = self.config.even if self.query_space.dim == 1 else self.even_queries
        return EvenQueries(self.query_space, many, self.config.stride)

    def _table(self, make: bool) -> QueryTable | ListedTable | None:
        """The table of the even queries, where they are the same at every step.

        Args:
            make: Whether to compute it, where that was not done yet.

        Returns:
            The table; None where there is none, or would be too large.
        """
        if self.fixed_context is None or not isinstance(self.search, GridSearch) or not self._stay:
            return None
        tables, even = self.search.tables, len(self._even)
        if even not in tables and make:
            tables[even] = self.search.tabulate(
                self._even.points_AQ, self.fixed_context, self._even.groups_SW, self._is_plain
            )
        return tables.get(even)

    def _observed(self, unit_BQ: Tensor, encoded_BY: Tensor, state: AnswerGridState) -> AnswerGridState:
        """A grid with one more observation per episode, by the table where there is one that has its query."""
        assert isinstance(self.search, GridSearch)
        table = self._table(make=False)
        if table is not None:
            least_B, place_B = (unit_BQ[:, None] - self._even.points_AQ).abs().amax(dim=-1).min(dim=1)
            if bool((least_B <= 1e-5).all()):
                if isinstance(table, QueryTable):
                    return self.search.observe_by_table(state, table.settled_APG, place_B, encoded_BY)
                outcome_B = self.model.heads.listed_place(encoded_BY)
                return self.search.observe(state, table.likelihood_AJG[place_B, outcome_B])
        likelihood = self.search.likelihood_at(unit_BQ, encoded_BY, state.context_BC, state.weight_BG)
        return self.search.observe(state, likelihood)

    # ------------------------------------------------------------ assessments

    @cached_property
    def _at_once(self) -> int:
        """Episodes that are assessed together: what fits a cache."""
        listed = self.model.heads.listed
        outcomes = self.config.outcomes if listed is None else len(listed)
        compared = max(self.config.candidates, self.even_queries // self.config.stride)
        return max(1, min(32, WORK // (compared * outcomes * self.config.draws)))

    @torch.no_grad()
    def assess(
        self,
        state: Any,
        epsilons: Sequence[float],
        rng: Generator,
        query_spread: float = 0.0,
        costs: Sequence[Float[Tensor, " batch"]] = (),
    ) -> Assessment:
        self.refuse_costs(costs)
        episodes = len(state.time_B)
        step = int(state.time_B.max()) if episodes else 0
        numbers = _Numbers.draw(self.config, self.query_space, len(self.model.heads.heads), step)
        pieces = trees.slices(episodes, self._at_once)
        parts = [self._assess(trees.select(state, some), epsilons, numbers) for some in pieces]
        query, recommendation, confidence, std = (torch.cat(column) for column in zip(*parts, strict=True))
        none = torch.zeros(len(epsilons), 0, len(query))
        answers = recommendation.transpose(0, 1)
        return Assessment(state.time_B, query[:, None], answers, confidence.T, confidence.T, none, std)

    def _assess(
        self, state: Any, epsilons: Sequence[float], numbers: "_Numbers"
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Query, recommendations and confidences per epsilon, and spread of the answer, with the episode first."""
        posterior = self.search.posterior(state)
        best = self._recommend(state, posterior, epsilons)
        answers = torch.stack([self.answer_space.from_unit(answer) for answer, _ in best], dim=1)
        confidence = torch.stack([share for _, share in best], dim=1).float()
        if self.steady:
            before = self._recommend(state, state.before, epsilons)
            confidence = steadied(confidence, torch.stack([share for _, share in before], dim=1).float())
        mean_BX, std_BX = posterior.moments()
        query = self._query(state, numbers, std_BX, mean_BX)
        return query, answers, confidence, std_BX * self.answer_space.unit_scale

    def _recommend(
        self, state: Any, posterior: WeightedAnswers, epsilons: Sequence[float]
    ) -> list[tuple[Tensor, Tensor]]:
        """The answer (in unit coordinates) with the largest mass of success, and that mass, for each epsilon."""
        if not self.search.has_candidates:
            return recommend(self.model.success, self.answer_space, posterior, epsilons, self._few_answers)
        assert isinstance(self.search, GridSearch)
        candidates = self.search.candidates_NX
        weight = state.weight_BG.double() if self.model.success.numbers else posterior.weight_BN
        mean = (posterior.weight_BN[..., None] * candidates).sum(dim=1, keepdim=True)
        # Of answers that are as good, the one nearest to the mean.
        apart = torch.linalg.vector_norm(candidates - mean, dim=-1)
        chosen = []
        for epsilon in epsilons:
            mass_BN = weight @ self._success_of_grid(epsilon).T
            best = (mass_BN - 1e-4 * apart).argmax(dim=1)
            chosen.append((candidates[best], mass_BN.gather(1, best[:, None])[:, 0].clamp(0, 1)))
        return chosen

    @cached_property
    def _few_answers(self) -> Float[Tensor, "A X"] | None:
        """All answers that there are, where they are a finite set."""
        values = self.model.prior.values()
        return None if values is None else values[0]

    def _success_of_grid(self, epsilon: float) -> Float[Tensor, "N G"]:
        """Whether each candidate would succeed, were each one the target; or each place, where a loss depends on it."""
        assert isinstance(self.search, GridSearch)
        if epsilon not in self._success:
            candidates = self.search.candidates_NX
            softness = self.search.step * float(self.model.success.scale_X[0])
            judges = self.search.places_GV if self.model.success.numbers else candidates
            rows = [self.model.success(some[None], judges[None], epsilon, softness)[0] for some in candidates.split(8)]  # type: ignore[no-untyped-call]
            self._success[epsilon] = torch.cat(rows).double()
        return self._success[epsilon]

    @cached_property
    def _success(self) -> dict[float, Tensor]:
        return {}

    @torch.no_grad()
    def sample_answers(self, state: Any, n: int, rng: Generator) -> Float[Tensor, "batch draw answer"]:
        places = self._draws(state, n, float(torch.rand((), generator=rng)))
        order = torch.randperm(n, generator=rng)
        return self.answer_space.from_unit(places[:, order, : self.answer_space.dim])

    def _draws(self, state: Any, n: int, offset: float) -> Float[Tensor, "B n V"]:
        chosen = self.search.draws(state, n, offset)
        return self.search.places_GV[chosen] if isinstance(self.search, GridSearch) else chosen

    @torch.no_grad()
    def predict(self, state: Any, query: Float[Tensor, "batch query"]) -> Prediction:
        heads, n = self.model.heads, self.config.draws
        places = self._draws(state, n, 0.5)
        unit = self._scale.to_unit(query)
        parameters = self.model.network(unit[:, None], places, state.context_BC[:, None])
        uniform = torch.rand((n, len(heads.heads), 2), generator=torch.Generator().manual_seed(0))
        seen = heads.decode(heads.draw(heads.settled(parameters).movedim(-1, 0), uniform))
        low, high = seen.amin(dim=(0, 1)), seen.amax(dim=(0, 1))
        binary = heads.binary
        centre = torch.where(binary, heads.between, (low + high) / 2)
        upper = (seen > centre).float().mean(dim=1).clamp(0.5 / n, 1 - 0.5 / n)
        log_std = seen.std(dim=1).clamp_min(1e-6).log()
        return Prediction(binary, centre, torch.logit(upper), seen.mean(dim=1), log_std)

    # ------------------------------------------------------------ queries

    @cached_property
    def _is_plain(self) -> bool:
        """Whether queries can be compared as if all numbers that are observed were Gaussian."""
        return self.model.lost_as_gaussians(self.fixed_context) < PLAIN

    def _query(self, state: Any, numbers: "_Numbers", std_BX: Tensor, mean_BX: Tensor) -> Float[Tensor, "B Q"]:
        space = self.query_space
        if self.config.goal == "none":
            return self._scale.from_unit(numbers.even_AQ[0]).expand(len(mean_BX), -1)
        chosen = self.search.draws(state, self.config.draws, numbers.offset)
        places = self.search.places_GV[chosen] if isinstance(self.search, GridSearch) else chosen
        kernel = self._kernel(chosen, places, std_BX)
        if self._stay:
            table = self._table(make=False)
            best = self._best_of_even(state, chosen if table is not None else places, kernel, numbers, table)
            return space.project(self._scale.from_unit(self._even.points_AQ[best]))
        unit_BAQ = self._candidates(places, numbers, mean_BX)
        left = self._uncertainty(state, unit_BAQ, places, kernel, numbers)
        return space.project(self._scale.from_unit(unit_BAQ[torch.arange(len(left)), first_of_best(-left)]))

    def _kernel(self, chosen: Tensor, places_BMV: Tensor, std_BX: Tensor) -> Float[Tensor, "B M M"]:
        """How close the answers of draws are: how well that of the second would do were the first the hidden one."""
        answer_BMX = places_BMV[..., : self.answer_space.dim]
        if self.model.success.learned and self.search.has_candidates:
            assert isinstance(self.search, GridSearch)
            candidate = self.search.candidate_of(chosen)
            judge = chosen if self.model.success.numbers else candidate
            table = self._success_of_grid(self.aim).float().clamp_min(1e-3)
            return table[candidate[:, None], judge[:, :, None]]
        if self.model.success.learned:
            kernel: Tensor = self.model.success(answer_BMX, places_BMV, self.aim)
            return kernel.transpose(1, 2).clamp_min(1e-3)
        success = self.model.success
        spread = torch.linalg.vector_norm(std_BX * success.scale_X, dim=-1)
        width = self.config.width * success.reach(self.aim) + self.config.relative_width * spread
        if success.wraps:
            apart_BMM = success.compared(answer_BMX, answer_BMX).loss_BAN
            near_BMM: Tensor = 1 / (1 + (apart_BMM / width[:, None, None]).square())
            return near_BMM
        return answer_kernel(success.scaled(answer_BMX), width)

    def _uncertainty(
        self, state: Any, unit_BAQ: Tensor, places: Tensor, kernel: Tensor, numbers: "_Numbers"
    ) -> Float[Tensor, "B A"]:
        context = state.context_BC[:, None, None]
        parameters = self.model.network(unit_BAQ[:, :, None], places[:, None], context)
        heads = self.model.heads
        return self._remaining(*heads.quick(heads.settled(parameters).movedim(-1, 0), self._is_plain), kernel, numbers)

    def _remaining(
        self, heads: Heads, settled_PBAM: Tensor, kernel: Tensor, numbers: "_Numbers"
    ) -> Float[Tensor, "B A"]:
        assert self.config.goal != "none"
        settled = settled_PBAM.contiguous()
        return remaining_uncertainty(heads, settled, kernel, numbers.uniform_JY2, self.config.goal)

    def _best_of_even(
        self, state: Any, drawn: Tensor, kernel: Tensor, numbers: "_Numbers", table: QueryTable | ListedTable | None
    ) -> Int[Tensor, " B"]:
        """The place among the even queries of the one that leaves least uncertainty: coarsely, then finely.

        Where observations are sharp, what is left open may lie between the queries of a coarse group, all of which then
        tell nothing: there all groups are compared.
        """
        even, rows = self._even, torch.arange(len(kernel))
        group = int(numbers.offset * self.config.stride)

        def best(some: Tensor, queries_BA: Tensor, group: int | None = None) -> tuple[Tensor, Tensor]:
            if table is None:
                unit, episodes = even.points_AQ[queries_BA], trees.select(state, some)
                left = self._uncertainty(episodes, unit, drawn[some], kernel[some], numbers)
            else:
                outlook_BMAP = even.outlook(table.outlook_SGWP, drawn[some], queries_BA, group)
                left = self._left_by_table(table, outlook_BMAP, kernel[some], numbers)
            first = first_of_best(-left)[:, None]
            return queries_BA.gather(1, first)[:, 0], left.gather(1, first)[:, 0]

        coarse_B, left_B = best(rows, even.groups_SW[group].expand(len(rows), -1), group)
        assert self.config.goal != "none"
        in_vain = (present_uncertainty(kernel, self.config.goal) - left_B < LEAST_GAIN).nonzero()[:, 0]
        if len(in_vain):
            every = torch.arange(len(even)).expand(len(in_vain), -1)
            coarse_B[in_vain] = best(in_vain, every)[0]
        return best(rows, even.near_AK[coarse_B])[0]

    def _left_by_table(
        self, table: QueryTable | ListedTable, outlook_BMAP: Tensor, kernel: Tensor, numbers: "_Numbers"
    ) -> Float[Tensor, "B A"]:
        """The uncertainty that some queries of the table would leave."""
        if isinstance(table, QueryTable):
            return self._remaining(table.quick_heads, outlook_BMAP.permute(3, 0, 2, 1), kernel, numbers)
        assert self.config.goal != "none"
        return listed_uncertainty(outlook_BMAP, kernel, self.config.goal)

    def _candidates(self, places: Tensor, numbers: "_Numbers", mean_BX: Tensor) -> Float[Tensor, "B A Q"]:
        """Candidate queries in unit coordinates: even ones, and, where answers may be queried, places about them."""
        space, answers, a = self.query_space, self.answer_space, self.config.candidates
        batch, m = places.shape[:2]
        if space.dim != answers.dim:
            return numbers.even_AQ.expand(batch, -1, -1)
        third = a // 3
        answer_BMX = places[..., : answers.dim]
        chosen = (torch.arange(third) * m) // third
        own = answers.from_unit(answer_BMX[:, chosen])
        mean = answers.from_unit(mean_BX)[:, None]
        other = answers.from_unit(answer_BMX[:, (chosen + m // 2) % m])
        size = torch.linalg.vector_norm(other - mean, dim=-1, keepdim=True) / math.sqrt(space.dim)
        about = mean + 3 * numbers.length_A1[:third] * size * numbers.normal_AQ[:third]
        local = self._scale.to_unit(space.project(torch.cat([own, about], dim=1)))
        return torch.cat([local, numbers.even_AQ[: a - 2 * third].expand(batch, -1, -1)], dim=1)


class _Numbers(NamedTuple):
    """Random numbers of one step.

    They depend on the step alone: a query follows from the history, and is the same in every batch and every block.
    Were they drawn for each block, its episodes would begin with the same query, another one than those of other
    blocks, and would succeed and fail together where a few queries are enough.
    """

    offset: float
    uniform_JY2: Tensor
    even_AQ: Tensor
    length_A1: Tensor
    normal_AQ: Tensor

    @classmethod
    def draw(cls, config: QueryConfig, space: Space, entries: int, step: int) -> "_Numbers":
        j, a = config.outcomes, config.candidates
        shared = torch.Generator().manual_seed(step)
        strata = (torch.arange(j)[:, None, None] + torch.rand((j, entries, 2), generator=shared)) / j
        shuffled = torch.rand((j, entries, 2), generator=shared).argsort(dim=0)
        seed = int(torch.randint(2**31, (), generator=shared))
        return cls(
            offset=float(torch.rand((), generator=shared)),
            uniform_JY2=strata.gather(0, shuffled),
            even_AQ=even_points(space, a, seed),
            length_A1=torch.rand((a, 1), generator=shared),
            normal_AQ=torch.randn((a, space.dim), generator=shared),
        )
