"""The answer that succeeds on the largest share of particles, and that share: a recommendation and its confidence.

Masses are sums of weights in double precision, rounded to a grid far above their rounding errors: answers that
succeed on as many particles are equal, and the first of them is taken, whatever else is in the batch.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from cicpe.problems import Problem, Task
from cicpe.spaces import Box

GRID = 2.0**40
"""Masses are whole multiples of one over this."""
BEST = 4
"""Answers that mean shift goes on from."""


class View(NamedTuple):
    """Particles as proposals look at them."""

    unit_BNP: Float[Tensor, "batch particle parameter"]
    weight_BN: Float[Tensor, "batch particle"]
    target_BNX: Float[Tensor, "batch particle answer"]
    context_BC: Float[Tensor, "batch context"]


def recommend(
    problem: Problem, view: View, epsilons: Sequence[float], task: Callable[[Tensor, Tensor], Task]
) -> tuple[Float[Tensor, "epsilon batch answer"], Float[Tensor, "epsilon batch"]]:
    """For each epsilon, the answer with the largest mass of particles within it, and that mass, by mean shift."""
    n = view.target_BNX.shape[1]
    first = torch.linspace(0, n - 1, min(n, 32)).long()
    mean_B1X = problem.answer_space.project(_mean(view.weight_BN[:, None], view.target_BNX))
    answer_BKX = torch.cat([mean_B1X, view.target_BNX[:, first]], dim=1)
    loss_BKN = _loss(problem, view, answer_BKX, task)
    best = {epsilon: _best(problem, view, epsilon, task, answer_BKX, loss_BKN) for epsilon in set(epsilons)}
    answers, confidences = zip(*(best[epsilon] for epsilon in epsilons), strict=True)
    return torch.stack(answers), torch.stack(confidences)


def _best(
    problem: Problem,
    view: View,
    epsilon: float,
    task: Callable[[Tensor, Tensor], Task],
    answer_BKX: Tensor,
    loss_BKN: Tensor,
) -> tuple[Float[Tensor, "batch answer"], Float[Tensor, " batch"]]:
    """The best answer that mean shift comes to from some answers, whose losses are known."""
    hits_BKN = _within(loss_BKN, epsilon)
    mass_BK = _mass(hits_BKN, view.weight_BN)
    for _ in range(3):
        # Stable: of answers with the same mass the first ones.
        best_BK = mass_BK.sort(dim=1, descending=True, stable=True).indices[:, :BEST]
        old, hits_old = (at.gather(1, best_BK[..., None].expand(-1, -1, at.shape[-1])) for at in (answer_BKX, hits_BKN))
        mass_old = mass_BK.gather(1, best_BK)
        shifted = problem.answer_space.project(_mean(hits_old * view.weight_BN[:, None], view.target_BNX))
        shifted = torch.where(mass_old[..., None] > 0, shifted, old)
        hits = _within(_loss(problem, view, shifted, task), epsilon)
        answer_BKX, hits_BKN = torch.cat([old, shifted], dim=1), torch.cat([hits_old, hits], dim=1)
        mass_BK = torch.cat([mass_old, _mass(hits, view.weight_BN)], dim=1)
    confidence, best = mass_BK.max(dim=1)
    return answer_BKX[torch.arange(len(best)), best], confidence.clamp(0, 1).float()


def _mass(hits_BKN: Tensor, weight_BN: Tensor) -> Float[Tensor, "batch answer"]:
    """The weight of what is hit, rounded so that equal masses are equal."""
    mass_BK: Tensor = (hits_BKN @ weight_BN[..., None])[..., 0]
    return mass_BK.mul_(GRID).round_().div_(GRID)


def _mean(weight_BKN: Tensor, target_BNX: Tensor) -> Float[Tensor, "batch answer dim"]:
    """Weighted means of the target, of weights in double precision that need not add up to one."""
    total_BK1 = weight_BKN.sum(dim=-1, keepdim=True).clamp_min(1e-12)
    return (weight_BKN @ target_BNX.double() / total_BK1).float()


def _within(loss: Tensor, epsilon: float) -> Tensor:
    """One where the loss is at most epsilon, else zero, in double precision."""
    return torch.le(loss, epsilon, out=torch.empty_like(loss, dtype=torch.float64))


def _loss(
    problem: Problem, view: View, answer_BKX: Tensor, task: Callable[[Tensor, Tensor], Task]
) -> Float[Tensor, "batch answer particle"]:
    """The loss of each answer on each particle."""
    if not problem.has_distance_loss:
        many, n = answer_BKX.shape[1], view.unit_BNP.shape[1]

        def of_episode(unit_NP: Tensor, context_C: Tensor, answer_KX: Tensor) -> Tensor:
            unit, answer = unit_NP.repeat(many, 1), answer_KX.repeat_interleave(n, dim=0)
            return problem.loss(task(unit, context_C.expand(len(unit), -1)), answer).view(many, n)

        return torch.stack(list(map(of_episode, view.unit_BNP, view.context_BC, answer_BKX)))
    if isinstance(problem.answer_space, Box):
        # The box's own distance, without every difference in memory.
        return torch.cdist(answer_BKX, view.target_BNX, compute_mode="donot_use_mm_for_euclid_dist")
    return problem.answer_space.distance(answer_BKX[:, :, None], view.target_BNX[:, None])
