"""Tasks with a likelihood as the target of a sampler."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from cicpe.beliefs.particles.parametrisation import Parametrisation
from cicpe.beliefs.smc import SMCTarget

VECTOR = 64
"""Entries that any processor works on at once divide this; functions of the rest of a row may be rounded otherwise."""

LogLikelihood = Callable[[Any, Tensor, Tensor], Tensor]
"""(n tasks, query n x Q, observation n x Y) -> log-likelihood, n."""


def task_target(ways: Parametrisation, likelihood: LogLikelihood, broadcasts: bool) -> SMCTarget:
    """The posterior of tasks.

    Args:
        ways: How tasks are numbers.
        likelihood: Of one observation per task.
        broadcasts: Whether tasks and likelihood take any leading dimensions that broadcast in the place of n.

    Returns:
        Prior and likelihood in unit coordinates.
    """
    half = ways.space.unit_scale[:, None, None]
    centre = ways.space.from_unit(torch.zeros_like(ways.space.unit_scale))[:, None, None]

    def ask(shape: tuple[int, ...], *parts: Tensor) -> Tensor:
        parameter, context, query, observation = combinations(shape, not broadcasts, *parts)
        return likelihood(ways.task(parameter, context), query, observation)

    def log_likelihood(
        unit_PBN: Tensor, context_BC: Tensor, query_BTQ: Tensor, observation_BTY: Tensor
    ) -> Float[Tensor, "batch step particle"]:
        n, (batch, steps, _) = unit_PBN.shape[-1], query_BTQ.shape
        unit_PBN = unit_PBN.expand(-1, batch, -1)
        if broadcasts and n % VECTOR:
            unit_PBN = torch.cat([unit_PBN, unit_PBN[..., -1:].expand(-1, -1, -n % VECTOR)], dim=-1)
        parameter = (unit_PBN * half + centre).permute(1, 2, 0)
        parts = parameter[:, None], context_BC[:, None, None], query_BTQ[:, :, None], observation_BTY[:, :, None]
        if broadcasts:
            return ask((), *parts)[..., :n]
        each = ([part[b] for part in parts] for b in range(batch))
        return torch.stack([ask((steps, n), *some).view(steps, n) for some in each])

    def log_prior(unit_NP: Tensor) -> Tensor:
        assert ways.log_prior is not None
        return ways.log_prior(ways.space.from_unit(unit_NP))

    def prior(n: int, rng: torch.Generator) -> Tensor:
        return ways.space.to_unit(ways.prior(n, rng))

    return SMCTarget(ways.space.dim, prior, None if ways.log_prior is None else log_prior, log_likelihood)


def combinations(shape: tuple[int, ...], as_rows: bool, *parts: Tensor) -> Sequence[Tensor]:
    """Tensors that broadcast to ``shape`` and a last dimension of their own, as they are or as rows."""
    return [part.expand(*shape, -1).flatten(0, -2) for part in parts] if as_rows else parts
