"""The critic: the probability of success if we stop, and the value of going on.

Both heads see the history, the time and epsilon, and the second the cost, so that one model serves a
range of them. A critic that is trained at one cost, which moves (the paper's), sees none.
Twins are two independent heads; the conservative value is their minimum.
"""

from typing import ClassVar, Literal, NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cicpe.beliefs.network.layers import mlp, time_features
from cicpe.beliefs.network.memories.base import Memory
from cicpe.config import GrownConfig


@final
class CriticConfig(GrownConfig):
    """Stop head and continuation head."""

    LATER: ClassVar[frozenset[str]] = frozenset({"cost_input", "gains"})

    hidden: int = 64
    """Hidden units in each head."""
    twin: bool = True
    """Two heads, scalarised by their minimum where a conservative value is wanted."""
    cost_input: Literal["log", "value", "none"] = "log"
    """How the continuation head sees the cost of a query: its logarithm, where it is drawn from a range; itself; or not
    at all, where there is only one (the paper's)."""
    gains: bool = False
    """Value a query as Q(h, a) = V(h) + A(h, a), where A sees the query's neighbourhood alone and is fitted to what
    many candidate queries gain in one step; without it, one network sees history and query."""

    def build(self, memory: Memory, answer_dim: int) -> "Critic":
        """The critic that this describes."""
        return Critic(self, memory)


class Goal(NamedTuple):
    """What an episode is asked for."""

    epsilon: Float[Tensor, " batch"]
    """How close is close enough."""
    cost: Float[Tensor, " batch"]
    """The price of one query, in units of success probability."""


@final
class Critic(nn.Module):
    """Q(h, stop) as a logit of the success probability, and Q(h, a) as a value."""

    GOAL_FEATURES = 3 + 4

    def __init__(self, config: CriticConfig, memory: Memory) -> None:
        super().__init__()
        width = memory.width
        heads = 2 if config.twin else 1
        extra, for_cost = self.GOAL_FEATURES, 0 if config.cost_input == "none" else 1
        self.cost_input = config.cost_input
        self.stop = nn.ModuleList(
            mlp([width + extra, config.hidden, config.hidden, 1], last_gain=0.1) for _ in range(heads)
        )
        self.go = nn.ModuleList(
            mlp([(width if config.gains else memory.width_at) + extra + for_cost, config.hidden, config.hidden, 1], 0.1)
            for _ in range(heads)
        )
        self.gain: nn.Sequential | None = None
        if config.gains:
            self.gain = mlp([memory.width_near + extra, config.hidden, config.hidden, 1], last_gain=0.1)

    @staticmethod
    def goal_features(
        prefix_BP: Tensor, std_BPX: Tensor, epsilon_B: Float[Tensor, " batch"]
    ) -> Float[Tensor, "batch prefix goal"]:
        """Time, epsilon, and the posterior's spread beside it: what any stop rule has to compare."""
        log_epsilon = epsilon_B.log()[:, None].expand(prefix_BP.shape)
        spread = torch.linalg.vector_norm(std_BPX, dim=-1).log()
        worst = std_BPX.amax(dim=-1).log()
        features = [log_epsilon / 2, spread / 2, worst / 2, spread - log_epsilon]
        return torch.cat([time_features(prefix_BP), torch.stack(features, dim=-1)], dim=-1)

    def stop_logits(self, summary_BPF: Tensor, features_BPG: Tensor) -> Float[Tensor, "batch prefix twin"]:
        """Logit of the probability that the recommendation is within epsilon."""
        inputs = torch.cat([summary_BPF, features_BPG], dim=-1)
        return torch.cat([head(inputs) for head in self.stop], dim=-1)

    def continue_values(
        self, at_BPF: Tensor, features_BPG: Tensor, cost_B: Float[Tensor, " batch"]
    ) -> Float[Tensor, "batch prefix twin"]:
        """Value of paying for the candidate query and acting well afterwards; of any query, where that has gains.

        Args:
            at_BPF: The history seen from the query; its summary where the critic has gains.
            features_BPG: The goal features.
            cost_B: The cost of a query, per episode.

        Returns:
            A value per prefix and twin.
        """
        parts = [at_BPF, features_BPG]
        if self.cost_input != "none":
            seen_B = cost_B.log() / 3 if self.cost_input == "log" else cost_B
            parts.append(seen_B[:, None, None].expand(*at_BPF.shape[:2], 1))
        inputs = torch.cat(parts, dim=-1)
        return torch.cat([head(inputs) for head in self.go], dim=-1)

    def gains(
        self, near: Float[Tensor, "*place near"], features: Float[Tensor, "*place goal"]
    ) -> Float[Tensor, "*place"]:
        """A(h, a): what a query adds to the value of any, from what its neighbourhood looks like."""
        assert self.gain is not None, "only a critic with gains has them"
        gain: Tensor = self.gain(torch.cat([near, features], dim=-1))
        return gain[..., 0]
