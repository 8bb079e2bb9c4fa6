"""Small pieces of statistics that several parts of the library share."""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def highest_mass_interval(
    value_BK: Float[Tensor, "batch draw"], weight_BK: Float[Tensor, "batch draw"], epsilon: float
) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
    """The middle of the interval of length 2 epsilon that holds most weight, and that weight."""
    value, order = value_BK.sort(dim=1)
    below = torch.nn.functional.pad(weight_BK.gather(1, order).cumsum(dim=1), (1, 0))
    end = torch.searchsorted(value.contiguous(), (value + 2 * epsilon).contiguous(), right=True)
    inside = below.gather(1, end) - below[:, :-1]
    confidence, start = inside.max(dim=1, keepdim=True)
    last = value.gather(1, end.gather(1, start) - 1)
    # Of all intervals that hold these draws, the middle one.
    return ((value.gather(1, start) + last) / 2)[:, 0], confidence[:, 0]


def log_grid(low: float, high: float, points: int) -> tuple[float, ...]:
    """Numbers from ``low`` to ``high``, even in their logarithm; one number where both are the same."""
    if low == high:
        return (low,)
    step = math.log(high / low) / (points - 1)
    return (low, *(low * math.exp(step * i) for i in range(1, points - 1)), high)
