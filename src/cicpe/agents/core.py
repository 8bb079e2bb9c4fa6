"""What is trained (or needs no training), and the agent that it becomes for one epsilon.

A core turns histories into queries, recommendations and confidences, for any epsilon. Its queries do not
depend on epsilon: one recorded episode therefore says what would have happened at all of them, and one
calibration serves all. With a stop rule it is an agent.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from cicpe.agents.alarm import Alarm, Tally
from cicpe.agents.base import Agent, Proposal
from cicpe.agents.stopping import StopRule, StopView
from cicpe.spaces import Space

EDGE = 1e-6
"""Confidences are kept this far from 0 and 1 where their log-odds are taken."""


class Look(NamedTuple):
    """What a core makes of its histories, for E epsilons and C costs of a query."""

    time: Int[Tensor, " batch"]
    query: Float[Tensor, "batch query"]
    """The next one."""
    recommendation: Float[Tensor, "epsilon batch answer"]
    confidence: Float[Tensor, "epsilon batch"]
    """Probability that the recommendation is within epsilon."""
    stop_value: Float[Tensor, "epsilon batch"]
    """The same as the Bellman rule takes it."""
    go_value: Float[Tensor, "epsilon cost batch"]
    """The value of making the query."""
    std: Float[Tensor, "batch answer"]

    def view(self, epsilon: int, cost: int | None = None) -> StopView:
        """What a stop rule sees at one epsilon (and cost), by their positions."""
        go = torch.zeros_like(self.confidence[0]) if cost is None else self.go_value[epsilon, cost]
        return StopView(self.time, self.confidence[epsilon], self.stop_value[epsilon], go)


class Core(ABC):
    """The part of an agent that does not depend on epsilon and delta."""

    horizon: int
    """The most queries of an episode."""
    most_at_once: int = 4096
    """Episodes that are to be played together at most: their states have to fit in memory."""

    @property
    @abstractmethod
    def query_space(self) -> Space:
        """Where queries lie."""

    @property
    @abstractmethod
    def answer_space(self) -> Space:
        """Where recommendations lie."""

    @abstractmethod
    def begin(self, context: Float[Tensor, "batch context"]) -> Any:
        """The state of a batch of episodes before their first query."""

    @abstractmethod
    def look(
        self,
        state: Any,
        epsilons: Sequence[float],
        rng: Generator,
        scale: float = 0.0,
        costs: Sequence[Float[Tensor, " batch"]] = (),
    ) -> Look:
        """The next query, and for each epsilon what to recommend; ``scale`` is the spread of queries."""

    @abstractmethod
    def observe(
        self, state: Any, query: Float[Tensor, "batch query"], observation: Float[Tensor, "batch observation"]
    ) -> Any:
        """The state after the observations of the queries."""

    @abstractmethod
    def sample_answers(self, state: Any, n: int, rng: Generator) -> Float[Tensor, "batch draw answer"]:
        """Draws of the target from the posterior of each history."""

    @abstractmethod
    def tensors(self) -> Mapping[str, Tensor]:
        """Everything that was learned."""


Temper = Callable[[Float[Tensor, "batch context"]], tuple[Tensor, Tensor]]
"""Slope and intercept, for each episode's context, by which log-odds of success are shown."""


class CoreState(NamedTuple):
    """The core's state, every episode's calibrated threshold, and what the alarm has seen of it."""

    core: Any
    threshold: Float[Tensor, " batch"]
    tally: Tally | None
    temper: tuple[Tensor, Tensor] | None = None


@final
@dataclass(frozen=True)
class CoreAgent(Agent):
    """Queries and recommends as its core does, and stops by its stop rule."""

    core: Core
    stop_rule: StopRule
    epsilon: float
    """What the confidence is about."""
    stop_epsilon: float
    """The calibrated epsilon, not above the other, that stop and recommendation go by."""
    scale: float = 0.0
    """Spread of the queries about the posterior mean: 0 greedy, 1 as sampled."""
    alarm: Alarm | None = None
    """Follows whether histories look like the prior's."""
    temper: Temper | None = None
    """Corrects the confidence that is shown; stops go by the raw one."""

    @property
    def horizon(self) -> int:  # type: ignore[override]
        return self.core.horizon

    @property
    def most_at_once(self) -> int:  # type: ignore[override]
        return self.core.most_at_once

    def begin(self, context: Float[Tensor, "batch context"]) -> CoreState:
        tally = None if self.alarm is None else self.alarm.begin(context)
        temper = None if self.temper is None else self.temper(context)
        return CoreState(self.core.begin(context), self.stop_rule.threshold(context), tally, temper)

    def propose(self, state: CoreState, rng: Generator) -> Proposal:
        both = (self.stop_epsilon,) if self.epsilon == self.stop_epsilon else (self.stop_epsilon, self.epsilon)
        bellman = self.stop_rule.needs_go_value
        look = self.core.look(state.core, both, rng, self.scale, (state.threshold,) if bellman else ())
        return Proposal(
            query=look.query,
            stop=self.stop_rule.decide(look.view(0, 0 if bellman else None), state.threshold),
            recommendation=look.recommendation[0],
            confidence=_shown(look.confidence[-1], state.temper),
            std=look.std,
        )

    def observe(
        self, state: CoreState, query: Float[Tensor, "batch query"], observation: Float[Tensor, "batch observation"]
    ) -> CoreState:
        tally = state.tally
        if self.alarm is not None and tally is not None:
            tally = self.alarm.observe(tally, state.core, query, observation)
        return state._replace(core=self.core.observe(state.core, query, observation), tally=tally)

    def shown_threshold(self, context: Float[Tensor, "batch context"]) -> Float[Tensor, " batch"]:
        """The confidence, as it is shown, at which the confidence rule stops."""
        return _shown(self.stop_rule.threshold(context), None if self.temper is None else self.temper(context))

    def p_value(self, state: CoreState) -> Float[Tensor, " batch"] | None:
        return None if self.alarm is None or state.tally is None else self.alarm.p_value(state.tally)


def _shown(confidence: Tensor, temper: tuple[Tensor, Tensor] | None) -> Tensor:
    if temper is None:
        return confidence
    slope, intercept = temper
    return torch.sigmoid(slope * torch.logit(confidence, eps=EDGE) + intercept)
