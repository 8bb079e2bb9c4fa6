"""Brings observations and context to unit scale, by statistics measured once before training."""

from typing import final

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from cicpe.problems import Problem, TaskBatch


@final
class Scaling(nn.Module):
    """Affine maps kept as buffers, so that a saved model carries them."""

    def __init__(self, observation_dim: int, context_dim: int) -> None:
        super().__init__()
        self.register_buffer("observation_shift", torch.zeros(observation_dim))
        self.register_buffer("observation_scale", torch.ones(observation_dim))
        self.register_buffer("context_shift", torch.zeros(context_dim))
        self.register_buffer("context_scale", torch.ones(context_dim))
        self.register_buffer("context_log", torch.zeros(context_dim))
        self.observation_shift: Tensor
        self.observation_scale: Tensor
        self.context_shift: Tensor
        self.context_scale: Tensor
        self.context_log: Tensor

    @classmethod
    def measured(cls, problem: Problem, rng: Generator, n: int = 4096) -> "Scaling":
        """Statistics of ``n`` tasks, each observed at one random query.

        The shift is zero unless the mean is significantly different from it: a spurious offset would
        bias a linear memory on problems whose observations are centred.
        """
        tasks = TaskBatch.draw(problem, n, rng)
        observation = tasks.observe(problem.query_space.sample(n, rng), rng)
        scaling = cls(observation.shape[-1], tasks.context.shape[-1])
        mean, std = observation.mean(dim=0), observation.std(dim=0)
        significant = mean.abs() > 4 * std / n**0.5
        scaling.observation_shift.copy_(torch.where(significant, mean, 0.0))
        scaling.observation_scale.copy_(torch.where(std > 1e-8, std, 1.0))
        scaling.context_log.copy_((tasks.context > 0).all(dim=0).float())
        raw = scaling._raw_context(tasks.context)
        spread = raw.std(dim=0) if n > 1 and raw.numel() else torch.zeros(raw.shape[-1])
        scaling.context_shift.copy_(raw.mean(dim=0))
        scaling.context_scale.copy_(torch.where(spread > 1e-6, spread, 1.0))
        return scaling

    def _raw_context(self, context: Tensor) -> Tensor:
        return torch.where(self.context_log > 0, context.clamp_min(1e-12).log(), context)

    def observation(self, observation: Float[Tensor, "*batch observation"]) -> Float[Tensor, "*batch observation"]:
        """An observation near zero mean and unit variance."""
        return (observation - self.observation_shift) / self.observation_scale

    def observed(self, scaled: Float[Tensor, "*batch observation"]) -> Float[Tensor, "*batch observation"]:
        """A scaled observation in the problem's own units again."""
        return scaled * self.observation_scale + self.observation_shift

    def context(self, context: Float[Tensor, "*batch context"]) -> Float[Tensor, "*batch context"]:
        """A context near zero mean and unit variance; positive quantities by their logarithm."""
        return (self._raw_context(context) - self.context_shift) / self.context_scale
