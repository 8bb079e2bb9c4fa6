"""The answer that succeeds on the largest mass of a weighted cloud, by mean shift from some of its points.

Shapes: B episodes, N points, X answer.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from cicpe.beliefs.answers.grid import WeightedAnswers
from cicpe.beliefs.answers.success import Success
from cicpe.spaces import Space, Sphere
from cicpe.statistics import systematic

STARTS = 48
"""Points that the search starts from."""
BEST = 4
"""Answers that mean shift goes on from."""
JUDGES = 768
"""Draws on which answers are judged."""


def recommend(
    success: Success,
    space: Space,
    posterior: WeightedAnswers,
    epsilons: Sequence[float],
    values_AX: Float[Tensor, "A X"] | None = None,
) -> list[tuple[Float[Tensor, "B X"], Float[Tensor, " B"]]]:
    """The answer with the largest mass of success (in unit coordinates), and that mass, for each epsilon.

    Args:
        success: What a good answer is.
        space: Where answers lie.
        posterior: Weighted candidates.
        epsilons: How far off an answer may be.
        values_AX: All answers that there are, where they are a finite set: no others are tried.
    """
    judges = systematic(posterior.weight_BN, JUDGES, 0.5)
    target_BNX, share = _taken(posterior.answer_BNX, judges), 1 / JUDGES
    place_BNV = target_BNX if posterior.place_BNV is None else _taken(posterior.place_BNV, judges)
    if values_AX is not None:
        answers = values_AX.expand(len(target_BNX), -1, -1)
        compared = success.compared(answers, place_BNV)
        return [_best(answers, success.within(compared, epsilon), share) for epsilon in epsilons]
    mean = target_BNX.double().mean(dim=1, keepdim=True).float()
    starts = (torch.arange(STARTS) * JUDGES) // STARTS
    answers = torch.cat([mean, target_BNX[:, starts]], dim=1)
    answers = space.project(answers) if isinstance(space, Sphere) else answers
    compared = success.compared(answers, place_BNV)
    climb = _Climb(success, space, target_BNX, place_BNV)
    return [climb.from_starts(answers, success.within(compared, epsilon), epsilon) for epsilon in epsilons]


class _Climb(NamedTuple):
    """Mean shift to where the mass of success is largest."""

    success: Success
    space: Space
    target_BNX: Tensor
    place_BNV: Tensor

    def from_starts(self, answers: Tensor, hits: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        """The best answer that some starts lead to, and its mass."""
        share = 1 / JUDGES
        for _ in range(3):
            mass = (hits.double().sum(dim=-1) * share * 2**40).round()
            best = mass.sort(dim=1, descending=True, stable=True).indices[:, :BEST]
            old, hits_old = _taken(answers, best), _taken(hits, best)
            total = hits_old.double().sum(dim=-1, keepdim=True)
            shifted = (hits_old.double() @ self.target_BNX.double() / total.clamp_min(1e-9)).float()
            shifted = torch.where(total > 1e-9, shifted, old)
            shifted = self.space.project(shifted) if isinstance(self.space, Sphere) else shifted
            answers = torch.cat([old, shifted], dim=1)
            hits = torch.cat([hits_old, self.success(shifted, self.place_BNV, epsilon)], dim=1)
        return _best(answers, hits, share)


def _best(answers_BAX: Tensor, hits_BAN: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """The answer with the largest mass, and that mass."""
    confidence, place = (hits_BAN.double().sum(dim=-1) * share).max(dim=1)
    return answers_BAX[torch.arange(len(place)), place], confidence.clamp(0, 1)


def _taken(part: Tensor, chosen: Tensor) -> Tensor:
    return part.gather(1, chosen[..., None].expand(-1, -1, part.shape[-1]))
