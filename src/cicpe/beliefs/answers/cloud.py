"""Inference by a weighted cloud of places: adaptive importance sampling in the prior's latent coordinates.

An episode keeps a cloud with the density that each of its points was drawn from, and how the prior's own draws explain
the history. A new observation is scored once per point. When the effective sample size asks for it, the cloud is drawn
anew from a mixture about what explains the history best, in steps of a rising power of the likelihood; a part of the
mixture is about the prior's own draws, so that a mode which one cloud has missed can be found by the next. Where a
cloud explains the history worse than it would explain its own predictions even so, a second one is annealed from the
prior (``annealing.py``), and each has its evidence as weight.

Everything random depends on the step alone and is shared by all episodes, and every sum is over one episode: what an
episode does is the same whatever else is in the batch.

Shapes: B episodes, N points of a cloud, M draws of the prior, K centres of a mixture, V coordinates, T steps.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from cicpe import trees
from cicpe.beliefs.answers.annealing import Evidence, annealed
from cicpe.beliefs.answers.grid import WeightedAnswers
from cicpe.beliefs.answers.model import AnswerModel
from cicpe.beliefs.answers.network import PreparedPlaces
from cicpe.statistics import effective_size, systematic, tempering_step

ROWS = 2048
"""Pairs of an observation and a place that are scored at once: what fits a cache."""
NEIGHBOURS = 256
"""Points that a mixture's components are made from."""
CLIMB = 6
"""Steps of a climb."""
SHIFT = 1e-3
"""By how much latent coordinates are shifted to find slopes."""
NEAR = 2.0
"""Below a spread of this many times what is wanted a decision may be near: a cloud has to be fine, and doubts are
followed up. Above, it may be rough."""
WIDE = (0.1, 0.2)
"""Shares of a mixture that are spread as the prior, and as all points that explain the history best."""
DOUBT = 0.5
"""A second cloud is annealed where a smaller share of predicted histories is explained worse than the real one."""
AGAIN = 1.3
"""How many times as long a history has to be as when a second cloud was last annealed."""
REPLICATES = 64
"""Histories that are predicted to find that share."""
DEGREES = 5.0
"""Degrees of freedom of the mixture's components: their tails are heavier than a Gaussian's."""


class CloudState(NamedTuple):
    """The cloud of every episode and its history."""

    latent_BNV: Float[Tensor, "B N V"]
    log_proposal_BN: Float[Tensor, "B N"]
    """Log density (over that of the prior, up to a constant) of what the points are distributed by without weights."""
    log_likelihood_BN: Float[Tensor, "B N"]
    """Of the whole history."""
    log_prior_draws_BM: Float[Tensor, "B M"]
    """The same for the prior's own draws."""
    query_BTQ: Float[Tensor, "B T Q"]
    encoded_BTY: Float[Tensor, "B T Y"]
    context_BC: Float[Tensor, "B C"]
    time_B: Int[Tensor, " B"]
    annealed_B: Int[Tensor, " B"]
    """Observations when a second cloud was last annealed; 0 where that was never done."""


class _Points(NamedTuple):
    """Weighted points of one episode."""

    latent_NV: Tensor
    log_weight_N: Tensor
    log_likelihood_N: Tensor
    log_evidence: float = 0.0
    """Estimated log probability of the history."""


class _Modes(NamedTuple):
    """Where the posterior is highest nearby, and Cholesky factors of its scale there."""

    centre_KV: Tensor
    factor_KVV: Tensor


class _Mixture(NamedTuple):
    """A mixture of Student components: their centres, Cholesky factors of their scales, and shares."""

    centre_KV: Tensor
    factor_KVV: Tensor
    share_K: Tensor


class _Slopes(NamedTuple):
    """The log posterior at some points, its gradient, and the Fisher information of the history."""

    log_posterior_K: Tensor
    gradient_KV: Tensor
    information_KVV: Tensor


@final
@dataclass(frozen=True)
class CloudSearch:
    """Adaptive importance sampling; see the module."""

    model: AnswerModel
    points: int = 1024
    prior_draws: int = 2048
    centres: int = 40
    rounds: int = 8
    """The most mixtures per observation."""
    rough_rounds: int = 3
    """The same while the answer is still spread over much more than ``sharp``."""
    per_round: int = 768
    """Points that are drawn from each."""
    enough: float = 0.1
    """Share of effective points below which a cloud is drawn anew."""
    reached: float = 0.15
    """Share of effective points that all rounds together are to reach."""
    rough: float = 0.06
    """The same while the answer is still spread over much more than ``sharp``."""
    sharp: float = math.inf
    """How well the answer has to be known, in unit coordinates."""
    rising: float = 0.08
    """Share of effective points that a step of the rising power keeps."""
    climbers: int = 16
    """Modes that are looked for from the prior's own draws."""
    seed: int = 0
    has_candidates: ClassVar[bool] = False
    """Answers are points of a cloud, and not compared one by one."""

    @cached_property
    def bank(self) -> tuple[Float[Tensor, "M V"], PreparedPlaces]:
        """Prior draws in latent coordinates and their places; the same for every episode."""
        prior = self.model.prior
        n = min(self.prior_draws, len(prior.draws_MV))
        return prior.latent_MV[:n], self.model.network.prepare(prior.draws_MV[:n])

    def begin(self, context: Float[Tensor, "B C"]) -> CloudState:
        """Nothing seen."""
        batch, (latent, _) = len(context), self.bank
        cloud = latent[: self.points]
        zeros = torch.zeros(batch, len(cloud), dtype=torch.float64)
        return CloudState(
            latent_BNV=cloud.expand(batch, -1, -1),
            log_proposal_BN=zeros,
            log_likelihood_BN=zeros,
            log_prior_draws_BM=torch.zeros(batch, len(latent), dtype=torch.float64),
            query_BTQ=torch.zeros(batch, 0, self.model.query_space.dim),
            encoded_BTY=torch.zeros(batch, 0, len(self.model.heads.heads)),
            context_BC=context,
            time_B=torch.zeros(batch, dtype=torch.long),
            annealed_B=torch.zeros(batch, dtype=torch.long),
        )

    def observe(self, state: CloudState, query_BQ: Tensor, encoded_BY: Tensor) -> CloudState:
        """The cloud with one more observation (of a query in unit coordinates)."""
        state = state._replace(
            query_BTQ=torch.cat([state.query_BTQ, query_BQ[:, None]], dim=1),
            encoded_BTY=torch.cat([state.encoded_BTY, encoded_BY[:, None]], dim=1),
            time_B=state.time_B + 1,
        )
        rows = [trees.select(state, torch.tensor([row])) for row in range(len(query_BQ))]
        return trees.concatenate([self._updated(row) for row in rows])

    def _updated(self, state: CloudState) -> CloudState:
        """One episode with its latest observation taken in."""
        places = self.model.network.prepare(self.model.prior.places(state.latent_BNV[0]))
        latest = state.query_BTQ.shape[1] - 1
        log_cloud = state.log_likelihood_BN + self._log_likelihood(state, places, latest)
        log_draws = state.log_prior_draws_BM + self._log_likelihood(state, self.bank[1], latest)
        state = state._replace(log_likelihood_BN=log_cloud, log_prior_draws_BM=log_draws)
        if float(effective_size(log_weights(state))) >= self.enough * state.latent_BNV.shape[1]:
            return state
        return self._refined(state)

    def _log_likelihood(self, state: CloudState, places: PreparedPlaces, first: int = 0) -> Float[Tensor, " N"]:
        """Log-likelihood of one episode's history from its ``first`` step on."""
        total = torch.zeros(len(places.place), dtype=torch.float64)
        steps = torch.arange(first, state.query_BTQ.shape[1]).split(max(1, ROWS // len(total)))  # type: ignore[no-untyped-call]
        for some in steps:
            parameters = self.model.network.at(state.query_BTQ[0, some, None], places, state.context_BC)
            gain_TN = self.model.heads.log_probability(parameters, state.encoded_BTY[0, some, None])
            total = total + gain_TN.double().sum(dim=0)
        return total

    def _refined(self, state: CloudState) -> CloudState:
        """The cloud of one episode drawn anew, from mixtures that come closer to the posterior.

        The points of all rounds are kept, each round with a share by its effective size, until together they are
        enough; the cloud is then resampled from them.
        """
        steps = state.query_BTQ.shape[1]
        source = _Points(state.latent_BNV[0], log_weights(state)[0], state.log_likelihood_BN[0])
        rounds: list[_Points] = []
        sizes: list[float] = []
        seed = (self.seed * 1_000_003 + steps) * 101
        modes = self._modes(state, torch.Generator().manual_seed(seed + self.rounds))
        for turn in range(self.rounds):
            rng = torch.Generator().manual_seed(seed + turn)
            mixture = self._mixture(state, source, modes, rng)
            latent_NV = self._drawn(mixture, rng)
            places = self.model.network.prepare(self.model.prior.places(latent_NV))
            log_likelihood = self._log_likelihood(state, places)
            log_weight = log_likelihood - self._log_density(mixture, latent_NV)
            source = _Points(
                latent_NV, log_weight, log_likelihood, float(log_weight.logsumexp(0)) - math.log(len(log_weight))
            )
            rounds.append(source)
            sizes.append(float(effective_size(source.log_weight_N)))
            if sum(sizes) >= self._wanted(source) or turn + 1 >= self._most_rounds(source):
                break
        first, annealed_B = self._resampled(rounds, sizes), state.annealed_B
        may_decide = steps >= AGAIN * int(annealed_B) and self._spread(source) < NEAR * self.sharp
        if may_decide and self._is_surprised(state, first, seed + 90):
            first, annealed_B = self._merged(first, self._annealed(state, seed + 20)), state.time_B
        return state._replace(
            annealed_B=annealed_B,
            latent_BNV=first.latent_NV[None],
            log_proposal_BN=first.log_likelihood_N[None],
            log_likelihood_BN=first.log_likelihood_N[None],
        )

    def _is_surprised(self, state: CloudState, points: "_Points", seed: int) -> bool:
        """Whether the points explain an episode's history worse than they would explain what they predict."""
        some = points.latent_NV[:: max(1, len(points.latent_NV) // REPLICATES)]
        places = self.model.network.prepare(self.model.prior.places(some))
        parameters = self.model.network.at(state.query_BTQ[0, :, None], places, state.context_BC)
        rng, heads = torch.Generator().manual_seed(seed), self.model.heads
        uniform = torch.rand((*parameters.shape[:2], len(heads.heads), 2), generator=rng)
        real, predicted = (
            heads.log_probability(parameters, encoded).double().sum(dim=0)
            for encoded in (state.encoded_BTY[0, :, None], heads.draw(parameters, uniform))
        )
        return float((predicted < real).double().mean()) < DOUBT

    def _annealed(self, state: CloudState, seed: int) -> "_Points":
        """Points of equal weight that were annealed from the prior's draws."""
        seen = Evidence(state.query_BTQ[0], state.encoded_BTY[0], state.context_BC[0], state.log_prior_draws_BM[0])
        cloud = annealed(self.model, self.bank[0], seen, self.points // 2, ROWS, seed)
        even = torch.zeros_like(cloud.log_likelihood_N)
        return _Points(cloud.latent_NV, even, cloud.log_likelihood_N, cloud.log_evidence)

    def _merged(self, first: "_Points", second: "_Points") -> "_Points":
        """Points of both clouds, each with its evidence as weight: one that missed where most mass is has little."""
        pair = (first, second)
        top = max(cloud.log_evidence for cloud in pair)
        share = torch.cat(
            [
                torch.full((len(cloud.latent_NV),), math.exp(cloud.log_evidence - top) / len(cloud.latent_NV)).double()
                for cloud in pair
            ]
        )
        chosen = systematic(share[None], self.points, 0.5)[0]
        latent = torch.cat([cloud.latent_NV for cloud in pair])[chosen]
        log_likelihood = torch.cat([cloud.log_likelihood_N for cloud in pair])[chosen]
        return _Points(latent, torch.zeros_like(log_likelihood), log_likelihood)

    def _wanted(self, points: "_Points") -> float:
        """Effective points that are enough: fewer while the answer is nowhere near as sharp as it has to be."""
        return (self.reached if self._spread(points) < NEAR * self.sharp else self.rough) * self.points

    def _most_rounds(self, points: "_Points") -> int:
        """The most mixtures: fewer while a cloud may be rough."""
        return self.rounds if self._spread(points) < NEAR * self.sharp else self.rough_rounds

    def _spread(self, points: "_Points") -> float:
        """The standard deviation of the answer, over all of its unit coordinates."""
        answer = self.model.prior.places(points.latent_NV)[:, : self.model.answer_space.dim]
        weight = torch.softmax(points.log_weight_N, dim=0)[:, None]
        mean = (weight * answer).sum(dim=0)
        return float((weight * (answer - mean).square()).sum().sqrt())

    def _resampled(self, rounds: "list[_Points]", sizes: list[float]) -> "_Points":
        """Points of equal weight that the points of all rounds amount to."""
        weight = torch.cat(
            [size * torch.softmax(some.log_weight_N, dim=-1) for some, size in zip(rounds, sizes, strict=True)]
        )
        chosen = systematic(weight[None], self.points, 0.5)[0]
        size, evidence = torch.tensor(sizes).double(), torch.tensor([some.log_evidence for some in rounds]).double()
        return _Points(
            torch.cat([some.latent_NV for some in rounds])[chosen],
            torch.zeros(self.points, dtype=torch.float64),
            torch.cat([some.log_likelihood_N for some in rounds])[chosen],
            float((evidence + (size / size.sum()).log()).logsumexp(0)),
        )

    def _mixture(self, state: CloudState, source: "_Points", modes: "_Modes", rng: Generator) -> _Mixture:
        """A mixture about the points of a cloud that explain the history best, and about modes.

        Two wide components, one as all of these points and one as the prior, keep the weights of points between the
        narrow ones small.
        """
        power, points = self._chosen(source, rng)
        centre = points[torch.randperm(NEIGHBOURS, generator=rng)[: self.centres]]
        mean, spread = _moments(points)
        factor = self._factors(spread, power * self._slopes(state, centre).information_KVV)
        eye = torch.eye(len(mean), dtype=torch.float64)
        wide = torch.linalg.cholesky(spread)
        narrow = (1 - sum(WIDE)) / (len(centre) + len(modes.centre_KV))
        return _Mixture(
            torch.cat([torch.zeros_like(mean)[None], mean[None], centre, modes.centre_KV]),
            torch.cat([eye[None], wide[None], factor, modes.factor_KVV]),
            torch.cat([torch.tensor(WIDE), torch.full((len(centre) + len(modes.centre_KV),), narrow)]).double(),
        )

    def _modes(self, state: CloudState, rng: Generator) -> "_Modes":
        """Components about where climbs from the prior's own draws end: a cloud may have missed a mode."""
        log_draws = state.log_prior_draws_BM[0]
        _, points = self._chosen(_Points(self.bank[0], log_draws, log_draws), rng)
        top = self._climbed(state, points[torch.randperm(NEIGHBOURS, generator=rng)[: self.climbers]])
        information = self._slopes(state, top).information_KVV
        return _Modes(top, _scales(information + torch.eye(top.shape[1])))

    def _chosen(self, source: "_Points", rng: Generator) -> tuple[float, Float[Tensor, "n V"]]:
        """Some of the points that explain the history best, and the power of the weights they were drawn by."""
        log_weight = source.log_weight_N[None]
        power = tempering_step(log_weight, torch.ones(1), self.rising * self.points)
        offset = float(torch.rand((), generator=rng))
        chosen = systematic(torch.softmax(power * log_weight, dim=-1), NEIGHBOURS, offset)[0]
        return float(power), source.latent_NV[chosen].double()

    def _factors(self, spread_VV: Tensor, information_KVV: Tensor) -> Float[Tensor, "K V V"]:
        """Factors of the scales of components.

        Along what the history tells, a component is as wide as the likelihood is about its centre (by the Fisher
        information); elsewhere, as the points are spread, narrowed as kernels are.
        """
        v = len(spread_VV)
        narrow = max(0.2, (4 / (v + 2)) ** (2 / (v + 4)) * float(len(information_KVV)) ** (-2 / (v + 4)))
        return _scales(torch.linalg.inv(spread_VV) / narrow + information_KVV)

    def _climbed(self, state: CloudState, start_KV: Tensor) -> Float[Tensor, "K V"]:
        """Where a few Levenberg-Marquardt steps up the posterior lead."""
        v = start_KV.shape[1]
        place, damping = start_KV, torch.ones(len(start_KV), dtype=torch.float64)
        here = self._slopes(state, place)
        for _ in range(CLIMB):
            precision = here.information_KVV + (1 + damping)[:, None, None] * torch.eye(v)
            step = torch.linalg.solve(precision, here.gradient_KV[..., None])[..., 0]
            there = self._slopes(state, (place + step).clamp(-4, 4))
            better = there.log_posterior_K > here.log_posterior_K
            damping = torch.where(better, 0.2 * damping, 5 * damping)
            place = torch.where(better[:, None], (place + step).clamp(-4, 4), place)
            here = _Slopes(*(torch.where(_like(better, new), new, old) for new, old in zip(there, here, strict=True)))
        return place

    def _slopes(self, state: CloudState, latent_KV: Tensor) -> "_Slopes":
        """The log posterior of one episode at some points, its gradient, and the Fisher information of its history.

        Derivatives are differences: a single pass over all shifted points takes a fraction of the time of backward
        passes over the few points there are. The information tells how far the slope falls within a difference.
        """
        v = latent_KV.shape[1]
        shifts = torch.cat([torch.zeros(1, v), SHIFT * torch.eye(v)])
        places = self.model.network.prepare(self.model.prior.places(latent_KV.float()[:, None] + shifts))
        parameters = self.model.network.at(state.query_BTQ[0, :, None, None], places, state.context_BC)
        log_p = self.model.heads.log_probability(parameters, state.encoded_BTY[0, :, None, None]).double().sum(dim=0)
        functions, sizes = (part.double() for part in self.model.heads.information(parameters))
        slope_TKVL = ((functions[:, :, 1:] - functions[:, :, :1]) / SHIFT).nan_to_num()
        information = torch.einsum("tkvl,tkl,tkwl->kvw", slope_TKVL, sizes[:, :, 0].nan_to_num(), slope_TKVL)
        curvature = information.diagonal(dim1=1, dim2=2)
        gradient = ((log_p[:, 1:] - log_p[:, :1]) / SHIFT + 0.5 * SHIFT * curvature).nan_to_num() - latent_KV
        return _Slopes(log_p[:, 0] - 0.5 * latent_KV.square().sum(dim=1), gradient, information)

    def _drawn(self, mixture: _Mixture, rng: Generator) -> Float[Tensor, "N V"]:
        """Points of the mixture: of every component by its share."""
        n, (k, v) = self.per_round, mixture.centre_KV.shape
        of = torch.searchsorted(mixture.share_K.cumsum(dim=0), (torch.arange(n).double() + 0.5) / n).clamp_max(k - 1)
        normal = torch.randn((n, v), generator=rng, dtype=torch.float64)
        chi = torch.randn((n, int(DEGREES)), generator=rng, dtype=torch.float64).square().mean(dim=1, keepdim=True)
        moved = (mixture.factor_KVV[of] @ (normal / chi.sqrt())[..., None])[..., 0]
        return (mixture.centre_KV[of] + moved).clamp(-5, 5).float()

    def _log_density(self, mixture: _Mixture, latent_NV: Tensor) -> Float[Tensor, " N"]:
        """Log density of the mixture over that of the prior."""
        v = latent_NV.shape[1]
        apart = latent_NV.double() - mixture.centre_KV[:, None]
        whitened = torch.linalg.solve_triangular(mixture.factor_KVV, apart.transpose(1, 2), upper=False)
        squared = whitened.square().sum(dim=1)
        log_determinant = mixture.factor_KVV.diagonal(dim1=1, dim2=2).log().sum(dim=1)
        constant = math.lgamma((DEGREES + v) / 2) - math.lgamma(DEGREES / 2) - 0.5 * v * math.log(DEGREES * math.pi)
        student = constant - log_determinant[:, None] - 0.5 * (DEGREES + v) * torch.log1p(squared / DEGREES)
        log_mixture = (student + mixture.share_K.log()[:, None]).logsumexp(dim=0)
        log_prior = -0.5 * latent_NV.double().square().sum(dim=1) - 0.5 * v * math.log(2 * math.pi)
        return log_mixture - log_prior

    def posterior(self, state: CloudState) -> WeightedAnswers:
        """The answers of the cloud and their weights."""
        places = self.model.prior.places(state.latent_BNV)
        answer = places[..., : self.model.answer_space.dim]
        return WeightedAnswers(answer, torch.softmax(log_weights(state), dim=-1), places)

    def draws(self, state: CloudState, n: int, offset: float) -> Float[Tensor, "B n V"]:
        """Draws of places."""
        chosen = systematic(torch.softmax(log_weights(state), dim=-1), n, offset)
        latent = state.latent_BNV.gather(1, chosen[..., None].expand(-1, -1, state.latent_BNV.shape[-1]))
        return self.model.prior.places(latent)


def _moments(point_NV: Tensor) -> tuple[Float[Tensor, " V"], Float[Tensor, "V V"]]:
    """Mean and covariance of points."""
    mean = point_NV.mean(dim=0)
    apart = point_NV - mean
    return mean, apart.T @ apart / len(point_NV) + 1e-6 * torch.eye(len(mean))


def _scales(precision_KVV: Tensor) -> Float[Tensor, "K V V"]:
    """Cholesky factors of the inverses of precisions."""
    value: Tensor = torch.linalg.cholesky(torch.linalg.inv(precision_KVV) + 1e-8 * torch.eye(precision_KVV.shape[-1]))
    return value


def _like(mask_K: Tensor, part: Tensor) -> Tensor:
    return mask_K.reshape(-1, *[1] * (part.ndim - 1))


def log_weights(state: CloudState) -> Float[Tensor, "B N"]:
    """Log weights of the clouds."""
    return state.log_likelihood_BN - state.log_proposal_BN
