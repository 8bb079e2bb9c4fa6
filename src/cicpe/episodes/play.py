"""The one function that plays episodes: training, calibration, evaluation, comparison and reports read its steps."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, final, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from cicpe import trees
from cicpe.errors import ModelError
from cicpe.plates import AnswersQueries, observe_plate


@runtime_checkable
class Proposes(Protocol):
    """What a player says at every step. An agent's proposal also has ``stop``: which episodes it ends."""

    @property
    def query(self) -> Tensor:
        """The next plate of every episode that goes on: batch x q x query."""


P = TypeVar("P", bound=Proposes)
P_co = TypeVar("P_co", bound=Proposes, covariant=True)


@runtime_checkable
class Player(Protocol[P_co]):
    """Whoever can play: every ``Agent``, and whatever else proposes queries and takes observations."""

    @property
    def horizon(self) -> int:
        """The most queries of an episode."""

    def begin(self, context: Tensor) -> Any:
        """The state before the first query."""

    def propose(self, state: Any, rng: Generator) -> P_co:
        """The next plate of every episode, and what else the player says."""

    def observe(self, state: Any, query: Tensor, observation: Tensor) -> Any:
        """The state after the observations of a plate."""


@runtime_checkable
class Tasks(AnswersQueries, Protocol):
    """Whoever answers queries: a ``TaskBatch``, or a recording of one."""

    @property
    def context(self) -> Tensor:
        """What every episode's player is told beforehand."""

    def __len__(self) -> int: ...

    def select(self, index: Tensor) -> "Tasks":
        """Some of the tasks."""


@final
@dataclass(frozen=True)
class Step(Generic[P]):
    """One step of the episodes that are still under way.

    The first axis of all that is here is the episode, but for ``observation``: that has a row for every episode that
    goes on.
    """

    time: int
    """How many observations were made before this step."""
    rows: Int[Tensor, " live"]
    """Which episodes, of all that were begun."""
    tasks: Any
    state: Any
    proposal: P
    ends: Bool[Tensor, " live"]
    """Which episodes end here, by the player's choice or because no plate is left."""
    observation: Float[Tensor, "going q observation"] | None
    """What the queries of the episodes that go on returned; None where all end."""


Ends = Callable[[Int[Tensor, " live"], P], Bool[Tensor, " live"]]
"""Which of the live episodes end, by what was proposed for them."""


def own_stop(rows: Tensor, proposal: Any) -> Tensor:
    """Episodes end where the agent itself stops."""
    stop: Tensor = proposal.stop
    return stop


def never(rows: Tensor, proposal: Any) -> Tensor:
    """Every episode goes on to its last query."""
    return torch.zeros(len(rows), dtype=torch.bool)


def play(
    player: Player[P], tasks: Tasks, rng: Generator, *, ends: Ends[P] = own_stop, limit: int | None = None
) -> Iterator[Step[P]]:
    """Plays every task to its end, one step at a time; ended episodes leave the batch and cost nothing more.

    Args:
        player: Who proposes queries.
        tasks: Who answers them.
        rng: Draws the player's randomness and the observations, in this order at every step.
        ends: Who ends before the last query: where the player stops, unless the caller knows better.
        limit: The most queries of an episode, where that is fewer than the player's horizon.

    Yields:
        A step before every plate, from no observations on. A plate that would pass the last query is not made.
    """
    last = player.horizon if limit is None else min(limit, player.horizon)
    rows, state = torch.arange(len(tasks)), player.begin(tasks.context)
    time = 0
    while True:
        proposal = player.propose(state, rng)
        if not bool(proposal.query.isfinite().all()):
            raise ModelError(f"query {time + 1} of the agent is not a number: its weights are damaged, or overflow")
        after = time + proposal.query.shape[1]
        over = ends(rows, proposal) if after <= last else torch.ones(len(rows), dtype=torch.bool)
        n_over = int(over.sum())
        if n_over == len(over):
            yield Step(time, rows, tasks, state, proposal, over, None)
            return
        live_rows, live, query, next_state = rows, tasks, proposal.query, state
        if n_over:
            going = ~over
            live_rows, live, query = rows[going], tasks.select(going), query[going]
            next_state = trees.select(state, going)
        observation = observe_plate(live, query, rng)
        yield Step(time, rows, tasks, state, proposal, over, observation)
        time, rows, tasks, state = after, live_rows, live, player.observe(next_state, query, observation)
