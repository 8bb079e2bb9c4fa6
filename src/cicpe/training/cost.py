"""The paper's dual update of the cost of a query."""

import torch
from jaxtyping import Float
from torch import Tensor


def smooth_success(loss: Float[Tensor, " batch"], epsilon: Float[Tensor, " batch"], softness: float) -> Tensor:
    """p = mean of sigmoid((epsilon - D) / (kappa epsilon)) over completed rollouts."""
    return torch.sigmoid((epsilon - loss) / (softness * epsilon)).mean()


def dual_cost(cost: float, success: float, delta: float, rate: float) -> float:
    """c <- Proj_[0,1] (c - eta ((1 - delta) - p)): cheaper while success is short of 1 - delta."""
    return min(1.0, max(0.0, cost - rate * ((1 - delta) - success)))
