"""Tempered sequential Monte Carlo over the parameters of a task, batched over episodes.

A cloud of particles stands for the posterior of an episode. An observation multiplies the weight of
each particle by its likelihood; when too few particles carry the weight, the cloud is *settled*: the
new likelihood is let in by powers 0 < phi_1 < ... < 1, each of which keeps the effective sample size
above a floor, and after each the particles are resampled and moved by Metropolis steps that leave

    prior(theta) * prod_{s settled} L_s(theta) * prod_{s pending} L_s(theta)^phi

invariant. Moves go along differences of other particles (differential evolution: they follow thin,
curved and many-moded posteriors), at random with the particles' covariance, and to fresh prior draws.

Random numbers are drawn for the particles of one episode and shared by all episodes, and an episode's
cloud depends on its own history and the seed alone, whatever else is in the batch. One accepted move more
or less changes every particle a few moves later, so this has to hold to the last digit:

* No matrix product over the batch in single precision precedes a decision: its kernel, and with it the last
  digit, depends on how many episodes there are. Sums over parameters and steps are written out in order.
* What precedes a decision (sums of log-likelihoods, weights, effective sizes, powers, evidence, gains) is in
  double precision, where the order of a sum that we do not control hardly ever changes a decision.
* A problem's likelihood is asked in calls whose shape does not depend on the batch: one episode per call, or
  where it broadcasts, and is therefore done entry by entry, whole vectors of particles per episode.

What a problem computes in single precision differs between processors in the last digit. There a cloud is
another draw from the same distribution, not the same cloud.

Shape suffixes: B episodes, N particles, P parameters, T steps, Q query, Y observation, C context.
Parameters are in unit coordinates, [-1, 1], throughout.

Arithmetic on rows of a few parameters is slow; where much of it is done, particles are the last index in memory (PBN).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from cicpe import trees
from cicpe.statistics import systematic, tempering_step

ROWS = 1 << 17
"""How many log-likelihoods are worked on at once, or those of one episode: what fits a cache."""
IMPOSSIBLE = -1e30
"""The log-likelihood of what cannot be: finite, so that differences and powers of it are numbers."""


class SMCTarget(NamedTuple):
    """Prior and likelihood, as the sampler takes them: in unit coordinates."""

    size: int
    """Number of parameters."""
    prior: Callable[[int, Generator], Tensor]
    """n draws of the parameters."""
    log_prior: Callable[[Tensor], Tensor] | None
    """Log density of the prior, up to a constant: n x P -> n. None where it is uniform."""
    log_likelihood: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    """(parameters P x B x N, context B x C, queries B x T x Q, observations B x T x Y) -> the log-likelihood of each
    observation, B x T x N, by calls whose shape does not depend on B. The parameters have B = 1 where they are the same
    for all episodes."""


class ParticleCloud(NamedTuple):
    """Particles of a batch of episodes, and what they are the posterior of. Weights are exp(log_pending)."""

    unit_BNP: Float[Tensor, "batch particle parameter"]
    log_prior_BN: Float[Tensor, "batch particle"]
    log_settled_BN: Float[Tensor, "batch particle"]
    """Log-likelihood of the observations that the particles were moved for."""
    log_pending_BN: Float[Tensor, "batch particle"]
    """Log-likelihood of the later ones, which the weights account for."""
    settled_B: Int[Tensor, " batch"]
    """How many observations are settled."""
    log_evidence_B: Float[Tensor, " batch"]
    """Estimated log probability of the settled observations: how good this cloud is beside another."""
    scale_B: Float[Tensor, " batch"]
    """Length of the moves, adapted to their acceptance."""
    acceptance_B: Float[Tensor, " batch"]
    """Share of accepted moves the last time that the cloud was settled."""
    distinct_B: Float[Tensor, " batch"]
    """Share of particles that are unlike any other."""
    context_BC: Float[Tensor, "batch context"]
    query_BTQ: Float[Tensor, "batch step query"]
    observation_BTY: Float[Tensor, "batch step observation"]


def prior_cloud(
    unit_MP: Float[Tensor, "draw parameter"],
    log_prior_M: Float[Tensor, " draw"],
    log_draws_BM: Float[Tensor, "batch draw"],
    context_BC: Float[Tensor, "batch context"],
    query_BTQ: Float[Tensor, "batch step query"],
    observation_BTY: Float[Tensor, "batch step observation"],
) -> ParticleCloud:
    """The prior's draws, weighted by the log-likelihoods ``log_draws_BM`` of whole histories."""
    batch = len(log_draws_BM)
    ones = torch.ones(batch, dtype=torch.float64)
    return ParticleCloud(
        unit_BNP=unit_MP.expand(batch, -1, -1),
        log_prior_BN=log_prior_M.expand(batch, -1),
        log_settled_BN=torch.zeros_like(log_draws_BM),
        log_pending_BN=log_draws_BM,
        settled_B=torch.zeros(batch, dtype=torch.long),
        log_evidence_B=torch.zeros_like(ones),
        scale_B=ones,
        acceptance_B=ones,
        distinct_B=ones,
        context_BC=context_BC,
        query_BTQ=query_BTQ,
        observation_BTY=observation_BTY,
    )


def weights(cloud: ParticleCloud) -> Float[Tensor, "batch particle"]:
    """Normalised weights of the particles, in double precision."""
    return torch.softmax(cloud.log_pending_BN.double(), dim=-1)


def resample(log_weight_BN: Float[Tensor, "batch particle"], n: int, rng: Generator) -> Int[Tensor, "batch {n}"]:
    """Systematic resampling: ``n`` ancestors per episode, each in proportion to its weight up to one copy."""
    offset = float(torch.rand(1, generator=rng, dtype=torch.float64))
    return systematic(torch.softmax(log_weight_BN.double(), dim=-1), n, offset)


def log_likelihoods(
    model: SMCTarget, unit_PBN: Float[Tensor, "parameter batch_or_one particle"], cloud: ParticleCloud, first: int = 0
) -> Float[Tensor, "2 batch particle"]:
    """Log-likelihoods of the settled and of the pending observations, from observation ``first`` on."""
    seen = cloud.query_BTQ[:, first:], cloud.observation_BTY[:, first:]
    value_BTN = model.log_likelihood(unit_PBN, cloud.context_BC, *seen)
    sum_2BN = _sums(cloud.settled_B - first, value_BTN)
    if not bool(sum_2BN.isfinite().all()):
        # Zero times infinity is NaN, and what is impossible at a settled step may be likely at the others.
        value_BTN = value_BTN.nan_to_num(nan=IMPOSSIBLE, posinf=-IMPOSSIBLE, neginf=IMPOSSIBLE)
        sum_2BN = _sums(cloud.settled_B - first, value_BTN).clamp(IMPOSSIBLE, -IMPOSSIBLE)
    return sum_2BN


def _sums(settled_B: Tensor, value_BTN: Tensor) -> Float[Tensor, "2 batch particle"]:
    """Sums over the settled and over the later steps, in their order and in double precision."""
    sum_2BN = torch.zeros(2, len(value_BTN), value_BTN.shape[-1], dtype=torch.float64)
    of_settled_BN, of_later_BN = sum_2BN.unbind()
    fewest, most = (int(steps) for steps in settled_B.aminmax())
    for t, value_BN in enumerate(value_BTN.unbind(dim=1)):
        if fewest <= t < most:
            is_settled_B1 = (t < settled_B).double()[:, None]
            sum_2BN.addcmul_(torch.stack([is_settled_B1, 1 - is_settled_B1]), value_BN.double())
        else:
            (of_settled_BN if t < fewest else of_later_BN).add_(value_BN)
    return sum_2BN


def log_priors(
    model: SMCTarget, unit_PBN: Float[Tensor, "parameter batch particle"]
) -> Float[Tensor, "batch particle"]:
    """Log density of the prior, up to a constant, one episode per call."""
    if model.log_prior is None:
        return torch.zeros(unit_PBN.shape[1:], dtype=torch.float64)
    each = (model.log_prior(unit_PN.T) for unit_PN in unit_PBN.unbind(dim=1))
    return torch.stack([log_prior_N.double() for log_prior_N in each])


def latest_log_likelihood(
    model: SMCTarget, unit_PBN: Float[Tensor, "parameter batch_or_one particle"], cloud: ParticleCloud
) -> Float[Tensor, "batch particle"]:
    """Log-likelihood of the latest observation, which is not settled yet."""
    latest = cloud.query_BTQ.shape[1] - 1
    parts = portions(cloud, ROWS // unit_PBN.shape[-1])
    shared = unit_PBN.shape[1] == 1
    return torch.cat(
        [log_likelihoods(model, unit_PBN if shared else unit_PBN[:, some], part, latest)[1] for some, part in parts]
    )


def portions(cloud: ParticleCloud, most: int) -> Iterator[tuple[slice, ParticleCloud]]:
    """The episodes in parts of about the same size, with at most ``most`` (or one) in each."""
    batch = len(cloud.settled_B)
    size = -(-batch // -(-batch // max(1, most)))
    for begin in range(0, batch, size):
        some = slice(begin, begin + size)
        yield some, ParticleCloud(*(leaf[some] for leaf in cloud))


def reflect(unit: Float[Tensor, "*batch parameter"]) -> Float[Tensor, "*batch parameter"]:
    """Folds points back into [-1, 1] at its walls: a symmetric move stays symmetric."""
    folded = unit + 1
    folded.sub_((folded / 4).floor_(), alpha=4)
    return 1 - folded.sub_(2).abs_()


class MoveDraws(NamedTuple):
    """The random numbers of one move of n particles, which all episodes share."""

    one: Int[Tensor, " particle"]
    two: Int[Tensor, " particle"]
    """Particles that a particle may move along the difference of."""
    along: Float[Tensor, " particle"]
    """How far along it, in units of the episode's scale."""
    jump: Float[Tensor, " particle"]
    """The same, whatever the scale."""
    walk: Float[Tensor, " particle"]
    """How far to walk at random, in units of the scale."""
    noise_PN: Float[Tensor, "parameter particle"]
    moved_PN: Float[Tensor, "parameter particle"]
    """One where a coordinate changes, else zero."""
    fresh: Bool[Tensor, " particle"]
    """Which particles move to a draw from the prior instead."""
    local: Bool[Tensor, " particle"]
    """Which do not, and how many these are."""
    n_local: Float[Tensor, ""]
    prior_PF: Float[Tensor, "parameter fresh"]
    log_uniform: Float[Tensor, " particle"]
    """What a gain is compared with."""


def draw_move(model: SMCTarget, n: int, global_share: float, rng: Generator) -> MoveDraws:
    """Random numbers for a move. Thresholds were chosen for this sequence of them, which a change would replace."""
    p = model.size
    kind = torch.rand(n, generator=rng)
    length = torch.exp(math.log(0.1) * torch.rand(n, generator=rng)) * 1.5
    start, end = (torch.randperm(n, generator=rng) for _ in range(2))
    # Half of the moves change every coordinate, half a random part of them.
    share = torch.where(torch.rand(n, generator=rng) < 0.5, 1.0, torch.rand(n, generator=rng).clamp_min(1 / p))
    moved_PN = (share > torch.rand((n, p), generator=rng).T).float()
    noise_NP = torch.randn((n, p), generator=rng)
    scale = length * 2.38 / moved_PN.sum(dim=0).clamp_min(1.0).sqrt()
    # Along differences, some of them as long as the difference itself; otherwise, and a hundredth as far, walks.
    is_along = kind < 0.65
    is_jump = is_along & (torch.rand(n, generator=rng) < 0.15)
    fresh = kind > 1 - global_share
    local = ~fresh
    return MoveDraws(
        one=start,
        two=end,
        along=torch.where(is_along & ~is_jump, scale / math.sqrt(2), 0.0),
        jump=is_jump.float(),
        walk=torch.where(is_along, 0.01 * scale, scale),
        noise_PN=noise_NP.T,
        moved_PN=moved_PN.contiguous(),
        fresh=fresh,
        local=local,
        n_local=local.sum().double(),
        prior_PF=model.prior(n, rng)[fresh].T,
        log_uniform=torch.rand(n, generator=rng).double().log(),
    )


def _candidates(unit_PBN: Tensor, root_columns: Sequence[Tensor], scale_B: Tensor, draws: MoveDraws) -> Tensor:
    """One proposed move per particle."""
    start_PBN, end_PBN = (unit_PBN.gather(2, index.expand_as(unit_PBN)) for index in (draws.one, draws.two))
    scale_B1 = scale_B.float()[:, None]
    step_PBN = start_PBN.sub_(end_PBN).mul_(scale_B1 * draws.along + draws.jump)
    noises = draws.noise_PN.unbind()
    walk_PBN = root_columns[0] * noises[0]
    for p in range(1, len(noises)):
        walk_PBN[p:].addcmul_(root_columns[p], noises[p])
    step_PBN.add_(walk_PBN.mul_(scale_B1 * draws.walk)).mul_(draws.moved_PN[:, None])
    proposed_PBN = reflect(step_PBN.add_(unit_PBN))
    proposed_PBN[:, :, draws.fresh] = draws.prior_PF[:, None]
    return proposed_PBN


def _root_columns(unit_PBN: Tensor) -> list[Float[Tensor, "rest batch 1"]]:
    """The columns, from the diagonal down, of the root of each episode's covariance, in single precision."""
    centred_PBN = unit_PBN.double()  # a nearly flat cloud has no Cholesky root in single precision
    centred_PBN -= centred_PBN.mean(dim=-1, keepdim=True)
    covariance = torch.einsum("pbn,qbn->bpq", centred_PBN, centred_PBN) / unit_PBN.shape[-1]
    ridge = 1e-6 * covariance.diagonal(dim1=-2, dim2=-1).mean(dim=-1) + 1e-14
    root_BPP: Tensor = torch.linalg.cholesky(covariance + ridge[:, None, None] * torch.eye(len(unit_PBN)))
    root_PBP = root_BPP.float().transpose(0, 1)
    return [root_PBP[p:, :, p, None] for p in range(len(unit_PBN))]


def move(model: SMCTarget, cloud: ParticleCloud, phi_B: Tensor, draws: Sequence[MoveDraws]) -> ParticleCloud:
    """Metropolis moves of every particle, with the pending likelihood at power ``phi_B``."""
    batch = len(cloud.unit_BNP)
    unit_PBN = cloud.unit_BNP.permute(2, 0, 1).clone(memory_format=torch.contiguous_format)
    root_columns = _root_columns(unit_PBN)
    prior, log_2BN = cloud.log_prior_BN.clone(), torch.stack([cloud.log_settled_BN, cloud.log_pending_BN])
    scale_B, accepted_B = cloud.scale_B, torch.zeros(batch, dtype=torch.float64)
    for draw in draws:
        proposed_PBN = _candidates(unit_PBN, root_columns, scale_B, draw)
        new_2BN = log_likelihoods(model, proposed_PBN, cloud)
        settled_BN, pending_BN = new_2BN - log_2BN
        gain, changes = pending_BN.mul_(phi_B[:, None]).add_(settled_BN), [(unit_PBN, proposed_PBN), (log_2BN, new_2BN)]
        if model.log_prior is not None:
            new_prior = log_priors(model, proposed_PBN)
            gain += torch.where(draw.fresh, 0.0, new_prior - prior)  # a draw from the prior has paid for it
            changes.append((prior, new_prior))
        accept = draw.log_uniform < gain
        for old, new in changes:
            torch.where(accept, new, old, out=old)
        rate = (accept & draw.local).sum(dim=-1) / draw.n_local
        accepted_B = accepted_B + rate / len(draws)
        scale_B = (scale_B * torch.exp(rate - 0.25)).clamp(1e-3, 2.0)
    return cloud._replace(
        unit_BNP=unit_PBN.permute(1, 2, 0),
        log_prior_BN=prior,
        log_settled_BN=log_2BN[0],
        log_pending_BN=log_2BN[1],
        scale_B=scale_B,
        acceptance_B=accepted_B,
    )


def _at(cloud: ParticleCloud, ancestor_BN: Tensor) -> ParticleCloud:
    unit_PBN = cloud.unit_BNP.permute(2, 0, 1)
    return cloud._replace(
        unit_BNP=unit_PBN.gather(2, ancestor_BN.expand(len(unit_PBN), -1, -1)).permute(1, 2, 0),
        log_prior_BN=cloud.log_prior_BN.gather(1, ancestor_BN),
        log_settled_BN=cloud.log_settled_BN.gather(1, ancestor_BN),
        log_pending_BN=cloud.log_pending_BN.gather(1, ancestor_BN),
    )


def temper_and_move(
    model: SMCTarget, cloud: ParticleCloud, n: int, floor: float, moves: int, global_share: float, most: int, seed: int
) -> ParticleCloud:
    """Lets the pending observations in by tempering; afterwards ``n`` particles of equal weight stand for all.

    Args:
        model: Prior and likelihood.
        cloud: The particles, weighted by the pending observations.
        n: How many particles to keep.
        floor: Least effective sample size of a resampling, in particles.
        moves: Metropolis moves after each resampling.
        global_share: Share of moves that are fresh prior draws.
        most: The most powers; the last goes all the way, however degenerate.
        seed: Seed of this cloud's moves.
    """
    phi_B = torch.zeros(len(cloud.unit_BNP), dtype=torch.float64)
    active = torch.arange(len(phi_B))
    done: ParticleCloud | None = None
    live = cloud
    for k in range(most):
        rng = torch.Generator().manual_seed(seed + k)
        left_B = 1 - phi_B
        delta_B = left_B if k == most - 1 else tempering_step(live.log_pending_BN, left_B, floor)
        log_weight = live.log_pending_BN * delta_B[:, None]
        gain_B = torch.logsumexp(log_weight, dim=-1) - math.log(log_weight.shape[-1])
        live = _at(live, resample(log_weight, n, rng))._replace(log_evidence_B=live.log_evidence_B + gain_B)
        phi_B = torch.where(delta_B >= left_B, 1.0, phi_B + delta_B)
        draws = [draw_move(model, n, global_share, rng) for _ in range(moves)]
        parts = portions(live, ROWS // (n * live.query_BTQ.shape[1]))
        live = trees.concatenate([move(model, part, phi_B[some], draws) for some, part in parts])
        done = live if done is None else replace_episodes(done, active, live)
        rest = phi_B < 1
        if not bool(rest.any()):
            break
        active, live, phi_B = active[rest], trees.select(live, rest), phi_B[rest]
    assert done is not None
    return _all_settled(done)


def merge(first: ParticleCloud, second: ParticleCloud, seed: int) -> ParticleCloud:
    """Two clouds of the same histories as one of the same size, each with its evidence as weight.

    A cloud that missed the mode where most of the posterior is has by far the smaller evidence.
    """
    pair = (first, second)
    n = first.unit_BNP.shape[1]
    log_weight = torch.cat(
        [c.log_evidence_B[:, None] + c.log_pending_BN - math.log(c.unit_BNP.shape[1]) for c in pair], dim=1
    )
    joined = first._replace(
        unit_BNP=torch.cat([c.unit_BNP for c in pair], dim=1),
        log_prior_BN=torch.cat([c.log_prior_BN for c in pair], dim=1),
        log_settled_BN=torch.cat([c.log_settled_BN + c.log_pending_BN for c in pair], dim=1),
        log_pending_BN=torch.zeros_like(log_weight),
        log_evidence_B=torch.logsumexp(log_weight, dim=1) - math.log(2),
        scale_B=torch.minimum(first.scale_B, second.scale_B),
        acceptance_B=torch.maximum(first.acceptance_B, second.acceptance_B),
    )
    return _all_settled(_at(joined, resample(log_weight, n, torch.Generator().manual_seed(seed))))


def _all_settled(cloud: ParticleCloud) -> ParticleCloud:
    order = cloud.unit_BNP[..., 0].sort(dim=-1).values
    return cloud._replace(
        log_settled_BN=cloud.log_settled_BN + cloud.log_pending_BN,
        log_pending_BN=torch.zeros_like(cloud.log_pending_BN),
        settled_B=torch.full_like(cloud.settled_B, cloud.query_BTQ.shape[1]),
        distinct_B=((order[:, 1:] != order[:, :-1]).float().sum(dim=-1) + 1) / order.shape[1],
    )


def replace_episodes(into: ParticleCloud, index: Tensor, rows: ParticleCloud) -> ParticleCloud:
    """``into`` with the episodes at ``index`` replaced."""

    def put(old: Tensor, new: Tensor) -> Tensor:
        return old.index_copy(0, index, new)

    return trees.map_leaves(put, into, rows)
