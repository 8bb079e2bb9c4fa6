"""Agents made of other agents: another stop, other queries."""

from dataclasses import dataclass
from typing import Any, final

from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.agents.base import Agent, Proposal
from cicpe.spaces import Space


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
