"""A second search of the posterior of one episode, from the prior: for surfaces whose modes a mixture misses.

A mixture of components about good points finds what is near them. Where the posterior has many modes in many
coordinates, the right one may be near none. Sequential Monte Carlo from the prior lets the likelihood in by powers, and
its moves cross between modes while they are still shallow.

Shapes: M draws of the prior, N points, V coordinates, T steps.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.beliefs.answers.model import AnswerModel
from cicpe.beliefs.answers.network import PreparedPlaces
from cicpe.beliefs.smc import SMCTarget, prior_cloud, temper_and_move

FLOOR = 0.5
"""Share of effective points that a step of the rising power keeps."""
MOVES = 4
"""Moves per step."""
GLOBAL_SHARE = 0.03
"""Share of moves that are draws of the prior."""
POWERS = 40
"""The most steps."""
EDGE = 1e-6
"""Probability beyond which latent coordinates are cut off."""


class Evidence(NamedTuple):
    """What was observed in one episode, and how the prior's draws explain it."""

    query_TQ: Float[Tensor, "T Q"]
    encoded_TY: Float[Tensor, "T Y"]
    context_C: Float[Tensor, " C"]
    log_draws_M: Float[Tensor, " M"]


class Annealed(NamedTuple):
    """Points that stand for the posterior, all with the same weight."""

    latent_NV: Float[Tensor, "N V"]
    log_likelihood_N: Float[Tensor, " N"]
    log_evidence: float


def annealed(
    model: AnswerModel, bank_MV: Float[Tensor, "M V"], seen: Evidence, n: int, rows: int, seed: int
) -> Annealed:
    """Sequential Monte Carlo from the prior's draws.

    Args:
        model: Prior and likelihood.
        bank_MV: The prior's draws, in latent coordinates.
        seen: The episode.
        n: How many points to end with.
        rows: Pairs of an observation and a point that are scored at once.
        seed: Seeds the moves.

    Returns:
        The points, and the estimated log probability of what was observed.
    """
    unit_MV = (2 * torch.special.ndtr(bank_MV.double()) - 1).float()
    even_M = torch.zeros(len(bank_MV), dtype=torch.float64)
    seen_once = (part[None] for part in (seen.log_draws_M, seen.context_C, seen.query_TQ, seen.encoded_TY))
    start = prior_cloud(unit_MV, even_M, *seen_once)
    cloud = temper_and_move(_target(model, rows), start, n, FLOOR * n, MOVES, GLOBAL_SHARE, POWERS, seed)
    return Annealed(_latent(cloud.unit_BNP[0]), cloud.log_settled_BN[0], float(cloud.log_evidence_B[0]))


def _latent(unit: Tensor) -> Tensor:
    """Latent coordinates of points whose coordinates are uniform in [-1, 1] under the prior."""
    value: Tensor = torch.special.ndtri(((1 + unit.double()) / 2).clamp(EDGE, 1 - EDGE)).float()
    return value


def _target(model: AnswerModel, rows: int) -> SMCTarget:
    """Prior and likelihood as the sampler takes them, in coordinates that are uniform under the prior."""
    v = model.prior.latent_MV.shape[1]

    def prior(n: int, rng: Generator) -> Tensor:
        return 2 * torch.rand((n, v), generator=rng) - 1

    def task(unit: Tensor, context: Tensor) -> tuple[PreparedPlaces, Tensor]:
        return model.network.prepare(model.prior.places(_latent(unit))), context

    def log_likelihood(task: tuple[PreparedPlaces, Tensor], query: Tensor, encoded: Tensor) -> Tensor:
        places, context = task
        steps = max(1, rows // places.place.shape[-2])
        parts = zip(query.split(steps, dim=1), encoded.split(steps, dim=1), strict=True)  # type: ignore[no-untyped-call]
        return torch.cat(
            [model.heads.log_probability(model.network.at(some, places, context), seen) for some, seen in parts], dim=1
        )

    zeros = torch.zeros(v)
    return SMCTarget(zeros, zeros + 1, prior, None, task, log_likelihood, broadcasts=True)
