"""The trained agent: frozen networks, an actor rule and a stop rule, for one epsilon."""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.agents.actors import Actor
from cicpe.agents.base import Agent, Proposal
from cicpe.agents.stopping import StopRule, StopView
from cicpe.networks.network import Belief, Network, NetworkState


class AgentState(NamedTuple):
    """One history an episode, and its calibrated threshold."""

    network: NetworkState
    threshold: Float[Tensor, " batch"]


@final
@dataclass(frozen=True)
class NetworkAgent(Agent):
    """Queries by its actor rule, stops by its stop rule, recommends its posterior's answer."""

    network: Network
    actor: Actor
    stop_rule: StopRule
    epsilon: float
    """What the confidence is about."""
    stop_epsilon: float
    """The calibrated epsilon, not above the other, that the stop rule goes by."""
    horizon: int
    scale: float = 0.0
    """Spread of the queries about the posterior mean: 0 greedy, 1 as sampled."""

    def begin(self, context: Float[Tensor, "batch context"]) -> AgentState:
        with torch.no_grad():
            return AgentState(self.network.begin(context), self.stop_rule.threshold(context))

    def propose(self, state: AgentState, rng: Generator) -> Proposal:
        with torch.no_grad():
            belief = self.network.believe(state.network)
            query = self.actor.propose(belief, rng, self.scale)
            batch = len(query)
            bellman = self.stop_rule.needs_go_value
            features, stop_twins = self._success(state, belief, self.stop_epsilon)
            stop_confidence = confidence = stop_twins.mean(dim=-1)
            if self.epsilon != self.stop_epsilon:
                confidence = self._success(state, belief, self.epsilon)[1].mean(dim=-1)
            stop_value, go_value = stop_twins.amin(dim=-1), torch.zeros(batch)
            if bellman:
                values = self.network.go_values(state.network, belief, features, query[:, None], state.threshold)
                go_value = values[:, 0].amin(dim=-1)
            view = StopView(state.network.prefix_BP[:, 0], stop_confidence, stop_value, go_value)
            return Proposal(
                query=query,
                stop=self.stop_rule.decide(view, state.threshold),
                recommendation=belief.posterior.recommendation[:, 0],
                confidence=confidence,
                std=belief.posterior.std[:, 0],
            )

    def _success(self, state: AgentState, belief: Belief, epsilon: float) -> tuple[Tensor, Tensor]:
        """The critic's inputs, and its twin success probabilities, at one epsilon."""
        goal = torch.full((len(state.threshold),), epsilon)
        features = self.network.goal_features(state.network, belief, goal)
        return features, torch.sigmoid(self.network.stop_logits(belief, features)[:, 0])

    def observe(
        self, state: AgentState, query: Float[Tensor, "batch query"], observation: Float[Tensor, "batch observation"]
    ) -> AgentState:
        with torch.no_grad():
            return AgentState(self.network.step(state.network, query, observation), state.threshold)
