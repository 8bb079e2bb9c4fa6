"""A session: one real campaign, asked and told step by step, in memory."""

from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from cicpe.agents.base import Agent, Proposal
from cicpe.errors import InvalidInput, SessionError
from cicpe.spaces import Space

LARGEST = float(np.finfo(np.float32).max)
"""Networks compute in single precision; a larger observation would be infinite to them."""


class Step(NamedTuple):
    """One query and what was observed there."""

    query: tuple[float, ...]
    observation: tuple[float, ...]


@final
class Session:
    """Asks for one query at a time, takes its result, and says when to stop and what to answer.

    ``ask`` gives the same open query until it is told. The next query is a pure function of the model,
    the seed and what has been told.
    """

    def __init__(
        self,
        agent: Agent,
        query_space: Space,
        observation_dim: int,
        context: Sequence[float],
        epsilon: float,
        delta: float,
        seed: int = 0,
    ) -> None:
        self.epsilon, self.delta, self.seed = epsilon, delta, seed
        self._agent, self._query_space, self._observation_dim = agent, query_space, observation_dim
        self._steps: list[Step] = []
        self._state = agent.begin(torch.tensor([list(context)], dtype=torch.float32))
        self._proposal = self._propose(self._state, 0)

    def _propose(self, state: Any, steps: int) -> Proposal:
        # A generator of its own for every step: the next query depends on the log, not on how it was reached.
        rng = torch.Generator().manual_seed((self.seed * 1_000_003 + steps) % 2**63)
        return self._agent.propose(state, rng)

    @property
    def history(self) -> tuple[Step, ...]:
        """Every query so far with its observation."""
        return tuple(self._steps)

    @property
    def stopped(self) -> bool:
        """Whether the session has ended, by the agent's choice or at the horizon."""
        return self.truncated or bool(self._proposal.stop[0])

    @property
    def truncated(self) -> bool:
        """Whether it ended at the horizon, short of the confidence that was asked for."""
        return len(self._steps) >= self._agent.horizon and not bool(self._proposal.stop[0])

    @property
    def recommendation(self) -> np.ndarray:
        """The answer, should the session end now."""
        return self._proposal.recommendation[0].numpy().copy()

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of each coordinate of the answer."""
        return self._proposal.std[0].numpy().copy()

    @property
    def confidence(self) -> float:
        """Probability that the recommendation is within epsilon."""
        return float(self._proposal.confidence[0])

    def ask(self) -> np.ndarray:
        """The next query. Asking again before telling gives the same one."""
        if self.stopped:
            raise SessionError("the session has stopped: read its recommendation; there is nothing more to measure")
        return self._proposal.query[0].numpy().copy()

    def tell(self, observation: float | Sequence[float] | np.ndarray) -> None:
        """Takes the observation made at the query that ``ask`` gave."""
        if self.stopped:
            raise SessionError("the session has stopped: this observation was not taken; its recommendation stands")
        values = _numbers(observation, self._observation_dim)
        query = self._proposal.query
        state = self._agent.observe(self._state, query, torch.tensor([values], dtype=torch.float32))
        proposal = self._propose(state, len(self._steps) + 1)
        # An observation far beyond any in training can overflow the network: better refused than believed.
        if not all(bool(value.isfinite().all()) for value in proposal):
            raise InvalidInput("observation", observation, "of a size that the model was trained for")
        self._steps.append(Step(tuple(query[0].tolist()), tuple(values)))
        self._state, self._proposal = state, proposal


def _numbers(observation: object, expected: int) -> list[float]:
    try:
        plain = np.asarray(_plain(observation))
        if plain.dtype.kind not in "biufO":  # NumPy would read a number out of text
            raise TypeError
        values = [float(value) for value in plain.reshape(-1)]
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput("observation", observation, f"{expected} number(s)") from None
    if len(values) != expected:
        raise InvalidInput("observation", observation, f"{expected} number(s), one per observed quantity")
    if not all(abs(value) <= LARGEST for value in values):  # written so that a NaN fails
        raise InvalidInput("observation", observation, "finite numbers")
    return values


def _plain(observation: object) -> object:
    return observation.detach().numpy() if isinstance(observation, Tensor) else observation
