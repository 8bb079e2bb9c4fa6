"""A trained network and an actor rule, frozen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.beliefs.base import INTERVAL_DRAWS, Assessment, Belief, quantiles_of
from cicpe.beliefs.network.network import Network, NetworkState
from cicpe.beliefs.network.posteriors.gaussian import Posterior
from cicpe.beliefs.network.prediction import NetworkPredictor, prediction_config
from cicpe.beliefs.network.prediction_head import PredictionConfig, PredictionHead
from cicpe.beliefs.network.query_rules import Actor
from cicpe.beliefs.predictors import ObservationPredictor
from cicpe.spaces import Space


@final
@dataclass(frozen=True)
class NetworkBelief(Belief):
    """Queries by its actor rule, recommends its posterior's answer, and is as confident as its critic."""

    network: Network
    actor: Actor
    horizon: int
    shaped: bool = False
    """Whether the critic values a query by what it gains over stopping now."""

    @property
    def query_space(self) -> Space:
        return self.network.query_space

    @property
    def answer_space(self) -> Space:
        return self.network.answer_space

    @property
    def cost_rule(self) -> str:
        return "shaped" if self.shaped else "bellman"

    def prediction_head(self) -> PredictionConfig:
        return prediction_config(self.network)

    def predictor(self, head: PredictionHead | None = None) -> ObservationPredictor:
        assert head is not None, "a network predicts by a head that the alarm fits"
        return NetworkPredictor(self.network, head)

    def begin(self, context: Float[Tensor, "batch context"]) -> NetworkState:
        with torch.no_grad():
            return self.network.begin(context)

    def assess(
        self,
        state: NetworkState,
        epsilons: Sequence[float],
        rng: Generator,
        query_spread: float = 0.0,
        costs: Sequence[Float[Tensor, " batch"]] = (),
    ) -> Assessment:
        network = self.network
        with torch.no_grad():
            belief = network.believe(state)
            query = self.actor.propose(belief, rng, query_spread)
            n = len(query)
            confidence, stop_value, continue_value = [], [], torch.zeros(len(epsilons), len(costs), n)
            for e, epsilon in enumerate(epsilons):
                features = network.goal_features(state, belief, torch.full((n,), epsilon))
                twins = torch.sigmoid(network.stop_logits(belief, features)[:, 0])
                confidence.append(twins.mean(dim=-1))
                stop_value.append(torch.zeros(n) if self.shaped else twins.amin(dim=-1))
                for c, cost in enumerate(costs):
                    values = network.continue_values(state, belief, features, query[:, None], cost)
                    continue_value[e, c] = values[:, 0].amin(dim=-1)
            return Assessment(
                time=state.prefix_BP[:, 0],
                query=query[:, None],
                recommendation=belief.posterior.recommendation[:, 0].expand(len(epsilons), -1, -1),
                confidence=torch.stack(confidence),
                stop_value=torch.stack(stop_value),
                continue_value=continue_value,
                std=belief.posterior.std[:, 0],
            )

    def update(
        self, state: NetworkState, query: Float[Tensor, "batch query"], observation: Float[Tensor, "batch observation"]
    ) -> NetworkState:
        with torch.no_grad():
            return self.network.step(state, query, observation)

    def sample_answers(self, state: NetworkState, n: int, rng: Generator) -> Float[Tensor, "batch draw answer"]:
        with torch.no_grad():
            posterior = self.network.believe(state).posterior
            return torch.stack([posterior.sample(rng)[:, 0] for _ in range(n)], dim=1)

    def quantiles(
        self, state: NetworkState, levels: Sequence[float], rng: Generator
    ) -> Float[Tensor, "batch answer level"]:
        """As every belief, but where the memory itself knows the target's distribution (the largest value of the
        function that it has a posterior of): a head learns moments, and those forget that no value seen is above it.
        """
        with torch.no_grad():
            largest = self.network.memory.sample_largest(state.inference, INTERVAL_DRAWS, rng)
            if largest is None:
                draws = self._draws(state, INTERVAL_DRAWS, rng)
            else:
                draws = self.answer_space.project(self.network.scaling.observed(largest[..., None]))
        return quantiles_of(draws, levels)

    def _draws(self, state: NetworkState, n: int, rng: Generator) -> Float[Tensor, "batch draw answer"]:
        """As ``sample_answers``, all at once: for few histories."""
        posterior: Posterior = self.network.posterior_head(self.network.memory.features(state.inference))
        return posterior.repeated(n).sample(rng)[:, :, 0].transpose(0, 1)

    def tensors(self) -> Mapping[str, Tensor]:
        return self.network.state_dict()
