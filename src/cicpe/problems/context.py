"""A noise level that is known to the agent and may differ from task to task."""

import math

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.errors import InvalidInput
from cicpe.statistics import log_uniform

Noise = float | tuple[float, float]


def noise_range(noise: Noise, upper: float = math.inf) -> tuple[float, float]:
    """Reads a level or a range of levels as (low, high), refusing what is out of bounds."""
    low, high = noise if isinstance(noise, tuple | list) else (noise, noise)
    if not (0 <= low <= high < upper) or not math.isfinite(high):
        bound = "" if math.isinf(upper) else f" below {upper:g}"
        raise InvalidInput("noise", noise, f"a number, or a low and a high one, from 0 up{bound}")
    return float(low), float(high)


def sample_noise(limits: tuple[float, float], n: int, rng: Generator) -> Float[Tensor, " n"]:
    """``n`` levels, uniform in their logarithm (in the level itself where the range starts at zero)."""
    low, high = limits
    if low == 0 or low == high:
        return low + torch.rand(n, generator=rng) * (high - low)
    return log_uniform(low, high, n, rng)
