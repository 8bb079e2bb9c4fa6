"""Families whose observations are yes or no, or one of a few grades."""

import math

import torch
from torch import Generator, Tensor

from cicpe.spaces import Box
from families.base import Family, bernoulli, coin, uniform


class Dose(Family):
    """The dose at which 30 % show toxicity, from yes/no outcomes."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])
    epsilons = (0.08, 0.15)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return uniform(n, rng, (0.1, 0.9), (4.0, 15.0))

    def _p(self, task: Tensor, query: Tensor) -> Tensor:
        return torch.sigmoid(math.log(0.3 / 0.7) + task[..., 1] * (query[..., 0] - task[..., 0]))

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return coin(self._p(task, query), rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return bernoulli(self._p(task, query), y[..., 0])


class Slope(Dose):
    """The slope of the dose curve: query and answer are both [0, 1], and different things."""

    epsilons = (0.2, 0.3)

    def target(self, task: Tensor) -> Tensor:
        return (task[..., 1:] - 4.0) / 11.0


class Threshold2AFC(Family):
    """A threshold in a two-alternative task with unknown spread and lapses."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])
    epsilons = (0.05, 0.1)
    horizon = 200

    def sample(self, n: int, rng: Generator) -> Tensor:
        return uniform(n, rng, (0.1, 0.9), (0.03, 0.2), (0.0, 0.05))

    def _p(self, task: Tensor, query: Tensor) -> Tensor:
        rise = torch.sigmoid((query[..., 0] - task[..., 0]) / task[..., 1] * 1.7)
        return 0.5 + (0.5 - task[..., 2]) * rise

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return coin(self._p(task, query), rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return bernoulli(self._p(task, query), y[..., 0])


class Phase(Family):
    """The phase of an oscillation with unknown frequency near two turns; the answer is periodic."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])
    epsilons = (0.05, 0.1)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return uniform(n, rng, (0.0, 1.0), (1.5, 2.5))

    def _p(self, task: Tensor, query: Tensor) -> Tensor:
        return 0.5 + 0.45 * torch.cos(2 * math.pi * (task[..., 1] * query[..., 0] - task[..., 0]))

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return coin(self._p(task, query), rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def loss(self, task: Tensor, answer: Tensor) -> Tensor:
        apart = (answer - task[..., :1]).abs()[..., 0]
        return torch.minimum(apart, 1 - apart)

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return bernoulli(self._p(task, query), y[..., 0])


class Discounting(Family):
    """Hyperbolic discounting: log k from choices between a reward now and 100 later."""

    query_space = Box([0.0, 0.0], [100.0, 8.0])
    answer_space = Box([-9.0], [0.5])
    epsilons = (0.4, 0.8)

    def sample(self, n: int, rng: Generator) -> Tensor:
        log_k = (-4.25 + 1.5 * torch.randn((n, 1), generator=rng)).clamp(-9.0, 0.5)
        alpha = 1e-3 + (2 * torch.randn((n, 1), generator=rng)).abs()
        return torch.cat([log_k, alpha], dim=-1)

    def _p(self, task: Tensor, query: Tensor) -> Tensor:
        later = 100 / (1 + torch.exp(task[..., 0] + query[..., 1]))
        return 0.01 + 0.98 * (0.5 + 0.5 * torch.erf((query[..., 0] - later) / task[..., 1]))

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return coin(self._p(task, query), rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return bernoulli(self._p(task, query), y[..., 0])


class HalfResponse(Family):
    """Where a logistic curve is one half: the answer -a / b is a function of two hidden numbers, neither of which is it."""

    query_space = Box([-2.0], [2.0])
    answer_space = Box([-2.0], [2.0])
    epsilons = (0.3, 0.6)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return torch.cat([1.5 * torch.randn((n, 1), generator=rng), uniform(n, rng, (1.0, 5.0))], dim=-1)

    def _p(self, task: Tensor, query: Tensor) -> Tensor:
        return torch.sigmoid(task[..., 0] + task[..., 1] * query[..., 0])

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return coin(self._p(task, query), rng)

    def target(self, task: Tensor) -> Tensor:
        return (-task[..., :1] / task[..., 1:]).clamp(-2, 2)

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return bernoulli(self._p(task, query), y[..., 0])


class FaultyPart(Family):
    """Which of eight parts is broken, from noisy tests of a part at a time; others fail at an unknown rate."""

    query_space = Box([0.0], [8.0])
    answer_space = Box([0.0], [7.0])
    epsilons = (0.4, 0.5)

    def sample(self, n: int, rng: Generator) -> Tensor:
        part = torch.randint(8, (n, 1), generator=rng).float()
        return torch.cat([part, uniform(n, rng, (0.05, 0.3))], dim=-1)

    def _p(self, task: Tensor, query: Tensor) -> Tensor:
        return torch.where(query[..., 0].floor().clamp(0, 7) == task[..., 0], 0.8, task[..., 1])

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return coin(self._p(task, query), rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return bernoulli(self._p(task, query), y[..., 0])


class ThreeSides(Family):
    """A place in three dimensions, from which side of a query it lies on along each; any side is wrong now and then."""

    query_space = Box([-1.0] * 3, [1.0] * 3)
    answer_space = Box([-1.0] * 3, [1.0] * 3)
    epsilons = (0.05, 0.1)
    wrong = 0.15

    def sample(self, n: int, rng: Generator) -> Tensor:
        return uniform(n, rng, *[(-1.0, 1.0)] * 3)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        flip = torch.rand(query.shape, generator=rng) < self.wrong
        return torch.where((task >= query) ^ flip, 1.0, -1.0)

    def target(self, task: Tensor) -> Tensor:
        return task

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        agrees = (task >= query) == (y > 0)
        return torch.where(agrees, math.log(1 - self.wrong), math.log(self.wrong)).sum(dim=-1)


class Grade(Family):
    """An ability from graded answers in five categories; the query is the difficulty; discrimination unknown."""

    query_space = Box([-3.0], [3.0])
    answer_space = Box([-3.0], [3.0])
    epsilons = (0.3, 0.6)

    def sample(self, n: int, rng: Generator) -> Tensor:
        ability = torch.randn((n, 1), generator=rng).clamp(-3, 3)
        return torch.cat([ability, uniform(n, rng, (0.8, 2.5))], dim=-1)

    def _steps(self, task: Tensor, query: Tensor) -> Tensor:
        edges = torch.tensor([-1.5, -0.5, 0.5, 1.5])
        return torch.sigmoid(task[..., 1:] * (task[..., :1] - query - edges))

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return (torch.rand((len(query), 1), generator=rng) < self._steps(task, query)).sum(dim=-1).float()

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        above = self._steps(task, query)
        ends = torch.ones_like(above[..., :1])
        share = torch.cat([ends, above], dim=-1) - torch.cat([above, 0 * ends], dim=-1)
        one_hot = (y[..., :1] == torch.arange(5)).float()
        return (share * one_hot).sum(dim=-1).clamp_min(1e-12).log()
