"""Families whose observations are vectors of numbers."""

import math

import torch
from torch import Generator, Tensor

from cicpe.spaces import Box
from families.base import Family, normal, uniform


class Enzyme(Family):
    """A Michaelis constant from two noisy readings (rate and product) at a chosen concentration."""

    query_space = Box([0.0], [10.0])
    answer_space = Box([0.2], [5.0])
    epsilons = (0.25, 0.5)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return uniform(n, rng, (0.2, 5.0), (0.5, 2.0))

    def _means(self, task: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        rate = task[..., 1] * query[..., 0] / (task[..., 0] + query[..., 0])
        return rate, torch.exp(-rate)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        rate, left = self._means(task, query)
        noise = torch.randn((2, len(query)), generator=rng)
        return torch.stack([rate + 0.1 * noise[0], left + 0.05 * noise[1]], dim=-1)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        rate, left = self._means(task, query)
        return normal(y[..., 0], rate, 0.1) + normal(y[..., 1], left, 0.05)


class ReferenceChannel(Family):
    """Where a line is, from a signal and a reference that share a drift far larger than the noise of either."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])
    epsilons = (0.02, 0.05)
    drift, noise = 0.5, 0.1

    def sample(self, n: int, rng: Generator) -> Tensor:
        return uniform(n, rng, (0.1, 0.9), (0.5, 1.5))

    def _signal(self, task: Tensor, query: Tensor) -> Tensor:
        return task[..., 1] * torch.exp(-0.5 * ((query[..., 0] - task[..., 0]) / 0.12).square())

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        drift, *noise = torch.randn((3, len(query)), generator=rng)
        signal = self._signal(task, query) + self.drift * drift + self.noise * noise[0]
        return torch.stack([signal, self.drift * drift + self.noise * noise[1]], dim=-1)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        # The reference alone, and then the signal given the reference.
        var = self.drift**2 + self.noise**2
        share = self.drift**2 / var
        left = math.sqrt(var - share * self.drift**2)
        return normal(y[..., 1], torch.zeros(()), math.sqrt(var)) + normal(
            y[..., 0], self._signal(task, query) + share * y[..., 1], left
        )
