"""Noisy binary search in ``dim`` dimensions.

The target is uniform in [-1, 1]^d. A query returns, for every coordinate, the sign of target minus
query, flipped with probability ``noise``. The loss is the Euclidean distance to the target.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.errors import InvalidInput
from cicpe.problems.base import Problem
from cicpe.problems.context import Noise, noise_range, sample_noise
from cicpe.spaces import Box


class BinarySearchTask(NamedTuple):
    """``n`` hidden targets and their flip probabilities."""

    target: Float[Tensor, "n dim"]
    noise: Float[Tensor, " n"]


@final
@dataclass(frozen=True)
class BinarySearch(Problem):
    """Locate a point from one noisy comparison a coordinate and query."""

    dim: int = 6
    """Number of coordinates."""
    noise: Noise = (0.025, 0.1)
    """Flip probability: a number, or a range over which it is log-uniform and told to the agent."""

    context_names = ("noise",)

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise InvalidInput("dim", self.dim, "a whole number of at least 1")
        object.__setattr__(self, "noise", noise_range(self.noise, upper=0.5))
        object.__setattr__(self, "query_space", Box([-1.0] * self.dim, [1.0] * self.dim))
        object.__setattr__(self, "answer_space", self.query_space)
        object.__setattr__(self, "parameter_space", self.query_space)

    def sample(self, n: int, rng: Generator) -> BinarySearchTask:
        noise = sample_noise(noise_range(self.noise), n, rng)
        return BinarySearchTask(self.answer_space.sample(n, rng), noise)

    def observe(self, task: BinarySearchTask, query: Float[Tensor, "n dim"], rng: Generator) -> Float[Tensor, "n dim"]:
        flip = torch.rand(query.shape, generator=rng) < task.noise[:, None]
        above = task.target >= query
        return torch.where(above ^ flip, 1.0, -1.0)

    def target(self, task: BinarySearchTask) -> Float[Tensor, "n dim"]:
        return task.target

    def context(self, task: BinarySearchTask) -> Float[Tensor, "n 1"]:
        return task.noise[:, None]

    def default_context(self) -> tuple[float, ...]:
        return (noise_range(self.noise)[1],)

    def parameters(self, task: BinarySearchTask) -> Float[Tensor, "n dim"]:
        return task.target

    def from_parameters(self, parameters: Float[Tensor, "n dim"], context: Float[Tensor, "n 1"]) -> BinarySearchTask:
        return BinarySearchTask(parameters, context[:, 0])

    def log_likelihood(
        self, task: BinarySearchTask, query: Float[Tensor, "n dim"], observation: Float[Tensor, "n dim"]
    ) -> Float[Tensor, " n"]:
        agree = (task.target >= query) == (observation > 0)
        right = torch.log1p(-task.noise)[:, None]
        wrong = torch.log(task.noise)[:, None]
        return torch.where(agree, right, wrong).sum(dim=-1)
