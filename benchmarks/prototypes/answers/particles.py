"""Search over answers of several dimensions by particles: pairs of a candidate answer and a nuisance.

The nuisance of a pair is one of the network's codes, or, where it is read from tasks, further coordinates of the
particle's place. A new observation is scored once a particle; moves are made only when the effective sample size asks
for them; near a decision a second cloud is begun from the prior and merged, since one alone may have lost a mode.

Shapes: B episodes, N particles, M draws of the prior, V coordinates of a place, K codes, T steps, Q query, X answer,
Y observation, C context, S statistics.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import torch
from answer_prior import AnswerPrior
from jaxtyping import Float, Int
from search import Likelihood, Pairs, systematic
from torch import Generator, Tensor

from cicpe import trees
from cicpe.spaces import Sphere


class Cloud(NamedTuple):
    """Pairs of a candidate and a code, and what is known of each."""

    place_BNV: Float[Tensor, "B N V"]
    """The candidate in unit coordinates, followed by the nuisance where it is read from tasks."""
    code_BN: Int[Tensor, "B N"]
    """The place of the code among the network's points, where the nuisance is not read."""
    log_prior_BN: Float[Tensor, "B N"]
    """Log prior density of the candidate."""
    log_mix_BN: Float[Tensor, "B N"]
    """Log prior weight of the code."""
    sums_BNS: Float[Tensor, "B N S"]
    log_settled_BN: Float[Tensor, "B N"]
    """Log weight, beside the candidate's prior, that the particles are already distributed by."""


class Jumps(NamedTuple):
    """Weights of the prior's draws for global jumps, and the power of the likelihood that made them."""

    weight_BM: Float[Tensor, "B M"]
    power_B: Float[Tensor, " B"]


class ParticleState(NamedTuple):
    """The cloud, its history, and how the prior's own draws explain it."""

    cloud: Cloud
    prior_sums_BMS: Float[Tensor, "B M S"]
    settled_B: Int[Tensor, " B"]
    """How many observations the cloud's places already account for."""
    scale_B: Float[Tensor, " B"]
    """The length of moves, adapted to what is accepted."""
    log_evidence_B: Float[Tensor, " B"]
    """Log of how likely the settled observations are, as the cloud estimates it."""
    restarts_B: Int[Tensor, " B"]
    """How often a second cloud was begun from the prior and merged."""
    query_BTQ: Float[Tensor, "B T Q"]
    encoded_BTY: Float[Tensor, "B T Y"]
    context_BC: Float[Tensor, "B C"]
    time_B: Int[Tensor, " B"]


@final
@dataclass(frozen=True)
class ParticleSearch:
    """Sequential Monte Carlo over pairs, with tempering, ensemble moves and jumps to the prior's best draws.

    Random numbers depend on the step alone and are shared by all episodes, so an episode does not depend on
    which others are played beside it.
    """

    likelihood: Likelihood
    prior: AnswerPrior
    particles: int = 512
    prior_particles: int = 8192
    moves: int = 3
    powers: int = 12
    ess_share: float = 0.4
    jump_share: float = 0.08
    reach: float = 0.1
    """A distance in unit coordinates: clouds with much mass within it are near a decision."""
    restarts: int = 3
    """How often, near a decision, a second cloud is begun from the prior: one alone may have lost a mode."""
    seed: int = 0

    @cached_property
    def draws(self) -> tuple[Tensor, Tensor]:
        """Prior draws of places, each with a code; the same for every episode."""
        rng = torch.Generator().manual_seed(self.seed)
        many, network = self.prior.draws_MV, self.likelihood.network
        chosen = torch.randperm(len(many), generator=rng)[: self.prior_particles]
        code = torch.arange(len(chosen)) % network.codes
        return many[chosen], torch.zeros_like(code) if network.given else code

    def _split(self, place: Tensor, code: Tensor) -> tuple[Tensor, Tensor]:
        """Candidates in unit coordinates, and the codes themselves."""
        network, dim = self.likelihood.network, self.likelihood.problem.answer_space.dim
        return place[..., :dim], place[..., dim:] if network.given else network.points[code]

    def begin(self, context: Float[Tensor, "B C"]) -> ParticleState:
        """Nothing seen."""
        batch, problem = len(context), self.likelihood.problem
        place, code = self.draws[0].expand(batch, -1, -1), self.draws[1].expand(batch, -1)
        sums = torch.zeros(*code.shape, self.likelihood.heads.kept, dtype=torch.float64)
        log_prior = self.prior.log_density(self.draws[0]).expand(batch, -1)
        log_mix = self._log_mix(place, code, context)
        return ParticleState(
            cloud=Cloud(place, code, log_prior, log_mix, sums, torch.zeros_like(log_mix)),
            prior_sums_BMS=sums,
            settled_B=torch.zeros(batch, dtype=torch.long),
            scale_B=torch.ones(batch),
            log_evidence_B=torch.zeros(batch, dtype=torch.float64),
            restarts_B=torch.zeros(batch, dtype=torch.long),
            query_BTQ=torch.zeros(batch, 0, problem.query_space.dim),
            encoded_BTY=torch.zeros(batch, 0, len(self.likelihood.heads.heads)),
            context_BC=context,
            time_B=torch.zeros(batch, dtype=torch.long),
        )

    def _log_mix(self, place: Tensor, code: Tensor, context_BC: Tensor) -> Tensor:
        if self.likelihood.network.given:
            return torch.zeros(code.shape, dtype=torch.float64)  # it is part of the prior of the place
        answer, _ = self._split(place, code)
        log_mix = self.likelihood.network.log_mix(answer, context_BC[:, None])
        return log_mix.gather(-1, code[..., None])[..., 0].double()

    def _evidence(self, query: Tensor, encoded: Tensor, place: Tensor, code: Tensor, context: Tensor) -> Tensor:
        answer, vector = self._split(place, code)
        return self.likelihood.heads.evidence(self.likelihood.network(query, answer, context, vector), encoded)

    def _log_full(self, cloud: Cloud) -> Float[Tensor, "B N"]:
        """Log weight beside the candidate's prior, by everything observed."""
        return self.likelihood.heads.log_likelihood(cloud.sums_BNS) + cloud.log_mix_BN

    def _weight(self, state: ParticleState) -> Float[Tensor, "B N"]:
        return torch.softmax(self._log_full(state.cloud) - state.cloud.log_settled_BN, dim=-1)

    def observe(self, state: ParticleState, query_BQ: Tensor, encoded_BY: Tensor) -> ParticleState:
        """The particles with one more observation (query in unit coordinates)."""
        context, query, encoded = state.context_BC[:, None], query_BQ[:, None], encoded_BY[:, None]
        cloud = state.cloud
        place_MV, code_M = self.draws
        fresh = cloud.code_BN.shape[1] == len(code_M)
        prior_sums = state.prior_sums_BMS + self._evidence(query, encoded, place_MV, code_M, context)
        sums = prior_sums
        if not fresh:
            sums = cloud.sums_BNS + self._evidence(query, encoded, cloud.place_BNV, cloud.code_BN, context)
        state = state._replace(
            cloud=cloud._replace(sums_BNS=sums),
            prior_sums_BMS=prior_sums,
            query_BTQ=torch.cat([state.query_BTQ, query], dim=1),
            encoded_BTY=torch.cat([state.encoded_BTY, encoded], dim=1),
            time_B=state.time_B + 1,
        )
        if fresh:
            # All episodes leave the prior's draws after the same number of observations.
            return self._settle(state) if state.query_BTQ.shape[1] >= 2 else state
        due = 1 / self._weight(state).square().sum(dim=-1) < self.ess_share * self.particles
        if bool(due.any()):
            chosen = due.nonzero()[:, 0]
            state = _put(state, chosen, self._settle(trees.select(state, chosen)))
        near = (state.restarts_B < self.restarts) & (self._gathered(state) > 0.4)
        if bool(near.any()):
            chosen = near.nonzero()[:, 0]
            state = _put(state, chosen, self._restarted(trees.select(state, chosen)))
        return state

    def _gathered(self, state: ParticleState) -> Float[Tensor, " B"]:
        """The largest mass within reach of one particle, looked for among a few."""
        weight_BN, dim = self._weight(state), self.likelihood.problem.answer_space.dim
        answer_BNX = state.cloud.place_BNV[..., :dim]
        some = _take(answer_BNX, systematic(weight_BN, 24, 0.5))
        close = torch.cdist(some, answer_BNX, compute_mode="donot_use_mm_for_euclid_dist") <= self.reach
        return (close.double() @ weight_BN[..., None])[..., 0].amax(dim=1)

    def _restarted(self, state: ParticleState) -> ParticleState:
        """The cloud merged with one that is tempered from the prior's draws over the whole history.

        Each has a share by its estimate of the evidence: clouds in different modes are weighed as the modes are.
        """
        begun = self.begin(state.context_BC)
        second = state._replace(
            cloud=begun.cloud._replace(sums_BNS=state.prior_sums_BMS),
            settled_B=begun.settled_B,
            scale_B=begun.scale_B,
            log_evidence_B=begun.log_evidence_B,
        )
        second = self._settle(second, salt=7)
        gain_BN = self._log_full(state.cloud) - state.cloud.log_settled_BN
        first_B = state.log_evidence_B + gain_BN.logsumexp(dim=-1) - math.log(gain_BN.shape[1])
        share_B2 = torch.softmax(torch.stack([first_B, second.log_evidence_B], dim=-1), dim=-1)
        even = torch.full_like(gain_BN, 1 / self.particles)
        weight = torch.cat([share_B2[:, :1] * torch.softmax(gain_BN, dim=-1), share_B2[:, 1:] * even], dim=1)
        chosen = systematic(weight, self.particles, 0.5)
        both = [torch.cat(parts, dim=1) for parts in zip(state.cloud, second.cloud, strict=True)]
        cloud = Cloud(*(_take(part, chosen) for part in both))
        return state._replace(
            cloud=cloud._replace(log_settled_BN=self._log_full(cloud)),
            settled_B=state.time_B,
            log_evidence_B=torch.logaddexp(first_B, second.log_evidence_B) - math.log(2),
            restarts_B=state.restarts_B + 1,
        )

    def _settle(self, state: ParticleState, salt: int = 0) -> ParticleState:
        """Tempers the observations that are only weights so far into the particles' places, with moves.

        An episode whose power has reached one is left alone while others go on, so that none depends on them.
        """
        steps = state.query_BTQ.shape[1]
        power_B = torch.zeros(len(state.time_B), dtype=torch.float64)
        jumps = self._jumps(state)
        for turn in range(self.powers):
            active = (power_B < 1).nonzero()[:, 0]
            if len(active) == 0:
                break
            rng = torch.Generator().manual_seed(((self.seed * 1_000_003 + steps) * 101 + turn) * 11 + salt)
            some = trees.select(state, active)
            some, risen = self._tempered(
                some, power_B[active], trees.select(jumps, active), rng, turn == self.powers - 1
            )
            power_B = power_B.index_copy(0, active, risen)
            state = some if turn == 0 else _put(state, active, some)
        cloud = state.cloud._replace(log_settled_BN=self._log_full(state.cloud))
        return state._replace(cloud=cloud, settled_B=state.time_B)

    def _tempered(
        self, state: ParticleState, power_B: Tensor, jumps: "Jumps", rng: Generator, last: bool
    ) -> tuple[ParticleState, Tensor]:
        """One resampling towards the full likelihood, with moves, and the power that was reached."""
        cloud = state.cloud
        gain_BN = self._log_full(cloud) - cloud.log_settled_BN
        left_B = 1 - power_B
        rise_B = left_B if last else _rise(gain_BN, left_B, self.ess_share * self.particles)
        log_weight_BN = gain_BN * rise_B[:, None]
        chosen = systematic(torch.softmax(log_weight_BN, -1), self.particles, float(torch.rand((), generator=rng)))
        log_mean_B = log_weight_BN.logsumexp(dim=-1) - math.log(log_weight_BN.shape[1])
        state = state._replace(log_evidence_B=state.log_evidence_B + log_mean_B)
        cloud = Cloud(*(_take(part, chosen) for part in cloud))
        power_B = torch.where(rise_B >= left_B - 1e-9, 1.0, power_B + rise_B)
        for _ in range(self.moves):
            cloud, scale_B = self._moved(state, cloud, power_B, jumps, rng)
            state = state._replace(scale_B=scale_B)
        return state._replace(cloud=cloud), power_B

    def _jumps(self, state: ParticleState) -> "Jumps":
        """Where global jumps go."""
        log_likelihood = self.likelihood.heads.log_likelihood(state.prior_sums_BMS)
        power_B = _rise(log_likelihood, torch.ones(len(log_likelihood), dtype=torch.float64), 48.0)
        return Jumps(torch.softmax(log_likelihood * power_B[:, None], dim=-1), power_B)

    def _moved(
        self, state: ParticleState, cloud: Cloud, power_B: Tensor, jumps: "Jumps", rng: Generator
    ) -> tuple[Cloud, Tensor]:
        """One Metropolis move of every particle at a tempered target.

        Most proposals add a difference of two other particles, a third of them with another particle's code as
        well; some jump to a draw of the prior, chosen by a tempered likelihood.
        """
        space, given = self.likelihood.problem.answer_space, self.likelihood.network.given
        old_BNV, code_BN = cloud.place_BNV, cloud.code_BN
        batch, n, dim = old_BNV.shape
        one, two, three = (torch.randperm(n, generator=rng) for _ in range(3))
        length_N = torch.exp(-5.0 * torch.rand(n, generator=rng)) * 1.7 / math.sqrt(dim)
        length_BN1 = state.scale_B[:, None, None] * length_N[None, :, None]
        apart = old_BNV[:, one] - old_BNV[:, two]
        noise = 1e-4 * torch.randn((n, dim), generator=rng)
        draw_N = torch.rand(n, generator=rng)
        new_BNV = old_BNV + length_BN1 * apart + noise
        # Some moves change the code alone, or a single coordinate.
        alone_N = (draw_N > 0.9) & (not given)
        single_NV = torch.rand((n, dim), generator=rng).argsort(dim=1) == 0
        new_BNV = torch.where(
            alone_N[:, None] | ((draw_N > 0.75) & (draw_N <= 0.9))[:, None] & ~single_NV, old_BNV, new_BNV
        )
        if isinstance(space, Sphere):
            new_BNV = torch.cat([space.project(new_BNV[..., : space.dim]), new_BNV[..., space.dim :]], dim=-1)
        exchange_N = ((torch.rand(n, generator=rng) < 0.35) | (draw_N > 0.9)) & (not given)
        new_code_BN = torch.where(exchange_N, code_BN[:, three], code_BN)
        # Codes are proposed as often as they occur now; Metropolis needs that share.
        codes = self.likelihood.network.codes
        count_BK = torch.zeros(batch, codes, dtype=torch.float64)
        count_BK.scatter_add_(1, code_BN, torch.ones(batch, n, dtype=torch.float64))
        log_share_BK = count_BK.clamp_min(0.5).log()
        correction = log_share_BK.gather(1, code_BN) - log_share_BK.gather(1, new_code_BN)
        # Global jumps.
        jump_N = draw_N < self.jump_share
        place_BN = systematic(jumps.weight_BM, n, float(torch.rand((), generator=rng)))[
            :, torch.randperm(n, generator=rng)
        ]
        new_BNV = torch.where(jump_N[:, None], self.draws[0][place_BN], new_BNV)
        new_code_BN = torch.where(jump_N, self.draws[1][place_BN], new_code_BN)

        settled, sums = self._history(state, new_BNV, new_code_BN)
        heads = self.likelihood.heads
        log_mix = self._log_mix(new_BNV, new_code_BN, state.context_BC)
        none_settled_B1 = (state.settled_B == 0)[:, None]
        log_settled = torch.where(none_settled_B1, 0.0, heads.log_likelihood(settled) + log_mix)
        new = Cloud(new_BNV, new_code_BN, self.prior.log_density(new_BNV), log_mix, sums, log_settled)
        power_B1 = power_B[:, None]

        def log_target(of: Cloud) -> Tensor:
            return of.log_settled_BN + power_B1 * (self._log_full(of) - of.log_settled_BN)

        rise = log_target(new) - log_target(cloud)
        tempered = jumps.power_B[:, None] * (heads.log_likelihood(new.sums_BNS) - heads.log_likelihood(cloud.sums_BNS))
        log_ratio = torch.where(jump_N, rise - tempered, rise + correction + new.log_prior_BN - cloud.log_prior_BN)
        accepted = torch.rand(n, generator=rng).double().log() < log_ratio
        local_N = ~jump_N & ~alone_N
        rate_B = accepted[:, local_N].double().mean(dim=1)
        scale_B = (state.scale_B * torch.exp(0.8 * (rate_B - 0.27)).float()).clamp(0.02, 2.0)
        joined = [torch.where(_like(accepted, b), a, b) for a, b in zip(new, cloud, strict=True)]
        return Cloud(*joined), scale_B

    def _history(self, state: ParticleState, place_BNV: Tensor, code_BN: Tensor) -> tuple[Tensor, Tensor]:
        """Sums, for new pairs, of the observations settled before and of the whole history."""
        network, heads = self.likelihood.network, self.likelihood.heads
        steps = state.query_BTQ.shape[1]
        settled = torch.zeros(*code_BN.shape, heads.kept, dtype=torch.float64)
        sums = settled.clone()
        context_B1C = state.context_BC[:, None]
        answer_BNX, vector_BND = self._split(place_BNV, code_BN)
        for t in range(steps):
            parameters = network(state.query_BTQ[:, None, t], answer_BNX, context_B1C, vector_BND)
            evidence = heads.evidence(parameters, state.encoded_BTY[:, None, t])
            sums = sums + evidence
            settled = settled + torch.where((t < state.settled_B)[:, None, None], evidence, 0.0)
        return settled, sums

    def posterior(self, state: ParticleState) -> tuple[Float[Tensor, "B N X"], Float[Tensor, "B N"], Tensor]:
        """Candidates in unit coordinates and their weights, twice: a particle has one code."""
        weight_BN = self._weight(state)
        return state.cloud.place_BNV[..., : self.likelihood.problem.answer_space.dim], weight_BN, weight_BN

    def pairs(self, state: ParticleState, weight_BN: Tensor, n: int, offset: float) -> Pairs:
        """Equally weighted draws."""
        chosen = systematic(weight_BN, n, offset)
        cloud = state.cloud
        place, code, sums = (_take(part, chosen) for part in (cloud.place_BNV, cloud.code_BN, cloud.sums_BNS))
        answer, vector = self._split(place, code)
        return Pairs(answer, code, vector, sums.float(), chosen)


def _put(state: ParticleState, rows: Tensor, new: ParticleState) -> ParticleState:
    """The state with some of its episodes replaced."""
    return trees.map_leaves(lambda old, part: old.index_copy(0, rows, part), state, new)


def _take(part: Tensor, chosen_BN: Tensor) -> Tensor:
    index = chosen_BN.reshape(*chosen_BN.shape, *[1] * (part.ndim - 2))
    return part.gather(1, index.expand(*chosen_BN.shape, *part.shape[2:]))


def _like(mask_BN: Tensor, part: Tensor) -> Tensor:
    return mask_BN.reshape(*mask_BN.shape, *[1] * (part.ndim - 2))


def _rise(gain_BN: Tensor, left_B: Tensor, floor: float) -> Float[Tensor, " B"]:
    """The largest power, at most what is left, that keeps the effective size at the floor; by bisection."""
    gain_BN = gain_BN - gain_BN.amax(dim=-1, keepdim=True)

    def enough(power_B: Tensor) -> Tensor:
        weight = torch.exp(gain_BN * power_B[:, None])
        return weight.sum(dim=-1).square() / weight.square().sum(dim=-1) >= floor

    low, high = torch.zeros_like(left_B), left_B.clone()
    full = enough(high)
    for _ in range(14):
        middle = 0.5 * (low + high)
        fits = enough(middle)
        low, high = torch.where(fits, middle, low), torch.where(fits, high, middle)
    return torch.where(full, left_B, low.clamp_min(1e-6 * left_B))
