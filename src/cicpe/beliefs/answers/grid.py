"""Inference on a grid: for answers that are a line or a finite set, and for a few hidden numbers of any kind.

Every candidate keeps, for every point of the nuisance, its weight after the history, so the nuisance is marginalised by
a sum. Where the hidden numbers give the answer, or the answer has several coordinates, even points of the prior of all
of them are kept instead, each with its answer. Where many episodes have the same context, what a table of queries would
tell is computed once for all: a query then takes the same short time however long the history is.

Weights are in single precision and multiplied, not added up as logarithms: a pair costs one product per observation,
and no transcendental function where outcomes can be listed. Neither a weight nor what one observation takes from it
falls below a least one, so that products stay above the smallest normal number, below which arithmetic is slow. Where
outcomes cannot be listed, pairs whose weight is negligible are not looked at again.

Shapes: B episodes, N candidates, K points of the nuisance, G pairs of them, M draws, A queries of the table in S groups
of W, J outcomes, V place, X answer.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cicpe.beliefs.answers.frozen import PAIRS, FrozenNetwork, FrozenPlaces
from cicpe.beliefs.answers.joint_heads import Heads
from cicpe.beliefs.answers.model import AnswerModel
from cicpe.beliefs.base import without_caches
from cicpe.statistics import sobol_points, systematic

POINTS = (1, 64, 256)
"""Points of a nuisance by how many numbers it has; the last for more."""
SCATTERED = (1, 2048, 8192, 32768)
"""Even points of hidden numbers that give the answer, by how many numbers there are; the last for more."""
SCATTERED_ANSWERS = (1, 4096, 8192, 16384, 32768)
"""Even points of answers of several coordinates and what else is hidden, by how many numbers there are together."""
MOST_TABLE = 80_000_000
"""Numbers that a table may have."""
NEGLIGIBLE = 1e-9
"""Weight, beside the largest, below which a pair is not looked at again: what observations tell of it takes time."""
LEAST_WEIGHT, LEAST_LIKELIHOOD = 1e-25, 1e-12
"""What a weight, and the likelihood of one observation beside the best, are at least; their product is above 2e-38."""


class WeightedAnswers(NamedTuple):
    """Weighted candidates of every episode."""

    answer_BNX: Float[Tensor, "B N X"]
    """In unit coordinates."""
    weight_BN: Float[Tensor, "B N"]
    place_BNV: Float[Tensor, "B N V"] | None = None
    """The answers with what else is hidden; None where candidates stand for many places."""

    def moments(self) -> tuple[Float[Tensor, "B X"], Float[Tensor, "B X"]]:
        """Mean and standard deviation of the answer."""
        weight = self.weight_BN
        if self.answer_BNX.stride(0) == 0 and len(self.answer_BNX):  # all episodes have the same answers
            answer_NX = self.answer_BNX[0].double()
            mean = weight @ answer_NX
            variance = weight @ answer_NX.square() - mean.square()
        else:
            mean = (weight[..., None] * self.answer_BNX).sum(dim=1)
            variance = (weight[..., None] * (self.answer_BNX - mean[:, None]).square()).sum(dim=1)
        return mean.float(), variance.clamp_min(0).sqrt().float()


class AnswerGridState(NamedTuple):
    """The weight of every candidate with every point of the nuisance."""

    weight_BG: Float[Tensor, "B G"]
    context_BC: Float[Tensor, "B C"]
    time_B: Int[Tensor, " B"]


class ListedTable(NamedTuple):
    """What the even queries would tell, where their outcomes can be listed."""

    likelihood_AJG: Float[Tensor, "A J G"]
    """The probability of every outcome for every pair of the grid."""
    outlook_SGWP: Float[Tensor, "S G W P"]
    """The same, an entry per outcome, with what a lookahead reads of a pair in one place: a group of queries."""


class QueryTable(NamedTuple):
    """Settled head parameters of the even queries for every pair of the grid."""

    settled_APG: Float[Tensor, "A P G"]
    quick_heads: Heads
    outlook_SGWP: Float[Tensor, "S G W P2"]
    """Those of quick heads, with what a lookahead reads of a pair in one place: a group of queries."""


@final
@dataclass(frozen=True)
class GridSearch:
    """All candidates are kept."""

    model: AnswerModel
    points: int
    """Candidates on a line."""

    def __getstate__(self) -> dict[str, Any]:
        return without_caches(self)

    @cached_property
    def tables(self) -> dict[int, QueryTable | ListedTable | None]:
        """What so many even queries would tell, once it is computed; None where they would be too many.

        They are kept here, and not by the belief, of which there is one for every horizon.
        """
        return {}

    @cached_property
    def has_candidates(self) -> bool:
        """Whether answers are compared one by one: they are a line, or a finite set."""
        return self.model.answer_space.dim == 1 or self.model.prior.values() is not None

    @cached_property
    def _candidates(self) -> tuple[Tensor, Tensor]:
        return self.model.prior.values() or self.model.prior.line(self.points)

    @property
    def candidates_NX(self) -> Float[Tensor, "N X"]:
        """In unit coordinates."""
        return self._candidates[0]

    @cached_property
    def step(self) -> float:
        """The distance of neighbours on a line in unit coordinates; zero for a finite set."""
        if self.model.prior.values() is not None:
            return 0.0
        return float(self.candidates_NX[1, 0] - self.candidates_NX[0, 0])

    @cached_property
    def nuisance(self) -> tuple[Float[Tensor, "K D"], Float[Tensor, "N K"]]:
        """Points of the nuisance, and the log prior weight of each given the candidate."""
        x, prior = self.candidates_NX, self.model.prior
        if self.model.codes is not None:
            return self.model.codes.points_KD.detach(), self.model.codes.log_share(x).detach().double()
        d = prior.sizes.nuisance
        points, shares = spread_out(prior.draws_MV[:8000, x.shape[1] :], POINTS[min(d, len(POINTS) - 1)])
        n, k = len(x), len(points)
        place = torch.cat([x[:, None].expand(-1, k, -1), points.expand(n, -1, -1)], dim=-1)
        return points, torch.log_softmax(prior.dependence(place) + shares.double().clamp_min(1e-9).log(), dim=1)

    @property
    def is_scattered(self) -> bool:
        """Whether points of hidden numbers are kept, in the place of pairs of a candidate and a point.

        Where numbers depend on each other in another way than those of a copula, most pairs could not occur.
        """
        sizes = self.model.prior.sizes
        return sizes.gives_answer or sizes.tilted or not self.has_candidates

    @cached_property
    def _even_places(self) -> Float[Tensor, "G V"]:
        """Even points of the prior of all that is hidden; draws from it, where it is no copula."""
        prior = self.model.prior
        numbers = prior.latent_MV.shape[1]
        sizes = SCATTERED if self.has_candidates else SCATTERED_ANSWERS
        if prior.tilt is not None:
            return prior.draws_MV[: 2 * sizes[min(numbers, len(sizes) - 1)]]
        even = sobol_points(sizes[min(numbers, len(sizes) - 1)], numbers, 0)
        return prior.places(torch.special.ndtri(even.clamp(1e-6, 1 - 1e-6)).float())

    @cached_property
    def _scattered(self) -> tuple[Float[Tensor, "G V"], Int[Tensor, " G"]]:
        """Even points of the prior in the order of their answers, and the nearest candidate of each."""
        places, x = self._even_places, self.candidates_NX
        apart = torch.cdist(places[:, : x.shape[1]], x, compute_mode="donot_use_mm_for_euclid_dist")
        nearest, order = apart.argmin(dim=1).sort(stable=True)
        return places[order], nearest

    def candidate_of(self, place: Int[Tensor, "*batch"]) -> Int[Tensor, "*batch"]:
        """The candidate of places, by their place in ``places_GV``."""
        if self.is_scattered:
            return self._scattered[1][place]
        return place // (len(self.places_GV) // len(self.candidates_NX))

    @cached_property
    def places_GV(self) -> Float[Tensor, "G V"]:
        """All pairs of a candidate and a point, the candidate changing slowest; or all scattered points."""
        if not self.has_candidates:
            return self._even_places
        if self.is_scattered:
            return self._scattered[0]
        x, points = self.candidates_NX, self.nuisance[0]
        return torch.cat([x.repeat_interleave(len(points), dim=0), points.repeat(len(x), 1)], dim=1)

    @cached_property
    def _prepared(self) -> list[FrozenPlaces]:
        """All pairs, in pieces that fit a cache."""
        pieces = self.places_GV.split(PAIRS)  # type: ignore[no-untyped-call]
        return [self._network.prepare(piece) for piece in pieces]

    @cached_property
    def _network(self) -> FrozenNetwork:
        return self.model.frozen_network()

    @cached_property
    def log_prior_NK(self) -> Float[Tensor, "N K"]:
        """Log prior mass of every pair; scattered points (a point of nuisance each) have all the same."""
        if self.is_scattered:
            return torch.full((len(self.places_GV), 1), -math.log(len(self.places_GV)), dtype=torch.float64)
        return self._candidates[1].double().clamp_min(1e-12).log()[:, None] + self.nuisance[1]

    def begin(self, context: Float[Tensor, "B C"]) -> AnswerGridState:
        """Nothing seen."""
        time = torch.zeros(len(context), dtype=torch.long)
        return AnswerGridState(self._prior_G.expand(len(context), -1), context, time)

    @cached_property
    def _prior_G(self) -> Float[Tensor, " G"]:
        return torch.softmax(self.log_prior_NK.flatten(), dim=0).float().clamp_min(LEAST_WEIGHT)

    def settled_parameters(self, query_BQ: Tensor, context_BC: Tensor) -> Float[Tensor, "B P G"]:
        """Settled head parameters of all pairs at one query (in unit coordinates) per episode."""
        return self.model.heads.settled(self._parameters(query_BQ, context_BC)).transpose(1, 2).contiguous()

    def _parameters(self, query_BQ: Tensor, context_BC: Tensor) -> Float[Tensor, "B G P"]:
        """Head parameters, an episode at a time."""
        rows = [
            torch.cat([self._network(query, piece, known) for piece in self._prepared], dim=1)
            for query, known in zip(query_BQ[:, None], self._network.known(context_BC), strict=True)
        ]
        return torch.cat(rows)

    def likelihood_at(
        self, query_BQ: Tensor, encoded_BY: Tensor, context_BC: Tensor, weight_BG: Tensor
    ) -> Float[Tensor, "B G"]:
        """The probability of an observation of one query per episode for every pair, as the network says it.

        Args:
            query_BQ: In unit coordinates.
            encoded_BY: An observation per episode.
            context_BC: What is known.
            weight_BG: Where outcomes cannot be listed, the weights that say which pairs still matter.
        """
        rows = zip(query_BQ, encoded_BY, context_BC, weight_BG, strict=True)
        return torch.cat([self._likelihood_at(*(part[None] for part in row)) for row in rows])

    def _likelihood_at(self, query: Tensor, encoded: Tensor, context: Tensor, weight: Tensor) -> Float[Tensor, "1 G"]:
        """The same for one episode; the network is asked for the pairs that still matter alone, where they are few."""
        pair = None if self.model.heads.listed is not None else _matters(weight)[0].nonzero()[:, 0]
        if pair is None or 2 * len(pair) > weight.numel():
            return self.likelihood(self.settled_parameters(query, context), encoded, weight)
        known = self._network.known(context)[0]
        pieces = [self._network.prepare(some) for some in self.places_GV[pair].split(PAIRS)]  # type: ignore[no-untyped-call]
        parameters = torch.cat([self._network(query, piece, known) for piece in pieces], dim=1)
        settled = self.model.heads.settled(parameters).transpose(1, 2)
        likelihood = torch.full_like(weight, LEAST_LIKELIHOOD)
        likelihood[:, pair] = self.likelihood(settled, encoded)
        return likelihood

    def likelihood(
        self, settled_BPG: Tensor, encoded_BY: Tensor, weight_BG: Tensor | None = None
    ) -> Float[Tensor, "B G"]:
        """The probability of an observation for every pair; of real ones, the density beside that of the best pair.

        Args:
            settled_BPG: Settled head parameters.
            encoded_BY: An observation per episode.
            weight_BG: Where outcomes cannot be listed, the weights that say which pairs still matter.
        """
        heads = self.model.heads
        log_BG = heads.settled_log_probability(settled_BPG.transpose(0, 1), encoded_BY[:, None])
        if heads.listed is None:
            log_BG = log_BG if weight_BG is None else log_BG.masked_fill(~_matters(weight_BG), -torch.inf)
            log_BG = log_BG - log_BG.amax(dim=1, keepdim=True)
        return log_BG.clamp_min(math.log(LEAST_LIKELIHOOD)).exp_()

    def observe_by_table(
        self, state: AnswerGridState, settled_APG: Tensor, place_B: Int[Tensor, " B"], encoded_BY: Tensor
    ) -> AnswerGridState:
        """``observe`` at queries of a table, by their place in it, computed for the pairs that still matter alone."""
        weight_BG = state.weight_BG
        episode, pair = _matters(weight_BG).nonzero(as_tuple=True)
        if 2 * len(pair) > weight_BG.numel():
            return self.observe(state, self.likelihood(settled_APG[place_B], encoded_BY, weight_BG))
        each_P1 = torch.arange(settled_APG.shape[1])[:, None]
        settled_PR = settled_APG[place_B[episode], each_P1, pair]
        log_R = self.model.heads.settled_log_probability(settled_PR, encoded_BY[episode])
        most_B = torch.full((len(weight_BG),), -torch.inf).scatter_reduce_(0, episode, log_R, "amax")
        likelihood_R = (log_R - most_B[episode]).clamp_min_(math.log(LEAST_LIKELIHOOD)).exp_()
        weight_R = likelihood_R.mul_(weight_BG[episode, pair])
        total_B = torch.zeros(len(weight_BG)).index_add_(0, episode, weight_R)
        after_BG = weight_BG.clone()
        after_BG[episode, pair] = (weight_R / total_B[episode]).clamp_min_(LEAST_WEIGHT)
        return state._replace(weight_BG=after_BG, time_B=state.time_B + 1)

    def tabulate(
        self, even_AQ: Tensor, context_C: Tensor, groups_SW: Int[Tensor, "S W"], plain: bool
    ) -> QueryTable | ListedTable | None:
        """What some queries would tell; None where the table would be too large.

        Args:
            even_AQ: The queries.
            context_C: What is known of all episodes.
            groups_SW: Queries that a lookahead compares at once, by their place among all.
            plain: Whether a Gaussian is near enough there.
        """
        heads = self.model.heads
        if len(even_AQ) * len(self.places_GV) * heads.parameters > MOST_TABLE:
            return None
        # A query at a time, and then a group: a table takes hundreds of megabytes, and so would every step on its way.
        rows = (self.settled_parameters(query, context_C[None])[0] for query in even_AQ[:, None])
        if heads.listed is not None:
            outcomes_J1Y = heads.listed[:, None]
            likelihood_AJG = _stacked(
                (torch.cat([self.likelihood(row[None], outcome) for outcome in outcomes_J1Y]) for row in rows),
                len(even_AQ),
            )
            return ListedTable(likelihood_AJG, likelihood_AJG[groups_SW].permute(0, 3, 1, 2).contiguous())
        settled_APG = _stacked(rows, len(even_AQ))
        quick_heads, _ = heads.quick(settled_APG[:1].transpose(0, 1), plain)
        quick = (heads.quick(settled_APG[group].transpose(0, 1), plain)[1].permute(2, 1, 0) for group in groups_SW)
        return QueryTable(settled_APG, quick_heads, _stacked(quick, len(groups_SW)))

    def observe(self, state: AnswerGridState, likelihood_BG: Tensor) -> AnswerGridState:
        """The state with one more observation, whose likelihood is given.

        Where outcomes cannot be listed, pairs that no longer matter keep the weight that they have: whoever computed
        the likelihood need not have looked at them.
        """
        weight = state.weight_BG * likelihood_BG
        if self.model.heads.listed is None:
            matters = _matters(state.weight_BG)
            weight.mul_(matters)
            weight = torch.where(matters, weight.div_(weight.sum(dim=1, keepdim=True)), state.weight_BG)
        else:
            weight.div_(weight.sum(dim=1, keepdim=True))
        return state._replace(weight_BG=weight.clamp_min_(LEAST_WEIGHT), time_B=state.time_B + 1)

    def posterior(self, state: AnswerGridState) -> WeightedAnswers:
        """Candidates and their weights."""
        weight_BG, batch = state.weight_BG, len(state.weight_BG)
        if not self.has_candidates:
            places_BNV = self.places_GV.expand(batch, -1, -1)
            return WeightedAnswers(places_BNV[..., : self.model.answer_space.dim], weight_BG.double(), places_BNV)
        if self.is_scattered:
            none = torch.zeros(batch, len(self.candidates_NX), dtype=torch.float64)
            weight_BN = none.index_add_(1, self._scattered[1], weight_BG.double())
        else:
            weight_BN = weight_BG.view(batch, *self.log_prior_NK.shape).sum(dim=-1).double()
        return WeightedAnswers(self.candidates_NX.expand(batch, -1, -1), weight_BN)

    def draws(self, state: AnswerGridState, n: int, offset: float) -> Int[Tensor, "B n"]:
        """Draws of pairs, by their place in ``places_GV``; they come in the candidates' order, so are stratified."""
        return systematic(state.weight_BG, n, offset)


def _stacked(parts: Iterator[Tensor], n: int) -> Tensor:
    """``n`` tensors of one shape in a single one, each written as it comes."""
    first = next(parts)
    whole = torch.empty((n, *first.shape), dtype=first.dtype)
    for place, part in enumerate(itertools.chain([first], parts)):
        whole[place] = part
    return whole


def _matters(weight_BG: Float[Tensor, "B G"]) -> Bool[Tensor, "B G"]:
    """Which pairs are looked at."""
    return weight_BG > NEGLIGIBLE * weight_BG.amax(dim=1, keepdim=True)


def spread_out(points_MD: Float[Tensor, "M D"], n: int) -> tuple[Float[Tensor, "K D"], Float[Tensor, " K"]]:
    """``n`` of many points, spread out by a few rounds of k-means from evenly chosen ones, and their shares."""
    if points_MD.shape[1] == 0:
        return points_MD[:1], torch.ones(1)
    centre = points_MD[torch.linspace(0, len(points_MD) - 1, n).long()].clone()
    count = torch.ones(n)
    for _ in range(12):
        nearest = torch.cdist(points_MD, centre, compute_mode="donot_use_mm_for_euclid_dist").argmin(dim=1)
        count = torch.zeros(n).index_add_(0, nearest, torch.ones(len(points_MD)))
        total = torch.zeros_like(centre).index_add_(0, nearest, points_MD)
        centre = torch.where((count > 0)[:, None], total / count.clamp_min(1)[:, None], centre)
    return centre[count > 0], count[count > 0]
