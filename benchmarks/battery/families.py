"""Small families over all kinds of observations, queries and answers, written as a user would write them.

No family has a ``log_likelihood``: what an agent learns comes from simulations alone. ``log_p`` is the true one, under a
name that the library does not know, for the exact references.
"""

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from cicpe.agents.base import Agent
from cicpe.baselines.references.conjugate import ConjugateRegression
from cicpe.problems.base import Problem
from cicpe.problems.best_arm import BestArm
from cicpe.problems.per_task import PerTaskProblem
from cicpe.spaces import Box, Interval


def _uniform(n: int, rng: Generator, *ranges: tuple[float, float]) -> Tensor:
    low, high = torch.tensor(ranges).T
    return low + (high - low) * torch.rand((n, len(ranges)), generator=rng)


def _coin(p: Tensor, rng: Generator) -> Tensor:
    return (torch.rand(p.shape, generator=rng) < p).float()


def _bernoulli(p: Tensor, y: Tensor) -> Tensor:
    return torch.where(y > 0.5, p, 1 - p).clamp_min(1e-12).log()


def _normal(y: Tensor, mean: Tensor, sd: Tensor | float) -> Tensor:
    sd = torch.as_tensor(sd)
    return -0.5 * ((y - mean) / sd).square() - sd.log()


class Family(Problem):
    """A problem whose task is a tensor n x p of numbers; ``log_p`` (for references only) broadcasts."""

    epsilons: tuple[float, float]
    horizon = 100
    known: tuple[int, ...] = ()
    """Which of the numbers are told beforehand, in the order of the context."""

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        """The true log-likelihood, for references only."""
        raise NotImplementedError


class Dose(Family):
    """The dose at which 30 % show toxicity, from yes/no outcomes."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])
    epsilons = (0.08, 0.15)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return _uniform(n, rng, (0.1, 0.9), (4.0, 15.0))

    def _p(self, task: Tensor, query: Tensor) -> Tensor:
        return torch.sigmoid(math.log(0.3 / 0.7) + task[..., 1] * (query[..., 0] - task[..., 0]))

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return _coin(self._p(task, query), rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return _bernoulli(self._p(task, query), y[..., 0])


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
        return _uniform(n, rng, (0.1, 0.9), (0.03, 0.2), (0.0, 0.05))

    def _p(self, task: Tensor, query: Tensor) -> Tensor:
        rise = torch.sigmoid((query[..., 0] - task[..., 0]) / task[..., 1] * 1.7)
        return 0.5 + (0.5 - task[..., 2]) * rise

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return _coin(self._p(task, query), rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return _bernoulli(self._p(task, query), y[..., 0])


class Resonance(Family):
    """The centre of a Lorentzian dip with unknown depth and baseline."""

    query_space = Box([1.5], [4.5])
    answer_space = Box([2.0], [4.0])
    epsilons = (0.01, 0.03)
    horizon = 60

    def sample(self, n: int, rng: Generator) -> Tensor:
        centre_depth = _uniform(n, rng, (2.0, 4.0), (0.5, 1.5))
        base = 0.5 * torch.randn((n, 1), generator=rng)
        return torch.cat([centre_depth, base], dim=-1)

    def _mean(self, task: Tensor, query: Tensor) -> Tensor:
        return task[..., 2] - task[..., 1] / (((query[..., 0] - task[..., 0]) / 0.2).square() + 1)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return self._mean(task, query) + 0.05 * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return _normal(y[..., 0], self._mean(task, query), 0.05)


class Branin(Family):
    """The minimiser of a shifted and warped Branin function with one global valley kept."""

    query_space = Box([-1.0, -1.0], [1.0, 1.0])
    answer_space = Box([-1.0, -1.0], [1.0, 1.0])
    epsilons = (0.1, 0.2)
    horizon = 60

    def sample(self, n: int, rng: Generator) -> Tensor:
        return _uniform(n, rng, (-0.6, 0.6), (-0.6, 0.6), (0.7, 1.4), (0.7, 1.4), (-0.3, 0.3))

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
        return _normal(y[..., 0], self._mean(task, query), 0.1)


class Source(Family):
    """Where a source is in the plane, from noisy logarithms of its intensity; its strength is unknown."""

    query_space = Box([-2.0, -2.0], [2.0, 2.0])
    answer_space = Box([-2.0, -2.0], [2.0, 2.0])
    epsilons = (0.3, 0.6)
    horizon = 60

    def sample(self, n: int, rng: Generator) -> Tensor:
        return _uniform(n, rng, (-2.0, 2.0), (-2.0, 2.0), (0.5, 2.0))

    def _mean(self, task: Tensor, query: Tensor) -> Tensor:
        squared = (query - task[..., :2]).square().sum(dim=-1)
        return (0.1 + task[..., 2] / (0.05 + squared)).log()

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return self._mean(task, query) + 0.3 * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :2]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return _normal(y[..., 0], self._mean(task, query), 0.3)


class Decay(Family):
    """A decay rate from counts at a chosen time."""

    query_space = Box([0.0], [10.0])
    answer_space = Box([0.1], [2.0])
    epsilons = (0.1, 0.2)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return _uniform(n, rng, (0.1, 2.0))

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
        return _uniform(n, rng, (1.0, 9.0), (5.0, 20.0), (0.5, 3.0), (0.3, 0.9))

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


class KnownNoise(Family):
    """The place of an edge of unknown height; how noisy the gauge is, is known beforehand."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])
    context_names = ("noise",)
    epsilons = (0.03, 0.08)
    horizon = 60
    known = (2,)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return _uniform(n, rng, (0.1, 0.9), (0.5, 2.0), (0.1, 0.6))

    def _mean(self, task: Tensor, query: Tensor) -> Tensor:
        return task[..., 1] * torch.tanh((query[..., 0] - task[..., 0]) / 0.15)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return self._mean(task, query) + task[:, 2] * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def context(self, task: Tensor) -> Tensor:
        return task[:, 2:]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return _normal(y[..., 0], self._mean(task, query), task[..., 2])


class ThreeSides(Family):
    """A place in three dimensions, from which side of a query it lies on along each; any side is wrong now and then."""

    query_space = Box([-1.0] * 3, [1.0] * 3)
    answer_space = Box([-1.0] * 3, [1.0] * 3)
    epsilons = (0.05, 0.1)
    wrong = 0.15

    def sample(self, n: int, rng: Generator) -> Tensor:
        return _uniform(n, rng, *[(-1.0, 1.0)] * 3)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        flip = torch.rand(query.shape, generator=rng) < self.wrong
        return torch.where((task >= query) ^ flip, 1.0, -1.0)

    def target(self, task: Tensor) -> Tensor:
        return task

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        agrees = (task >= query) == (y > 0)
        return torch.where(agrees, math.log(1 - self.wrong), math.log(self.wrong)).sum(dim=-1)


class Bowl(Family):
    """The minimiser of a quadratic bowl in six dimensions, with unknown curvature."""

    query_space = Box([-1.0] * 6, [1.0] * 6)
    answer_space = Box([-1.0] * 6, [1.0] * 6)
    epsilons = (0.3, 0.5)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return torch.cat([_uniform(n, rng, *[(-0.8, 0.8)] * 6), _uniform(n, rng, (0.5, 2.0))], dim=-1)

    def _mean(self, task: Tensor, query: Tensor) -> Tensor:
        return task[..., 6] * (query - task[..., :6]).square().sum(dim=-1)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return self._mean(task, query) + 0.1 * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :6]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return _normal(y[..., 0], self._mean(task, query), 0.1)


class Grade(Family):
    """An ability from graded answers in five categories; the query is the difficulty; discrimination unknown."""

    query_space = Box([-3.0], [3.0])
    answer_space = Box([-3.0], [3.0])
    epsilons = (0.3, 0.6)

    def sample(self, n: int, rng: Generator) -> Tensor:
        ability = torch.randn((n, 1), generator=rng).clamp(-3, 3)
        return torch.cat([ability, _uniform(n, rng, (0.8, 2.5))], dim=-1)

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


class HeavyLine(Family):
    """The zero of a line with unknown slope under Student noise with two degrees of freedom."""

    query_space = Box([-1.0], [1.0])
    answer_space = Box([-1.0], [1.0])
    epsilons = (0.1, 0.2)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return _uniform(n, rng, (-1.0, 1.0), (0.5, 3.0))

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


class Enzyme(Family):
    """A Michaelis constant from two noisy readings (rate and product) at a chosen concentration."""

    query_space = Box([0.0], [10.0])
    answer_space = Box([0.2], [5.0])
    epsilons = (0.25, 0.5)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return _uniform(n, rng, (0.2, 5.0), (0.5, 2.0))

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
        return _normal(y[..., 0], rate, 0.1) + _normal(y[..., 1], left, 0.05)


class ReferenceChannel(Family):
    """Where a line is, from a signal and a reference that share a drift far larger than the noise of either."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])
    epsilons = (0.02, 0.05)
    drift, noise = 0.5, 0.1

    def sample(self, n: int, rng: Generator) -> Tensor:
        return _uniform(n, rng, (0.1, 0.9), (0.5, 1.5))

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
        return _normal(y[..., 1], torch.zeros(()), math.sqrt(var)) + _normal(
            y[..., 0], self._signal(task, query) + share * y[..., 1], left
        )


class WaitingTime(Family):
    """The rate of an event, over four decades, from waiting times under a stress that speeds it up."""

    query_space = Box([0.0], [2.0])
    answer_space = Box([-2.0], [2.0])
    epsilons = (0.15, 0.3)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return _uniform(n, rng, (-2.0, 2.0), (0.2, 1.0))

    def _rate(self, task: Tensor, query: Tensor) -> Tensor:
        return 10 ** task[..., 0] * torch.exp(task[..., 1] * query[..., 0])

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return -torch.rand(len(query), generator=rng).clamp_min(1e-9).log() / self._rate(task, query)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        rate = self._rate(task, query)
        return rate.log() - rate * y[..., 0]


class PolarClusters(Family):
    """A place in one of two clusters on a ring, by angle and radius: what the reference knows of ``Clusters``."""

    query_space = Box([-1.0, -1.0], [1.0, 1.0])
    answer_space = Box([-1.0, -1.0], [1.0, 1.0])
    epsilons = (0.08, 0.2)
    horizon = 60
    noise, stray, longest = 0.15, 0.1, 2.8

    def sample(self, n: int, rng: Generator) -> Tensor:
        centre = torch.where(_coin(torch.full((n,), 0.5), rng) > 0, 0.5, 3.6)
        spread = torch.tensor([0.25, 0.03]) * torch.randn((n, 2), generator=rng)
        return torch.stack([centre, torch.full((n,), 0.7)], dim=1) + spread

    def target(self, task: Tensor) -> Tensor:
        angle, radius = task[..., 0], task[..., 1]
        return (radius[..., None] * torch.stack([angle.cos(), angle.sin()], dim=-1)).clamp(-1, 1)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return self._seen(self.target(task), query, rng)

    def _seen(self, place: Tensor, query: Tensor, rng: Generator) -> Tensor:
        apart = torch.linalg.vector_norm(query - place, dim=-1)
        strays = _coin(torch.full((len(query),), self.stray), rng) > 0
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


class Phase(Family):
    """The phase of an oscillation with unknown frequency near two turns; the answer is periodic."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])
    epsilons = (0.05, 0.1)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return _uniform(n, rng, (0.0, 1.0), (1.5, 2.5))

    def _p(self, task: Tensor, query: Tensor) -> Tensor:
        return 0.5 + 0.45 * torch.cos(2 * math.pi * (task[..., 1] * query[..., 0] - task[..., 0]))

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return _coin(self._p(task, query), rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def loss(self, task: Tensor, answer: Tensor) -> Tensor:
        apart = (answer - task[..., :1]).abs()[..., 0]
        return torch.minimum(apart, 1 - apart)

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return _bernoulli(self._p(task, query), y[..., 0])


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
        return _coin(self._p(task, query), rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return _bernoulli(self._p(task, query), y[..., 0])


class TwoPeaks(Family):
    """The higher of two peaks: the decoy's place and height are unknown, so posteriors have two modes."""

    query_space = Box([-1.0], [1.0])
    answer_space = Box([-1.0], [1.0])
    epsilons = (0.05, 0.15)
    horizon = 60

    def sample(self, n: int, rng: Generator) -> Tensor:
        return _uniform(n, rng, (-1.0, 1.0), (-1.0, 1.0), (0.3, 0.8))

    def _mean(self, task: Tensor, query: Tensor) -> Tensor:
        first = torch.exp(-((query[..., 0] - task[..., 0]) / 0.25).square())
        second = task[..., 2] * torch.exp(-((query[..., 0] - task[..., 1]) / 0.25).square())
        return torch.maximum(first, second)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return self._mean(task, query) + 0.1 * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return _normal(y[..., 0], self._mean(task, query), 0.1)


class NoisyEdge(Family):
    """The place of a smooth edge whose observation noise grows with the distance from the middle."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])
    epsilons = (0.03, 0.06)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return _uniform(n, rng, (0.0, 1.0), (0.05, 0.2))

    def _both(self, task: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
        mean = torch.tanh((query[..., 0] - task[..., 0]) / task[..., 1])
        return mean, 0.1 + 1.2 * (query[..., 0] - 0.5).abs()

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        mean, sd = self._both(task, query)
        return mean + sd * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return _normal(y[..., 0], *self._both(task, query))


class HalfResponse(Family):
    """Where a logistic curve is one half: the answer -a / b is a function of two hidden numbers, neither of which is it."""

    query_space = Box([-2.0], [2.0])
    answer_space = Box([-2.0], [2.0])
    epsilons = (0.3, 0.6)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return torch.cat([1.5 * torch.randn((n, 1), generator=rng), _uniform(n, rng, (1.0, 5.0))], dim=-1)

    def _p(self, task: Tensor, query: Tensor) -> Tensor:
        return torch.sigmoid(task[..., 0] + task[..., 1] * query[..., 0])

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return _coin(self._p(task, query), rng)

    def target(self, task: Tensor) -> Tensor:
        return (-task[..., :1] / task[..., 1:]).clamp(-2, 2)

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return _bernoulli(self._p(task, query), y[..., 0])


class TotalYield(Family):
    """What a reaction gives in the end, from counts on the way: a function of its amount and of its rate."""

    query_space = Box([0.1], [3.0])
    answer_space = Box([0.0], [50.0])
    epsilons = (2.5, 4.0)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return _uniform(n, rng, (5.0, 50.0), (0.2, 2.0))

    def _rate(self, task: Tensor, query: Tensor) -> Tensor:
        return 0.5 * task[..., 0] * (1 - torch.exp(-task[..., 1] * query[..., 0]))

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return torch.poisson(self._rate(task, query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1] * (1 - torch.exp(-3.0 * task[..., 1:]))

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        rate = self._rate(task, query)
        return y[..., 0] * rate.clamp_min(1e-30).log() - rate


class Bell(Family):
    """Centre and width of a bell curve of unknown height, together: two answers on a line of queries."""

    query_space = Box([-3.0], [3.0])
    answer_space = Box([-2.0, 0.3], [2.0, 1.5])
    epsilons = (0.2, 0.4)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return _uniform(n, rng, (-2.0, 2.0), (0.3, 1.5), (0.8, 1.2))

    def _mean(self, task: Tensor, query: Tensor) -> Tensor:
        return task[..., 2] * torch.exp(-0.5 * ((query[..., 0] - task[..., 0]) / task[..., 1]).square())

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return self._mean(task, query) + 0.1 * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :2]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return _normal(y[..., 0], self._mean(task, query), 0.1)


class FaultyPart(Family):
    """Which of eight parts is broken, from noisy tests of a part at a time; others fail at an unknown rate."""

    query_space = Box([0.0], [8.0])
    answer_space = Box([0.0], [7.0])
    epsilons = (0.4, 0.5)

    def sample(self, n: int, rng: Generator) -> Tensor:
        part = torch.randint(8, (n, 1), generator=rng).float()
        return torch.cat([part, _uniform(n, rng, (0.05, 0.3))], dim=-1)

    def _p(self, task: Tensor, query: Tensor) -> Tensor:
        return torch.where(query[..., 0].floor().clamp(0, 7) == task[..., 0], 0.8, task[..., 1])

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return _coin(self._p(task, query), rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return _bernoulli(self._p(task, query), y[..., 0])


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


class Ramp(Family):
    """The batched twin of ``NumpyThreshold``, for its reference."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])
    epsilons = (0.05, 0.1)
    horizon = 60

    def sample(self, n: int, rng: Generator) -> Tensor:
        return _uniform(n, rng, (0.0, 1.0), (1.0, 3.0))

    def _mean(self, task: Tensor, query: Tensor) -> Tensor:
        return task[..., 1] * (query[..., 0] - task[..., 0]).clamp_min(0)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return self._mean(task, query) + 0.2 * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[..., :1]

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        return _normal(y[..., 0], self._mean(task, query), 0.2)


class Case(NamedTuple):
    """A problem, its two epsilons, and the twin whose likelihood the reference may use, or a reference for an epsilon."""

    problem: Problem
    epsilons: tuple[float, float]
    reference: Family | Callable[[float], Agent]
    about: str
    """Observation; whether a query is an answer; hidden numbers."""


def cases() -> dict[str, Case]:
    """Every family of the battery by name."""
    own: dict[str, tuple[Family, str]] = {
        "dose": (Dose(), "yes/no; X = A; 2"),
        "slope": (Slope(), "yes/no; X != A in equal boxes; 2"),
        "threshold-2afc": (Threshold2AFC(), "yes/no; X = A; 3"),
        "phase": (Phase(), "yes/no; periodic answer; 2"),
        "discounting": (Discounting(), "yes/no; 2-D query, 1-D answer; 2"),
        "grade": (Grade(), "five categories; X = A; 2"),
        "decay": (Decay(), "count; X != A; 1"),
        "emission-line": (EmissionLine(), "count; X = A; 4"),
        "resonance": (Resonance(), "real; unequal boxes; 3"),
        "two-peaks": (TwoPeaks(), "real; several modes; 3"),
        "noisy-edge": (NoisyEdge(), "real; noise depends on the query; 2"),
        "heavy-line": (HeavyLine(), "heavy-tailed; X = A; 2"),
        "enzyme": (Enzyme(), "vector of two; X != A; 2"),
        "reference-channel": (ReferenceChannel(), "vector of two that share their noise; X = A; 2"),
        "source": (Source(), "real; X = A, 2-D; 3"),
        "branin": (Branin(), "real; X = A, 2-D, warped; 5"),
        "bowl": (Bowl(), "real; X = A, 6-D; 7"),
        "half-response": (HalfResponse(), "yes/no; the answer is a function of both; 2"),
        "total-yield": (TotalYield(), "count; the answer is a function of both; 2"),
        "bell": (Bell(), "real; 1-D query, 2-D answer; 3"),
        "waiting-time": (WaitingTime(), "positive over decades; X != A; 2"),
        "faulty-part": (FaultyPart(), "yes/no; finite answers; 2"),
        "known-noise": (KnownNoise(), "real; X = A; a known context; 2"),
        "three-sides": (ThreeSides(), "three yes/no; X = A; 3"),
    }
    battery = {name: Case(problem, problem.epsilons, problem, about) for name, (problem, about) in own.items()}
    places = Clusters()
    about = "real with strays; 2-D, no copula; 2"
    battery["clusters"] = Case(places, places.epsilons, PolarClusters(), about)
    battery["numpy-ramp"] = Case(NumpyThreshold(), (0.05, 0.1), Ramp(), "real; NumPy simulator; 2")
    battery["slow-ramp"] = Case(SlowRamp(), (0.05, 0.1), Ramp(), "real; 5 ms per call; 2")
    arms = BestArm(dim=8, noise=0.3)
    battery["best-arm-8d"] = Case(
        arms, (0.05, 0.1), lambda epsilon: ConjugateRegression(arms, epsilon, 200), "real; sphere; 8"
    )
    return battery
