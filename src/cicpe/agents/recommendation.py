"""The answer that succeeds on the largest share of particles, and that share: a recommendation and its confidence."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from cicpe.problems import Problem, Task


class View(NamedTuple):
    """Particles as proposals look at them."""

    unit_BNP: Float[Tensor, "batch particle parameter"]
    weight_BN: Float[Tensor, "batch particle"]
    target_BNX: Float[Tensor, "batch particle answer"]
    context_BC: Float[Tensor, "batch context"]


def recommend(
    problem: Problem, view: View, epsilon: float, task: Callable[[Tensor, Tensor], Task]
) -> tuple[Float[Tensor, "batch answer"], Float[Tensor, " batch"]]:
    """The answer with the largest mass of particles within epsilon, and that mass, by mean shift."""
    space = problem.answer_space
    n = view.target_BNX.shape[1]
    first = torch.linspace(0, n - 1, min(n, 32)).long()
    mean_B1X = space.project((view.weight_BN[..., None] * view.target_BNX).sum(dim=1, keepdim=True))
    answer_BKX = torch.cat([mean_B1X, view.target_BNX[:, first]], dim=1)
    hits_BKN = (_loss(problem, view, answer_BKX, task) <= epsilon).float()
    for _ in range(3):
        mass_BK = torch.einsum("bkn,bn->bk", hits_BKN, view.weight_BN)
        best = mass_BK.topk(4, dim=1).indices
        weight = hits_BKN.gather(1, best[..., None].expand(-1, -1, n)) * view.weight_BN[:, None]
        total = weight.sum(dim=-1, keepdim=True)
        shifted = torch.einsum("bkn,bnx->bkx", weight, view.target_BNX) / total.clamp_min(1e-12)
        old = answer_BKX.gather(1, best[..., None].expand(-1, -1, answer_BKX.shape[-1]))
        shifted = torch.where(total > 1e-12, space.project(shifted), old)
        answer_BKX = torch.cat([old, shifted], dim=1)
        hits_BKN = (_loss(problem, view, answer_BKX, task) <= epsilon).float()
    mass_BK = torch.einsum("bkn,bn->bk", hits_BKN, view.weight_BN)
    confidence, best = mass_BK.max(dim=1)
    return answer_BKX[torch.arange(len(best)), best], confidence.clamp(0, 1)


def _loss(
    problem: Problem, view: View, answer_BKX: Tensor, task: Callable[[Tensor, Tensor], Task]
) -> Float[Tensor, "batch answer particle"]:
    """The loss of each answer on each particle."""
    if problem.has_distance_loss:
        loss = problem.answer_space.distance(answer_BKX[:, :, None], view.target_BNX[:, None])
    else:
        batch, many = answer_BKX.shape[:2]
        n, p = view.unit_BNP.shape[1:]
        unit = view.unit_BNP[:, None].expand(-1, many, -1, -1).reshape(-1, p)
        context = view.context_BC.repeat_interleave(many * n, dim=0)
        answer = answer_BKX[:, :, None].expand(-1, -1, n, -1).flatten(0, 2)
        loss = problem.loss(task(unit, context), answer).view(batch, many, n)
    return loss
