"""A belief with a stop rule: the agent for one epsilon and delta."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from cicpe.agents.alarm import Alarm, AlarmState
from cicpe.agents.base import Agent, Proposal
from cicpe.agents.stop_rules import StopRule, Threshold
from cicpe.agents.verification import VerifyingAgent
from cicpe.beliefs.base import EDGE, Belief

NEAR, FAR = 1.5, 5.0
"""Between how many standard deviations off the recommendation redundant queries are tried."""


class ShownBy(NamedTuple):
    """How confidence is shown in each episode: log-odds = slope * log-odds + intercept, up to a most."""

    slope: Float[Tensor, " batch"]
    intercept: Float[Tensor, " batch"]
    most: Float[Tensor, " batch"]
    low: Float[Tensor, " batch"] | None = None
    """Log-odds of the lowest threshold: the correction was fitted where episodes stop, and says nothing of less."""


DESCENT = 2.0
"""Slope of the log-odds below the lowest threshold, until they are the belief's own."""
PlattByContext = Callable[[Float[Tensor, "batch context"]], ShownBy]


class BeliefAgentState(NamedTuple):
    """The belief's state, every episode's calibrated threshold, and what the alarm has seen of it."""

    belief: Any
    threshold: Float[Tensor, " batch"]
    alarm: AlarmState | None
    time: Int[Tensor, " batch"]
    """Observations so far."""
    platt: ShownBy | None = None


@final
@dataclass(frozen=True)
class BeliefAgent(Agent):
    """Queries and recommends as its belief does, and stops by its stop rule."""

    belief: Belief
    stop_rule: StopRule
    threshold: Threshold
    """Where the rule stops, in each episode's context."""
    epsilon: float
    """What the confidence is about."""
    stop_epsilon: float
    """The calibrated epsilon, not above the other, that stop and recommendation go by."""
    query_spread: float = 0.0
    """Spread of the queries about the posterior mean: 0 greedy, 1 as sampled."""
    minimum_time: int = 0
    """Queries before a rule that values queries may stop."""
    alarm: Alarm | None = None
    """Follows whether histories look like the prior's."""
    platt: PlattByContext | None = None
    """Corrects the confidence that is shown; stops go by the raw one."""

    @property
    def horizon(self) -> int:  # type: ignore[override]
        return self.belief.horizon

    @property
    def most_at_once(self) -> int:  # type: ignore[override]
        return self.belief.most_at_once

    def begin(self, context: Float[Tensor, "batch context"]) -> BeliefAgentState:
        alarm = None if self.alarm is None else self.alarm.begin(context)
        platt = None if self.platt is None else self.platt(context)
        time = torch.zeros(len(context), dtype=torch.long)
        return BeliefAgentState(self.belief.begin(context), self.threshold(context), alarm, time, platt)

    def propose(self, state: BeliefAgentState, rng: Generator) -> Proposal:
        both = (self.stop_epsilon,) if self.epsilon == self.stop_epsilon else (self.stop_epsilon, self.epsilon)
        valued = self.stop_rule.uses_cost
        costs = (state.threshold,) if valued else ()
        assessment = self.belief.assess(state.belief, both, rng, self.query_spread, costs)
        view = assessment.view(0, 0 if valued else None, self.minimum_time)
        return Proposal(
            query=assessment.query,
            stop=self.stop_rule.would_stop(view, state.threshold),
            recommendation=assessment.recommendation[0],
            confidence=calibrated_confidence(assessment.confidence[-1], state.platt),
            std=assessment.std,
        )

    def update(
        self,
        state: BeliefAgentState,
        query: Float[Tensor, "batch query"],
        observation: Float[Tensor, "batch observation"],
    ) -> BeliefAgentState:
        alarm = state.alarm
        if self.alarm is not None and alarm is not None:
            alarm = self.alarm.observe(alarm, state.belief, query, observation)
        belief = self.belief.update(state.belief, query, observation)
        return state._replace(belief=belief, alarm=alarm, time=state.time + 1)

    def stops_at(self, state: BeliefAgentState) -> Float[Tensor, " batch"] | None:
        if self.stop_rule.uses_cost or self.stop_epsilon != self.epsilon:
            return None
        return calibrated_confidence(self.stop_rule.asked(state.threshold, state.time), state.platt)

    def quantiles(
        self, state: BeliefAgentState, levels: Sequence[float], rng: Generator
    ) -> Float[Tensor, "batch answer level"]:
        return self.belief.quantiles(state.belief, levels, rng)

    def p_value(self, state: BeliefAgentState) -> Float[Tensor, " batch"] | None:
        return None if self.alarm is None or state.alarm is None else self.alarm.p_value(state.alarm)

    def verified(self, queries: int) -> Agent:
        if self.alarm is None or queries == 0:
            return super().verified(queries)
        return VerifyingAgent(self, queries)

    def candidates(self, proposal: Proposal, n: int, rng: Generator) -> Float[Tensor, "batch candidate query"]:
        """Redundant queries to choose from: anywhere, and on all sides of the recommendation where that is a query.

        There a wrong answer shows: a few standard deviations off, every observation should be sure.

        Args:
            proposal: What the agent proposes for each episode.
            n: How many candidates of each kind.
            rng: Draws them.

        Returns:
            Candidates per episode, batch x candidate x query: ``n`` of them, or twice as many where answers are queries
            too.
        """
        space, batch = self.belief.query_space, len(proposal.stop)
        anywhere = space.sample(n, rng).expand(batch, -1, -1)
        if space != self.belief.answer_space:
            return anywhere
        sides = 2.0 * torch.randint(2, (batch, n, space.dim), generator=rng) - 1
        reach = NEAR + (FAR - NEAR) * torch.rand(batch, n, 1, generator=rng)
        off = sides * reach * (proposal.std / space.unit_scale)[:, None]
        around = space.project(space.from_unit(space.to_unit(proposal.recommendation)[:, None] + off))
        return torch.cat([anywhere, around], dim=1)

    def contradictable(
        self, state: BeliefAgentState, queries: Float[Tensor, "batch candidate query"]
    ) -> Float[Tensor, "batch candidate"]:
        """How far what is expected at some queries is from what was expected before anything was seen.

        Args:
            state: The histories so far.
            queries: Candidates, batch x candidate x query.

        Returns:
            One number per candidate, batch x candidate; where it is large, a wrong prior would show.
        """
        assert self.alarm is not None
        assert state.alarm is not None
        predict, context = self.alarm.predictor.predict, state.alarm.context
        nothing = self.belief.begin(context)
        columns = []
        for query in queries.unbind(dim=1):
            now, before = predict(state.belief, context, query), predict(nothing, context, query)
            columns.append(now.contradiction(before).sum(dim=-1))
        return torch.stack(columns, dim=1)


def calibrated_confidence(confidence: Float[Tensor, " batch"], platt: ShownBy | None) -> Float[Tensor, " batch"]:
    """Confidence as it is shown: its log-odds corrected by a slope and an intercept for each episode, up to a most."""
    if platt is None:
        return confidence
    raw = torch.logit(confidence, eps=EDGE)
    shown = platt.slope * raw + platt.intercept
    if platt.low is not None:
        # Below the lowest threshold no more is shown than the belief itself says, but for a steep way down to that.
        at_low = platt.slope * platt.low + platt.intercept
        below = torch.minimum(shown, torch.maximum(raw, at_low - DESCENT * (platt.low - raw)))
        shown = torch.where(raw < platt.low, below, shown)
    return torch.minimum(torch.sigmoid(shown), platt.most)
