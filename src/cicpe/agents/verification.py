"""Redundant queries before a stop: what would expose that the world is not the prior.

An efficient agent stops after about as many observations as there are unknowns, and leaves nothing that could
contradict it. Asked to verify, it makes a few more queries once its stop rule is met. Each is the candidate at which
what is now expected is most at odds with what was expected before anything was seen: where the history pretends to
know most. Were the history misleading, the observation would tell. The alarm then decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from cicpe import trees
from cicpe.agents.base import Agent, Proposal
from cicpe.statistics import first_of_best

CANDIDATES = 24
"""Random queries among which one is chosen; as many again about the recommendation, where that is a query."""
STILL = 20
"""A seed: whether the rule was met is looked at again when an observation comes, and draws nothing that matters."""


class VerifyingState(NamedTuple):
    """The state of the agent within, and how many observations were made once its rule was met."""

    within: Any
    made: Int[Tensor, " batch"]


@final
@dataclass(frozen=True)
class VerifyingAgent(Agent):
    """The same agent, which makes a number of redundant queries before it stops."""

    agent: Any
    """An agent with an alarm, which also gives ``candidates`` and says how ``contradictable`` each of them is."""
    queries: int
    """How many, at least."""

    @property
    def horizon(self) -> int:  # type: ignore[override]
        return int(self.agent.horizon)

    @property
    def most_at_once(self) -> int:  # type: ignore[override]
        return int(self.agent.most_at_once)

    def begin(self, context: Float[Tensor, "batch context"]) -> VerifyingState:
        return VerifyingState(self.agent.begin(context), torch.zeros(len(context), dtype=torch.long))

    def propose(self, state: VerifyingState, rng: Generator) -> Proposal:
        proposal: Proposal = self.agent.propose(state.within, rng)
        due = proposal.stop & (state.made < self.queries)
        query = proposal.query
        if bool(due.any()):
            candidates = self.agent.candidates(trees.select(proposal, due), CANDIDATES, rng)
            best = first_of_best(self.agent.contradictable(trees.select(state.within, due), candidates))
            query = query.index_put((due,), candidates[torch.arange(len(best)), best][:, None])
        return proposal._replace(query=query, stop=proposal.stop & ~due, verifies=due)

    def update(
        self,
        state: VerifyingState,
        query: Float[Tensor, "batch query"],
        observation: Float[Tensor, "batch observation"],
    ) -> VerifyingState:
        met = self.agent.propose(state.within, torch.Generator().manual_seed(STILL)).stop
        return VerifyingState(self.agent.update(state.within, query, observation), state.made + met.long())

    def quantiles(
        self, state: VerifyingState, levels: Sequence[float], rng: Generator
    ) -> Float[Tensor, "batch answer level"] | None:
        quantiles: Tensor | None = self.agent.quantiles(state.within, levels, rng)
        return quantiles

    def stops_at(self, state: VerifyingState) -> Float[Tensor, " batch"] | None:
        threshold: Tensor | None = self.agent.stops_at(state.within)
        return threshold

    def p_value(self, state: VerifyingState) -> Float[Tensor, " batch"] | None:
        p_value: Tensor | None = self.agent.p_value(state.within)
        return p_value
