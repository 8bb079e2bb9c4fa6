"""A trained network: memory, posterior, critic and query rule."""

from typing import TYPE_CHECKING

from cicpe.lazy import lazily

if TYPE_CHECKING:
    from cicpe.beliefs.network.belief import NetworkBelief as NetworkBelief
    from cicpe.beliefs.network.critic import Critic as Critic
    from cicpe.beliefs.network.critic import CriticConfig as CriticConfig
    from cicpe.beliefs.network.critic import Goal as Goal
    from cicpe.beliefs.network.network import MemoryConfig as MemoryConfig
    from cicpe.beliefs.network.network import Network as Network
    from cicpe.beliefs.network.network import NetworkConfig as NetworkConfig
    from cicpe.beliefs.network.network import NetworkOutput as NetworkOutput
    from cicpe.beliefs.network.network import NetworkState as NetworkState
    from cicpe.beliefs.network.network import PosteriorConfig as PosteriorConfig
    from cicpe.beliefs.network.policy import ActorConfig as ActorConfig
    from cicpe.beliefs.network.policy import ActorHead as ActorHead
    from cicpe.beliefs.network.query_rules import Actor as Actor
    from cicpe.beliefs.network.query_rules import ActorName as ActorName
    from cicpe.beliefs.network.query_rules import Aim as Aim
    from cicpe.beliefs.network.query_rules import make_actor as make_actor
    from cicpe.beliefs.network.scaling import Scaling as Scaling
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "belief": "NetworkBelief",
            "critic": "Critic CriticConfig Goal",
            "network": "MemoryConfig Network NetworkConfig NetworkOutput NetworkState PosteriorConfig",
            "policy": "ActorConfig ActorHead",
            "query_rules": "Actor ActorName Aim make_actor",
            "scaling": "Scaling",
        },
    )
