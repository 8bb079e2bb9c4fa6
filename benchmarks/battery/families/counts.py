"""Families whose observations are counts."""

import torch
from torch import Generator, Tensor

from cicpe.spaces import Box
from families.base import Family, uniform


class Decay(Family):
    """A decay rate from counts at a chosen time."""

    query_space = Box([0.0], [10.0])
    answer_space = Box([0.1], [2.0])
    epsilons = (0.1, 0.2)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return uniform(n, rng, (0.1, 2.0))

    def _rate(self, task: Tensor, query: Tensor) -> Tensor:
        return 20 * torch.exp(-task[..., 0] * query[..., 0])

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return torch.poisson(self._rate(task, query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        rate = self._rate(task, query)
        return y[..., 0] * rate.clamp_min(1e-30).log() - rate


class EmissionLine(Family):
    """The place of an emission line of unknown height, width and background, from counts."""

    query_space = Box([0.0], [10.0])
    answer_space = Box([0.0], [10.0])
    epsilons = (0.15, 0.4)
    horizon = 80

    def sample(self, n: int, rng: Generator) -> Tensor:
        return uniform(n, rng, (1.0, 9.0), (5.0, 20.0), (0.5, 3.0), (0.3, 0.9))

    def _rate(self, task: Tensor, query: Tensor) -> Tensor:
        apart = (query[..., 0] - task[..., 0]) / task[..., 3]
        return task[..., 2] + task[..., 1] * torch.exp(-0.5 * apart.square())

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return torch.poisson(self._rate(task, query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        rate = self._rate(task, query)
        return y[..., 0] * rate.log() - rate


class TotalYield(Family):
    """What a reaction gives in the end, from counts on the way: a function of its amount and of its rate."""

    query_space = Box([0.1], [3.0])
    answer_space = Box([0.0], [50.0])
    epsilons = (2.5, 4.0)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return uniform(n, rng, (5.0, 50.0), (0.2, 2.0))

    def _rate(self, task: Tensor, query: Tensor) -> Tensor:
        return 0.5 * task[..., 0] * (1 - torch.exp(-task[..., 1] * query[..., 0]))

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return torch.poisson(self._rate(task, query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1] * (1 - torch.exp(-3.0 * task[..., 1:]))

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        rate = self._rate(task, query)
        return y[..., 0] * rate.clamp_min(1e-30).log() - rate
