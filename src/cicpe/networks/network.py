"""The whole network of an agent: scaled inputs, memories, posterior head and critic."""

from typing import Annotated, NamedTuple, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from cicpe.networks.base import Config, Dims, Reading, State
from cicpe.networks.critic import Critic, CriticConfig, Goal
from cicpe.networks.grid import GridConfig
from cicpe.networks.mixture import MixtureConfig
from cicpe.networks.policy import ActorConfig, ActorHead, Policy
from cicpe.networks.posteriors import GaussianConfig, GaussianPosterior, Posterior
from cicpe.networks.recurrent import RecurrentConfig
from cicpe.networks.scaling import Scaling
from cicpe.networks.side_by_side import SideBySideConfig, SimpleMemoryConfig
from cicpe.spaces import Space

MemoryConfig = Annotated[SimpleMemoryConfig | SideBySideConfig, Field(discriminator="kind")]
PosteriorConfig = Annotated[GaussianConfig | MixtureConfig | GridConfig, Field(discriminator="kind")]


@final
class NetworkConfig(Config):
    """The networks of one agent."""

    memory: MemoryConfig = RecurrentConfig()
    """How histories are encoded."""
    posterior: PosteriorConfig = GaussianConfig()
    """The family of distributions over the target."""
    critic: CriticConfig = CriticConfig()
    """Stop and continuation heads."""
    actor: ActorConfig | None = None
    """The network behind the actor rule td3; the other rules have none."""
    shared_memory: bool = True
    """One memory for inference and critic, trained by the inference loss; or one each (the paper's)."""


class NetworkState(NamedTuple):
    """A history as the networks hold it, at one prefix or at all of them."""

    inference: State
    critic: State
    prefix_BP: Tensor


class Belief(NamedTuple):
    """Everything that is read once per prefix: the posterior, and what the critic needs."""

    posterior: Posterior
    reading: Reading
    critic_reading: Reading
    state: NetworkState


@final
class Network(nn.Module):
    """Maps histories to beliefs and values. Inputs and outputs are in the problem's own units."""

    def __init__(self, config: NetworkConfig, scaling: Scaling, dims: Dims, query_space: Space, answer_space: Space):
        super().__init__()
        self.config = config
        self.dims = dims
        self.query_space = query_space
        self.answer_space = answer_space
        self.scaling = scaling
        self.memory = config.memory.build(dims)
        self.critic_memory = None if config.shared_memory else config.memory.build(dims)
        self.posterior_head = config.posterior.build(self.memory, answer_space)
        self.critic: Critic = config.critic.build(self.critic_memory or self.memory, answer_space.dim)
        self.actor: ActorHead | None = None
        if config.actor is not None:
            self.actor = config.actor.build(self.memory, query_space, answer_space)

    def begin(self, context: Float[Tensor, "batch context"]) -> NetworkState:
        """The state of the empty history."""
        scaled = self.scaling.context(context)
        critic = None if self.critic_memory is None else self.critic_memory.begin(scaled)
        prefix = torch.zeros(len(context), 1, dtype=torch.long)
        return NetworkState(self.memory.begin(scaled), critic, prefix)

    def step(
        self,
        state: NetworkState,
        query: Float[Tensor, "batch query"],
        observation: Float[Tensor, "batch observation"],
    ) -> NetworkState:
        """The state after one more observation."""
        unit, scaled = self.query_space.to_unit(query), self.scaling.observation(observation)
        critic = None if self.critic_memory is None else self.critic_memory.step(state.critic, unit, scaled)
        return NetworkState(self.memory.step(state.inference, unit, scaled), critic, state.prefix_BP + 1)

    def unroll(
        self,
        context: Float[Tensor, "batch context"],
        query: Float[Tensor, "batch step query"],
        observation: Float[Tensor, "batch step observation"],
    ) -> NetworkState:
        """The state at every prefix t = 0 ... T, in one causal pass."""
        inputs = self.scaling.context(context), self.query_space.to_unit(query), self.scaling.observation(observation)
        critic = None if self.critic_memory is None else self.critic_memory.unroll(*inputs)
        prefix = torch.arange(query.shape[1] + 1).expand(len(query), -1)
        return NetworkState(self.memory.unroll(*inputs), critic, prefix)

    def believe(self, state: NetworkState) -> Belief:
        """Reads the posterior and the critic's features at every prefix of the state."""
        reading = self.memory.read(state.inference)
        critic_reading = reading if self.critic_memory is None else self.critic_memory.read(state.critic)
        return Belief(self.posterior_head(reading), reading, critic_reading, state)

    def goal_features(self, state: NetworkState, belief: Belief, epsilon: Float[Tensor, " batch"]) -> Tensor:
        """The critic's inputs beside the history; the posterior's spread enters without gradient."""
        return Critic.goal_features(state.prefix_BP, belief.posterior.std.detach(), epsilon)

    def stop_logits(self, belief: Belief, features: Tensor) -> Float[Tensor, "batch prefix twin"]:
        """Logit of the success probability at every prefix."""
        return self.critic.stop_logits(belief.critic_reading.summary, features)

    def go_values(
        self,
        state: NetworkState,
        belief: Belief,
        features: Tensor,
        query: Float[Tensor, "batch prefix query"],
        cost: Float[Tensor, " batch"],
    ) -> Float[Tensor, "batch prefix twin"]:
        """Value of a candidate query at every prefix."""
        shared = self.critic_memory is None
        memory, inner = (self.memory, state.inference) if shared else (self.critic_memory, state.critic)
        assert memory is not None
        at = memory.read_at(inner, belief.critic_reading, self.query_space.to_unit(query))
        return self.critic.go_values(at, features, cost)

    def policy(self, belief: Belief, features: Tensor) -> Policy:
        """What the learned actor proposes at every prefix."""
        assert self.actor is not None, "only the actor rule td3 has a network"
        proposal: Policy = self.actor(belief.reading, belief.posterior, features)
        return proposal


__all__ = [
    "Belief",
    "GaussianPosterior",
    "Goal",
    "MemoryConfig",
    "Network",
    "NetworkConfig",
    "NetworkState",
    "PosteriorConfig",
]
