"""The one interface of every decision-maker: ours, baselines and references.

Everything is batched over episodes. An agent is frozen: what changes during an episode is the state
that it hands out and takes back. It never sees the hidden task. The queries of a step, and their observations,
are a plate (``cicpe.plates``)::

    state = agent.begin(context)
    while True:
        proposal = agent.propose(state, rng)
        # episodes with proposal.stop end here, with proposal.recommendation
        state = agent.observe(state, proposal.query, observation)
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxtyping import Bool, Float
from torch import Generator, Tensor

from cicpe.errors import InvalidInput
from cicpe.plates import LearnsFromPlates


class Proposal(NamedTuple):
    """What an agent says after each observation, for every episode."""

    query: Float[Tensor, "batch q query"]
    """The next plate of queries, should the episode go on."""
    stop: Bool[Tensor, " batch"]
    """Whether to end now."""
    recommendation: Float[Tensor, "batch answer"]
    """The answer, should the episode end."""
    confidence: Float[Tensor, " batch"]
    """Probability that the recommendation is within epsilon."""
    std: Float[Tensor, "batch answer"]
    """Standard deviation of each coordinate of the target's posterior."""
    verifies: Bool[Tensor, " batch"] | None = None
    """Whether the query is a redundant one, before a stop; None where no agent makes such queries."""

    @property
    def is_finite(self) -> bool:
        """Whether all that it says are numbers; weights that are damaged, or overflow, give others."""
        return all(part is None or bool(part.isfinite().all()) for part in self)


class Agent(LearnsFromPlates):
    """A frozen decision-maker for one (epsilon, delta)."""

    horizon: int
    """The most queries that it can take; an episode that reaches it is truncated."""
    most_at_once: int = 4096
    """Episodes that are played together at most: their states have to fit in memory."""

    @abstractmethod
    def begin(self, context: Float[Tensor, "batch context"]) -> Any:
        """The state of a batch of episodes before their first query.

        Args:
            context: What is known of each task beforehand, such as its noise level: batch x context.

        Returns:
            Whatever the agent needs to know of the histories; only it looks inside.
        """

    @abstractmethod
    def propose(self, state: Any, rng: Generator) -> Proposal:
        """The next query, whether to stop, and what to recommend.

        Args:
            state: The histories so far, from ``begin`` or ``observe``.
            rng: Draws what is random of the query.

        Returns:
            A proposal with one entry per episode.
        """

    def quantiles(
        self, state: Any, levels: Sequence[float], rng: Generator
    ) -> Float[Tensor, "batch answer level"] | None:
        """Quantiles of each coordinate of the target, given each history.

        Args:
            state: The histories so far.
            levels: Probabilities between 0 and 1.
            rng: Draws from the posterior, where the quantiles are not known in closed form.

        Returns:
            One value per episode, coordinate and level: batch x answer x level. None for an agent without a posterior.
        """
        return None

    def stops_at(self, state: Any) -> Float[Tensor, " batch"] | None:
        """The confidence, as it is shown, at which each episode stops.

        Args:
            state: The histories so far.

        Returns:
            One number per episode; None where the rule looks at more than the confidence.
        """
        return None

    def p_value(self, state: Any) -> Float[Tensor, " batch"] | None:
        """How likely a history of the prior is to ever look as odd as each of these.

        Args:
            state: The histories so far.

        Returns:
            One probability per episode; None without an alarm.
        """
        return None

    def verified(self, queries: int) -> "Agent":
        """The same agent, which makes redundant queries before it stops.

        Args:
            queries: How many; any but 0 is refused where the agent has no alarm.

        Returns:
            A new agent, or this one where the number is 0.
        """
        if queries == 0:
            return self
        raise InvalidInput("verify", queries, "0: this agent has no alarm that could decide (cicpe.fit_alarm fits one)")
