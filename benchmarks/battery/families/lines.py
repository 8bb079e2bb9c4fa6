"""Families whose observations are numbers, with queries and answers on a line or of another space than the queries."""

import math
import time

import numpy as np
import torch
from torch import Generator, Tensor

from cicpe.problems.per_task import PerTaskProblem
from cicpe.spaces import Box, Interval
from families.base import Family, normal, uniform


class Resonance(Family):
    """The centre of a Lorentzian dip with unknown depth and baseline."""

    query_space = Box([1.5], [4.5])
    answer_space = Box([2.0], [4.0])
    epsilons = (0.01, 0.03)
    horizon = 60

    def sample(self, n: int, rng: Generator) -> Tensor:
        centre_depth = uniform(n, rng, (2.0, 4.0), (0.5, 1.5))
        base = 0.5 * torch.randn((n, 1), generator=rng)
        return torch.cat([centre_depth, base], dim=-1)

    def _mean(self, task: Tensor, query: Tensor) -> Tensor:
        return task[..., 2] - task[..., 1] / (((query[..., 0] - task[..., 0]) / 0.2).square() + 1)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return self._mean(task, query) + 0.05 * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return normal(y[..., 0], self._mean(task, query), 0.05)


class TwoPeaks(Family):
    """The higher of two peaks: the decoy's place and height are unknown, so posteriors have two modes."""

    query_space = Box([-1.0], [1.0])
    answer_space = Box([-1.0], [1.0])
    epsilons = (0.05, 0.15)
    horizon = 60

    def sample(self, n: int, rng: Generator) -> Tensor:
        return uniform(n, rng, (-1.0, 1.0), (-1.0, 1.0), (0.3, 0.8))

    def _mean(self, task: Tensor, query: Tensor) -> Tensor:
        first = torch.exp(-((query[..., 0] - task[..., 0]) / 0.25).square())
        second = task[..., 2] * torch.exp(-((query[..., 0] - task[..., 1]) / 0.25).square())
        return torch.maximum(first, second)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return self._mean(task, query) + 0.1 * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return normal(y[..., 0], self._mean(task, query), 0.1)


class NoisyEdge(Family):
    """The place of a smooth edge whose observation noise grows with the distance from the middle."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])
    epsilons = (0.03, 0.06)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return uniform(n, rng, (0.0, 1.0), (0.05, 0.2))

    def _both(self, task: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        mean = torch.tanh((query[..., 0] - task[..., 0]) / task[..., 1])
        return mean, 0.1 + 1.2 * (query[..., 0] - 0.5).abs()

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        mean, sd = self._both(task, query)
        return mean + sd * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return normal(y[..., 0], *self._both(task, query))


class KnownNoise(Family):
    """The place of an edge of unknown height; how noisy the gauge is, is known beforehand."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])
    context_names = ("noise",)
    epsilons = (0.03, 0.08)
    horizon = 60
    known = (2,)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return uniform(n, rng, (0.1, 0.9), (0.5, 2.0), (0.1, 0.6))

    def _mean(self, task: Tensor, query: Tensor) -> Tensor:
        return task[..., 1] * torch.tanh((query[..., 0] - task[..., 0]) / 0.15)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return self._mean(task, query) + task[:, 2] * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def context(self, task: Tensor) -> Tensor:
        return task[:, 2:]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return normal(y[..., 0], self._mean(task, query), task[..., 2])


class Saturated(Family):
    """The place of an edge of unknown height, by an instrument that shows its limit where a reading lies beyond it."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])
    epsilons = (0.03, 0.06)
    noise, limit = 0.4, 0.6

    def sample(self, n: int, rng: Generator) -> Tensor:
        return uniform(n, rng, (0.1, 0.9), (0.5, 3.0))

    def _mean(self, task: Tensor, query: Tensor) -> Tensor:
        return task[..., 1] * torch.tanh((query[..., 0] - task[..., 0]) / 0.2)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        reading = self._mean(task, query) + self.noise * torch.randn(len(query), generator=rng)
        return reading.clamp(-self.limit, self.limit)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        mean, reading = self._mean(task, query), y[..., 0]
        lowest, highest = (torch.special.log_ndtr(-(self.limit + sign * mean) / self.noise) for sign in (1, -1))
        density = normal(reading, mean, self.noise) - 0.5 * math.log(2 * math.pi)
        at_an_end = torch.where(reading > 0, highest, lowest)
        return torch.where(reading.abs() < self.limit, density, at_an_end)


class HeavyLine(Family):
    """The zero of a line with unknown slope under Student noise with two degrees of freedom."""

    query_space = Box([-1.0], [1.0])
    answer_space = Box([-1.0], [1.0])
    epsilons = (0.1, 0.2)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return uniform(n, rng, (-1.0, 1.0), (0.5, 3.0))

    def _mean(self, task: Tensor, query: Tensor) -> Tensor:
        return task[..., 1] * (query[..., 0] - task[..., 0])

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        normal = torch.randn((3, len(query)), generator=rng)
        chi = normal[1:].square().sum(dim=0) / 2
        return self._mean(task, query) + 0.2 * normal[0] / chi.clamp_min(1e-8).sqrt()

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        z = (y[..., 0] - self._mean(task, query)) / 0.2
        return -1.5 * torch.log1p(z.square() / 2)


class Bell(Family):
    """Centre and width of a bell curve of unknown height, together: two answers on a line of queries."""

    query_space = Box([-3.0], [3.0])
    answer_space = Box([-2.0, 0.3], [2.0, 1.5])
    epsilons = (0.2, 0.4)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return uniform(n, rng, (-2.0, 2.0), (0.3, 1.5), (0.8, 1.2))

    def _mean(self, task: Tensor, query: Tensor) -> Tensor:
        return task[..., 2] * torch.exp(-0.5 * ((query[..., 0] - task[..., 0]) / task[..., 1]).square())

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return self._mean(task, query) + 0.1 * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :2]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return normal(y[..., 0], self._mean(task, query), 0.1)


class WaitingTime(Family):
    """The rate of an event, over four decades, from waiting times under a stress that speeds it up."""

    query_space = Box([0.0], [2.0])
    answer_space = Box([-2.0], [2.0])
    epsilons = (0.15, 0.3)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return uniform(n, rng, (-2.0, 2.0), (0.2, 1.0))

    def _rate(self, task: Tensor, query: Tensor) -> Tensor:
        return 10 ** task[..., 0] * torch.exp(task[..., 1] * query[..., 0])

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return -torch.rand(len(query), generator=rng).clamp_min(1e-9).log() / self._rate(task, query)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        rate = self._rate(task, query)
        return rate.log() - rate * y[..., 0]


class Ramp(Family):
    """The batched twin of ``NumpyThreshold``, for its reference."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])
    epsilons = (0.05, 0.1)
    horizon = 60

    def sample(self, n: int, rng: Generator) -> Tensor:
        return uniform(n, rng, (0.0, 1.0), (1.0, 3.0))

    def _mean(self, task: Tensor, query: Tensor) -> Tensor:
        return task[..., 1] * (query[..., 0] - task[..., 0]).clamp_min(0)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return self._mean(task, query) + 0.2 * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return normal(y[..., 0], self._mean(task, query), 0.2)


class NumpyThreshold(PerTaskProblem):
    """A plain NumPy simulator: the onset of a ramp with unknown steepness."""

    query_space = Box([0.0], [1.0])
    answer_space = Interval(0.0, 1.0)
    epsilons = (0.05, 0.1)
    horizon = 60

    def sample_one(self, rng: np.random.Generator) -> tuple[float, float]:
        return rng.uniform(0.0, 1.0), rng.uniform(1.0, 3.0)

    def observe_one(self, task: tuple[float, float], query: np.ndarray, rng: np.random.Generator) -> float:
        return task[1] * max(query[0] - task[0], 0.0) + 0.2 * rng.normal()

    def target_one(self, task: tuple[float, float]) -> float:
        return task[0]


class SlowRamp(NumpyThreshold):
    """The same with a simulator that takes 5 ms per call."""

    def observe_one(self, task: tuple[float, float], query: np.ndarray, rng: np.random.Generator) -> float:
        time.sleep(0.005)
        return super().observe_one(task, query, rng)
