"""Inference by a weighted cloud of places: adaptive importance sampling in the prior's latent coordinates.

An episode keeps a cloud with the density that each of its points was drawn from, and how the prior's own draws explain
the history. A new observation is scored once per point. When the effective sample size asks for it, the cloud is drawn
anew from a mixture about what explains the history best, in steps of a rising power of the likelihood; a part of the
mixture is about the prior's own draws, so that a mode which one cloud has missed can be found by the next.

Everything random depends on the step alone and is shared by all episodes, and every sum is over one episode: what an
episode does is the same whatever else is in the batch.

Shapes: B episodes, N points of a cloud, M draws of the prior, K centres of a mixture, V coordinates, T steps.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from cicpe import trees
from cicpe.beliefs.answers.grid import Posterior, systematic
from cicpe.beliefs.answers.model import AnswerModel
from cicpe.beliefs.answers.network import PreparedPlaces

ROWS = 2048
"""Pairs of an observation and a place that are scored at once: what fits a cache."""
DEGREES = 5.0
"""Degrees of freedom of the mixture's components: their tails are heavier than a Gaussian's."""


class CloudState(NamedTuple):
    """The cloud of every episode and its history."""

    latent_BNV: Float[Tensor, "B N V"]
    log_proposal_BN: Float[Tensor, "B N"]
    """Log density that the points were drawn from, over that of the prior."""
    log_likelihood_BN: Float[Tensor, "B N"]
    """Of the whole history."""
    log_prior_draws_BM: Float[Tensor, "B M"]
    """The same for the prior's own draws."""
    query_BTQ: Float[Tensor, "B T Q"]
    encoded_BTY: Float[Tensor, "B T Y"]
    context_BC: Float[Tensor, "B C"]
    time_B: Int[Tensor, " B"]


class _Mixture(NamedTuple):
    """A mixture of Student components about centres, and a share of the prior itself."""

    centre_KV: Tensor
    factor_KVV: Tensor
    """Cholesky factors of the components' scales."""
    share_K: Tensor


@final
@dataclass(frozen=True)
class CloudSearch:
    """Adaptive importance sampling; see the module."""

    model: AnswerModel
    points: int = 1024
    prior_draws: int = 2048
    centres: int = 48
    rounds: int = 8
    """The most mixtures per observation."""
    enough: float = 0.25
    """Share of effective points below which a cloud is drawn anew."""
    rising: float = 0.08
    """Share of effective points that a step of the rising power keeps."""
    from_prior: float = 0.3
    """Share of the centres that are about the prior's own draws."""
    seed: int = 0

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
        if effective_size(log_weights(state)[0]) >= self.enough * state.latent_BNV.shape[1]:
            return state
        return self._refined(state)

    def _log_likelihood(self, state: CloudState, places: PreparedPlaces, first: int = 0) -> Float[Tensor, " N"]:
        """Log-likelihood of one episode's history from its ``first`` step on."""
        total = torch.zeros(len(places.place), dtype=torch.float64)
        steps = torch.arange(first, state.query_BTQ.shape[1]).split(max(1, ROWS // len(total)))
        for some in steps:
            parameters = self.model.network.at(state.query_BTQ[0, some, None], places, state.context_BC)
            gain_TN = self.model.heads.log_probability(parameters, state.encoded_BTY[0, some, None])
            total = total + gain_TN.double().sum(dim=0)
        return total

    def _refined(self, state: CloudState) -> CloudState:
        """The cloud of one episode drawn anew, with the power of its likelihood rising to one."""
        steps = state.query_BTQ.shape[1]
        for turn in range(self.rounds):
            rng = torch.Generator().manual_seed((self.seed * 1_000_003 + steps) * 101 + turn)
            mixture = self._mixture(state, rng)
            latent_NV = self._drawn(mixture, rng)
            log_proposal = self._log_density(mixture, latent_NV)
            places = self.model.network.prepare(self.model.prior.places(latent_NV))
            log_likelihood = self._log_likelihood(state, places)
            state = state._replace(
                latent_BNV=latent_NV[None],
                log_proposal_BN=log_proposal[None],
                log_likelihood_BN=log_likelihood[None],
            )
            if effective_size(log_weights(state)[0]) >= 1.4 * self.enough * self.points:
                break
        return state

    def _mixture(self, state: CloudState, rng: Generator) -> _Mixture:
        """A mixture about the points of the cloud and of the prior that explain the history best."""
        cloud_NV, log_cloud = state.latent_BNV[0], log_weights(state)[0]
        draws_MV, log_draws = self.bank[0], state.log_prior_draws_BM[0]
        cloud_weight = _tempered(log_cloud, self.rising * self.points)
        draw_weight = _tempered(log_draws, self.rising * self.points)
        few = int(self.from_prior * self.centres)
        offsets = torch.rand(2, generator=rng).tolist()
        own = cloud_NV[systematic(cloud_weight[None], self.centres - few, offsets[0])[0]]
        other = draws_MV[systematic(draw_weight[None], few, offsets[1])[0]]
        factor_own = self._factors(own, cloud_NV, cloud_weight)
        factor_other = self._factors(other, draws_MV, draw_weight)
        share = torch.full((self.centres,), 1 / self.centres, dtype=torch.float64)
        return _Mixture(torch.cat([own, other]), torch.cat([factor_own, factor_other]), share)

    def _factors(self, centre_KV: Tensor, point_NV: Tensor, weight_N: Tensor) -> Float[Tensor, "K V V"]:
        """Factors of the scales: covariances of the points about each centre, narrowed as kernels are."""
        v = point_NV.shape[1]
        point, weight = point_NV.double(), weight_N
        mean = weight @ point
        whole = ((point - mean) * weight[:, None]).T @ (point - mean)
        whole = whole + 1e-6 * torch.eye(v)
        apart = point - centre_KV.double()[:, None]
        squared = (apart @ torch.linalg.inv(whole) * apart).sum(dim=-1)
        near = weight * torch.exp(-0.5 * squared / LOCAL)
        near = near / near.sum(dim=1, keepdim=True).clamp_min(1e-300)
        local = torch.einsum("kn,knv,knw->kvw", near, apart, apart)
        size = 1 / near.square().sum(dim=1).clamp_min(1e-300)
        blend = (4 * v / (size + 4 * v))[:, None, None]
        scale = (1 - blend) * local + blend * LOCAL * whole
        narrow = (4 / (v + 2)) ** (2 / (v + 4)) * float(len(centre_KV)) ** (-2 / (v + 4))
        return torch.linalg.cholesky(max(narrow, 0.2) * scale + 1e-7 * torch.eye(v))

    def _drawn(self, mixture: _Mixture, rng: Generator) -> Float[Tensor, "N V"]:
        """Points of the mixture: as many of every component."""
        n, (k, v) = self.points, mixture.centre_KV.shape
        of = torch.arange(n) * k // n
        normal = torch.randn((n, v), generator=rng, dtype=torch.float64)
        chi = torch.randn((n, int(DEGREES)), generator=rng, dtype=torch.float64).square().mean(dim=1, keepdim=True)
        moved = (mixture.factor_KVV[of] @ (normal / chi.sqrt())[..., None])[..., 0]
        return (mixture.centre_KV[of].double() + moved).clamp(-5, 5).float()

    def _log_density(self, mixture: _Mixture, latent_NV: Tensor) -> Float[Tensor, " N"]:
        """Log density of the mixture over that of the prior."""
        v = latent_NV.shape[1]
        apart = latent_NV.double() - mixture.centre_KV.double()[:, None]
        whitened = torch.linalg.solve_triangular(mixture.factor_KVV, apart.transpose(1, 2), upper=False)
        squared = whitened.square().sum(dim=1)
        log_determinant = mixture.factor_KVV.diagonal(dim1=1, dim2=2).log().sum(dim=1)
        constant = math.lgamma((DEGREES + v) / 2) - math.lgamma(DEGREES / 2) - 0.5 * v * math.log(DEGREES * math.pi)
        student = constant - log_determinant[:, None] - 0.5 * (DEGREES + v) * torch.log1p(squared / DEGREES)
        log_mixture = (student + mixture.share_K.log()[:, None]).logsumexp(dim=0)
        log_prior = -0.5 * latent_NV.double().square().sum(dim=1) - 0.5 * v * math.log(2 * math.pi)
        return log_mixture - log_prior

    def posterior(self, state: CloudState) -> Posterior:
        """The answers of the cloud and their weights."""
        answer = self.model.prior.places(state.latent_BNV)[..., : self.model.answer_space.dim]
        return Posterior(answer, torch.softmax(log_weights(state), dim=-1))

    def draws(self, state: CloudState, n: int, offset: float) -> Float[Tensor, "B n V"]:
        """Draws of places."""
        chosen = systematic(torch.softmax(log_weights(state), dim=-1), n, offset)
        latent = state.latent_BNV.gather(1, chosen[..., None].expand(-1, -1, state.latent_BNV.shape[-1]))
        return self.model.prior.places(latent)


LOCAL = 0.5
"""Squared width, in the cloud's own spread, of the neighbourhood that a component's scale is taken from."""


def log_weights(state: CloudState) -> Float[Tensor, "B N"]:
    """Log weights of the clouds."""
    return state.log_likelihood_BN - state.log_proposal_BN


def effective_size(log_weight_N: Float[Tensor, " N"]) -> float:
    """The effective number of weighted points."""
    weight = torch.softmax(log_weight_N, dim=-1)
    return float(1 / weight.square().sum())


def _tempered(log_weight_N: Tensor, floor: float) -> Float[Tensor, " N"]:
    """Weights raised to the largest power, at most one, that keeps their effective size at the floor; by bisection."""
    log_weight = log_weight_N - log_weight_N.max()
    low, high = 0.0, 1.0
    if effective_size(log_weight) < floor:
        for _ in range(14):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if effective_size(middle * log_weight) >= floor else (low, middle)
        return torch.softmax(low * log_weight, dim=-1)
    return torch.softmax(log_weight, dim=-1)
