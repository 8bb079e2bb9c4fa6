"""Small statistics that several packages share."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def sobol_points(n: int, dim: int, seed: int) -> Float[Tensor, "n dim"]:
    """The first points of one scrambled Sobol sequence.

    Args:
        n: How many.
        dim: Coordinates of a point.
        seed: Seeds the scrambling.

    Returns:
        Points in [0, 1)^dim, ``n x dim``, in double precision.
    """
    engine: Any = torch.quasirandom.SobolEngine
    points: Tensor = engine(dim, scramble=True, seed=seed).draw(n, dtype=torch.float64)
    return points


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
