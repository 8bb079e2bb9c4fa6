"""A trained network: memory, posterior, critic and query rule."""

from cicpe.beliefs.network.belief import NetworkBelief
from cicpe.beliefs.network.critic import Critic, CriticConfig, Goal
from cicpe.beliefs.network.network import (
    MemoryConfig,
    Network,
    NetworkConfig,
    NetworkOutput,
    NetworkState,
    PosteriorConfig,
)
from cicpe.beliefs.network.policy import ActorConfig, ActorHead
from cicpe.beliefs.network.query_rules import Actor, ActorName, Aim, make_actor
from cicpe.beliefs.network.scaling import Scaling

__all__ = [
    "Actor",
    "ActorConfig",
    "ActorHead",
    "ActorName",
    "Aim",
    "Critic",
    "CriticConfig",
    "Goal",
    "MemoryConfig",
    "Network",
    "NetworkBelief",
    "NetworkConfig",
    "NetworkOutput",
    "NetworkState",
    "PosteriorConfig",
    "Scaling",
    "make_actor",
]
