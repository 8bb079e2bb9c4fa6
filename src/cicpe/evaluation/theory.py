"""Bounds that the paper proves about recommendations, rewards and the value of a maximum, as functions.

Notation: Z is the target under the posterior of a history h; q(h, x) is the posterior probability that answer x is
within epsilon; r(h) = max_x q(h, x) is the ideal reward; rho is the margin, the radius of a Euclidean ball about the
target, all of which is within epsilon (``Space.margin``).
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from scipy.stats import norm
from torch import Tensor

from cicpe.errors import InvalidInput
from cicpe.spaces import Space


def second_moment_bound(second_moment: Tensor, margin: float) -> Tensor:
    """The least success of an answer that is drawn: 1 - D / rho^2 ("Second-moment robustness and ideal-reward gap").

    Args:
        second_moment: D, the mean squared Euclidean distance from the drawn answer to the target.
        margin: rho.

    Returns:
        The bound, of the shape of ``second_moment``; it may be negative, and then says nothing.
    """
    return 1 - second_moment / _positive("margin", margin) ** 2


def reward_gap_bound(second_moment: Tensor, lipschitz: Tensor, radius: float = math.inf) -> Tensor:
    """By how much a drawn answer may fall short of the ideal reward: L sqrt(D) + D / R^2 (the same proposition).

    Args:
        second_moment: D, the mean squared distance from the drawn answer to the best one.
        lipschitz: L, of q(h, .) within ``radius`` of the best answer.
        radius: R; infinite where q is Lipschitz everywhere.

    Returns:
        The bound.
    """
    beyond = second_moment / _positive("radius", radius) ** 2
    return lipschitz * second_moment.sqrt() + beyond


def near_optimality_bound(variance: Tensor, error: Tensor, margin: float) -> Tensor:
    """By how much a mean may fall short of the ideal reward: (V + e^2) / rho^2 ("Near-optimality of the NLL mean").

    Args:
        variance: V, the mean squared distance of Z from its mean.
        error: e, the distance from the recommendation to that mean.
        margin: rho.

    Returns:
        The bound.
    """
    return (variance + error.square()) / _positive("margin", margin) ** 2


def max_value_lower_bound(epsilon: float, delta: float, noise: float, dim: int, shortest: float) -> float:
    """Queries that it takes, on average, to know the maximum of a function: the paper's lower bound for its height.

    sigma^2 / C+^2 [C-^2 z^2 / epsilon^2 - 1]+ with C- = exp(-d / (2 l^2)), C+ = exp(d / (4 l^2)) and z the normal
    quantile at 1 - delta / 2. The function is a Gaussian process on [0, 1]^d with a squared exponential kernel; the
    constants are far from tight, and only the growth with 1 / epsilon^2 is meant.

    Args:
        epsilon: How close the height has to be.
        delta: How often it may not.
        noise: sigma, the standard deviation of an observation.
        dim: d.
        shortest: l, the shortest length scale.

    Returns:
        The bound, which is 0 where it says nothing.
    """
    for name, value in (("epsilon", epsilon), ("noise", noise), ("shortest", shortest)):
        _positive(name, value)
    if not 0 < delta < 1:
        raise InvalidInput("delta", delta, "between 0 and 1")
    log_low, log_high = -dim / (2 * shortest**2), dim / (4 * shortest**2)
    quantile = float(norm.isf(delta / 2))
    precise = math.exp(2 * log_low) * (quantile / epsilon) ** 2
    return noise**2 * math.exp(-2 * log_high) * max(0.0, precise - 1)


class Rewards(NamedTuple):
    """What the posterior of each history says of its own answers, from draws of it."""

    ideal: Float[Tensor, " batch"]
    """r: of the best answer among the draws, the recommendation and the mean."""
    recommended: Float[Tensor, " batch"]
    """q of the recommendation."""
    drawn: Float[Tensor, " batch"]
    """The mean of q over drawn answers: the sampled reward."""
    gap_bound: Float[Tensor, " batch"]
    """By how much ``recommended`` may fall short of ``ideal`` (``near_optimality_bound``), at most 1."""


def posterior_rewards(
    space: Space,
    draws: Float[Tensor, "batch draw answer"],
    recommendation: Float[Tensor, "batch answer"],
    epsilon: float,
) -> Rewards:
    """The rewards of a posterior by its own draws, for a loss that is the space's distance.

    Args:
        space: The answers'.
        draws: Targets from the posterior of each history.
        recommendation: What is recommended after it.
        epsilon: How close is close enough.

    Returns:
        One entry per history.
    """
    count = draws.shape[1]
    mean = draws.mean(dim=1)
    close = space.distance(draws[:, :, None], draws[:, None]) <= epsilon
    others = (close.sum(dim=2) - 1) / (count - 1)  # a draw is no evidence for itself
    recommended, of_mean = (
        (space.distance(draws, answer[:, None]) <= epsilon).float().mean(dim=1)
        for answer in (recommendation, space.project(mean))
    )
    ideal = torch.stack([close.float().mean(dim=2).amax(dim=1), recommended, of_mean]).amax(dim=0)
    variance = (draws - mean[:, None]).square().sum(dim=-1).mean(dim=1)
    error = torch.linalg.vector_norm(recommendation - mean, dim=-1)
    bound = near_optimality_bound(variance, error, space.margin(epsilon)).clamp_max(1.0)
    return Rewards(ideal, recommended, others.mean(dim=1), bound)


def _positive(name: str, value: float) -> float:
    if not value > 0:
        raise InvalidInput(name, value, "above 0")
    return value
