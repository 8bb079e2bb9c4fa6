"""The whole network of an agent: scaled inputs, memories, posterior head and critic."""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, final

import torch
from jaxtyping import Float, Int
from pydantic import Field, SerializeAsAny, field_validator
from torch import Tensor, nn

from cicpe import trees
from cicpe.beliefs.network.critic import Critic, CriticConfig, Goal
from cicpe.beliefs.network.memories.base import (
    Dims,
    FunctionMemory,
    Memory,
    MemoryConfig,
    MemoryFeatures,
    State,
    gather_prefixes,
)
from cicpe.beliefs.network.memories.recurrent import RecurrentConfig
from cicpe.beliefs.network.memories.registry import read_memory
from cicpe.beliefs.network.policy import ActorConfig, ActorHead, Policy, ScoringHead
from cicpe.beliefs.network.posteriors.gaussian import GaussianConfig, Posterior
from cicpe.beliefs.network.posteriors.lattice import LatticePosteriorConfig
from cicpe.beliefs.network.posteriors.mixture import MixtureConfig
from cicpe.beliefs.network.scaling import Scaling
from cicpe.config import Config
from cicpe.spaces import Space
from cicpe.trees import Tree

PosteriorConfig = Annotated[GaussianConfig | MixtureConfig | LatticePosteriorConfig, Field(discriminator="kind")]


@final
class NetworkConfig(Config):
    """The networks of one agent."""

    memory: SerializeAsAny[MemoryConfig] = RecurrentConfig()
    """How histories are encoded, by a memory of the kind that its field ``kind`` names."""
    posterior: PosteriorConfig = GaussianConfig()
    """The family of distributions over the target."""
    critic: CriticConfig = CriticConfig()
    """Stop and continuation heads."""
    actor: ActorConfig | None = None
    """The network behind the actor rule td3; the other rules have none."""
    shared_memory: bool = True
    """One memory for inference and critic, which the inference loss alone trains: the critic reads it without gradient.
    Or one each, trained by the losses of its own (the paper's)."""

    @field_validator("memory", mode="before")
    @classmethod
    def _by_kind(cls, value: Any) -> Any:
        """The memory of the kind that was asked for."""
        return read_memory(value) if isinstance(value, Mapping) else value


class NetworkState(NamedTuple):
    """A history as the networks hold it, at one prefix or at all of them."""

    inference: State
    critic: State
    """The critic's own; None where inference and critic share a memory."""
    prefix_BP: Tensor
    actor: State = None
    """The learned actor's own, where it has a memory."""

    def at_prefixes(self, index_BK: Int[Tensor, "batch chosen"]) -> "NetworkState":
        """The state at K prefixes per episode, for reading, in place of all of them."""
        critic, actor = (None if own is None else own.at_prefixes(index_BK) for own in (self.critic, self.actor))
        prefix_BK = gather_prefixes(self.prefix_BP, index_BK)
        return NetworkState(self.inference.at_prefixes(index_BK), critic, prefix_BK, actor)


class NetworkOutput(NamedTuple):
    """Everything that is read once per prefix: the posterior, and what the critic needs."""

    posterior: Posterior
    memory_features: MemoryFeatures
    critic_features: MemoryFeatures
    """The same as ``memory_features`` where the memory is shared; the critic's heads then read it without gradient."""
    state: NetworkState
    actor_features: MemoryFeatures | None = None
    """Of the learned actor's own memory, where it has one."""


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
        self.actor: ActorHead | ScoringHead | None = None
        self.actor_memory: Memory | None = None
        if config.actor is not None:
            self.actor_memory = config.memory.build(dims) if config.actor.own_memory else None
            self.actor = config.actor.build(self.actor_memory or self.memory, query_space, answer_space)

    def critic_parameters(self) -> list[nn.Parameter]:
        """What the critic's losses train: its heads and its own memory, or its view of queries in a shared one."""
        memory = self.memory.query_parameters() if self.critic_memory is None else self.critic_memory.parameters()
        return [*self.critic.parameters(), *memory]

    def actor_parameters(self) -> list[nn.Parameter]:
        """What the learned actor's loss trains: its head, and its own memory but for how it sees candidate queries."""
        if self.actor is None:
            return []
        memory = [] if self.actor_memory is None else list(self.actor_memory.parameters())
        unread = set() if self.actor_memory is None else {id(p) for p in self.actor_memory.query_parameters()}
        return [*self.actor.parameters(), *(p for p in memory if id(p) not in unread)]

    def inference_parameters(self) -> list[nn.Parameter]:
        """All other parameters but the learned actor's: the posterior's head and the memory that it reads."""
        others = {id(p) for p in self.critic_parameters()}
        own = [*self.memory.parameters(), *self.posterior_head.parameters()]
        return [p for p in own if id(p) not in others]

    def begin(self, context: Float[Tensor, "batch context"]) -> NetworkState:
        """The state of the empty history."""
        scaled = self.scaling.context(context)
        critic, actor = (None if own is None else own.begin(scaled) for own in (self.critic_memory, self.actor_memory))
        prefix = torch.zeros(len(context), 1, dtype=torch.long)
        return NetworkState(self.memory.begin(scaled), critic, prefix, actor)

    def step(
        self,
        state: NetworkState,
        query: Float[Tensor, "batch query"],
        observation: Float[Tensor, "batch observation"],
    ) -> NetworkState:
        """The state after one more observation."""
        unit, scaled = self.query_space.to_unit(query), self.scaling.observation(observation)
        critic = None if self.critic_memory is None else self.critic_memory.step(state.critic, unit, scaled)
        actor = None if self.actor_memory is None else self.actor_memory.step(state.actor, unit, scaled)
        return NetworkState(self.memory.step(state.inference, unit, scaled), critic, state.prefix_BP + 1, actor)

    def unroll(
        self,
        context: Float[Tensor, "batch context"],
        query: Float[Tensor, "batch step query"],
        observation: Float[Tensor, "batch step observation"],
    ) -> NetworkState:
        """The state at every prefix t = 0 ... T, in one causal pass."""
        inputs = self.scaling.context(context), self.query_space.to_unit(query), self.scaling.observation(observation)
        critic, actor = (
            None if own is None else own.unroll(*inputs) for own in (self.critic_memory, self.actor_memory)
        )
        prefix = torch.arange(query.shape[1] + 1).expand(len(query), -1)
        return NetworkState(self.memory.unroll(*inputs), critic, prefix, actor)

    def believe(self, state: NetworkState) -> NetworkOutput:
        """Reads the posterior and the critic's features at every prefix of the state."""
        memory_features = self.memory.features(state.inference)
        own = self.critic_memory
        critic_features = memory_features if own is None else own.features(state.critic)
        actor_features = None if self.actor_memory is None else self.actor_memory.features(state.actor)
        posterior: Posterior = self.posterior_head(memory_features)
        return NetworkOutput(posterior, memory_features, critic_features, state, actor_features)

    def _for_critic(self, tree: Tree) -> Tree:
        """What the critic reads of its memory: without gradient where the memory is that of inference."""
        return trees.map_leaves(torch.detach, tree) if self.critic_memory is None else tree

    def goal_features(self, state: NetworkState, output: NetworkOutput, epsilon: Float[Tensor, " batch"]) -> Tensor:
        """The critic's inputs beside the history; the posterior's spread enters without gradient."""
        return Critic.goal_features(state.prefix_BP, output.posterior.std.detach(), epsilon)

    def stop_logits(self, output: NetworkOutput, features: Tensor) -> Float[Tensor, "batch prefix twin"]:
        """Logit of the success probability at every prefix."""
        return self.critic.stop_logits(self._for_critic(output.critic_features.summary), features)

    def continue_values(
        self,
        state: NetworkState,
        output: NetworkOutput,
        features: Tensor,
        query: Float[Tensor, "batch prefix query"],
        cost: Float[Tensor, " batch"],
        learns_gains: bool = True,
    ) -> Float[Tensor, "batch prefix twin"]:
        """Value of a candidate query at every prefix; ``learns_gains`` lets a gradient into what it gains."""
        critic_features = self._for_critic(output.critic_features)
        if self.critic.gain is not None:
            anywhere = self.critic.continue_values(critic_features.summary, features, cost)
            gains = self.gains(state, output, features, query)
            return anywhere + (gains if learns_gains else gains.detach())[..., None]
        memory, inner = self._read_by_critic(state)
        at = memory.features_at(self._for_critic(inner), critic_features, self.query_space.to_unit(query))
        return self.critic.continue_values(at, features, cost)

    def gains(
        self, state: NetworkState, output: NetworkOutput, features: Tensor, query: Float[Tensor, "batch prefix query"]
    ) -> Float[Tensor, "batch prefix"]:
        """What a candidate query gains over any other at every prefix, for critics that tell it apart."""
        memory, inner = self._read_by_critic(state)
        critic_features = self._for_critic(output.critic_features)
        near = memory.features_near(self._for_critic(inner), critic_features, self.query_space.to_unit(query))
        return self.critic.gains(near, features)

    def probe_gains(self, output: NetworkOutput, features: Tensor) -> Float[Tensor, "batch prefix probe"]:
        """What each of the memory's probes gains over any other query at every prefix.

        Args:
            output: What the network makes of the prefixes.
            features: The critic's goal features there.

        Returns:
            What ``gains`` says at every probe.
        """
        memory, inner = self._read_by_critic(output.state)
        assert isinstance(memory, FunctionMemory), "only a memory that holds a function has probes"
        near = memory.features_near_probes(self._for_critic(inner), self._for_critic(output.critic_features))
        return self.critic.gains(near, _at_places(features, near))

    def probe_scores(self, output: NetworkOutput, features: Tensor) -> Float[Tensor, "batch prefix probe"]:
        """What a learned actor that scores places thinks of each of the memory's probes at every prefix.

        Args:
            output: What the network makes of the prefixes.
            features: The critic's goal features there.

        Returns:
            A score per probe; the policy over the probes is their softmax.
        """
        assert isinstance(self.actor, ScoringHead), "only an actor that scores places has scores"
        assert isinstance(self.memory, FunctionMemory), "only a memory that holds a function has probes"
        near = self.memory.features_near_probes(output.state.inference, output.memory_features)
        score: Tensor = self.actor(near, _at_places(features, near))
        return score

    def scores(
        self, output: NetworkOutput, features: Tensor, query: Float[Tensor, "batch prefix query"]
    ) -> Float[Tensor, "batch prefix"]:
        """What a learned actor that scores places thinks of a candidate query at every prefix."""
        assert isinstance(self.actor, ScoringHead), "only an actor that scores places has scores"
        unit = self.query_space.to_unit(query)
        near = self.memory.features_near(output.state.inference, output.memory_features, unit)
        score: Tensor = self.actor(near, features)
        return score

    def _read_by_critic(self, state: NetworkState) -> tuple[Memory, State]:
        """The memory that the critic reads, and its state."""
        own = self.critic_memory
        return (self.memory, state.inference) if own is None else (own, state.critic)

    def policy(self, output: NetworkOutput, features: Tensor) -> Policy:
        """What the learned actor proposes at every prefix."""
        assert isinstance(self.actor, ActorHead), "only the actor rule td3 has a network"
        proposal: Policy = self.actor(output.actor_features or output.memory_features, output.posterior, features)
        return proposal


def _at_places(features: Float[Tensor, "batch prefix goal"], near: Tensor) -> Float[Tensor, "batch prefix place goal"]:
    """The goal features, the same at every place of a prefix."""
    return features[:, :, None].expand(*near.shape[:3], -1)


__all__ = [
    "Goal",
    "MemoryConfig",
    "Network",
    "NetworkConfig",
    "NetworkOutput",
    "NetworkState",
    "PosteriorConfig",
]
