"""An agent whose success and queries are known functions of the task: the oracle of certificates and prior shift."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from cicpe.agents.base import Agent, Proposal
from cicpe.problems.base import Problem
from cicpe.spaces import Box

Profile = Callable[[Tensor], Tensor]


class RevealedTask(NamedTuple):
    place: Tensor
    width: Tensor


@dataclass(frozen=True)
class Revealed(Problem):
    """A point of [0, 1]^dim that every observation shows; ``width`` is a second number of no consequence."""

    dim: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "query_space", Box([0.0] * self.dim, [1.0] * self.dim))
        object.__setattr__(self, "answer_space", Box([0.0] * self.dim, [9.0] * self.dim))

    def sample(self, n: int, rng: Generator) -> RevealedTask:
        return RevealedTask(torch.rand(n, self.dim, generator=rng), torch.rand(n, generator=rng))

    def observe(self, task: RevealedTask, query: Tensor, rng: Generator) -> Tensor:
        return task.place

    def target(self, task: RevealedTask) -> Tensor:
        return task.place


@dataclass(frozen=True)
class RevealedWithParameters(Revealed):
    """The same, as a list of numbers of which the last does not matter to the target."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "parameter_space", Box([0.0] * (self.dim + 1), [1.0] * (self.dim + 1)))

    def parameters(self, task: RevealedTask) -> Tensor:
        return torch.cat([task.place, task.width[:, None]], dim=-1)

    def from_parameters(self, parameters: Tensor, context: Tensor) -> RevealedTask:
        return RevealedTask(parameters[:, :-1], parameters[:, -1])


class ProfileState(NamedTuple):
    time: Tensor
    place: Tensor


@dataclass(frozen=True)
class ProfileAgent(Agent):
    """Right with probability s(place), after t(place) queries."""

    success: Profile
    queries: Profile = lambda place: torch.ones(len(place))
    dim: int = 1
    horizon: int = 8

    def begin(self, context: Tensor) -> ProfileState:
        return ProfileState(torch.zeros(len(context)), torch.zeros(len(context), self.dim))

    def propose(self, state: ProfileState, rng: Generator) -> Proposal:
        n = len(state.time)
        right = torch.rand(n, generator=rng) < self.success(state.place)
        stop = (state.time >= 1) & (state.time >= self.queries(state.place))
        answer = torch.where(right[:, None], state.place, state.place + 5)
        return Proposal(torch.zeros(n, 1, self.dim), stop, answer, torch.full((n,), 0.5), torch.ones(n, self.dim))

    def update(self, state: ProfileState, query: Tensor, observation: Tensor) -> ProfileState:
        return ProfileState(state.time + 1, observation)


def constant(p: float) -> Profile:
    return lambda place: torch.full((len(place),), p)
