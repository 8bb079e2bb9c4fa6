"""Best-arm identification on the sphere.

The task is a direction theta, uniform on the unit sphere. A query a returns <theta, a> plus Gaussian
noise. The loss of a direction x is one minus the cosine of its angle with theta.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.problems.base import Problem
from cicpe.problems.context import Noise, noise_range, sample_noise
from cicpe.spaces import Sphere

MANY_COORDINATES, LONGER = 15, 150
"""From so many coordinates on an episode may have so many queries: the paper's t_max there."""


class BestArmTask(NamedTuple):
    """``n`` hidden directions and their noise levels."""

    target: Float[Tensor, "n dim"]
    noise: Float[Tensor, " n"]


@final
@dataclass(frozen=True)
class BestArm(Problem):
    """Find the direction with the largest mean reward from noisy projections."""

    dim: int = 5
    """Number of coordinates."""
    noise: Noise = (0.00125, 0.01)
    """Standard deviation of an observation: a number, or a range over which it is log-uniform and told to the agent."""

    context_names = ("noise",)
    default_epsilon = (0.005, 0.02)

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise", noise_range(self.noise))
        object.__setattr__(self, "query_space", Sphere(self.dim))
        object.__setattr__(self, "answer_space", self.query_space)
        if self.dim >= MANY_COORDINATES:
            object.__setattr__(self, "horizon", LONGER)

    def sample(self, n: int, rng: Generator) -> BestArmTask:
        noise = sample_noise(noise_range(self.noise), n, rng)
        return BestArmTask(self.answer_space.sample(n, rng), noise)

    def value(self, task: BestArmTask, query: Float[Tensor, "n dim"]) -> Float[Tensor, " n"]:
        """The mean of an observation, <theta, a>.

        Args:
            task: A batch of n tasks, as ``sample`` drew them.
            query: Directions of length 1: n x dim.

        Returns:
            Shape n.
        """
        return (task.target * query).sum(dim=-1)

    def observe(self, task: BestArmTask, query: Float[Tensor, "n dim"], rng: Generator) -> Float[Tensor, "n 1"]:
        noise = task.noise * torch.randn(len(query), generator=rng)
        return (self.value(task, query) + noise)[:, None]

    def target(self, task: BestArmTask) -> Float[Tensor, "n dim"]:
        return task.target

    def context(self, task: BestArmTask) -> Float[Tensor, "n 1"]:
        return task.noise[:, None]

    def default_context(self) -> tuple[float, ...]:
        return (noise_range(self.noise)[1],)

    def log_likelihood(
        self, task: BestArmTask, query: Float[Tensor, "n dim"], observation: Float[Tensor, "n 1"]
    ) -> Float[Tensor, " n"]:
        noise = task.noise.clamp_min(1e-6)  # without noise there is no density; this is an observation's last digit
        error = (observation[:, 0] - self.value(task, query)) / noise
        return -0.5 * error.square() - torch.log(noise) - 0.5 * math.log(2 * math.pi)
