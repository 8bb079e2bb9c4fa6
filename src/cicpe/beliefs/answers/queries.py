"""One-step lookahead: which query's observation would tell most about the answer.

It works on draws of places from the posterior and on the probability of the next observation at each of them. For each
outcome of a candidate query the draws are weighted anew, and the uncertainty that remains is the entropy of the answer
smoothed by a kernel on answers, -sum_m w_m log sum_n w_n k(x_m, x_n). The nuisance is thereby marginalised: only what
the answers of the draws have in common counts.

Shapes: B episodes, A candidate queries, J outcomes, M draws, X answer, Y observation, P head parameters.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from cicpe.beliefs.answers.joint_heads import Heads

Lookahead = Literal["information", "agreement", "success"]
"""What a lookahead compares queries by."""
Goal = Lookahead | Literal["none"]
"""What a query is to tell; nothing, where somebody else chooses it."""


def remaining_uncertainty(
    heads: Heads,
    settled_PBAM: Float[Tensor, "P B A M"],
    kernel_BMM: Float[Tensor, "B M M"],
    uniform_JY2: Float[Tensor, "J Y 2"],
    goal: Lookahead = "information",
) -> Float[Tensor, "B A"]:
    """The expected uncertainty of the answer after the observation of each candidate query; less is better.

    Args:
        heads: How head parameters become probabilities.
        settled_PBAM: Settled head parameters of every query at every draw; quick ones are near enough.
        kernel_BMM: How close the answers of two draws are, from 0 to 1.
        uniform_JY2: Random numbers for outcomes that cannot be listed.
        goal: What uncertainty is: the smoothed entropy, the chance that two draws disagree, or that the best one fails.
    """
    if heads.listed is not None:
        log_p = heads.settled_log_probability(settled_PBAM[:, :, :, None], heads.listed[:, None])
        return listed_uncertainty(log_p.exp().permute(0, 3, 1, 2), kernel_BMM, goal)
    m, j = settled_PBAM.shape[-1], len(uniform_JY2)
    chosen = (torch.arange(j) * m) // j + m // (2 * j)
    outcomes = heads.draw(settled_PBAM[..., chosen], uniform_JY2)
    log_p = heads.settled_log_probability(settled_PBAM[:, :, :, None], outcomes[:, :, :, None])
    return _uncertainty(torch.softmax(log_p, dim=-1), kernel_BMM, goal).mean(dim=-1)


def listed_uncertainty(
    probability_BMAJ: Float[Tensor, "B M A J"], kernel_BMM: Float[Tensor, "B M M"], goal: Lookahead
) -> Float[Tensor, "B A"]:
    """The same, by the probability of all outcomes of every query at every draw."""
    shape, m = probability_BMAJ.shape, probability_BMAJ.shape[1]
    joint_BMR = probability_BMAJ.reshape(shape[0], m, shape[2] * shape[3])
    total_B1R = joint_BMR.sum(dim=1, keepdim=True)
    weight_BMR = joint_BMR / total_B1R
    left_BR = _left(weight_BMR, kernel_BMM.transpose(1, 2) @ weight_BMR, goal, dim=1)
    return (total_B1R[:, 0] * left_BR).view(shape[0], *shape[2:]).sum(dim=-1) / m


def present_uncertainty(kernel_BMM: Float[Tensor, "B M M"], goal: Lookahead) -> Float[Tensor, " B"]:
    """The same before any observation: all draws weigh alike."""
    smooth_BM = kernel_BMM.mean(dim=1)
    return _left(torch.full_like(smooth_BM, 1 / smooth_BM.shape[1]), smooth_BM, goal, dim=-1)


def _uncertainty(weight: Float[Tensor, "B A J M"], kernel_BMM: Tensor, goal: Lookahead) -> Float[Tensor, "B A J"]:
    """What is left after each outcome, by the weights of the draws."""
    smooth = (weight.flatten(1, 2) @ kernel_BMM).view(weight.shape)
    return _left(weight, smooth, goal, dim=-1)


def _left(weight: Tensor, smooth: Tensor, goal: Lookahead, dim: int) -> Tensor:
    """The uncertainty of draws with some weights, and the weights smoothed by the kernel (which are overwritten)."""
    match goal:
        case "information":
            return -smooth.clamp_min_(1e-12).log_().mul_(weight).sum(dim=dim)
        case "agreement":
            return 1 - smooth.mul_(weight).sum(dim=dim)
        case "success":
            return 1 - smooth.amax(dim=dim)


def answer_kernel(answer_BMX: Tensor, bandwidth_B: Tensor) -> Float[Tensor, "B M M"]:
    """A Cauchy-shaped kernel on answers."""
    scaled = answer_BMX / bandwidth_B[:, None, None]
    if scaled.shape[-1] == 1:
        return (scaled - scaled.transpose(1, 2)).square_().add_(1).reciprocal_()
    apart = torch.cdist(scaled, scaled, compute_mode="donot_use_mm_for_euclid_dist")
    return apart.square_().add_(1).reciprocal_()
