"""What a query gains in one step, from the simulator: dense targets for a critic that has to tell queries apart.

A trajectory says what one query led to, and most of that is due to the history: over queries a critic's values vary a
thirtieth as much as over histories. The simulator says more. For one history it can be asked what many candidate
queries would have been answered, and how good the next recommendation would have been with each of them. Only the
differences between candidates of one history are learned: what they have in common, which is most of it, is the
history's, and would be noise.
"""

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from cicpe import trees
from cicpe.beliefs.network.critic import Goal
from cicpe.beliefs.network.network import Network, NetworkOutput
from cicpe.training.losses import smooth_success
from cicpe.training.replay import select_rows
from cicpe.training.rollout import Trajectories

TIMES, ROWS = 4, 16
"""Prefixes at which an update tries candidates, and on how many histories each: every candidate costs as much as one
history."""
SOFTNESS = 0.5
"""Width of the success whose gain is learned, relative to epsilon: nearly right is better than far off."""
NEARBY = 0.1
"""How far around the query that was made a quarter of the candidates are tried, in unit coordinates."""


@final
@dataclass(frozen=True, eq=False)
class Tried:
    """Candidate queries at one prefix of some histories of an update's batch."""

    rows: Int[Tensor, " row"]
    """Which histories."""
    histories: Trajectories
    epsilon: Float[Tensor, " row"]
    time: int
    """Observations of the prefix, the same for all, so that they are encoded together."""
    query: Float[Tensor, "row candidate query"]

    @classmethod
    def draw(cls, batch: Trajectories, goal: Goal, candidates: int, part: int, rng: Generator) -> "Tried":
        """Draws a prefix, and candidates: uniform ones, and a quarter around the queries that were made there.

        Args:
            batch: Trajectories.
            goal: Epsilon of each.
            candidates: How many per history.
            part: Which of ``TIMES`` equal parts of the trajectories the prefix lies in.
            rng: Draws.

        Returns:
            The candidates.
        """
        rows = torch.randperm(len(batch.length), generator=rng)[:ROWS]
        histories, space = select_rows(batch, rows), batch.tasks.problem.query_space
        time = int((part + float(torch.rand(1, generator=rng))) / TIMES * int(histories.length.min()))
        anywhere = space.sample(len(rows) * candidates, rng).view(len(rows), candidates, -1)
        unit = space.to_unit(histories.query[:, time])[:, None].expand_as(anywhere)
        around = space.project(space.from_unit(unit + NEARBY * torch.randn(unit.shape, generator=rng)))
        nearby = (torch.arange(candidates) < candidates // 4)[:, None]
        return cls(rows, histories, goal.epsilon[rows], time, torch.where(nearby, around, anywhere))

    def successes(self, network: Network, rng: Generator) -> Float[Tensor, "row candidate"]:
        """r(h') of each candidate: the smooth success of the recommendation after its answer.

        Args:
            network: Recommends.
            rng: Draws the answers.

        Returns:
            A number from 0 to 1 per candidate.
        """
        n, many, time = *self.query.shape[:2], self.time
        tasks = self.histories.tasks.select(torch.arange(n).repeat_interleave(many))
        query = self.query.flatten(0, 1)
        seen = self.histories.query, self.histories.observation
        before = (part[:, :time].repeat_interleave(many, dim=0) for part in seen)
        with torch.no_grad():
            after = query[:, None], tasks.observe(query, rng)[:, None]
            steps = (torch.cat(parts, dim=1) for parts in zip(before, after, strict=True))
            state = network.unroll(tasks.context, *steps)
            last = state.at_prefixes(torch.full((len(query), 1), time + 1))
            loss = tasks.loss(network.believe(last).posterior.recommendation[:, 0])
            success = smooth_success(loss, self.epsilon.repeat_interleave(many), SOFTNESS)
        return success.view(n, many)

    def estimates(self, network: Network, output: NetworkOutput, features: Tensor) -> Float[Tensor, "row candidate"]:
        """A(h, a) of each candidate.

        Args:
            network: Has gains.
            output: What it makes of all prefixes of all histories of the update.
            features: The goal features there.

        Returns:
            What it says that each candidate gains.
        """
        at = torch.full(self.query.shape[:2], self.time)
        state = trees.select(output.state, self.rows).at_prefixes(at)
        critic_features = trees.select(output.critic_features, self.rows).at_prefixes(at)
        goal = features[self.rows, self.time, None].expand(-1, at.shape[1], -1)
        return network.gains(state, output._replace(state=state, critic_features=critic_features), goal, self.query)


def gain_loss(
    network: Network,
    output: NetworkOutput,
    features: Float[Tensor, "batch prefix goal"],
    batch: Trajectories,
    goal: Goal,
    candidates: int,
    rng: Generator,
) -> Float[Tensor, ""]:
    """Half the squared error of what a critic says that candidate queries gain over one another.

    Args:
        network: Has gains.
        output: What it makes of all prefixes of the batch.
        features: The goal features there.
        batch: Trajectories, with the tasks that answer.
        goal: Epsilon of each episode.
        candidates: Queries that are tried per history.
        rng: Draws them and their answers.

    Returns:
        The loss, averaged over histories and candidates.
    """
    total = torch.zeros(())
    for part in range(TIMES):
        tried = Tried.draw(batch, goal, candidates, part, rng)
        error = tried.estimates(network, output, features) - tried.successes(network, rng)
        total = total + (error - error.mean(dim=-1, keepdim=True)).square().mean() / 2
    return total / TIMES
