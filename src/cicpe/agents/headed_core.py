"""A computed belief with learned heads: how sure it may be, and what one more query is worth.

Particles and functions say how confident they are, but not what going on would gain, and their confidence
is only as good as their approximation. Two small heads learn both from episodes of the belief itself
(``cicpe.training.heads``), so that it can stop by the Bellman rule too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Generator, Tensor, nn

from cicpe.agents.core import EDGE, Core, Look
from cicpe.networks.base import Config, check_range
from cicpe.networks.critic import Critic, CriticConfig
from cicpe.spaces import Space

HEADS = "heads."
"""What the names of their weights begin with, in a saved model."""
SMALLEST = 1e-6
"""A spread whose logarithm is still taken."""


@final
class HeadsConfig(Config):
    """Learned heads on a computed belief."""

    hidden: int = Field(default=32, ge=1)
    """Hidden units in each head."""
    episodes: int = Field(default=1024, ge=16)
    """Of the belief, to learn from; in a budget of minutes, those of a quarter of what is left at most."""
    updates: int = Field(default=600, ge=1)
    """Gradient steps."""
    cost: tuple[float, float] = (1e-3, 0.1)
    """Range of the cost of a query that they are to know."""

    @model_validator(mode="after")
    def _range(self) -> "HeadsConfig":
        check_range("cost", self.cost)
        return self


@final
class Heads(nn.Module):
    """A critic whose history is what the belief says of itself: its log-odds of success, its spread, the time."""

    def __init__(self, config: HeadsConfig) -> None:
        super().__init__()
        self.critic = Critic(CriticConfig(hidden=config.hidden, twin=False), width=1, width_at=1)

    def forward(
        self,
        prefix_BP: Int[Tensor, "batch prefix"],
        confidence_BP: Float[Tensor, "batch prefix"],
        std_BPX: Float[Tensor, "batch prefix answer"],
        epsilon_B: Float[Tensor, " batch"],
        costs: Sequence[Float[Tensor, " batch"]],
    ) -> tuple[Float[Tensor, "batch prefix"], list[Float[Tensor, "batch prefix"]]]:
        """Log-odds of success, and for each cost the value of the next query.

        Both are corrections: of the belief's own log-odds, and of the value of stopping now.
        """
        odds_BP = torch.logit(confidence_BP, eps=EDGE)
        features = Critic.goal_features(prefix_BP, std_BPX.clamp_min(SMALLEST), epsilon_B)
        summary = odds_BP[..., None] / 4
        logits = odds_BP + self.critic.stop_logits(summary, features)[..., 0]
        stop = torch.sigmoid(logits).detach()
        return logits, [stop + self.critic.go_values(summary, features, cost)[..., 0] for cost in costs]


@final
@dataclass(frozen=True)
class HeadedCore(Core):
    """Queries and recommends as its belief does; what it says of success and of going on is learned."""

    belief: Core
    heads: Heads

    @property
    def horizon(self) -> int:  # type: ignore[override]
        return self.belief.horizon

    @property
    def most_at_once(self) -> int:  # type: ignore[override]
        return self.belief.most_at_once

    @property
    def query_space(self) -> Space:
        return self.belief.query_space

    @property
    def answer_space(self) -> Space:
        return self.belief.answer_space

    def begin(self, context: Float[Tensor, "batch context"]) -> Any:
        return self.belief.begin(context)

    def look(
        self,
        state: Any,
        epsilons: Sequence[float],
        rng: Generator,
        scale: float = 0.0,
        costs: Sequence[Float[Tensor, " batch"]] = (),
    ) -> Look:
        look = self.belief.look(state, epsilons, rng, scale)
        n = len(look.query)
        confidence, go_value = torch.zeros(len(epsilons), n), torch.zeros(len(epsilons), len(costs), n)
        with torch.no_grad():
            for e, epsilon in enumerate(epsilons):
                seen = look.time[:, None], look.confidence[e][:, None], look.std[:, None], torch.full((n,), epsilon)
                logits, values = self.heads(*seen, costs)
                confidence[e] = torch.sigmoid(logits)[:, 0]
                for c, value in enumerate(values):
                    go_value[e, c] = value[:, 0]
        return look._replace(confidence=confidence, stop_value=confidence, go_value=go_value)

    def observe(
        self, state: Any, query: Float[Tensor, "batch query"], observation: Float[Tensor, "batch observation"]
    ) -> Any:
        return self.belief.observe(state, query, observation)

    def sample_answers(self, state: Any, n: int, rng: Generator) -> Float[Tensor, "batch draw answer"]:
        return self.belief.sample_answers(state, n, rng)

    def tensors(self) -> Mapping[str, Tensor]:
        heads = {HEADS + name: value for name, value in self.heads.state_dict().items()}
        return {**self.belief.tensors(), **heads}
