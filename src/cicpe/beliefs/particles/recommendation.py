"""The answer that succeeds on the largest share of particles, and that share: a recommendation and its confidence."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from cicpe.problems import Problem, Task
from cicpe.spaces import Box


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
    mean_B1X = problem.answer_space.project((view.weight_BN[..., None] * view.target_BNX).sum(dim=1, keepdim=True))
    answer_BKX = torch.cat([mean_B1X, view.target_BNX[:, first]], dim=1)
    loss_BKN = _loss(problem, view, answer_BKX, task)
    found = {epsilon: _best(problem, view, epsilon, task, answer_BKX, loss_BKN) for epsilon in set(epsilons)}
    answers, confidences = zip(*(found[epsilon] for epsilon in epsilons), strict=True)
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
    weight_BN1 = view.weight_BN[..., None]
    hits_BKN = _within(loss_BKN, epsilon)
    for _ in range(3):
        best = (hits_BKN @ weight_BN1)[..., 0].topk(4, dim=1).indices[..., None]
        old, hits_old = (at.gather(1, best.expand(-1, -1, at.shape[-1])) for at in (answer_BKX, hits_BKN))
        weight = hits_old * view.weight_BN[:, None]
        total = weight.sum(dim=-1, keepdim=True)
        shifted = problem.answer_space.project(weight @ view.target_BNX / total.clamp_min(1e-12))
        shifted = torch.where(total > 1e-12, shifted, old)
        answer_BKX = torch.cat([old, shifted], dim=1)
        hits_BKN = torch.cat([hits_old, _within(_loss(problem, view, shifted, task), epsilon)], dim=1)
    confidence, best = (hits_BKN @ weight_BN1)[..., 0].max(dim=1)
    return answer_BKX[torch.arange(len(best)), best], confidence.clamp(0, 1)


def weighted_std(
    weight_BN: Float[Tensor, "batch particle"], target_BNX: Float[Tensor, "batch particle answer"]
) -> Float[Tensor, "batch answer"]:
    """The standard deviation of the target over weighted particles (or functions)."""
    weight_BN1 = weight_BN[..., None]
    mean = (weight_BN1 * target_BNX).sum(dim=1, keepdim=True)
    return (weight_BN1 * (target_BNX - mean).square()).sum(dim=1).clamp_min(0).sqrt()


def _within(loss: Tensor, epsilon: float) -> Tensor:
    """One where the loss is at most epsilon, else zero."""
    return torch.le(loss, epsilon, out=torch.empty_like(loss))


def _loss(
    problem: Problem, view: View, answer_BKX: Tensor, task: Callable[[Tensor, Tensor], Task]
) -> Float[Tensor, "batch answer particle"]:
    """The loss of each answer on each particle."""
    if not problem.has_distance_loss:
        batch, many = answer_BKX.shape[:2]
        n, p = view.unit_BNP.shape[1:]
        unit = view.unit_BNP[:, None].expand(-1, many, -1, -1).reshape(-1, p)
        context = view.context_BC.repeat_interleave(many * n, dim=0)
        answer = answer_BKX[:, :, None].expand(-1, -1, n, -1).flatten(0, 2)
        return problem.loss(task(unit, context), answer).view(batch, many, n)
    if isinstance(problem.answer_space, Box):
        # The box's own distance, without every difference in memory.
        return torch.cdist(answer_BKX, view.target_BNX, compute_mode="donot_use_mm_for_euclid_dist")
    return problem.answer_space.distance(answer_BKX[:, :, None], view.target_BNX[:, None])
