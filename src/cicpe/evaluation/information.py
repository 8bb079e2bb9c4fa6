"""How much a history tells about what is hidden, bounded from both sides as in the literature on experimental design.

With a hidden theta_0, the history h that it led to, and L further draws theta_l of the prior,

    sPCE = log p(h | theta_0) - log((p(h | theta_0) + sum_l p(h | theta_l)) / (L + 1))
    sNMC = log p(h | theta_0) - log(sum_l p(h | theta_l) / L)

whose means over theta_0, h and theta_l lie below and above the expected information gain. sPCE is at most log(L + 1).
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def information_bounds(
    log_true: Float[Tensor, " batch"], log_contrastive: Float[Tensor, "batch draw"]
) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
    """The lower bound sPCE and the upper bound sNMC, in nats, of every history.

    Args:
        log_true: log p(h | theta_0).
        log_contrastive: log p(h | theta_l) for L draws of the prior.

    Returns:
        sPCE and sNMC.
    """
    draws = log_contrastive.shape[1]
    others = log_contrastive.logsumexp(dim=1)
    lower = log_true - torch.logaddexp(log_true, others) + math.log(draws + 1)
    return lower, log_true - others + math.log(draws)
