"""Families whose observations are numbers, with answers that are places in two and more dimensions."""

import math

import torch
from torch import Generator, Tensor

from cicpe.spaces import Box
from families.base import Family, coin, normal, uniform


class Source(Family):
    """Where a source is in the plane, from noisy logarithms of its intensity; its strength is unknown."""

    query_space = Box([-2.0, -2.0], [2.0, 2.0])
    answer_space = Box([-2.0, -2.0], [2.0, 2.0])
    epsilons = (0.3, 0.6)
    horizon = 60

    def sample(self, n: int, rng: Generator) -> Tensor:
        return uniform(n, rng, (-2.0, 2.0), (-2.0, 2.0), (0.5, 2.0))

    def _mean(self, task: Tensor, query: Tensor) -> Tensor:
        squared = (query - task[..., :2]).square().sum(dim=-1)
        return (0.1 + task[..., 2] / (0.05 + squared)).log()

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return self._mean(task, query) + 0.3 * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :2]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return normal(y[..., 0], self._mean(task, query), 0.3)


class Branin(Family):
    """The minimiser of a shifted and warped Branin function with one global valley kept."""

    query_space = Box([-1.0, -1.0], [1.0, 1.0])
    answer_space = Box([-1.0, -1.0], [1.0, 1.0])
    epsilons = (0.1, 0.2)
    horizon = 60

    def sample(self, n: int, rng: Generator) -> Tensor:
        return uniform(n, rng, (-0.6, 0.6), (-0.6, 0.6), (0.7, 1.4), (0.7, 1.4), (-0.3, 0.3))

    def _mean(self, task: Tensor, query: Tensor) -> Tensor:
        # Branin about its minimiser (pi, 2.275), stretched by the task; tilted so that it is unique.
        u = (query[..., 0] - task[..., 0]) * task[..., 2] * 5 + math.pi
        v = (query[..., 1] - task[..., 1]) * task[..., 3] * 6 + 2.275
        bowl = (v - 5.1 / (4 * math.pi**2) * u.square() + 5 / math.pi * u - 6).square()
        wave = 10 * (1 - 1 / (8 * math.pi)) * u.cos() + 10
        tilt = 0.6 * (u - math.pi).square()
        return torch.log1p((bowl + wave - 0.397887).clamp_min(0) + tilt) / 2 + task[..., 4]

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return self._mean(task, query) + 0.1 * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :2]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return normal(y[..., 0], self._mean(task, query), 0.1)


class Bowl(Family):
    """The minimiser of a quadratic bowl in six dimensions, with unknown curvature."""

    query_space = Box([-1.0] * 6, [1.0] * 6)
    answer_space = Box([-1.0] * 6, [1.0] * 6)
    epsilons = (0.3, 0.5)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return torch.cat([uniform(n, rng, *[(-0.8, 0.8)] * 6), uniform(n, rng, (0.5, 2.0))], dim=-1)

    def _mean(self, task: Tensor, query: Tensor) -> Tensor:
        return task[..., 6] * (query - task[..., :6]).square().sum(dim=-1)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return self._mean(task, query) + 0.1 * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :6]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return normal(y[..., 0], self._mean(task, query), 0.1)


class PolarClusters(Family):
    """A place in one of two clusters on a ring, by angle and radius: what the reference knows of ``Clusters``."""

    query_space = Box([-1.0, -1.0], [1.0, 1.0])
    answer_space = Box([-1.0, -1.0], [1.0, 1.0])
    epsilons = (0.08, 0.2)
    horizon = 60
    noise, stray, longest = 0.15, 0.1, 2.8

    def sample(self, n: int, rng: Generator) -> Tensor:
        centre = torch.where(coin(torch.full((n,), 0.5), rng) > 0, 0.5, 3.6)
        spread = torch.tensor([0.25, 0.03]) * torch.randn((n, 2), generator=rng)
        return torch.stack([centre, torch.full((n,), 0.7)], dim=1) + spread

    def target(self, task: Tensor) -> Tensor:
        angle, radius = task[..., 0], task[..., 1]
        return (radius[..., None] * torch.stack([angle.cos(), angle.sin()], dim=-1)).clamp(-1, 1)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return self._seen(self.target(task), query, rng)

    def _seen(self, place: Tensor, query: Tensor, rng: Generator) -> Tensor:
        apart = torch.linalg.vector_norm(query - place, dim=-1)
        strays = coin(torch.full((len(query),), self.stray), rng) > 0
        anywhere = self.longest * torch.rand(len(query), generator=rng)
        return torch.where(strays, anywhere, apart + self.noise * torch.randn(len(query), generator=rng))

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        apart = torch.linalg.vector_norm(query - self.target(task), dim=-1)
        off = ((y[..., 0] - apart) / self.noise).square()
        usual = (1 - self.stray) * torch.exp(-0.5 * off) / (self.noise * math.sqrt(2 * math.pi))
        anywhere = self.stray / self.longest * ((y[..., 0] >= 0) & (y[..., 0] <= self.longest)).float()
        return (usual + anywhere).clamp_min(1e-12).log()


class Clusters(PolarClusters):
    """A place in one of two clusters on a ring, by distances of which a tenth are strays: no copula has its prior."""

    def sample(self, n: int, rng: Generator) -> Tensor:
        return PolarClusters.target(self, super().sample(n, rng))

    def target(self, task: Tensor) -> Tensor:
        return task


class Plane(Family):
    """The three slopes of a plane of unknown height under Laplace noise: queries and answers in equal boxes."""

    query_space = Box([-1.0] * 3, [1.0] * 3)
    answer_space = Box([-1.0] * 3, [1.0] * 3)
    epsilons = (0.15, 0.3)
    horizon = 80
    noise = 0.15

    def sample(self, n: int, rng: Generator) -> Tensor:
        return uniform(n, rng, *[(-1.0, 1.0)] * 4)

    def _mean(self, task: Tensor, query: Tensor) -> Tensor:
        return (task[..., :3] * query).sum(dim=-1) + task[..., 3]

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        even = torch.rand(len(query), generator=rng) - 0.5
        return self._mean(task, query) - self.noise * even.sign() * (1 - 2 * even.abs()).clamp_min(1e-7).log()

    def target(self, task: Tensor) -> Tensor:
        return task[..., :3]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return -(y[..., 0] - self._mean(task, query)).abs() / self.noise
