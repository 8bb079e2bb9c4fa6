"""The learned actor (TD3): a network that proposes the next query, or one that scores places and takes the best.

Both are trained on the critic's value of what they propose.
"""

from typing import ClassVar, NamedTuple, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from cicpe import trees
from cicpe.beliefs.network.critic import Critic
from cicpe.beliefs.network.layers import LOG_STD, mlp
from cicpe.beliefs.network.memories.base import Memory, MemoryFeatures
from cicpe.beliefs.network.posteriors.gaussian import Posterior
from cicpe.config import GrownConfig
from cicpe.spaces import Space, Sphere

REACH = 3.0
"""How many of the posterior's standard deviations a relative query may lie from its mean."""
KNEE = 1.5
"""Where a tanh counts as saturating: at nine tenths of its way."""


@final
class ActorConfig(GrownConfig):
    """A network that proposes queries."""

    LATER: ClassVar[frozenset[str]] = frozenset({"own_memory", "scores"})

    hidden: int = Field(default=64, ge=1)
    """Hidden units in each of its two layers."""
    gaussian: bool = False
    """Mean and spread of a Gaussian over queries, rather than one query. Needs X = A."""
    relative: bool = True
    """Where X = A: propose the posterior's mean plus up to three of its standard deviations, not any place."""
    exploration: float = Field(default=0.2, ge=0)
    """Standard deviation of exploration noise at query spread 1, as a share of the tanh's reach (unit coordinates,
    or where relative three of the posterior's standard deviations); a Gaussian actor has its own."""

    own_memory: bool = False
    """Encode the history by a memory of its own, which the actor's loss trains, and look at no posterior (the paper's).
    Else the actor reads what inference has made of the history."""

    scores: bool = False
    """Score every place at which the memory has its function by what its neighbourhood looks like, and query the best
    (a learned acquisition function), rather than map the history to a query. Needs a memory that holds a function."""

    @property
    def imitates_unseen(self) -> bool:
        """Whether it is drawn to a posterior that it does not look at."""
        return self.gaussian and self.own_memory

    def build(self, memory: Memory, query_space: Space, answer_space: Space) -> "ActorHead | ScoringHead":
        """The network that this describes."""
        if self.scores:
            return ScoringHead(self, memory)
        return ActorHead(self, memory, query_space, answer_space)


class Policy(NamedTuple):
    """A diagonal Gaussian over queries in unit coordinates, before it is projected into the query space."""

    mean_unit: Float[Tensor, "*batch query"]
    log_std_unit: Float[Tensor, "*batch query"]
    """The spread of its draws: learnt, or the exploration noise of a deterministic actor."""
    raw: Float[Tensor, "*batch query"]
    """What the tanh was given: far from zero it saturates, and no gradient comes back."""


@final
class ActorHead(nn.Module):
    """pi(h, epsilon): an MLP on the memory's features, the posterior's moments and the goal features.

    Where the memory treats coordinates alike and a query has one entry for each of them, so does the actor.
    Its inputs are detached: an actor's loss trains the actor alone, and its own memory where it has one.
    """

    def __init__(self, config: ActorConfig, memory: Memory, query_space: Space, answer_space: Space) -> None:
        super().__init__()
        self.config, self.query_space, self.answer_space = config, query_space, answer_space
        self.relative = config.relative and query_space == answer_space
        self.per_axis = memory.axis_width is not None and query_space.dim == answer_space.dim
        outputs = 2 if config.gaussian else 1
        if self.per_axis:
            assert memory.axis_width is not None
            sizes = [memory.axis_width + 2 + Critic.GOAL_FEATURES, outputs]
        else:
            seen = memory.width + (0 if config.own_memory else 2 * answer_space.dim)
            sizes = [seen + Critic.GOAL_FEATURES, outputs * query_space.dim]
        # A direction far from zero: near it, the projection on a sphere turns with every small step.
        gain = 1.0 if isinstance(query_space, Sphere) and not self.relative else 0.1
        self.layers = mlp([sizes[0], config.hidden, config.hidden, sizes[1]], last_gain=gain)

    def forward(self, memory_features: MemoryFeatures, posterior: Posterior, features_BPG: Tensor) -> Policy:
        """The proposal at every prefix that was read."""
        mean_BPX, log_std_BPX = moments(posterior, self.answer_space)
        if not self.config.own_memory:
            memory_features = trees.map_leaves(torch.detach, memory_features)
        if self.per_axis:
            assert memory_features.axes is not None
            goal_BPXG = features_BPG[:, :, None].expand(-1, -1, mean_BPX.shape[-1], -1)
            own_BPX2 = torch.stack([mean_BPX, log_std_BPX / 3], dim=-1)
            out = self.layers(torch.cat([memory_features.axes, own_BPX2, goal_BPXG], dim=-1)).unbind(dim=-1)
        else:
            posterior_parts = [] if self.config.own_memory else [mean_BPX, log_std_BPX / 3]
            inputs = [memory_features.summary, *posterior_parts, features_BPG]
            out = self.layers(torch.cat(inputs, dim=-1)).split(self.query_space.dim, dim=-1)
        center_BPQ, reach_BPQ = torch.zeros_like(out[0]), torch.ones_like(out[0])
        if self.relative:
            center_BPQ, reach_BPQ = mean_BPX, REACH * log_std_BPX.exp()
        mean = center_BPQ + reach_BPQ * torch.tanh(out[0])
        if isinstance(self.query_space, Sphere):
            mean = self.query_space.project(mean)
        if not self.config.gaussian:
            return Policy(mean, (self.config.exploration * reach_BPQ).clamp_min(1e-12).log(), out[0])
        log_std = torch.log(reach_BPQ / REACH) + out[1]
        return Policy(mean, log_std.clamp(*LOG_STD), out[0])

    def draw(
        self, policy: Policy, noise: Tensor, query_spread: Tensor | float = 1.0
    ) -> Float[Tensor, "batch prefix query"]:
        """Draws a query of the policy.

        Args:
            policy: Mean and spread at every prefix, in unit coordinates.
            noise: Standard normal numbers of the same shape.
            query_spread: Multiplies the spread; 0 gives the mean.

        Returns:
            A query per prefix, in the query space.
        """
        unit = policy.mean_unit + query_spread * policy.log_std_unit.exp() * noise
        return self.query_space.project(self.query_space.from_unit(unit))


@final
class ScoringHead(nn.Module):
    """s(h, a, epsilon): one small MLP for every place a, on what the place looks like and on the goal features.

    A place is told from the others by its neighbourhood alone (``Memory.features_near``), so that what is learned at
    one holds at all of them. The policy over a set of places is the softmax of their scores. Its inputs are detached:
    an actor's loss trains the actor alone.
    """

    def __init__(self, config: ActorConfig, memory: Memory) -> None:
        super().__init__()
        self.config = config
        width = memory.width_near + Critic.GOAL_FEATURES
        self.layers = mlp([width, config.hidden, config.hidden, 1], last_gain=0.1)

    def forward(
        self, near: Float[Tensor, "*place near"], features: Float[Tensor, "*place goal"]
    ) -> Float[Tensor, "*place"]:
        """The score of every place."""
        score: Tensor = self.layers(torch.cat([near.detach(), features.detach()], dim=-1))
        return score[..., 0]


def moments(posterior: Posterior, space: Space) -> tuple[Tensor, Tensor]:
    """Mean and log standard deviation of the posterior in unit coordinates, without gradient."""
    mean = space.to_unit(posterior.recommendation).detach()
    std = (posterior.std / space.unit_scale).detach()
    return mean, std.log().clamp(*LOG_STD)


def imitation(
    mean: Float[Tensor, "*batch query"], log_std: Float[Tensor, "*batch query"], policy: Policy
) -> Float[Tensor, "*batch"]:
    """KL(I || pi) of diagonal Gaussians in unit coordinates, I given by its moments.

    sum_i log(s_pi / s_I) + (s_I^2 + (m_I - m_pi)^2) / (2 s_pi^2) - 1/2.
    """
    ratio = 2 * (log_std - policy.log_std_unit)
    apart = (mean - policy.mean_unit) * torch.exp(-policy.log_std_unit)
    return ((ratio.exp() + apart.square() - ratio - 1) / 2).sum(dim=-1)


def saturation(policy: Policy) -> Float[Tensor, "*batch"]:
    """How far the actor's tanh saturates, from where no critic could call it back.

    sum_i max(|raw_i| - KNEE, 0)^2.
    """
    return (policy.raw.abs() - KNEE).clamp_min(0).square().sum(dim=-1)
