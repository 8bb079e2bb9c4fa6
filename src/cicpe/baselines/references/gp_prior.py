"""The prior of ``gp-max`` in one dimension, on a grid of length scales."""

import torch

from cicpe.gp.kernels import SQUARED_EXPONENTIAL, Kernel
from cicpe.problems.gp_max import LENGTHSCALE


def prior_kernel(count: int) -> Kernel:
    """The prior's covariance at length scales in the middles of equal parts of their range.

    Args:
        count: How many length scales.

    Returns:
        A batch of ``count`` kernels of one query dimension, in double precision.
    """
    low, high = LENGTHSCALE
    lengthscale = low + (high - low) * (torch.arange(count, dtype=torch.float64) + 0.5) / count
    return Kernel(lengthscale[:, None], torch.ones(count, dtype=torch.float64), SQUARED_EXPONENTIAL)
