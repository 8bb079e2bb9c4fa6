"""What observations of the same tasks at the same queries show: all that varies between them is noise.

Where two entries vary together, a likelihood that takes them for independent counts the same evidence twice, or misses
what only their difference tells. Where noise is a share of the reading, small readings tell as much as large ones, and
an even scale would hide them.

Shapes: G pairs of a task and a query, R observations of each, Y entries.
"""

import math
import time

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.problems import Problem, TaskBatch

PAIRS, REPEATS = 512, 8
"""Pairs of a task and a query, and how often each is observed, at most."""
FEWEST_PAIRS = 16
CLEAR = 6.0
"""Standard deviations from chance above which entries depend on each other."""
STEADIER = 0.5
"""How much less the logarithm of the noise varies on a logarithmic scale than on an even one where that is taken."""
BEYOND_CHANCE = 0.1
"""And by how much it has to be less: with eight observations, chance alone gives both 0.07."""


def observe_repeatedly(problem: Problem, rng: Generator, seconds: float | None = None) -> Float[Tensor, "G R Y"]:
    """Repeated observations of some tasks, each at a query of its own.

    Args:
        problem: The family.
        rng: Draws tasks, queries and observations.
        seconds: About how long it may take, where simulations are slow.

    Returns:
        Observations of a few pairs at least.
    """
    began = time.perf_counter()
    repeats = [_observed(problem, FEWEST_PAIRS, rng)]
    each = time.perf_counter() - began
    rounds = PAIRS // FEWEST_PAIRS
    if seconds is not None:
        rounds = max(1, min(rounds, int(seconds / max(each, 1e-9))))
    repeats += [_observed(problem, FEWEST_PAIRS, rng) for _ in range(rounds - 1)]
    return torch.cat(repeats)


def _observed(problem: Problem, pairs: int, rng: Generator) -> Float[Tensor, "G R Y"]:
    tasks = TaskBatch.draw(problem, pairs, rng)
    query = problem.query_space.sample(pairs, rng)
    return torch.stack([tasks.observe(query, rng) for _ in range(REPEATS)], dim=1).float()


def entries_depend(seen_GRY: Float[Tensor, "G R Y"]) -> bool:
    """Whether some entries vary together where everything that is hidden is held fixed.

    Args:
        seen_GRY: Repeated observations.

    Returns:
        Whether they do; False for a single entry, and for simulators without noise.
    """
    return seen_GRY.shape[-1] > 1 and excess(seen_GRY) > CLEAR


def excess(seen_GRY: Float[Tensor, "G R Y"]) -> float:
    """By how many standard deviations the squared correlations within pairs exceed those of independent entries.

    Of R independent observations, (R - 1) r^2 has mean 1 for every two entries, where r is their rank correlation. The
    sign of a dependence may differ between pairs. Entries that do not vary in a pair are left out.

    Args:
        seen_GRY: Observations of the same task at the same query, for several such pairs.

    Returns:
        The excess over all pairs, for the two entries that show most of it.
    """
    r = seen_GRY.shape[1]
    ranks = seen_GRY.double().argsort(dim=1, stable=True).argsort(dim=1, stable=True).double()
    varies = _vary(seen_GRY)
    # Ties stand for the same value: their ranks are averaged, so that their order says nothing.
    same = (seen_GRY[:, :, None] == seen_GRY[:, None]).double()
    ranks = (same * ranks[:, None]).sum(dim=2) / same.sum(dim=2)
    centred = ranks - ranks.mean(dim=1, keepdim=True)
    scaled = centred / torch.linalg.vector_norm(centred, dim=1, keepdim=True).clamp_min(1e-12)
    squared = (scaled.transpose(1, 2) @ scaled).square() * (r - 1)
    both = (varies[:, :, None] & varies[:, None]).double()
    above = (squared - 1) * both
    # By their own variance: that of entries with ties is larger than of others.
    score = above.sum(dim=0) / above.square().sum(dim=0).clamp_min(1.0).sqrt()
    score.fill_diagonal_(-math.inf)
    return float(score.max())


def noise_is_a_share(seen_GRY: Float[Tensor, "G R Y"]) -> tuple[bool | None, ...]:
    """Whether the noise of each entry is a share of the reading, rather than as large for all readings.

    Args:
        seen_GRY: Repeated observations.

    Returns:
        For each entry, whether its noise varies less from pair to pair on a logarithmic scale; None where readings are
        not positive, or without noise.
    """
    varies = _vary(seen_GRY)
    return tuple(
        _is_a_share(seen_GRY[own, :, entry].double()) if int(own.sum()) >= FEWEST_PAIRS // 2 else None
        for entry, own in enumerate(varies.T)
    )


def _is_a_share(seen_GR: Float[Tensor, "G R"]) -> bool | None:
    if float(seen_GR.min()) <= 0:
        return None
    even, logarithmic = (float(seen.std(dim=1).log().var()) for seen in (seen_GR, seen_GR.log()))
    return logarithmic < STEADIER * even and logarithmic < even - BEYOND_CHANCE


def _vary(seen_GRY: Float[Tensor, "G R Y"]) -> Tensor:
    """Which entries of which pairs vary: more than single precision rounds."""
    seen = seen_GRY.double()
    varies: Tensor = seen.std(dim=1) > 1e-6 * seen.abs().amax(dim=1) + 1e-30
    return varies
