"""What follows from the log of a session: the agent's state, the open query and the recommendation.

It is a pure function of the agent, the seed and the log. Undoing, correcting and replaying need no code of their own:
the log is another one, and what follows from it is derived anew, as far as it differs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import torch
from torch import Generator, Tensor

from cicpe.agents.base import Agent, Proposal
from cicpe.errors import InvalidInput, ModelError, SessionError
from cicpe.plates import only_query
from cicpe.sessions.events import Attached, Corrected, Event, Released, Skipped, Told, Verifying, in_force
from cicpe.sessions.skipping import elsewhere
from cicpe.sessions.status import Skip, StatusStep
from cicpe.spaces import Space
from cicpe.units import Units


class Derived(NamedTuple):
    """All that follows from a log."""

    agent: Agent
    """Who decides: with the redundant queries that were asked for."""
    verify: int
    """How many those are."""
    released: bool
    """Whether someone has let it stop although the alarm says no."""
    positions: tuple[int, ...]
    """Entries of the log that are in force."""
    steps: tuple[StatusStep, ...]
    skips: tuple[Skip, ...]
    state: Any
    proposal: Proposal

    @property
    def open_query(self) -> Tensor:
        """What is asked next, as the agent sees it."""
        return only_query(self.proposal.query)[0]


@final
@dataclass(frozen=True)
class Derivation:
    """How what a session asks, recommends and believes follows from its log."""

    agent: Agent
    query_space: Space
    units: Units
    context: tuple[float, ...]
    seed: int

    @cached_property
    def start(self) -> Derived:
        """Before anything has happened."""
        return self._begun(0)

    def after(self, now: Derived, log: Sequence[Event], events: Sequence[Event]) -> Derived:
        """What follows from a log with some events added.

        Args:
            now: What follows from it without them.
            log: Without them.
            events: What has happened since.

        Returns:
            What follows; events that cannot be are refused.
        """
        whole = (*log, *events)
        positions = in_force(events, now.positions, len(log))
        in_order = [whole[position] for position in positions]
        steps, skips = _fold(in_order)
        if len(steps) > self.agent.horizon:
            raise SessionError(f"the model can take {self.agent.horizon} observations, and has them")
        verify = next((event.queries for event in reversed(in_order) if isinstance(event, Verifying)), 0)
        known, added = now, positions[len(now.positions) :]
        grown = positions[: len(now.positions)] == now.positions
        if verify != now.verify:
            known = self._begun(verify)
        elif not grown or any(isinstance(whole[position], Corrected) for position in added):
            known = self._begun(verify) if verify else self.start  # the past is another
        state = self._observed(known, steps[len(known.steps) :])
        proposal = self._propose(known.agent, state, len(positions), skips)
        # An observation far beyond any in training can overflow the network: better refused than believed.
        if not proposal.is_finite:
            values = getattr(events[-1], "observation", None)
            raise InvalidInput("observation", values, "of a size that the model was trained for")
        released = any(isinstance(event, Released) for event in in_order)
        return Derived(known.agent, verify, released, positions, steps, skips, state, proposal)

    def states(self, steps: Sequence[StatusStep]) -> Iterator[Any]:
        """The agent's state before the first of some steps, and after each."""
        then = self.start
        yield then.state
        for index in range(len(steps)):
            then = then._replace(state=self._observed(then, steps[index : index + 1]))
            yield then.state

    def rng(self, position: int) -> Generator:
        """The generator of a position in the log.

        Each has its own: the next query depends on the log, not on how it was reached. Positions are counted over the
        entries in force, so that undoing gives back the very query that was open before.
        """
        return torch.Generator().manual_seed((self.seed * 1_000_003 + position) % 2**63)

    def coordinates(self, place: Sequence[float]) -> Tensor:
        """A query in units as the agent sees it."""
        return torch.tensor(self.units.query_coordinates(place), dtype=torch.float32)

    def _begun(self, verify: int) -> Derived:
        """Before anything has happened, with redundant queries."""
        agent = self.agent.verified(verify)
        state = agent.begin(torch.tensor([list(self.context)], dtype=torch.float32))
        first = self._propose(agent, state, 0, ())
        if not first.is_finite:
            raise ModelError("the model's first query or answer is not a number: its weights or thresholds are damaged")
        return Derived(agent, verify, False, (), (), (), state, first)

    def _observed(self, known: Derived, steps: Sequence[StatusStep]) -> Any:
        if not steps:
            return known.state
        units = self.units
        plate = torch.tensor([[units.query_coordinates(step.query) for step in steps]], dtype=torch.float32)
        seen = torch.tensor([[units.observation_coordinates(step.observation) for step in steps]], dtype=torch.float32)
        return known.agent.observe(known.state, plate, seen)

    def _propose(self, agent: Agent, state: Any, position: int, skips: Sequence[Skip]) -> Proposal:
        rng = self.rng(position)
        proposal = agent.propose(state, rng)
        if skips:
            avoid = self.query_space.to_unit(torch.stack([self.coordinates(skip.query) for skip in skips]))
            query = elsewhere(self.query_space, only_query(proposal.query), avoid, rng)
            proposal = proposal._replace(query=query[:, None])
        if not self.units.settings:
            return proposal
        place = self.coordinates(self.units.settable(only_query(proposal.query)[0].tolist()))
        return proposal._replace(query=place[None, None])


def _fold(events: Sequence[Event]) -> tuple[tuple[StatusStep, ...], tuple[Skip, ...]]:
    """The history and the skipped queries of the events in force."""
    steps: list[StatusStep] = []
    skips: list[Skip] = []
    for event in events:
        match event:
            case Told() | Attached():
                steps.append(StatusStep(event.query, event.observation, event.kind))
            case Skipped():
                skips.append(Skip(event.query, event.reason))
            case Corrected():
                if event.step > len(steps):
                    raise SessionError(f"the log corrects step {event.step} of {len(steps)}")
                old = steps[event.step - 1]
                first = old.observation if old.first_observation is None else old.first_observation
                steps[event.step - 1] = StatusStep(old.query, event.observation, old.source, first)
    return tuple(steps), tuple(skips)
