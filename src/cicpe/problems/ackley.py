"""Minimiser of a shifted Ackley function with hidden shape.

The minimiser theta* is uniform in [-1, 1]^d; the shape is a = 10, b ~ U[0.1, 0.5] and
c ~ U[pi, 4 pi], and the agent is told neither b nor c. With u = query - theta* and

    F(u) = a + e - a exp(-b sqrt(mean_j u_j^2)) - exp(mean_j cos(c u_j)),

a query returns 1 - 2 F(u) / Z plus Gaussian noise, so larger is better and the best value is 1. The
normalisation Z = pi - 0.21 d + 9.68 b + 0.04 c is the paper's. The loss is the Euclidean distance to theta*.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.errors import InvalidInput
from cicpe.problems.base import Problem
from cicpe.problems.context import Noise, noise_range, sample_noise
from cicpe.spaces import Box

DEPTH = 10.0
"""The a of the paper: how deep the funnel is."""
DECAY = (0.1, 0.5)
"""The range of b: how steep the funnel is."""
FREQUENCY = (math.pi, 4 * math.pi)
"""The range of c: how fast the ripples are."""


class AckleyTask(NamedTuple):
    """``n`` hidden minimisers, with the shape of their functions and their noise levels."""

    target: Float[Tensor, "*n dim"]
    decay: Float[Tensor, " *n"]
    frequency: Float[Tensor, " *n"]
    noise: Float[Tensor, " *#n"]


@final
@dataclass(frozen=True)
class Ackley(Problem):
    """Locate the global optimum of a rippled function from noisy values."""

    dim: int = 3
    """Number of coordinates."""
    noise: Noise = (0.025, 0.1)
    """Standard deviation of an observation: a number, or a range over which it is log-uniform and told to the agent."""

    context_names = ("noise",)
    broadcasts = True
    """Tasks, queries and observations may have any leading dimensions that broadcast in the place of n."""

    def __post_init__(self) -> None:
        if not 1 <= self.dim <= 20:
            raise InvalidInput("dim", self.dim, "a whole number from 1 to 20: above, Z is not positive")
        object.__setattr__(self, "noise", noise_range(self.noise))
        object.__setattr__(self, "query_space", Box([-1.0] * self.dim, [1.0] * self.dim))
        object.__setattr__(self, "answer_space", self.query_space)
        limits = [(-1.0, 1.0)] * self.dim + [DECAY, FREQUENCY]
        object.__setattr__(self, "parameter_space", Box(*zip(*limits, strict=True)))

    def sample(self, n: int, rng: Generator) -> AckleyTask:
        noise = sample_noise(noise_range(self.noise), n, rng)
        target = self.answer_space.sample(n, rng)
        decay = _uniform(DECAY, n, rng)
        return AckleyTask(target, decay, _uniform(FREQUENCY, n, rng), noise)

    def value(self, task: AckleyTask, query: Float[Tensor, "*n dim"]) -> Float[Tensor, " *both"]:
        """The noiseless observation, 1 - 2 F(query - theta*) / Z; it is 1 at the minimiser and less elsewhere.

        Args:
            task: A batch of n tasks, as ``sample`` drew them.
            query: Points; the dimensions before the last broadcast with the task's.

        Returns:
            One value per point.
        """
        # In place, a coordinate at a time: most of what particles cost is this, and memory is slower than arithmetic.
        (q, t), *others = zip(query.unbind(dim=-1), task.target.unbind(dim=-1), strict=True)
        u = q - t
        square, ripple = u * u, (task.frequency * u).cos_()
        for q, t in others:
            torch.sub(q, t, out=u)
            square.addcmul_(u, u)
            ripple.add_(u.mul_(task.frequency).cos_())
        funnel = square.div_(self.dim).sqrt_().mul_(-task.decay).expm1_()
        waves = ripple.div_(self.dim).sub_(1).expm1_()
        # F is -(a expm1(-b r) + e expm1(ripple - 1)): no digits cancel near the minimiser, where it is 0.
        scale = (9.68 * task.decay).add(task.frequency, alpha=0.04) + (math.pi - 0.21 * self.dim)
        return funnel.mul_(2 * DEPTH).add_(waves, alpha=2 * math.e).div_(scale).add_(1)

    def observe(self, task: AckleyTask, query: Float[Tensor, "*n dim"], rng: Generator) -> Float[Tensor, "*both 1"]:
        value = self.value(task, query)
        return (value + task.noise * torch.randn(value.shape, generator=rng))[..., None]

    def target(self, task: AckleyTask) -> Float[Tensor, "n dim"]:
        return task.target

    def context(self, task: AckleyTask) -> Float[Tensor, "n 1"]:
        return task.noise[:, None]

    def default_context(self) -> tuple[float, ...]:
        return (noise_range(self.noise)[1],)

    def parameters(self, task: AckleyTask) -> Float[Tensor, "n parameter"]:
        return torch.cat([task.target, task.decay[:, None], task.frequency[:, None]], dim=-1)

    def from_parameters(self, parameters: Float[Tensor, "*n parameter"], context: Float[Tensor, "*#n 1"]) -> AckleyTask:
        *_, decay, frequency = parameters.unbind(dim=-1)
        return AckleyTask(parameters[..., : self.dim], decay, frequency, context[..., 0])

    def log_likelihood(
        self, task: AckleyTask, query: Float[Tensor, "*#n dim"], observation: Float[Tensor, "*#n 1"]
    ) -> Float[Tensor, " *both"]:
        noise = task.noise.clamp_min(1e-6)  # without noise there is no density; this is an observation's last digit
        error = self.value(task, query).sub_(observation[..., 0]).div_(noise)
        return error.square_().mul_(-0.5).sub_(torch.log(noise) + 0.5 * math.log(2 * math.pi))


def _uniform(limits: tuple[float, float], n: int, rng: Generator) -> Float[Tensor, " n"]:
    low, high = limits
    return low + (high - low) * torch.rand(n, generator=rng)
