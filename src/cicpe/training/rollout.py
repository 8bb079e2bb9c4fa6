"""Simulated episodes for training: many at once, one network step per query."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from cicpe.beliefs.network.network import Network, NetworkOutput, NetworkState
from cicpe.beliefs.network.query_rules import Actor
from cicpe.episodes.play import play
from cicpe.plates import LearnsFromPlates, only_query
from cicpe.problems import TaskBatch


@final
class Behaviour(NamedTuple):
    """How training episodes choose queries: the actor's rule, loosened."""

    query_spread: Float[Tensor, " batch"]
    """Spread of the actor's queries, per episode."""
    random_episode: Bool[Tensor, " batch"]
    """Episodes whose queries are all uniform."""
    random_queries: float
    """Probability that a single query is uniform."""


StopTest = Callable[[int, NetworkOutput, Tensor], Tensor]
"""Which episodes stop: from the time, what the network makes of each history, and the query it would make."""


def draw_behaviour(
    n: int, query_spreads: Sequence[float], random_share: float, random_queries: float, rng: Generator
) -> Behaviour:
    """Draws how each of ``n`` episodes chooses its queries.

    Args:
        n: Number of episodes.
        query_spreads: The spreads to draw from, one per episode.
        random_share: Probability that all queries of an episode are uniform.
        random_queries: Probability that a single query is.
        rng: Draws them.

    Returns:
        The behaviour of the batch.
    """
    spreads = torch.tensor(query_spreads)
    return Behaviour(
        spreads[torch.randint(len(spreads), (n,), generator=rng)],
        torch.rand(n, generator=rng) < random_share,
        random_queries,
    )


class Trajectories(NamedTuple):
    """A batch of episodes: what was asked and seen, how it ended, and the hidden tasks behind it.

    An episode that stopped after t observations has the terminal prefix t: nothing is observed after
    the decision to stop. One that was truncated at the horizon includes its last observation.
    """

    tasks: TaskBatch
    query: Float[Tensor, "batch step query"]
    observation: Float[Tensor, "batch step observation"]
    length: Int[Tensor, " batch"]
    """Number of observations; later steps are padding."""
    stopped: Bool[Tensor, " batch"]
    """Ended by the stop rule rather than by the horizon."""
    own: Bool[Tensor, " batch"]
    """Queried by the actor's rule rather than at random."""


def collect(
    network: Network,
    actor: Actor,
    tasks: TaskBatch,
    horizon: int,
    behaviour: Behaviour,
    rng: Generator,
    stop_test: StopTest | None = None,
) -> Trajectories:
    """Plays the tasks for ``horizon`` queries.

    Args:
        network: Encodes the histories.
        actor: The rule that chooses queries.
        tasks: What is played.
        horizon: Queries per episode.
        behaviour: How each episode departs from the rule.
        rng: Draws queries and observations.
        stop_test: Says where an episode stops; without it all run to the horizon.

    Returns:
        The trajectories, padded to the horizon, with the time at which each stopped.
    """
    n = len(tasks)
    length, stopped = torch.full((n,), horizon), torch.zeros(n, dtype=torch.bool)
    queries: list[Tensor] = []
    observations: list[Tensor] = []

    def all_have_stopped(rows: Tensor, explored: Explored) -> Tensor:
        """Stopped episodes are played on, so that the random numbers of one do not depend on the others' stops."""
        nonlocal stopped
        if stop_test is None:
            return stopped
        now = stop_test(len(queries), explored.output, only_query(explored.query)) & ~stopped
        length[now], stopped = len(queries), stopped | now
        return torch.full((n,), bool(stopped.all()) and len(queries) > 0)

    explorer = Explorer(network, actor, horizon, behaviour)
    with torch.no_grad():
        # Nothing is proposed after the last observation.
        for step in islice(play(explorer, tasks, rng, ends=all_have_stopped), horizon):
            if step.observation is not None:
                queries.append(step.proposal.query)
                observations.append(step.observation)
    query, observation = _padded(queries, horizon), _padded(observations, horizon)
    return Trajectories(tasks, query, observation, length, stopped, ~behaviour.random_episode)


class Explored(NamedTuple):
    """What an explorer says at a step."""

    query: Float[Tensor, "batch q query"]
    output: NetworkOutput
    """What the network makes of each history."""


@final
@dataclass(frozen=True)
class Explorer(LearnsFromPlates):
    """A network in training as a player: its actor's rule, loosened."""

    network: Network
    actor: Actor
    horizon: int
    behaviour: Behaviour

    def begin(self, context: Tensor) -> NetworkState:
        """The state of the empty history."""
        return self.network.begin(context)

    def propose(self, state: NetworkState, rng: Generator) -> Explored:
        """The actor's query, or a uniform one."""
        output, n = self.network.believe(state), len(self.behaviour.random_episode)
        query = self.actor.propose(output, rng, self.behaviour.query_spread[:, None, None])
        single = torch.rand(n, generator=rng) < self.behaviour.random_queries
        uniform = self.network.query_space.sample(n, rng)
        at_random = (self.behaviour.random_episode | single)[:, None]
        return Explored(torch.where(at_random, uniform, query)[:, None], output)

    def update(self, state: NetworkState, query: Tensor, observation: Tensor) -> NetworkState:
        """The state after one more observation."""
        return self.network.step(state, query, observation)


def _padded(steps: list[Tensor], horizon: int) -> Tensor:
    """Joins plates into batch x horizon x dim, repeating the last where all episodes ended early."""
    return torch.cat(steps + [steps[-1]] * (horizon - len(steps)), dim=1)
