"""Episodes without a stop: what an agent would have done at every prefix, so that any stop rule can be judged later."""

from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from cicpe import trees
from cicpe.agents.base import Agent
from cicpe.agents.stop_rules import BellmanStop
from cicpe.beliefs.base import Belief
from cicpe.errors import InvalidInput
from cicpe.problems import Problem, TaskBatch

CHUNK = 512

SURE = 0.9995
"""Confidence at which an episode need not be played on: no threshold that matters is above."""


@final
class EpisodeTable(NamedTuple):
    """What an agent would have done at every prefix of some episodes."""

    loss: Float[Tensor, "epsilon episode prefix"]
    """Of what would be recommended at each epsilon."""
    context: Float[Tensor, "episode context"]
    confidence: Float[Tensor, "epsilon episode prefix"]
    bellman: Tensor
    """Where the Bellman rule would stop: epsilon x cost x episode x prefix, boolean."""
    std: Float[Tensor, "episode prefix answer"]
    """Spread of the target."""
    length: Int[Tensor, " episode"]
    """Observations that were made; what was so at that prefix stays so in the later ones."""

    def select(self, rows: Tensor) -> "EpisodeTable":
        """Some of the episodes."""
        return EpisodeTable(
            self.loss[:, rows],
            self.context[rows],
            self.confidence[:, rows],
            self.bellman[:, :, rows],
            self.std[rows],
            self.length[rows],
        )

    @staticmethod
    def joined(parts: "Sequence[EpisodeTable]") -> "EpisodeTable":
        """The episodes of all parts."""
        loss, context, confidence, bellman, std, length = zip(*parts, strict=True)
        return EpisodeTable(
            torch.cat(loss, dim=1),
            torch.cat(context),
            torch.cat(confidence, dim=1),
            torch.cat(bellman, dim=2),
            torch.cat(std),
            torch.cat(length),
        )


def record(
    belief: Belief,
    tasks: TaskBatch,
    epsilons: tuple[float, ...],
    scale: float,
    rng: Generator,
    costs: tuple[float, ...] = (),
    minimum_time: int = 1,
) -> EpisodeTable:
    """Plays every task to the horizon and records what each stop rule would see.

    An episode ends before that where it is sure at every epsilon, and stopped at every cost.
    """
    n, steps = len(tasks), belief.horizon + 1
    loss, confidence = torch.zeros(len(epsilons), n, steps), torch.zeros(len(epsilons), n, steps)
    bellman = torch.zeros(len(epsilons), len(costs), n, steps, dtype=torch.bool)
    std, length = torch.zeros(n, steps, belief.answer_space.dim), torch.full((n,), belief.horizon)
    rule = BellmanStop(lambda context: torch.zeros(len(context)), minimum_time)
    context, active, state = tasks.context, torch.arange(n), belief.begin(tasks.context)
    for t in range(steps):
        prices = [torch.full((len(active),), cost) for cost in costs]
        assessment = belief.assess(state, epsilons, rng, scale, prices)
        one = assessment.recommendation.stride(0) == 0  # the same at every epsilon
        losses = [
            tasks.loss(answer) for answer in (assessment.recommendation[:1] if one else assessment.recommendation)
        ]
        # What an ended episode had last stays in its later columns.
        std[active, t:] = assessment.std[:, None]
        for e in range(len(epsilons)):
            loss[e, active, t:] = losses[0 if one else e][:, None]
            confidence[e, active, t:] = assessment.confidence[e][:, None]
            for c, price in enumerate(prices):
                bellman[e, c, active, t:] = rule.decide(assessment.view(e, c), price)[:, None]
        stopped = bellman[:, :, active, : t + 1].any(dim=-1).all(dim=1).all(dim=0)
        go = (assessment.confidence < SURE).any(dim=0) | ~stopped
        if t == belief.horizon or not bool(go.any()):
            length[active] = t
            break
        query = assessment.query
        if not bool(go.all()):
            length[active[~go]] = t
            tasks, active, query, state = tasks.select(go), active[go], query[go], trees.select(state, go)
        state = belief.observe(state, query, tasks.observe(query, rng))
    return EpisodeTable(loss, context, confidence, bellman, std, length)


class Beliefs(NamedTuple):
    """What an agent believed after every number of queries, whatever it said about stopping."""

    loss_BT: Float[Tensor, "episode prefix"]
    confidence_BT: Float[Tensor, "episode prefix"]
    std_BT: Float[Tensor, "episode prefix"]
    """Mean over the coordinates of the answer."""
    stop_BT: Bool[Tensor, "episode prefix"]


def record_beliefs(agent: Agent, problem: Problem, episodes: int, steps: int, seed: int, chunk: int = CHUNK) -> Beliefs:
    """Plays fresh tasks for ``steps`` queries each (at most the horizon), past every stop, a chunk at a time."""
    if episodes < 1 or steps < 0:
        raise InvalidInput("episodes, steps", (episodes, steps), "at least one episode, and no negative steps")
    rng, chunk = torch.Generator().manual_seed(seed), min(chunk, agent.most_at_once)
    parts = []
    for begin in range(0, episodes, chunk):
        tasks = TaskBatch.draw(problem, min(chunk, episodes - begin), rng)
        state, rows = agent.begin(tasks.context), []
        for t in range(min(steps, agent.horizon) + 1):
            proposal = agent.propose(state, rng)
            loss = tasks.loss(proposal.recommendation)
            rows.append((loss, proposal.confidence, proposal.std.mean(dim=-1), proposal.stop))
            if t < min(steps, agent.horizon):
                state = agent.observe(state, proposal.query, tasks.observe(proposal.query, rng))
        parts.append([torch.stack(column, dim=1) for column in zip(*rows, strict=True)])
    return Beliefs(*(torch.cat(column) for column in zip(*parts, strict=True)))
