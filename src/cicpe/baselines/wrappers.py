"""Agents made of other agents: another stop, other queries, two that share the episodes."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from cicpe import trees
from cicpe.agents.base import Agent, Proposal
from cicpe.errors import InvalidInput
from cicpe.spaces import Space

GOLDEN = (math.sqrt(5) - 1) / 2


class Wrapper(Agent):
    """Passes everything on to ``agent``."""

    agent: Agent

    @property
    def horizon(self) -> int:  # type: ignore[override]
        return self.agent.horizon

    def begin(self, context: Float[Tensor, "batch context"]) -> Any:
        return self.agent.begin(context)

    def propose(self, state: Any, rng: Generator) -> Proposal:
        return self.agent.propose(state, rng)

    def update(
        self, state: Any, query: Float[Tensor, "batch query"], observation: Float[Tensor, "batch observation"]
    ) -> Any:
        return self.agent.update(state, query, observation)


@final
@dataclass(frozen=True)
class StopAt(Wrapper):
    """The same agent, stopping once its confidence reaches one threshold."""

    agent: Agent
    threshold: float

    def propose(self, state: Any, rng: Generator) -> Proposal:
        proposal = self.agent.propose(state, rng)
        return proposal._replace(stop=proposal.confidence >= self.threshold)


@final
@dataclass(frozen=True)
class RandomQueries(Wrapper):
    """Random search with another agent's inference: its queries are replaced by uniform ones."""

    agent: Agent
    query_space: Space

    def propose(self, state: Any, rng: Generator) -> Proposal:
        proposal = self.agent.propose(state, rng)
        return proposal._replace(query=self.query_space.sample(len(proposal.query), rng)[:, None])


class MixedState(NamedTuple):
    """Both agents' states, and whose episode each is."""

    first: Any
    second: Any
    takes_first: Bool[Tensor, " batch"]


@final
@dataclass(frozen=True)
class Mixed(Agent):
    """Two agents that share the episodes: each is played by one of them alone, whatever its task (time-sharing).

    The paper's constraint is met exactly, where no single policy meets it, by a mixture of one that is a little too
    risky and one that is a little too careful. Who plays an episode is told by its place in the batch alone.
    """

    first: Agent
    second: Agent
    share: float
    """Of episodes that the first agent plays: as near to it as their number allows."""
    offset: float = 0.0
    """Which these are: another number between 0 and 1 gives another part."""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise InvalidInput("share", self.share, "between 0 and 1")
        if self.first.horizon != self.second.horizon:
            raise InvalidInput("second", self.second.horizon, f"an agent with a horizon of {self.first.horizon} too")

    @property
    def horizon(self) -> int:  # type: ignore[override]
        return self.first.horizon

    @property
    def most_at_once(self) -> int:  # type: ignore[override]
        return min(self.first.most_at_once, self.second.most_at_once)

    def begin(self, context: Float[Tensor, "batch context"]) -> MixedState:
        # A golden-ratio sequence is spread evenly however many episodes there are, and knows nothing of their tasks.
        place = torch.frac(self.offset + torch.arange(len(context), dtype=torch.float64) * GOLDEN)
        return MixedState(self.first.begin(context), self.second.begin(context), place < self.share)

    def propose(self, state: MixedState, rng: Generator) -> Proposal:
        proposals = self.first.propose(state.first, rng), self.second.propose(state.second, rng)
        first, second = (proposal._replace(verifies=None) for proposal in proposals)

        def chosen(of_first: Tensor, of_second: Tensor) -> Tensor:
            return torch.where(state.takes_first.view(-1, *[1] * (of_first.ndim - 1)), of_first, of_second)

        return trees.map_leaves(chosen, first, second)

    def update(
        self, state: MixedState, query: Float[Tensor, "batch query"], observation: Float[Tensor, "batch observation"]
    ) -> MixedState:
        return MixedState(
            self.first.update(state.first, query, observation),
            self.second.update(state.second, query, observation),
            state.takes_first,
        )
