"""A learned actor that asks a computed posterior: the paper's Gaussian TD3, with any posterior for inference.

The actor does not encode the history. It sees what the posterior makes of it: the recommendation, the spread, how sure
that is, how many observations there are, and what is known beforehand. ``cicpe.training.posterior_actor`` trains it.

Shapes: X answer (and query), C context, F features.
"""

from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from cicpe.beliefs.answers.network import context_features, context_scale
from cicpe.beliefs.asked import AskedBelief
from cicpe.beliefs.base import EDGE, Assessment
from cicpe.beliefs.network.layers import LOG_STD, mlp, time_features
from cicpe.beliefs.network.policy import REACH, Policy
from cicpe.spaces import Space

ACTOR_SHARE = 0.3
"""Share of a budget in minutes for its training."""
HIDDEN = 64
"""Units in each of the two layers of the actor and of its critics."""


@final
class PosteriorActor(nn.Module):
    """pi(h): a diagonal Gaussian over queries about the recommendation; at first, the posterior's own moments.

    Args:
        dim: Coordinates of a query, and of an answer.
        context: How many contexts there are.
        rng: Draws its first weights; those of a saved actor are read later.
    """

    context_centre: Tensor
    context_spread: Tensor

    def __init__(self, dim: int, context: int, rng: Generator | None = None) -> None:
        super().__init__()
        self.dim = dim
        self.register_buffer("context_centre", torch.zeros(2 * context))
        self.register_buffer("context_spread", torch.ones(2 * context))
        self.layers = seeded_mlp([self.features, HIDDEN, HIDDEN, 2 * dim], 0.01, rng)

    @property
    def features(self) -> int:
        """How many numbers it sees of a history."""
        return 2 * self.dim + 1 + 3 + len(self.context_centre)

    def standardise(self, context: Float[Tensor, "n C"]) -> None:
        """Takes the scale of contexts from simulated ones."""
        self.context_centre, self.context_spread = context_scale(context)

    def seen(self, assessment: Assessment, context_BC: Tensor, space: Space) -> Float[Tensor, "batch F"]:
        """What it sees of histories: an assessment at the epsilon that it aims at, and contexts."""
        sure = torch.logit(assessment.confidence[0].clamp(EDGE, 1 - EDGE)) / 5
        known = ((context_features(context_BC) - self.context_centre) / self.context_spread).clamp(-10, 10)
        centre = space.to_unit(assessment.recommendation[0])
        log_std = (assessment.std / space.unit_scale).log().clamp(*LOG_STD)
        when = time_features(assessment.time)
        return torch.cat([centre, log_std / 3, sure[:, None], when, known], dim=-1).float()

    def moments(self, features: Float[Tensor, "batch F"]) -> tuple[Tensor, Tensor]:
        """Recommendation and log spread of the posterior in unit coordinates, as they stand in what it sees."""
        return features[:, : self.dim], 3 * features[:, self.dim : 2 * self.dim]

    def forward(self, features: Float[Tensor, "batch F"]) -> Policy:
        """The Gaussian over queries."""
        centre, log_std = self.moments(features)
        shift, widening = self.layers(features).split(self.dim, dim=-1)
        mean = centre + REACH * log_std.exp() * torch.tanh(shift)
        # A young critic praises places that nobody has queried: the spread stays within a factor of the posterior's.
        return Policy(mean, (log_std + torch.tanh(widening)).clamp(*LOG_STD), shift)


def seeded_mlp(sizes: list[int], last_gain: float, rng: Generator | None) -> nn.Sequential:
    """A perceptron whose first weights depend on ``rng`` alone."""
    layers = mlp(sizes, last_gain=last_gain)
    rng = rng or torch.Generator().manual_seed(0)
    with torch.no_grad():
        linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
        for layer in linear:
            gain = last_gain if layer is linear[-1] else 1.0
            layer.weight.copy_(torch.randn(layer.weight.shape, generator=rng) * gain / layer.in_features**0.5)
            layer.bias.zero_()
    return layers


def query_of(policy: Policy, noise: Tensor, query_spread: float | Tensor, space: Space) -> Float[Tensor, "batch query"]:
    """Draws of a policy, in the query space; with a spread of 0 its mean."""
    return space.project(space.from_unit(policy.mean_unit + query_spread * policy.log_std_unit.exp() * noise))


@final
@dataclass(frozen=True)
class LearnedQueries(AskedBelief):
    """A belief over answers that a learned actor asks. Queries and answers share a space."""

    actor: PosteriorActor
    aim: float
    """The epsilon at which the actor looks at histories."""

    @property
    def _epsilons(self) -> tuple[float, ...]:
        return (self.aim,)

    @torch.no_grad()
    def _query(
        self, state: Any, assessment: Assessment, rng: Generator, query_spread: float
    ) -> Float[Tensor, "batch query"]:
        policy = self.actor(self.actor.seen(assessment, state.context_BC, self.answer_space))
        noise = torch.randn(policy.mean_unit.shape, generator=rng)
        return query_of(policy, noise, query_spread, self.query_space)
