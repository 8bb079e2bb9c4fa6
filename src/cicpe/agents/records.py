"""Episodes without a stop: what an agent would have done at every prefix, so that any stop rule can be judged later."""

from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from cicpe import trees
from cicpe.agents.core import Core
from cicpe.agents.stopping import BellmanStop
from cicpe.problems import HiddenTasks

SURE = 0.9995
"""Confidence at which an episode need not be played on: no threshold that matters is above."""


@final
class Records(NamedTuple):
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

    def select(self, rows: Tensor) -> "Records":
        """Some of the episodes."""
        return Records(
            self.loss[:, rows],
            self.context[rows],
            self.confidence[:, rows],
            self.bellman[:, :, rows],
            self.std[rows],
            self.length[rows],
        )

    @staticmethod
    def joined(parts: "Sequence[Records]") -> "Records":
        """The episodes of all parts."""
        loss, context, confidence, bellman, std, length = zip(*parts, strict=True)
        return Records(
            torch.cat(loss, dim=1),
            torch.cat(context),
            torch.cat(confidence, dim=1),
            torch.cat(bellman, dim=2),
            torch.cat(std),
            torch.cat(length),
        )


def record(
    core: Core,
    hidden: HiddenTasks,
    epsilons: tuple[float, ...],
    scale: float,
    rng: Generator,
    costs: tuple[float, ...] = (),
    minimum_time: int = 1,
) -> Records:
    """Plays every task to the horizon and records what each stop rule would see.

    An episode ends before that where it is sure at every epsilon, and stopped at every cost.
    """
    n, steps = len(hidden), core.horizon + 1
    loss, confidence = torch.zeros(len(epsilons), n, steps), torch.zeros(len(epsilons), n, steps)
    bellman = torch.zeros(len(epsilons), len(costs), n, steps, dtype=torch.bool)
    std, length = torch.zeros(n, steps, core.answer_space.dim), torch.full((n,), core.horizon)
    rule = BellmanStop(lambda context: torch.zeros(len(context)), minimum_time)
    context, active, state = hidden.context, torch.arange(n), core.begin(hidden.context)
    for t in range(steps):
        prices = [torch.full((len(active),), cost) for cost in costs]
        look = core.look(state, epsilons, rng, scale, prices)
        one = look.recommendation.stride(0) == 0  # the same at every epsilon
        losses = [hidden.loss(answer) for answer in (look.recommendation[:1] if one else look.recommendation)]
        # What an ended episode had last stays in its later columns.
        std[active, t:] = look.std[:, None]
        for e in range(len(epsilons)):
            loss[e, active, t:] = losses[0 if one else e][:, None]
            confidence[e, active, t:] = look.confidence[e][:, None]
            for c, price in enumerate(prices):
                bellman[e, c, active, t:] = rule.decide(look.view(e, c), price)[:, None]
        stopped = bellman[:, :, active, : t + 1].any(dim=-1).all(dim=1).all(dim=0)
        go = (look.confidence < SURE).any(dim=0) | ~stopped
        if t == core.horizon or not bool(go.any()):
            length[active] = t
            break
        query = look.query
        if not bool(go.all()):
            length[active[~go]] = t
            hidden, active, query, state = hidden.select(go), active[go], query[go], trees.select(state, go)
        state = core.observe(state, query, hidden.observe(query, rng))
    return Records(loss, context, confidence, bellman, std, length)
