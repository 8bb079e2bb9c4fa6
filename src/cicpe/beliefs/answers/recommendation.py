"""The answer that succeeds on the largest mass of a weighted cloud, by mean shift from some of its points.

Shapes: B episodes, N points, X answer.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cicpe import trees
from cicpe.beliefs.answers.grid import WeightedAnswers
from cicpe.beliefs.answers.success import Success
from cicpe.spaces import Space, Sphere
from cicpe.statistics import systematic

STARTS = 48
"""Points that the search starts from."""
BEST = 4
"""Answers that mean shift goes on from."""
ROUNDS, ROUNDS_IF_LEARNED = 3, 2
"""Shifts of each; fewer where the loss is learned, and asking it takes most of the time."""
JUDGES = 768
"""Draws on which answers are judged."""
FEWER = 3
"""Starts are compared on every third of them; where the loss is learned, all answers but the last one."""


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
    compared = success.compared(answers, place_BNV[:, ::FEWER])
    best = torch.stack([_taken(answers, _most_hits(success.within(compared, epsilon))) for epsilon in epsilons], dim=1)
    every = _Climb(success, space, target_BNX, place_BNV, torch.tensor(epsilons)[:, None, None])
    if success.learned:
        some = every._replace(target_BNX=target_BNX[:, ::FEWER], place_BNV=place_BNV[:, ::FEWER])
        best = some.from_starts(best, ROUNDS_IF_LEARNED)[0][:, :, None]
    answers_BEX, confidence_BE = every.from_starts(best, 0 if success.learned else ROUNDS)
    return list(zip(answers_BEX.unbind(dim=1), confidence_BE.unbind(dim=1), strict=True))


class _Climb(NamedTuple):
    """Mean shift to where the mass of success is largest, at all epsilons together."""

    success: Success
    space: Space
    target_BNX: Tensor
    place_BNV: Tensor
    epsilon_E11: Tensor

    def from_starts(self, answers_BEAX: Tensor, rounds: int) -> tuple[Float[Tensor, "B E X"], Float[Tensor, "B E"]]:
        """The best answers that some starts lead to, and their masses."""
        answers, hits = answers_BEAX, self._hits(answers_BEAX)
        for _ in range(rounds):
            best = _most_hits(hits)
            old, hits_old = _taken(answers, best), _taken(hits, best)
            total = hits_old.double().sum(dim=-1, keepdim=True)
            shifted = torch.where(total > 1e-9, self._centre(old, hits_old, total.clamp_min(1e-9)), old)
            shifted = self.space.project(shifted) if isinstance(self.space, Sphere) else shifted
            answers, hits = torch.cat([old, shifted], dim=2), torch.cat([hits_old, self._hits(shifted)], dim=2)
        confidence, place = hits.double().mean(dim=-1).max(dim=2)
        return _taken(answers, place[..., None])[:, :, 0], confidence.clamp(0, 1)

    def _centre(self, answers_BEAX: Tensor, hits_BEAN: Tensor, total_BEA1: Tensor) -> Float[Tensor, "B E A X"]:
        """The mean of the targets that answers hit."""
        if not self.success.wraps:
            return (hits_BEAN.double() @ self.target_BNX.double()[:, None] / total_BEA1).float()
        apart = self.success.apart(answers_BEAX[..., None, :], self.target_BNX[:, None, None])
        mean = ((hits_BEAN[..., None] * apart).double().sum(dim=-2) / total_BEA1).float()
        # Back into the box, at the other end where a coordinate wraps.
        return -self.success.apart(answers_BEAX + mean, torch.zeros_like(mean))

    def _hits(self, answers_BEAX: Tensor) -> Float[Tensor, "B E A N"]:
        """How well every answer does on every judge, at its own epsilon."""
        compared = self.success.compared(answers_BEAX.flatten(1, 2), self.place_BNV)
        by_epsilon = trees.map_leaves(lambda part: part.unflatten(1, answers_BEAX.shape[1:3]), compared)
        return self.success.within(by_epsilon, self.epsilon_E11)


def _most_hits(hits: Float[Tensor, "*batch A N"]) -> Int[Tensor, "*batch best"]:
    """The answers with the largest masses; of those that are as good, the first."""
    mass = (hits.double().sum(dim=-1) * 2**20).round()
    return mass.sort(dim=-1, descending=True, stable=True).indices[..., :BEST]


def _best(answers_BAX: Tensor, hits_BAN: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """The answer with the largest mass, and that mass."""
    confidence, place = (hits_BAN.double().sum(dim=-1) * share).max(dim=1)
    return answers_BAX[torch.arange(len(place)), place], confidence.clamp(0, 1)


def _taken(part: Float[Tensor, "*batch N X"], chosen: Int[Tensor, "*batch n"]) -> Float[Tensor, "*batch n X"]:
    return part.gather(-2, chosen[..., None].expand(*chosen.shape, part.shape[-1]))
