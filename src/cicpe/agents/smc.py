"""Tempered sequential Monte Carlo over the parameters of a task, batched over episodes.

A cloud of particles stands for the posterior of an episode. An observation multiplies the weight of
each particle by its likelihood; when too few particles carry the weight, the cloud is *settled*: the
new likelihood is let in by powers 0 < phi_1 < ... < 1, each of which keeps the effective sample size
above a floor, and after each the particles are resampled and moved by Metropolis steps that leave

    prior(theta) * prod_{s settled} L_s(theta) * prod_{s pending} L_s(theta)^phi

invariant. Moves go along differences of other particles (differential evolution: they follow thin,
curved and many-moded posteriors), at random with the particles' covariance, and to fresh prior draws.

Random numbers are drawn for the particles of one episode and shared by all episodes. An episode's
cloud therefore depends on its own history and the seed alone, whatever else is in the batch.

Shape suffixes: B episodes, N particles, P parameters, T steps, Q query, Y observation, C context.
Parameters are in unit coordinates, [-1, 1], throughout.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from cicpe import trees

ROWS = 1 << 15
"""How many tasks a likelihood is asked about at once: what fits a cache."""
IMPOSSIBLE = -1e30
"""The log-likelihood of what cannot be: finite, so that differences and powers of it are numbers."""

LogLikelihood = Callable[[Any, Tensor, Tensor], Tensor]
"""(n tasks, query n x Q, observation n x Y) -> log-likelihood, n."""


class Model(NamedTuple):
    """What the sampler needs to know of a problem."""

    prior: Callable[[int, Generator], Tensor]
    """n draws of the parameters, in unit coordinates."""
    log_prior: Callable[[Tensor], Tensor]
    """Log density of the prior, up to a constant: n x P -> n."""
    task: Callable[[Tensor, Tensor], Any]
    """Tasks from unit parameters, n x P, and context, n x C."""
    log_likelihood: LogLikelihood


class Cloud(NamedTuple):
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


def weights(cloud: Cloud) -> Float[Tensor, "batch particle"]:
    """Normalised weights of the particles."""
    return torch.softmax(cloud.log_pending_BN, dim=-1)


def effective_size(log_weight_BN: Float[Tensor, "batch particle"]) -> Float[Tensor, " batch"]:
    """(sum w)^2 / sum w^2, between 1 and the number of particles."""
    weight_BN = torch.exp(log_weight_BN - log_weight_BN.amax(dim=-1, keepdim=True))
    return weight_BN.sum(dim=-1).square() / weight_BN.square().sum(dim=-1)


def tempering_step(
    log_weight_BN: Float[Tensor, "batch particle"], left_B: Float[Tensor, " batch"], floor: float
) -> Float[Tensor, " batch"]:
    """The largest power of the weights, up to ``left_B``, that keeps the effective size at ``floor``: by bisection."""
    enough = effective_size(log_weight_BN * left_B[:, None]) >= floor
    # Of the logarithm: with many precise observations the first power is far below a thousandth.
    low, high = torch.full_like(left_B, math.log(1e-9)), left_B.log()
    for _ in range(12):
        middle = (low + high) / 2
        holds = effective_size(log_weight_BN * middle.exp()[:, None]) >= floor
        low, high = torch.where(holds, middle, low), torch.where(holds, high, middle)
    return torch.where(enough, left_B, low.exp().minimum(left_B))


def resample(log_weight_BN: Float[Tensor, "batch particle"], n: int, rng: Generator) -> Int[Tensor, "batch {n}"]:
    """Systematic resampling: ``n`` ancestors an episode, each in proportion to its weight up to one copy."""
    cumulative_BN = torch.softmax(log_weight_BN.double(), dim=-1).cumsum(dim=-1)
    comb = (torch.arange(n, dtype=torch.float64) + torch.rand(1, generator=rng, dtype=torch.float64)) / n
    comb_BN = (comb * cumulative_BN[:, -1:]).contiguous()
    return torch.searchsorted(cumulative_BN, comb_BN).clamp_max(log_weight_BN.shape[-1] - 1)


def log_likelihoods(
    model: Model,
    unit_BNP: Float[Tensor, "batch particle parameter"],
    cloud: Cloud,
    first: int = 0,
) -> tuple[Float[Tensor, "batch particle"], Float[Tensor, "batch particle"]]:
    """Log-likelihoods of the settled and of the pending observations, from observation ``first`` on."""
    batch, n, _ = unit_BNP.shape
    settled_BN, pending_BN = torch.zeros(batch, n), torch.zeros(batch, n)
    many = max(1, ROWS // n)
    for begin in range(0, batch, many):
        some = slice(begin, begin + many)
        task = model.task(unit_BNP[some].flatten(0, 1), cloud.context_BC[some].repeat_interleave(n, dim=0))
        split_B = cloud.settled_B[some]
        least, most = int(split_B.min()), int(split_B.max())
        for s in range(first, cloud.query_BTQ.shape[1]):
            query = cloud.query_BTQ[some, s].repeat_interleave(n, dim=0)
            observation = cloud.observation_BTY[some, s].repeat_interleave(n, dim=0)
            value = model.log_likelihood(task, query, observation).view(-1, n)
            if s < least:
                settled_BN[some] += value
            elif s >= most:
                pending_BN[some] += value
            else:
                is_settled = (split_B > s)[:, None]
                settled_BN[some] += torch.where(is_settled, value, 0.0)
                pending_BN[some] += torch.where(is_settled, 0.0, value)
    return _bounded(settled_BN), _bounded(pending_BN)


def _bounded(value: Tensor) -> Tensor:
    return value.nan_to_num(nan=IMPOSSIBLE, posinf=-IMPOSSIBLE, neginf=IMPOSSIBLE)


def reflect(unit: Float[Tensor, "*batch parameter"]) -> Float[Tensor, "*batch parameter"]:
    """Folds points back into [-1, 1] at its walls: a symmetric move stays symmetric."""
    return 1 - ((unit + 1).remainder(4.0) - 2).abs()


def _candidates(
    model: Model, unit_BNP: Tensor, root_BPP: Tensor, scale_B: Tensor, global_share: float, rng: Generator
) -> tuple[Tensor, Bool[Tensor, " particle"]]:
    """One proposed move a particle, and which of them are fresh draws from the prior."""
    _, n, p = unit_BNP.shape
    kind = torch.rand(n, generator=rng)
    length = torch.exp(math.log(0.1) * torch.rand(n, generator=rng))[:, None] * 1.5
    one, two = (torch.randperm(n, generator=rng) for _ in range(2))
    # Half of the moves change every coordinate, half a random part of them.
    share = torch.where(torch.rand(n, 1, generator=rng) < 0.5, 1.0, torch.rand(n, 1, generator=rng).clamp_min(1 / p))
    moved = torch.rand((n, p), generator=rng) < share
    used = moved.float().sum(dim=-1, keepdim=True).clamp_min(1.0)
    noise = torch.randn((n, p), generator=rng)
    whole_jump = (torch.rand(n, 1, generator=rng) < 0.15) & (kind[:, None] < 0.65)
    scale = scale_B[:, None, None] * length * 2.38 / used.sqrt()
    gamma = torch.where(whole_jump, 1.0, scale / math.sqrt(2))
    along = gamma * (unit_BNP[:, one] - unit_BNP[:, two])
    walk = torch.einsum("bpq,nq->bnp", root_BPP, noise)
    # Walks, and differences blurred by a hundredth of one.
    step = torch.where((kind < 0.65)[:, None], along + 0.01 * scale * walk, scale * walk)
    proposed = reflect(unit_BNP + step * moved)
    fresh = kind > 1 - global_share
    return torch.where(fresh[:, None], model.prior(n, rng), proposed), fresh


def move(model: Model, cloud: Cloud, phi_B: Tensor, moves: int, global_share: float, rng: Generator) -> Cloud:
    """Metropolis moves of every particle, with the pending likelihood at power ``phi_B``."""
    n, p = cloud.unit_BNP.shape[1:]
    centred = cloud.unit_BNP - cloud.unit_BNP.mean(dim=1, keepdim=True)
    centred = centred.double()  # a nearly flat cloud has no Cholesky root in single precision
    covariance = torch.einsum("bnp,bnq->bpq", centred, centred) / n
    ridge = 1e-6 * covariance.diagonal(dim1=-2, dim2=-1).mean(dim=-1) + 1e-14
    root_BPP = torch.linalg.cholesky(covariance + ridge[:, None, None] * torch.eye(p)).float()
    unit, prior, settled, pending = cloud[:4]
    scale_B, accepted_B = cloud.scale_B, torch.zeros(len(unit))
    for _ in range(moves):
        proposed, fresh = _candidates(model, unit, root_BPP, scale_B, global_share, rng)
        new_prior = model.log_prior(proposed.flatten(0, 1)).view(-1, n)
        new_settled, new_pending = log_likelihoods(model, proposed, cloud)
        gain = (new_settled - settled) + phi_B[:, None] * (new_pending - pending)
        gain = gain + torch.where(fresh, 0.0, new_prior - prior)  # a draw from the prior has paid for it
        accept = torch.rand(n, generator=rng).log() < gain
        unit = torch.where(accept[..., None], proposed, unit)
        prior = torch.where(accept, new_prior, prior)
        settled = torch.where(accept, new_settled, settled)
        pending = torch.where(accept, new_pending, pending)
        rate = (accept & ~fresh).float().sum(dim=-1) / (~fresh).sum()
        accepted_B = accepted_B + rate / moves
        scale_B = (scale_B * torch.exp(rate - 0.25)).clamp(1e-3, 2.0)
    return cloud._replace(
        unit_BNP=unit,
        log_prior_BN=prior,
        log_settled_BN=settled,
        log_pending_BN=pending,
        scale_B=scale_B,
        acceptance_B=accepted_B,
    )


def _at(cloud: Cloud, ancestor_BN: Tensor) -> Cloud:
    index = ancestor_BN[..., None].expand(-1, -1, cloud.unit_BNP.shape[-1])
    return cloud._replace(
        unit_BNP=cloud.unit_BNP.gather(1, index),
        log_prior_BN=cloud.log_prior_BN.gather(1, ancestor_BN),
        log_settled_BN=cloud.log_settled_BN.gather(1, ancestor_BN),
        log_pending_BN=cloud.log_pending_BN.gather(1, ancestor_BN),
    )


def settle(
    model: Model, cloud: Cloud, n: int, floor: float, moves: int, global_share: float, most: int, seed: int
) -> Cloud:
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
    phi_B = torch.zeros(len(cloud.unit_BNP))
    active = torch.arange(len(phi_B))
    done: Cloud | None = None
    live = cloud
    for k in range(most):
        rng = torch.Generator().manual_seed(seed + k)
        left_B = 1 - phi_B
        delta_B = left_B if k == most - 1 else tempering_step(live.log_pending_BN, left_B, floor)
        log_weight = live.log_pending_BN * delta_B[:, None]
        gain_B = torch.logsumexp(log_weight, dim=-1) - math.log(log_weight.shape[-1])
        live = _at(live, resample(log_weight, n, rng))._replace(log_evidence_B=live.log_evidence_B + gain_B)
        phi_B = torch.where(delta_B >= left_B, 1.0, phi_B + delta_B)
        live = move(model, live, phi_B, moves, global_share, rng)
        done = live if done is None else replace_episodes(done, active, live)
        rest = phi_B < 1
        if not bool(rest.any()):
            break
        active, live, phi_B = active[rest], trees.select(live, rest), phi_B[rest]
    assert done is not None
    return _all_settled(done)


def merge(one: Cloud, two: Cloud, seed: int) -> Cloud:
    """Two clouds of the same histories as one of the same size, each with its evidence as weight.

    A cloud that missed the mode where most of the posterior is has by far the smaller evidence.
    """
    pair = (one, two)
    n = one.unit_BNP.shape[1]
    log_weight = torch.cat(
        [c.log_evidence_B[:, None] + c.log_pending_BN - math.log(c.unit_BNP.shape[1]) for c in pair], dim=1
    )
    joined = one._replace(
        unit_BNP=torch.cat([c.unit_BNP for c in pair], dim=1),
        log_prior_BN=torch.cat([c.log_prior_BN for c in pair], dim=1),
        log_settled_BN=torch.cat([c.log_settled_BN + c.log_pending_BN for c in pair], dim=1),
        log_pending_BN=torch.zeros_like(log_weight),
        log_evidence_B=torch.logsumexp(log_weight, dim=1) - math.log(2),
        scale_B=torch.minimum(one.scale_B, two.scale_B),
        acceptance_B=torch.maximum(one.acceptance_B, two.acceptance_B),
    )
    return _all_settled(_at(joined, resample(log_weight, n, torch.Generator().manual_seed(seed))))


def _all_settled(cloud: Cloud) -> Cloud:
    order = cloud.unit_BNP[..., 0].sort(dim=-1).values
    return cloud._replace(
        log_settled_BN=cloud.log_settled_BN + cloud.log_pending_BN,
        log_pending_BN=torch.zeros_like(cloud.log_pending_BN),
        settled_B=torch.full_like(cloud.settled_B, cloud.query_BTQ.shape[1]),
        distinct_B=((order[:, 1:] != order[:, :-1]).float().sum(dim=-1) + 1) / order.shape[1],
    )


def replace_episodes(into: Cloud, index: Tensor, rows: Cloud) -> Cloud:
    """``into`` with the episodes at ``index`` replaced."""

    def put(old: Tensor, new: Tensor) -> Tensor:
        return old.index_copy(0, index, new)

    return trees.map_leaves(put, into, rows)
