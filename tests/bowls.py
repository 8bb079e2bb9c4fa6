"""Small problems for optimisers."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from cicpe.agents.base import Agent
from cicpe.baselines.catalogue import METHODS, ComparisonSetting
from cicpe.baselines.tbal import Constants
from cicpe.problems import Problem
from cicpe.spaces import Box

MILD = Constants(radius=0.3, least_curvature=20.0, most_curvature=60.0, third=100.0, gap=0.5)


@dataclass(frozen=True)
class Bowl(Problem):
    """A quadratic bowl: the answer is where it is lowest (or, with ``sign`` 1, highest)."""

    sign: float = -1.0
    noise: float = 0.01
    query_space = Box([-2.0, 0.0], [1.0, 4.0])
    answer_space = Box([-2.0, 0.0], [1.0, 4.0])

    def sample(self, n: int, rng: Generator) -> Tensor:
        return self.query_space.sample(n, rng)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        noise = self.noise * torch.randn(len(query), generator=rng)
        return -self.sign * (query - task).square().sum(dim=-1) + noise

    def target(self, task: Tensor) -> Tensor:
        return task


def make_agent(name: str, problem: Problem, budget: int = 7, epsilon: float = 0.2) -> Agent:
    return METHODS[name].make(ComparisonSetting(problem, epsilon, 0.1, budget))
