"""Place of the maximum of a random smooth function: the functions of ``gp_max``, another question.

Only functions whose maximum lies at least ``margin`` from the boundary are drawn: the interior regularity
under which the paper compares localising the maximum with estimating its height.
"""

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe import trees
from cicpe.errors import InvalidInput
from cicpe.problems.base import Problem
from cicpe.problems.context import Noise, noise_range
from cicpe.problems.gp_max import GRID, GPMax, GPMaxTask


@final
@dataclass(frozen=True)
class GPArgmax(Problem):
    """Locate the maximum of a function on [0, 1] from noisy values; the loss is the distance to it."""

    noise: Noise = (0.0375, 0.1)
    """Standard deviation of an observation: a number, or a range over which it is log-uniform and told to the agent."""
    margin: float = 0.05
    """How far inside the maximum lies, at least."""

    context_names = ("noise",)
    default_epsilon = (0.01, 0.05)

    def __post_init__(self) -> None:
        if not 0 <= self.margin <= 0.25:
            raise InvalidInput("margin", self.margin, "a number from 0 to 0.25")
        object.__setattr__(self, "noise", noise_range(self.noise))
        object.__setattr__(self, "query_space", self.values.query_space)
        object.__setattr__(self, "answer_space", self.values.query_space)

    @property
    def values(self) -> GPMax:
        """The same functions, asked for their maximum's height."""
        return GPMax(1, self.noise)

    def sample(self, n: int, rng: Generator) -> GPMaxTask:
        batches: list[GPMaxTask] = []
        while sum(len(part.noise) for part in batches) < n:
            task = self.values.sample(n, rng)
            place = self.target(task)[:, 0]
            batches.append(trees.select(task, (place >= self.margin) & (place <= 1 - self.margin)))
        return trees.select(trees.concatenate(batches), torch.arange(n))

    def value(self, task: GPMaxTask, query: Float[Tensor, "n 1"]) -> Float[Tensor, " n"]:
        """f at the query.

        Args:
            task: A batch of n tasks, as ``sample`` drew them.
            query: Points: n x 1.

        Returns:
            Shape n.
        """
        return self.values.value(task, query)

    def observe(self, task: GPMaxTask, query: Float[Tensor, "n 1"], rng: Generator) -> Float[Tensor, "n 1"]:
        return self.values.observe(task, query, rng)

    def target(self, task: GPMaxTask) -> Float[Tensor, "n 1"]:
        return task.values.argmax(dim=1, keepdim=True) / (GRID[1] - 1)

    def context(self, task: GPMaxTask) -> Float[Tensor, "n 1"]:
        return task.noise[:, None]

    def default_context(self) -> tuple[float, ...]:
        return (noise_range(self.noise)[1],)
