"""A small correct problem, and others that break it, one method at a time."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor
from torch.distributions import Normal

from cicpe.problems import Problem, TaskBatch
from cicpe.problems.base import Task
from cicpe.spaces import Box
from small_runs import make_rng


def use(problem: Problem, query: Tensor) -> None:
    """All that an episode asks of a problem."""
    tasks = TaskBatch.draw(problem, len(query), make_rng())
    tasks.observe(query, make_rng())
    tasks.loss(torch.zeros(len(query), 2))


class Line(Problem):
    """A small correct problem that the tests below break, one method at a time."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0, 0.0], [1.0, 1.0])
    context_names: Sequence[str] = ("scale",)

    def sample(self, n: int, rng: Generator) -> Task:
        return {"target": torch.rand((n, 2), generator=rng), "scale": 0.5 + torch.rand(n, generator=rng)}

    def observe(self, task: Task, query: Tensor, rng: Generator) -> Any:
        mean = task["target"].sum(-1) * task["scale"] + query[:, 0]
        return mean + 0.1 * torch.randn(len(query), generator=rng)

    def target(self, task: Task) -> Any:
        return task["target"]

    def loss(self, task: Task, answer: Tensor) -> Any:
        return (answer - task["target"]).abs().amax(-1)

    def context(self, task: Task) -> Any:
        return task["scale"][:, None]

    def log_likelihood(self, task: Task, query: Tensor, observation: Tensor) -> Any:
        mean = task["target"].sum(-1) * task["scale"] + query[:, 0]
        normal: Any = Normal(mean, 0.1)
        return normal.log_prob(observation[:, 0])


class NoSpace(Line):
    query_space = None  # type: ignore[assignment]


class NameForNames(Line):
    context_names = "scale"


class ZeroHorizon(Line):
    horizon = 0


class ShortSample(Line):
    def sample(self, n: int, rng: Generator) -> Task:
        return {"target": torch.rand((n, 2), generator=rng), "scale": torch.rand(1, generator=rng)}


class FloatInSample(Line):
    def sample(self, n: int, rng: Generator) -> Task:
        return super().sample(n, rng) | {"gain": 2.0}


class GlobalSample(Line):
    def sample(self, n: int, rng: Generator) -> Task:
        return super().sample(n, rng) | {"extra": torch.rand(n)}


class ConstantSample(Line):
    def sample(self, n: int, rng: Generator) -> Task:
        return super().sample(n, make_rng(3))


class GlobalObserve(Line):
    def observe(self, task: Task, query: Tensor, rng: Generator) -> Any:
        return super().observe(task, query, rng) + 0.01 * torch.randn(len(query))


class TaskChangingObserve(Line):
    def observe(self, task: Task, query: Tensor, rng: Generator) -> Any:
        seen = super().observe(task, query, rng)
        task["scale"] += 1e-3
        return seen


class QueryChangingObserve(Line):
    def observe(self, task: Task, query: Tensor, rng: Generator) -> Any:
        seen = super().observe(task, query, rng)
        query *= 2
        return seen


class NanObserve(Line):
    def observe(self, task: Task, query: Tensor, rng: Generator) -> Any:
        return super().observe(task, query, rng) + 0 / query[:, 0]  # only on the edge


class ScalarObserve(Line):
    def observe(self, task: Task, query: Tensor, rng: Generator) -> Any:
        return super().observe(task, query, rng).mean()


class NoReturnObserve(Line):
    def observe(self, task: Task, query: Tensor, rng: Generator) -> Any:
        super().observe(task, query, rng)


class RaisingObserve(Line):
    def observe(self, task: Task, query: Tensor, rng: Generator) -> Any:
        raise KeyError("dose")


class WideningObserve(Line):
    def observe(self, task: Task, query: Tensor, rng: Generator) -> Any:
        seen = super().observe(task, query, rng)
        return seen[:, None].repeat(1, 2) if (query == 0).any() else seen

    log_likelihood = Problem.log_likelihood


class NarrowTarget(Line):
    def target(self, task: Task) -> Any:
        return task["target"][:, 0]


class OutsideTarget(Line):
    answer_space = Box([0.0, 0.0], [1.0, 0.5])


class NanTarget(Line):
    def target(self, task: Task) -> Any:
        return task["target"] / 0 * 0


class OffsetLoss(Line):
    def loss(self, task: Task, answer: Tensor) -> Any:
        return super().loss(task, answer) + 0.2


class NegativeLoss(Line):
    def loss(self, task: Task, answer: Tensor) -> Any:
        return (answer - task["target"]).sum(-1)


class NanLoss(Line):
    def loss(self, task: Task, answer: Tensor) -> Any:
        return super().loss(task, answer) / (answer != task["target"]).all(-1)


class WideLoss(Line):
    def loss(self, task: Task, answer: Tensor) -> Any:
        return (answer - task["target"]).abs()


class MixingLoss(Line):
    def loss(self, task: Task, answer: Tensor) -> Any:
        loss = super().loss(task, answer)
        return loss * (1 + loss.mean())


class UnnamedContext(Line):
    context_names = ()


class FlatContext(Line):
    def context(self, task: Task) -> Any:
        return task["scale"]


class NanContext(Line):
    def context(self, task: Task) -> Any:
        return torch.log(task["scale"] - 0.75)[:, None]


class LongDefaultContext(Line):
    def default_context(self) -> tuple[float, ...]:
        return (1.0, 2.0)


class UnsummedLikelihood(Line):
    def log_likelihood(self, task: Task, query: Tensor, observation: Tensor) -> Any:
        return super().log_likelihood(task, query, observation)[:, None]


class NanLikelihood(Line):
    def log_likelihood(self, task: Task, query: Tensor, observation: Tensor) -> Any:
        return super().log_likelihood(task, query, observation) * math.nan


class UpsideDownLikelihood(Line):
    def log_likelihood(self, task: Task, query: Tensor, observation: Tensor) -> Any:
        return -super().log_likelihood(task, query, observation)


class ConstantLikelihood(Line):
    def log_likelihood(self, task: Task, query: Tensor, observation: Tensor) -> Any:
        return torch.zeros(len(query))
