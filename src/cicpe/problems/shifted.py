"""Worlds that are not the prior, by name: what an alarm has to notice.

Each wraps a problem and changes what is hidden or observed, while the context says what it always said:
the agent is not told. How far a world is off is its ``strength``, a number or a range to draw from anew for
every task.
"""

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from cicpe.errors import InvalidInput
from cicpe.problems.base import Problem, Task
from cicpe.problems.structure import structure_of
from cicpe.statistics import log_uniform

Strength = float | tuple[float, float]


class ShiftedTask(NamedTuple):
    """``n`` tasks of the wrapped problem, and how each world is off."""

    task: Task
    strength: Float[Tensor, " n"]
    direction: Float[Tensor, "n query"]
    """A random unit vector, for what has one."""
    clock: Int[Tensor, " n"]
    """Observations so far; ``observe`` counts in place."""


@dataclass(frozen=True)
class Shifted(Problem, ABC):
    """A problem whose world is off."""

    problem: Problem
    strength: Strength

    def __post_init__(self) -> None:
        for name in ("query_space", "answer_space", "horizon", "default_epsilon", "context_names"):
            object.__setattr__(self, name, getattr(self.problem, name))
        if not self.applies(self.problem):
            raise InvalidInput("shift", type(self).__name__, f"one that makes sense for {type(self.problem).__name__}")

    @staticmethod
    def applies(problem: Problem) -> bool:
        """Whether it makes sense for a problem."""
        return True

    def sample(self, n: int, rng: Generator) -> ShiftedTask:
        task = self.problem.sample(n, rng)
        low, high = self.strength if isinstance(self.strength, tuple) else (self.strength, self.strength)
        strength = log_uniform(low, high, n, rng)
        normal = torch.randn(n, self.query_space.dim, generator=rng)
        direction = normal / torch.linalg.vector_norm(normal, dim=-1, keepdim=True)
        return ShiftedTask(self.moved(task, strength), strength, direction, torch.zeros(n, dtype=torch.long))

    @cached_property
    def pilot(self) -> Float[Tensor, "n observation"]:
        """Observations of random tasks at random queries."""
        rng = torch.Generator().manual_seed(0)
        return self._inner(self.problem.sample(1024, rng), self.query_space.sample(1024, rng), rng)

    def moved(self, task: Task, strength: Float[Tensor, " n"]) -> Task:
        """The hidden tasks themselves, where the shift is about them."""
        return task

    def observe(self, task: ShiftedTask, query: Float[Tensor, "n query"], rng: Generator) -> Tensor:
        task.clock.add_(1)
        return self.seen(task, query, rng)

    def seen(self, task: ShiftedTask, query: Float[Tensor, "n query"], rng: Generator) -> Tensor:
        """One observation of each."""
        return self._inner(task.task, query, rng)

    def _inner(self, task: Task, query: Tensor, rng: Generator) -> Float[Tensor, "n observation"]:
        return torch.as_tensor(self.problem.observe(task, query, rng), dtype=torch.float32).reshape(len(query), -1)

    def target(self, task: ShiftedTask) -> Tensor:
        return self.problem.target(task.task)

    def loss(self, task: ShiftedTask, answer: Float[Tensor, "n answer"]) -> Tensor:
        return self.problem.loss(task.task, answer)

    @property
    def has_default_loss(self) -> bool:
        return self.problem.has_default_loss

    @property
    def has_distance_loss(self) -> bool:
        return self.problem.has_distance_loss

    def context(self, task: ShiftedTask) -> Tensor:
        return self.problem.context(task.task)


def _rescaled(shifted: Shifted, task: ShiftedTask, query: Tensor, scale: Tensor, rng: Generator) -> Tensor:
    """Observations with ``scale`` times the noise, without knowing it: the mean stays, from two draws.

    With y and y' independent, y + c (y - y') has variance ((1 + c)^2 + c^2) times one draw's. It cannot be
    less than half: below a scale of 0.71, the noise is that of the mean of two draws.
    """
    first, second = (shifted._inner(task.task, query, rng) for _ in range(2))
    c = (torch.sqrt((2 * scale.square() - 1).clamp_min(0.0)) - 1) / 2
    return first + c * (first - second)


def _continuous(problem: Problem) -> bool:
    return not structure_of(problem).discrete


def _has_noise(problem: Problem) -> bool:
    return "noise" in getattr(problem.sample(2, torch.Generator().manual_seed(0)), "_fields", ())


@final
class Noisier(Shifted):
    """Noise ``strength`` times what the context says: standard deviation, or the probability of a flip."""

    @staticmethod
    def applies(problem: Problem) -> bool:
        return _has_noise(problem) or _continuous(problem)

    @cached_property
    def continuous(self) -> bool:
        """Whether noise is a standard deviation."""
        return _continuous(self.problem)

    def seen(self, task: ShiftedTask, query: Tensor, rng: Generator) -> Tensor:
        if self.continuous:
            return _rescaled(self, task, query, task.strength[:, None], rng)
        noise = (task.strength * task.task.noise).clamp_max(0.5)
        return self._inner(task.task._replace(noise=noise), query, rng)


@final
class HeavyTails(Shifted):
    """Student's t in place of Gaussian noise, at the same scale; ``strength`` is one over its degrees of freedom."""

    @staticmethod
    def applies(problem: Problem) -> bool:
        return _continuous(problem)

    def seen(self, task: ShiftedTask, query: Tensor, rng: Generator) -> Tensor:
        freedom = (1 / task.strength[:, None]).expand(-1, self.pilot.shape[-1])
        # A chi-square variable is twice a Gamma variable, and t is a Gaussian with a random scale.
        gamma = torch._standard_gamma(freedom / 2, generator=rng)
        return _rescaled(self, task, query, (freedom / (2 * gamma).clamp_min(1e-6)).sqrt(), rng)


@final
class Drift(Shifted):
    """An offset that grows by ``strength`` with every observation, in standard deviations of observations."""

    @staticmethod
    def applies(problem: Problem) -> bool:
        return _continuous(problem)

    def seen(self, task: ShiftedTask, query: Tensor, rng: Generator) -> Tensor:
        sign = torch.where(task.direction[:, 0] < 0, -1.0, 1.0)
        offset = sign * task.strength * task.clock * self.pilot.std()
        return self._inner(task.task, query, rng) + offset[:, None]


@final
class Moving(Shifted):
    """Queries land beside where they were meant, by ``strength`` more units (half a box) with every observation."""

    def seen(self, task: ShiftedTask, query: Tensor, rng: Generator) -> Tensor:
        space = self.problem.query_space
        off = (task.strength * task.clock)[:, None] * task.direction
        return self._inner(task.task, space.project(space.from_unit(space.to_unit(query) + off)), rng)


@final
class Outside(Shifted):
    """Hidden numbers ``strength`` times as far from the middle as the prior has them: many lie outside of it."""

    @staticmethod
    def applies(problem: Problem) -> bool:
        fields = getattr(problem.sample(2, torch.Generator().manual_seed(0)), "_fields", ())
        return problem.parameter_space is not None or "target" in fields or "values" in fields

    def moved(self, task: Task, strength: Tensor) -> Task:
        space = self.problem.parameter_space
        if space is not None:
            unit = space.to_unit(self.problem.parameters(task)) * strength[:, None]
            return self.problem.from_parameters(space.from_unit(unit), self.problem.context(task))
        name = "target" if "target" in task._fields else "values"
        value = getattr(task, name)
        return task._replace(**{name: value * strength.view(-1, *[1] * (value.ndim - 1))})


@final
class SignFlips(Shifted):
    """A share ``strength`` of the observed numbers with their sign reversed; yes for no, where they take two values."""

    @cached_property
    def centre(self) -> float:
        """Zero, or the middle of two values."""
        values = set(self.pilot.flatten().tolist())
        return sum(values) / 2 if len(values) == 2 else 0.0

    def seen(self, task: ShiftedTask, query: Tensor, rng: Generator) -> Tensor:
        value = self._inner(task.task, query, rng)
        flip = torch.rand(value.shape, generator=rng) < task.strength[:, None]
        return torch.where(flip, 2 * self.centre - value, value)


NAMED: Mapping[str, tuple[type[Shifted], float]] = {
    "noise x 2": (Noisier, 2.0),
    "heavy tails": (HeavyTails, 1 / 2.5),
    "drift": (Drift, 0.05),
    "moving": (Moving, 0.02),
    "outside": (Outside, 1.5),
    "a tenth of signs flipped": (SignFlips, 0.1),
    "all signs flipped": (SignFlips, 1.0),
}
"""The shifts that an alarm is measured on."""

RANGES: tuple[tuple[type[Shifted], tuple[float, float]], ...] = (
    (Noisier, (1.3, 5.0)),
    (HeavyTails, (0.2, 1.0)),
    (Drift, (0.01, 0.3)),
    (Moving, (0.005, 0.1)),
    (Outside, (1.1, 3.0)),
    (SignFlips, (0.02, 1.0)),
)
"""What a detector is trained against: the same kinds, from barely visible to blatant."""


def named_shifts(problem: Problem) -> dict[str, Problem]:
    """The named worlds that make sense for a problem."""
    return {name: kind(problem, strength) for name, (kind, strength) in NAMED.items() if kind.applies(problem)}


def shift_ranges(problem: Problem) -> list[Problem]:
    """Every kind of shift that makes sense for a problem, of any strength."""
    kinds: list[Any] = [(kind, strength) for kind, strength in RANGES if kind.applies(problem)]
    return [kind(problem, strength) for kind, strength in kinds]
