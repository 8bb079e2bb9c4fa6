"""A study's trials as the events of a session, and the places of those that are still running."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from cicpe.integrations.coordinates import Ranges, fits, point_at, rounded, shares_of_params
from cicpe.sessions.events import Attached, Event, Skipped, Told
from cicpe.spaces import Space
from cicpe.units import Units

ASKED = "cicpe:asked"
"""System attribute of a trial: where the agent asked for it, as a share of each parameter's range."""
ENDED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)

Shares = list[float]
ToObservation = Callable[[int, Sequence[float]], tuple[tuple[float, ...], bool]]
"""From a trial's number and its values: what the model observes, and whether a value had to be clipped."""


class Ending(NamedTuple):
    """A trial that has ended, or is about to: the storage may not know its state and values yet."""

    trial: FrozenTrial
    state: TrialState
    values: Sequence[float] | None


@final
@dataclass(frozen=True)
class TrialReader:
    """Reads trials by the ranges of their parameters.

    A trial at the place that the agent asked for is told, any other complete one is attached, and one that failed or
    was pruned is a query that cannot be made. Trials that lack a parameter, or lie outside the ranges, are not read.

    Args:
        ranges: The parameters in the order of the model's coordinates.
        space: The model's query space.
        to_observation: How values become observations.
        units: What the model's coordinates mean, where it has units: events are in them.
    """

    ranges: Ranges
    space: Space
    to_observation: ToObservation
    units: Units = field(default_factory=Units)

    def events(self, study: Study, ending: Ending | None = None) -> tuple[tuple[Event, ...], int]:
        """What the ended trials were to a session, by their numbers, and how many of their values were clipped."""
        ended = [Ending(trial, trial.state, trial.values) for trial in study.get_trials(False, ENDED)]
        ended += [] if ending is None else [ending]
        read = [
            self._event(ended_trial) for ended_trial in sorted(ended, key=lambda ended_trial: ended_trial.trial.number)
        ]
        return tuple(event for event, _ in read if event is not None), sum(clipped for _, clipped in read)

    def _event(self, ending: Ending) -> tuple[Event | None, bool]:
        trial, state, values = ending
        shares = shares_of_params(self.ranges, trial.params) if fits(self.ranges, self.space.dim) else None
        if shares is None:
            return None, False
        query = self.query(shares)
        if state != TrialState.COMPLETE or values is None:
            return Skipped(query=query, reason=f"trial {trial.number} {state.name.lower()}"), False
        observation, clipped = self.to_observation(trial.number, values)
        asked = trial.system_attrs.get(ASKED)
        measured = tuple(trial.params[name] for name in self.ranges)
        as_asked = asked is not None and rounded(self.ranges, asked) == measured
        return (Told if as_asked else Attached)(query=query, observation=observation), clipped

    def pending(self, study: Study, trial: FrozenTrial) -> list[Shares]:
        """Where the other running trials are."""
        running = study.get_trials(False, (TrialState.RUNNING,))
        places = [self._place(other) for other in running if other.number != trial.number]
        return [place for place in places if place is not None]

    def ended(self, study: Study, known: Collection[int] = ()) -> dict[int, Shares]:
        """Where trials were asked for that have ended, by their numbers, but for those that are ``known``."""
        others = [trial for trial in study.get_trials(False) if trial.state.is_finished() and trial.number not in known]
        return {
            trial.number: list(map(float, trial.system_attrs[ASKED])) for trial in others if ASKED in trial.system_attrs
        }

    def _place(self, trial: FrozenTrial) -> Shares | None:
        """Where a running trial is or will be: by its parameters where all are known, else where it was asked for."""
        if fits(self.ranges, self.space.dim):
            params = trial.system_attrs.get("fixed_params", {}) | trial.params  # fixed: an enqueued trial's
            measured = shares_of_params(self.ranges, params)
            if measured is not None:
                return measured
        asked = trial.system_attrs.get(ASKED)
        return None if asked is None else list(map(float, asked))

    def query(self, shares: Sequence[float]) -> tuple[float, ...]:
        """The point of the model's box where a trial is measured: rounded as its parameters are."""
        values = dict(zip(self.ranges, rounded(self.ranges, shares), strict=False))
        known = shares_of_params(self.ranges, values)
        assert known is not None
        return self.units.query_values(point_at(self.space, [*known, *shares[len(known) :]]))
