"""An Optuna sampler that knows when to stop: ``pip install 'cicpe[optuna]'``.

    from cicpe.integrations.optuna import CicpeSampler

    sampler = CicpeSampler(cicpe.load("gp-max-1d"), 0.02, 0.1, value_range=(0.0, 0.4))
    study = optuna.create_study(direction="minimize", sampler=sampler)
    study.optimize(objective)  # ends by itself
    study.user_attrs["cicpe"]  # the answer in your units, the confidence, and why it ended

What is suggested follows from the model, the seed and the trials in the study's storage, so a study goes on from its
storage in another process. See ``docs/how-to/optuna.md``.
"""

import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple, final

import numpy as np

try:
    from optuna.distributions import BaseDistribution, distribution_to_json, json_to_distribution
    from optuna.samplers import BaseSampler
    from optuna.study import Study, StudyDirection
    from optuna.trial import FrozenTrial, TrialState
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error.name} is missing: install it with  pip install 'cicpe[optuna]'") from None

from cicpe.errors import InvalidInput, SessionError
from cicpe.integrations.coordinates import (
    Ranges,
    count_places,
    fits,
    is_numeric,
    ranges_of,
    rounded,
    shares_of,
    value_at,
)
from cicpe.integrations.objective_scale import (
    ObjectiveScale,
    Observations,
    ValueRange,
    answers_with_a_height,
    checked_range,
    epsilon_is_a_value,
    units_per_value,
)
from cicpe.integrations.optuna_trials import ASKED, Ending, Shares, TrialReader
from cicpe.model.model import Model
from cicpe.sessions.campaign import SessionModel
from cicpe.sessions.events import Event, Released, Skipped, Verifying
from cicpe.sessions.session import Session
from cicpe.sessions.stores.base import StopName
from cicpe.sessions.values import numbers
from cicpe.spaces import Sphere
from cicpe.units import Units

RANGES = "cicpe:ranges"
"""System attribute of a study: the parameters in the order of the model's coordinates, where nobody named them."""
RESULT = "cicpe"
"""User attribute of a study: the answer, how sure it is, and why it goes on or has ended."""
CONFIDENCE = "cicpe:confidence"
"""User attribute of a trial: the confidence once it was known."""
AGENT_ATTEMPTS, RANDOM_ATTEMPTS = 4, 60
"""Places that are tried, by the agent and then at random, before a pending trial's own place is given again."""

__all__ = ["CONFIDENCE", "RESULT", "CicpeSampler", "Observations"]


class _Known(NamedTuple):
    """The last session, to go on from: a trial adds one event to those before it."""

    seed: int
    events: tuple[Event, ...]
    session: Session


class _Replay(NamedTuple):
    """What a study's trials make of a session."""

    session: Session
    left_out: int
    """Trials that the model could not take: there were more than its horizon."""
    clipped: int
    """Trials whose value was far worse than the stated range, and was told as its bad end."""


@final
class CicpeSampler(BaseSampler):
    """Suggests what a trained agent would measure next, and ends the study once the agent stops.

    The study's direction is honoured, and values are mapped to the model's own by ``value_range``. Trials of others
    (enqueued or added) count as measured elsewhere; failed and pruned ones count as places that cannot be measured.
    Trials that run at the same time get different places. After every trial the study's user attribute ``cicpe`` holds
    the answer in the user's units. Once the agent has stopped, further suggestions are random.

    Args:
        model: A trained model.
        epsilon: How far off the answer may be. It is in the objective's unit where the model answers with a height, or
            with a place whose value may fall short of the best by so much. Where places count by their distance, it is
            a distance in the model's own box, onto which the ranges are mapped. Of a model that was trained on an
            experiment file: what the file says where it is not given.
        delta: How often it may be farther off, likewise.
        search_space: The parameters by name, in the order of the model's coordinates; each range is mapped onto that of
            its coordinate. Where it is not given, the parameters are taken in the order in which the objective first
            suggests them; of an experiment they are its settings.
        value_range: The values between which the objective lies over the search space, as (low, high), or
            ``as-trained`` where its values are already of the kind that the model was trained on, as those of an
            experiment are.
        observations: What the model's own observations are; measured where the model's family is in this library.
        seed: Seeds the suggestions.
        stop: The stop rule.
        verify: Redundant trials that are made before a stop is final, so that the alarm can tell a wrong prior.
        confirm: Take values that are not plausible for the model; they are refused otherwise.
        release: Stop although the alarm says that the trials do not look like the prior; it holds the stop otherwise.
        independent_sampler: Suggests the parameters (and ranges) that the model does not know; without one they are
            refused.
        stop_study: Whether to end ``study.optimize`` once the agent stops.
        context: What the model wants to know beforehand; ``noise`` in the objective's unit, others as trained.
    """

    def __init__(
        self,
        model: SessionModel,
        epsilon: float | None = None,
        delta: float | None = None,
        search_space: Ranges | None = None,
        *,
        value_range: ValueRange | None = None,
        observations: Observations | None = None,
        seed: int = 0,
        stop: StopName = "each",
        verify: int = 0,
        confirm: bool = False,
        release: bool = False,
        independent_sampler: BaseSampler | None = None,
        stop_study: bool = True,
        **context: float,
    ) -> None:
        self._model, self._stop, self._verify = model, stop, verify
        self._confirm, self._release = confirm, release
        self._observations = Observations.of(model) if observations is None else observations
        self._units = model.description.units if isinstance(model, Model) else Units()
        if self._units.readout is not None and value_range is None:
            value_range = "as-trained"
        self._value_range = checked_range(value_range, self._observations)
        self._epsilon, self._delta, self._seed = epsilon, delta, seed
        self._context, self._independent, self._stop_study = context, independent_sampler, stop_study
        self._known: _Known | None = None
        self._per_value = units_per_value(self._value_range, self._observations)
        merits = self._observations.best is not None
        self._height = merits and answers_with_a_height(model)
        self._epsilon_is_a_value = merits and epsilon_is_a_value(model)
        fresh = self._fresh(seed)
        if isinstance(fresh.query_space, Sphere):
            raise InvalidInput("model", "queries on a sphere", "one whose queries are a box")
        self._query_space, self._dim = fresh.query_space, fresh.query_space.dim
        self._observation_dim, self._kinds = fresh.observation_dim, fresh.observations
        self._ranges = ranges_of(self._units) if search_space is None else dict(search_space)
        self._epsilon, self._delta = fresh.epsilon if epsilon is None else epsilon, fresh.delta
        if self._ranges is not None and not fits(self._ranges, self._dim):
            allowed = f"{fresh.query_space.dim} ranges of numbers, one per coordinate of the model"
            raise InvalidInput("search_space", self._ranges, allowed)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_known": None}

    # What Optuna asks.

    def reseed_rng(self) -> None:
        """Gives the agent, and the independent sampler, another seed."""
        self._seed, self._known = secrets.randbits(31), None
        if self._independent is not None:
            self._independent.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Nothing: a suggested range is only seen, and refused where it differs, by ``sample_independent``.

        Args:
            study: The study.
            trial: The trial that is about to run.

        Returns:
            An empty dictionary.
        """
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The agent's next place in any search space of the model's shape.

        Args:
            study: The study.
            trial: The trial that is about to run.
            search_space: Parameters by name.

        Returns:
            Their values by name.
        """
        self._check_directions(study)
        if not fits(search_space, self._dim):
            return {}
        shares = self._asked(study, trial, search_space)
        return {
            name: value_at(distribution, share)
            for (name, distribution), share in zip(search_space.items(), shares, strict=True)
        }

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """One coordinate of the agent's next place.

        Args:
            study: The study.
            trial: The trial that is running.
            param_name: The parameter.
            param_distribution: Its range.

        Returns:
            Its value.
        """
        self._check_directions(study)
        coordinate = self._coordinate(study, param_name, param_distribution)
        if coordinate is None:
            assert self._independent is not None
            return self._independent.sample_independent(study, trial, param_name, param_distribution)
        return value_at(param_distribution, self._asked(study, trial, self._ranges_of(study))[coordinate])

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Writes what is now believed into the user attributes, and ends the study where the agent stops.

        Args:
            study: The study.
            trial: The trial that has ended.
            state: How it ended.
            values: Its value, if it has one.
        """
        self._check_directions(study)
        self._learn_ranges(study, trial)
        if self._independent is not None:
            self._independent.after_trial(study, trial, state, values)
        elif state == TrialState.COMPLETE:
            self._check_all_suggested(study, trial)
        replay = self._replayed(study, Ending(trial, state, values))
        storage = study._storage
        storage.set_trial_user_attr(trial._trial_id, CONFIDENCE, replay.session.confidence)
        storage.set_study_user_attr(study._study_id, RESULT, self._result(study, replay))
        if replay.session.stopped and self._stop_study:
            with suppress(RuntimeError):  # Optuna's, where nobody is optimising: with ask and tell
                study.stop()

    # What it believes.

    def session(self, study: Study) -> Session:
        """The session that the study's finished trials make, in the model's units.

        Args:
            study: The study.

        Returns:
            A session with the trials of the study told.
        """
        return self._replayed(study).session

    def result(self, study: Study) -> dict[str, Any]:
        """What is believed after the study's finished trials, in the user's units.

        Args:
            study: The study.

        Returns:
            The content of ``study.user_attrs["cicpe"]``, made anew: the answer and its credible region by parameter (or
            under ``value`` where the model answers with a height), ``confidence``, ``stopped``, ``truncated``,
            ``reason``, ``expected_remaining``, ``in_prior``, ``held``, and how many trials were taken, and how.
        """
        return self._result(study, self._replayed(study))

    def _result(self, study: Study, replay: _Replay) -> dict[str, Any]:
        session = replay.session
        reason = {"code": session.reason.code, "words": session.reason.words + self._about_epsilon(session)}
        return {
            "recommendation": self._answer(study, session, session.recommendation.tolist()),
            "credible_region": self._region(study, session),
            "confidence": session.confidence,
            "stopped": session.stopped,
            "truncated": session.truncated,
            "reason": reason,
            "expected_remaining": session.expected_remaining_queries,
            "in_prior": session.in_prior,
            "held": session.held,
            "epsilon": self._epsilon,
            "delta": self._delta,
            "observed": len(session.history),
            "attached": sum(step.source == "attached" for step in session.history),
            "skipped": len(session.skips),
            "clipped": replay.clipped,
            "left_out": replay.left_out,
        }

    def _answer(self, study: Study, session: Session, answer: Sequence[float]) -> dict[str, float]:
        """An answer by parameter, or as a value of the objective; as it is where it is neither."""
        if session.units.answers:
            return {scale.name: value for scale, value in zip(session.units.answers, answer, strict=True)}
        if session.answer_space == session.query_space:
            named = zip(self._ranges_of(study).items(), shares_of(session.query_space, answer), strict=False)
            return {name: value_at(distribution, share) for (name, distribution), share in named}
        if self._height:
            return {"value": self._scale(study).from_model(answer[0])}
        return {f"answer {i}": number for i, number in enumerate(answer, start=1)}

    def _region(self, study: Study, session: Session) -> dict[str, list[float]]:
        low, high = (self._answer(study, session, side) for side in session.credible_region.T.tolist())
        return {name: sorted((low[name], high[name])) for name in low}

    def _about_epsilon(self, session: Session) -> str:
        same = session.epsilon == self._epsilon
        return "" if same else f" In the objective's unit that is within {self._epsilon:g}."

    # The model's units.

    def _fresh(self, seed: int) -> Session:
        """An empty session, which has in the model's units what the user gave in the objective's."""
        promise = {"epsilon": self._epsilon, "delta": self._delta}
        objective_units = {name: value for name, value in promise.items() if value is not None} | self._context
        factors = {"noise": self._per_value, "epsilon": self._per_value if self._epsilon_is_a_value else 1.0}
        model_units = {name: value * factors.get(name, 1.0) for name, value in objective_units.items()}
        try:
            return self._model.session(**model_units, seed=seed, stop=self._stop, verify=self._verify)
        except InvalidInput as error:
            if factors.get(error.field, 1.0) == 1.0:
                raise
            allowed = (
                f"{error.allowed}, in the model's units; value_range makes {factors[error.field]:.4g} of them of one "
                f"unit of the objective, and {model_units[error.field]:.4g} of this"
            )
            raise InvalidInput(error.field, objective_units[error.field], allowed) from None

    def _scale(self, study: Study) -> ObjectiveScale:
        minimise = study.directions[0] == StudyDirection.MINIMIZE
        return ObjectiveScale(self._value_range, self._observations, minimise)

    def _reader(self, study: Study, ranges: Ranges | None = None) -> TrialReader:
        def to_observation(number: int, values: Sequence[float]) -> tuple[tuple[float, ...], bool]:
            field = f"value of trial {number}"
            if self._observations.best is None:
                return self._kinds.read(field, numbers(field, values, self._observation_dim), self._confirm), False
            observation, clipped = self._scale(study).observe(field, values[0])
            if self._value_range == "as-trained":  # a stated range has its own limits
                self._kinds.read(field, [observation], self._confirm)
            return (observation,), clipped

        known = self._ranges_of(study) if ranges is None else ranges
        return TrialReader(known, self._query_space, to_observation, self._units)

    def _check_directions(self, study: Study) -> None:
        wanted = self._observation_dim
        if len(study.directions) != wanted:
            raise InvalidInput(
                "directions", len(study.directions), f"{wanted}, as many as the model observes at a query"
            )
        lowest = self._observations.best == "low"
        if self._units.readout is not None and (study.directions[0] == StudyDirection.MINIMIZE) != lowest:
            allowed = f"{'minimize' if lowest else 'maximize'}: what the model's experiment looks for"
            raise InvalidInput("direction", study.directions[0].name.lower(), allowed)
        if self._observations.best is None and StudyDirection.MINIMIZE in study.directions:
            allowed = "all 'maximize': the observations of this model are no merits, and are taken as they are"
            raise InvalidInput("directions", [direction.name.lower() for direction in study.directions], allowed)

    # The parameters.

    def _ranges_of(self, study: Study) -> dict[str, BaseDistribution]:
        """The parameters that are known so far, in the order of the coordinates."""
        if self._ranges is not None:
            return self._ranges
        stored = study._storage.get_study_system_attrs(study._study_id).get(RANGES, {})
        return {name: json_to_distribution(json_text) for name, json_text in stored.items()}

    def _coordinate(self, study: Study, name: str, distribution: BaseDistribution) -> int | None:
        """Which coordinate a parameter is; None where it is none and another sampler may suggest it."""
        ranges = self._ranges_of(study)
        if ranges.get(name) == distribution:
            return list(ranges).index(name)
        if self._is_new_coordinate(ranges, name, distribution):
            self._store_ranges(study, ranges | {name: distribution})
            return len(ranges)
        if self._independent is not None:
            return None
        if name in ranges:
            where = "search_space" if self._ranges is not None else "the first trial"
            raise InvalidInput(f"range of {name}", distribution, f"{ranges[name]}, as in {where}")
        allowed = (
            f"one of the model's {self._dim} coordinates ({', '.join(ranges) or 'a range of numbers'}); others need an "
            "independent_sampler"
        )
        raise InvalidInput("parameter", name, allowed)

    def _is_new_coordinate(self, ranges: Ranges, name: str, distribution: BaseDistribution) -> bool:
        free = self._ranges is None and name not in ranges and len(ranges) < self._dim
        return free and is_numeric(distribution)

    def _store_ranges(self, study: Study, ranges: Ranges) -> None:
        stored = {name: distribution_to_json(distribution) for name, distribution in ranges.items()}
        study._storage.set_study_system_attr(study._study_id, RANGES, stored)

    def _learn_ranges(self, study: Study, trial: FrozenTrial) -> None:
        """Takes the ranges of a trial whose parameters were fixed beforehand, so that nobody was asked for them."""
        ranges = known = self._ranges_of(study)
        for name, distribution in trial.distributions.items():
            if self._is_new_coordinate(ranges, name, distribution):
                ranges = ranges | {name: distribution}
        if ranges != known:
            self._store_ranges(study, ranges)

    def _check_all_suggested(self, study: Study, trial: FrozenTrial) -> None:
        ranges = self._ranges_of(study)
        if missing := [name for name in ranges if name not in trial.params]:
            allowed = f"all of {', '.join(ranges)}: the objective did not suggest {', '.join(missing)}"
            raise InvalidInput("parameters", sorted(trial.params), allowed)
        if len(ranges) < self._dim:
            allowed = f"{self._dim} ranges of numbers, one per coordinate of the model"
            raise InvalidInput("parameters", sorted(trial.params), allowed)

    # The trials.

    def _asked(self, study: Study, trial: FrozenTrial, ranges: Ranges) -> Shares:
        """Where the agent wants this trial, as shares: decided once, and apart from every trial that is running.

        The place is written down before others are looked at, so that of two trials that decide at the same time, in
        whatever process, at least the later one sees the other, even if that one has ended meanwhile.
        """
        storage, reader = study._storage, self._reader(study, ranges)
        stored = storage.get_trial_system_attrs(trial._trial_id).get(ASKED)
        if stored is not None:
            return list(map(float, stored))
        for attempt in range(AGENT_ATTEMPTS + RANDOM_ATTEMPTS):
            known, pending = reader.ended(study), reader.pending(study, trial)
            shares = self._wish(study, trial, reader, pending, attempt)
            taken = _places(ranges, pending)
            all_taken = len(taken) >= count_places(ranges, self._dim)  # then a place is given again
            if rounded(ranges, shares) in taken and not all_taken:
                continue
            storage.set_trial_system_attr(trial._trial_id, ASKED, shares)
            others = [*reader.ended(study, known).values(), *reader.pending(study, trial)]
            if all_taken or rounded(ranges, shares) not in _places(ranges, others):
                break
        else:
            storage.set_trial_system_attr(trial._trial_id, ASKED, shares)
        return shares

    def _wish(
        self, study: Study, trial: FrozenTrial, reader: TrialReader, pending: Sequence[Shares], attempt: int
    ) -> Shares:
        """The agent's query; with trials pending, that of another seed, and away from them."""
        own_seed = np.random.SeedSequence([self._seed, trial.number, attempt])
        seed = int(own_seed.generate_state(1)[0]) if pending or attempt else self._seed
        if attempt < AGENT_ATTEMPTS:
            session = self._session(reader.events(study)[0], seed)
            session.replay(Skipped(query=reader.query(place), reason="pending") for place in pending)
            if not session.stopped:
                return shares_of(session.query_space, session.units.query_coordinates(session.ask().tolist()))
        chance: Shares = np.random.default_rng(own_seed).random(self._dim).tolist()
        return chance

    def _replayed(self, study: Study, ending: Ending | None = None) -> _Replay:
        """The session of the finished trials, and of one that is just ending."""
        events, clipped = self._reader(study).events(study, ending)
        session = self._session(events, self._seed)
        taken = sum(not isinstance(event, Verifying | Released) for event in session.log)
        return _Replay(session, len(events) - taken, clipped)

    def _session(self, events: tuple[Event, ...], seed: int) -> Session:
        """A session with these events; it goes on from the last one where it can."""
        known = self._known
        if known is None or known.seed != seed or events[: len(known.events)] != known.events:
            known = _Known(seed, (), self._fresh(seed))
        session, added = known.session.fork(), events[len(known.events) :]
        try:
            session.replay(added)
        except SessionError:  # more than the model can take: the first ones, as many as that
            for event in added:
                with suppress(SessionError):
                    session.take(event)
            return session
        if seed == self._seed:
            self._known = _Known(seed, events, session.fork())
        if self._release and session.held:
            session.release("the sampler was told to")
        return session


def _places(ranges: Ranges, pending: Sequence[Shares]) -> set[tuple[float, ...]]:
    """The parameters' values at some shares, each once."""
    return {rounded(ranges, shares) for shares in pending}
