"""Simulated episodes for training: many at once, one network step per query."""

from typing import NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from cicpe.beliefs.network.critic import Goal
from cicpe.beliefs.network.network import Network
from cicpe.beliefs.network.query_rules import Actor
from cicpe.problems import TaskBatch


@final
class Behaviour(NamedTuple):
    """How training episodes choose queries: the actor's rule, loosened."""

    scale: Float[Tensor, " batch"]
    """Spread of the actor's queries, per episode."""
    random_episode: Bool[Tensor, " batch"]
    """Episodes whose queries are all uniform."""
    random_queries: float
    """Probability that any one query is uniform."""


@final
class StopTest(NamedTuple):
    """The paper's rollouts end by the Bellman rule; ours run on (no test)."""

    goal: Goal
    minimum_time: int


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
    """Plays the tasks for ``horizon`` queries; with a stop test, records where each would have stopped."""
    n = len(tasks)
    length = torch.full((n,), horizon)
    stopped = torch.zeros(n, dtype=torch.bool)
    queries: list[Tensor] = []
    observations: list[Tensor] = []
    with torch.no_grad():
        state = network.begin(tasks.context)
        for t in range(horizon):
            belief = network.believe(state)
            query = actor.propose(belief, rng, behaviour.scale[:, None, None])
            at_random = behaviour.random_episode | (torch.rand(n, generator=rng) < behaviour.random_queries)
            query = torch.where(at_random[:, None], network.query_space.sample(n, rng), query)
            if stop_test is not None and t >= stop_test.minimum_time:
                features = network.goal_features(state, belief, stop_test.goal.epsilon)
                stop = torch.sigmoid(network.stop_logits(belief, features)).amin(dim=(1, 2))
                go = network.continue_values(state, belief, features, query[:, None], stop_test.goal.cost).amin(
                    dim=(1, 2)
                )
                now = (stop >= go) & ~stopped
                length[now], stopped = t, stopped | now
                if bool(stopped.all()) and queries:
                    break
            observation = tasks.observe(query, rng)
            state = network.step(state, query, observation)
            queries.append(query)
            observations.append(observation)
    query, observation = _padded(queries, horizon), _padded(observations, horizon)
    return Trajectories(tasks, query, observation, length, stopped, ~behaviour.random_episode)


def _padded(steps: list[Tensor], horizon: int) -> Tensor:
    """Stacks steps into batch x horizon x dim, repeating the last where all episodes ended early."""
    return torch.stack(steps + [steps[-1]] * (horizon - len(steps)), dim=1)
