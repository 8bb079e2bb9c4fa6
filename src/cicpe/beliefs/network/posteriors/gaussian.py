"""Posteriors over the target, and the heads that predict them.

A posterior works in unit coordinates of the answer space (roughly [-1, 1]) and speaks in answer
coordinates. Its densities are per unit coordinate, so losses have one scale on every problem.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self, cast, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from cicpe.beliefs.network.layers import LOG_STD, mlp
from cicpe.beliefs.network.memories.base import Memory, MemoryFeatures
from cicpe.config import Config
from cicpe.spaces import Space, Sphere


class Posterior(ABC):
    """A distribution of the target at each of a batch of prefixes."""

    @property
    @abstractmethod
    def recommendation(self) -> Float[Tensor, "*batch answer"]:
        """The answer to give now."""

    @property
    @abstractmethod
    def std(self) -> Float[Tensor, "*batch answer"]:
        """Standard deviation of each coordinate."""

    @abstractmethod
    def nll(self, target: Float[Tensor, "*#batch answer"]) -> Float[Tensor, "*batch"]:
        """Negative log density of the target, averaged over coordinates (unit coordinates)."""

    @abstractmethod
    def sample(self, rng: Generator, scale: Tensor | float = 1.0) -> Float[Tensor, "*batch answer"]:
        """One draw, its spread multiplied by ``scale`` and projected into the answer space."""

    def repeated(self, n: int) -> Self:
        """The same posteriors ``n`` times, along a new first axis: one draw of it is ``n`` of each."""
        parts = {one.name: getattr(self, one.name) for one in fields(cast(Any, self))}  # posteriors are dataclasses
        tensors = {name: part.expand(n, *part.shape) for name, part in parts.items() if isinstance(part, Tensor)}
        return cast(Self, replace(cast(Any, self), **tensors))


@final
@dataclass(frozen=True)
class GaussianPosterior(Posterior):
    """A diagonal Gaussian: the moment projection of the posterior of x*."""

    space: Space
    mean_unit: Float[Tensor, "*batch answer"]
    log_std_unit: Float[Tensor, "*batch answer"]

    @property
    def recommendation(self) -> Float[Tensor, "*batch answer"]:
        return self.space.project(self.space.from_unit(self.mean_unit))

    @property
    def std(self) -> Float[Tensor, "*batch answer"]:
        return self.log_std_unit.exp() * self.space.unit_scale

    def nll(self, target: Float[Tensor, "*#batch answer"]) -> Float[Tensor, "*batch"]:
        z = (self.space.to_unit(target) - self.mean_unit) * torch.exp(-self.log_std_unit)
        return (z.square() / 2 + self.log_std_unit + math.log(2 * math.pi) / 2).mean(dim=-1)

    def sample(self, rng: Generator, scale: Tensor | float = 1.0) -> Float[Tensor, "*batch answer"]:
        noise = torch.randn(self.mean_unit.shape, generator=rng)
        unit = self.mean_unit + scale * self.log_std_unit.exp() * noise
        return self.space.project(self.space.from_unit(unit))


@final
class GaussianConfig(Config):
    """A diagonal Gaussian over the target."""

    kind: Literal["gaussian"] = "gaussian"
    hidden: int = 64
    """Hidden units between the memory and the moments."""

    def build(self, memory: Memory, space: Space) -> "GaussianHead":
        """The head that this describes."""
        return GaussianHead(self, memory, space)


@final
class GaussianHead(nn.Module):
    """Mean and log standard deviation of every coordinate, the mean mapped into the answer space."""

    def __init__(self, config: GaussianConfig, memory: Memory, space: Space) -> None:
        super().__init__()
        self.space = space
        if memory.axis_width is not None:
            self.moments = mlp([memory.axis_width, config.hidden, 2], last_gain=0.1)
        else:
            self.moments = mlp([memory.width, config.hidden, 2 * space.dim], last_gain=0.1)

    def forward(self, memory_features: MemoryFeatures) -> GaussianPosterior:
        """The posterior at every prefix that was read."""
        if memory_features.axes is not None:
            raw, log_std = self.moments(memory_features.axes).unbind(dim=-1)
        else:
            raw, log_std = self.moments(memory_features.summary).chunk(2, dim=-1)
        # Without an anchor the head starts near one third of a unit, about the spread of a uniform prior.
        log_spread = torch.full_like(raw, -1.0) if memory_features.log_spread is None else memory_features.log_spread
        log_std = (log_spread + log_std).clamp(*LOG_STD)
        mean = (
            torch.tanh(raw)
            if memory_features.point_estimate is None
            else memory_features.point_estimate + log_spread.exp() * raw
        )
        if isinstance(self.space, Sphere):
            mean = self.space.project(mean + 1e-6)
        return GaussianPosterior(self.space, mean, log_std)
