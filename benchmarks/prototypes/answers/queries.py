"""One-step lookahead: which query's observation would tell most about the answer.

It works on pairs (answer, nuisance) drawn from the posterior and on the predictive density of the next
observation for each pair. For each outcome y of a candidate query the pairs are reweighted, and the answer's
remaining uncertainty is its entropy smoothed by a kernel on answers, -sum_m w_m log sum_m' w_m' k(x_m, x_m').
The nuisance is thereby marginalised: only what the answers of the pairs have in common counts.

Shapes: B episodes, A candidate queries, J outcomes, M pairs, X answer, Y observation, Q query.
"""

from collections.abc import Sequence

import torch
from heads import Heads
from jaxtyping import Float
from torch import Tensor


def outcomes_of(
    heads: Heads, predictive: Sequence[Float[Tensor, "B A M P"]], uniform_JY2: Float[Tensor, "J Y 2"]
) -> tuple[Tensor, Float[Tensor, "B A J"] | None]:
    """Outcomes to average over, encoded, with their probabilities; None where they are draws of equal weight."""
    listed = heads.listed()
    if listed is not None:
        return listed, None
    m, j = predictive[0].shape[2], len(uniform_JY2)
    chosen = (torch.arange(j) * m) // j + m // (2 * j)
    drawn = heads.outcomes([part[:, :, chosen] for part in predictive], uniform_JY2)
    return drawn, torch.full(drawn.shape[:3], 1.0 / j)


def remaining_uncertainty(
    heads: Heads,
    predictive: Sequence[Float[Tensor, "B A M P"]],
    kernel_BMM: Float[Tensor, "B M M"],
    uniform_JY2: Float[Tensor, "J Y 2"],
    goal: str = "information",
) -> Float[Tensor, "B A"]:
    """Expected uncertainty of the answer after the observation of each candidate query; less is better."""
    heads, predictive = heads.simplified(predictive)
    encoded, share_BAJ = outcomes_of(heads, predictive, uniform_JY2)
    if share_BAJ is None:  # the same listed outcomes everywhere
        log_p = heads.log_density([part[:, :, None] for part in predictive], encoded[:, None])
    else:
        log_p = heads.log_density([part[:, :, None] for part in predictive], encoded[:, :, :, None])
    if share_BAJ is None:
        share_BAJ = log_p.exp().mean(dim=-1)
    return uncertainty(log_p, share_BAJ, kernel_BMM, goal)


def uncertainty(log_p_BAJM: Tensor, share_BAJ: Tensor, kernel_BMM: Tensor, goal: str) -> Float[Tensor, "B A"]:
    """The same from log densities of outcomes for every pair and the outcomes' probabilities."""
    weight = torch.softmax(log_p_BAJM, dim=-1)
    smooth = (weight.flatten(1, 2) @ kernel_BMM).view(weight.shape)
    if goal == "information":
        value = -(weight * smooth.clamp_min_(1e-12).log_()).sum(dim=-1)
    elif goal == "agreement":
        value = 1 - (weight * smooth).sum(dim=-1)
    else:
        value = 1 - smooth.amax(dim=-1)
    return (share_BAJ * value).sum(dim=-1)


def answer_kernel(answer_BMX: Tensor, bandwidth_B: Tensor) -> Float[Tensor, "B M M"]:
    """A Cauchy-shaped kernel on answers."""
    apart = torch.cdist(answer_BMX, answer_BMX, compute_mode="donot_use_mm_for_euclid_dist")
    return 1 / (1 + (apart / bandwidth_B[:, None, None]).square())
