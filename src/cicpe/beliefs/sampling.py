"""The paper's rules for queries that read a posterior, and have nothing trained for them."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.spaces import Space

Sampling = Literal["ts", "ttps", "uniform"]
"""A plausible answer, one of two that is farther from the mean, anywhere."""


def top_two(
    space: Space, draws: Float[Tensor, "3 batch answer"], mean: Float[Tensor, "batch answer"], rng: Generator
) -> Float[Tensor, "batch answer"]:
    """Top-two posterior sampling: half of the time, a challenger of a draw that lies too close to the mean.

    The challenger is taken where it lies farther from the mean. The paper does not say what too close is; here, closer
    than another draw, which needs no scale. The distance is the space's own: Euclidean in a box, one minus the cosine
    on the sphere.

    Args:
        space: Where queries and answers lie.
        draws: Three independent ones per history: the first, its challenger, and the one that says what is close.
        mean: Of the posterior of each history.
        rng: Says in which half each history is.

    Returns:
        The first or the challenger, per history.
    """
    first, challenger, _ = draws
    near, far, usual = (space.distance(draw, mean) for draw in draws)
    challenged = (torch.rand(len(first), generator=rng) < 0.5) & (near < usual)
    return torch.where((challenged & (far > near))[:, None], challenger, first)
