"""What baselines share: the history as a state, the end of a fixed budget, and what to optimise."""

import importlib
from abc import abstractmethod
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.agents.base import Agent, Proposal
from cicpe.errors import InvalidInput
from cicpe.problems import Problem, TaskBatch
from cicpe.spaces import Box, Interval, Space

CLEAR = 0.2
"""Correlation (of ranks, or of values) from which a pilot says which way is better."""


class History(NamedTuple):
    """Everything that was seen: T queries and observations per episode."""

    context_BC: Float[Tensor, "batch context"]
    query_BTQ: Float[Tensor, "batch step query"]
    observation_BTY: Float[Tensor, "batch step observation"]

    @property
    def steps(self) -> int:
        """Queries so far, the same for every episode of a batch."""
        return self.query_BTQ.shape[1]

    def after(self, query: Tensor, observation: Tensor) -> "History":
        """The history with one more step."""
        return History(
            self.context_BC,
            torch.cat([self.query_BTQ, query[:, None]], dim=1),
            torch.cat([self.observation_BTY, observation[:, None]], dim=1),
        )


class HistoryAgent(Agent):
    """An agent that looks at its whole history anew at every step."""

    problem: Problem

    def begin(self, context: Float[Tensor, "batch context"]) -> History:
        batch, problem = len(context), self.problem
        query = torch.zeros(batch, 0, problem.query_space.dim)
        return History(context, query, torch.zeros(batch, 0, problem.observation_dim))

    @abstractmethod
    def propose(self, state: History, rng: Generator) -> Proposal: ...

    def update(
        self, state: History, query: Float[Tensor, "batch query"], observation: Float[Tensor, "batch observation"]
    ) -> History:
        return state.after(query, observation)


class Optimiser(HistoryAgent):
    """An agent that looks for the best observation; queries lie in a box."""

    def __post_init__(self) -> None:
        require_box(self.problem)
        assert self.sign in (-1, 1)  # a problem without an orientation is refused now, not at the first proposal

    @cached_property
    def sign(self) -> int:
        """1 where larger observations are better, -1 where smaller ones are."""
        return require_orientation(self.problem)


def fixed_budget_proposal(
    query: Float[Tensor, "batch query"], recommendation: Float[Tensor, "batch answer"], done: bool
) -> Proposal:
    """A proposal of a method that knows neither confidence nor spread: both are zero, it makes no claim.

    Args:
        query: The next query of every episode.
        recommendation: The answer of every episode.
        done: Whether the budget is spent.

    Returns:
        The proposal.
    """
    batch = len(query)
    stop = torch.full((batch,), done)
    return Proposal(query[:, None], stop, recommendation, torch.zeros(batch), torch.zeros_like(recommendation))


def middle(space: Space, batch: int) -> Float[Tensor, "batch dim"]:
    """The middle of a space: what to say before anything was seen."""
    return space.project(space.from_unit(torch.zeros(batch, space.dim)))


def best_observed(problem: Problem, history: History, sign: int) -> Float[Tensor, "batch answer"]:
    """The query with the best observation; where the answer is a value, that observation.

    Args:
        problem: Its spaces say which of the two is the answer.
        history: Of a batch of episodes.
        sign: 1 where larger observations are better, -1 where smaller ones are.

    Returns:
        An answer per episode; the middle of the space before the first observation.
    """
    if history.steps == 0:
        return middle(problem.answer_space, len(history.query_BTQ))
    value, place = (sign * history.observation_BTY[..., 0]).max(dim=1)
    if problem.query_space == problem.answer_space:
        return history.query_BTQ[torch.arange(len(place)), place]
    return problem.answer_space.project(sign * value[:, None])


def orientation(problem: Problem, tasks: int = 64, queries: int = 128) -> int | None:
    """1 where larger observations are better, -1 where smaller ones are, None where a pilot cannot say.

    Where queries are answers, observations of the target are compared with those of random queries: how often is the
    target's the larger one? (How observations go with the loss elsewhere says less: a field may have many peaks.)
    Where the answer is one number, the extreme observations are correlated with the target.

    Args:
        problem: Draws the tasks of the pilot.
        tasks: How many.
        queries: Random queries per task.

    Returns:
        1, -1 or None.
    """
    if problem.observation_dim != 1:
        return None
    rng = torch.Generator().manual_seed(0)
    rows = torch.arange(tasks).repeat_interleave(queries)
    drawn = TaskBatch.draw(problem, tasks, rng)
    many = drawn.select(rows)
    query = problem.query_space.sample(len(rows), rng)
    value = many.observe(query, rng).view(tasks, queries)
    if problem.query_space == problem.answer_space:
        best = many.observe(many.target, rng).view(tasks, queries)
        larger = float(torch.sign(best - value).mean())
        return None if abs(larger) < CLEAR else (1 if larger > 0 else -1)
    if problem.answer_space.dim != 1:
        return None
    high, low = (_correlation(edge, drawn.target[:, 0]) for edge in (value.amax(dim=1), value.amin(dim=1)))
    # A target that both edges follow (a mean, say) is neither.
    return None if abs(high - low) < CLEAR else (1 if high > low else -1)


def _correlation(a: Tensor, b: Tensor) -> Tensor:
    return torch.nan_to_num(torch.corrcoef(torch.stack([a, b]))[0, 1])


def require_orientation(problem: Problem) -> int:
    """``orientation``, or an error that says why a problem has none."""
    sign = orientation(problem)
    if sign is None:
        allowed = "one whose answer is the place or the height of its best observation (one number per query)"
        raise InvalidInput("problem", type(problem).__name__, allowed)
    return sign


def require_box(problem: Problem) -> None:
    """Refuses queries that are not bounded coordinate by coordinate."""
    if not isinstance(problem.query_space, Box | Interval):
        raise InvalidInput("problem", type(problem).__name__, "one whose queries lie in a box")


def extra(module: str) -> Any:
    """A module of the extra ``baselines``, or an error that names it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.split(".")[0]
        allowed = "installed; it comes with the extra: pip install 'cicpe[baselines]'"
        raise InvalidInput("package", package, allowed) from None


def seeds(count: int, rng: Generator) -> list[int]:
    """Seeds for generators that are not PyTorch's, one per episode."""
    numbers: list[int] = torch.randint(0, 2**31 - 1, (count,), generator=rng).tolist()
    return numbers
