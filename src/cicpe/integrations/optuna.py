"""An Optuna sampler that knows when to stop: ``pip install 'cicpe[optuna]'``.

    from cicpe.integrations.optuna import CicpeSampler

    sampler = CicpeSampler(cicpe.load("gp-max-1d"), 0.2, 0.1, {"x": FloatDistribution(300, 900)})
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, callbacks=[sampler.stop_when_confident])
    study.user_attrs["cicpe"]  # the answer, the confidence, and why it ended

The sampler holds no state: what it suggests follows from the model, the seed and the trials in the study's storage.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, final

import torch

try:
    from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
    from optuna.samplers import BaseSampler, RandomSampler
    from optuna.search_space import intersection_search_space
    from optuna.study import Study
    from optuna.trial import FrozenTrial, TrialState
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error.name} is missing: install it with  pip install 'cicpe[optuna]'") from None

from cicpe.errors import InvalidInput, SessionError
from cicpe.sessions.campaign import SessionModel
from cicpe.sessions.events import Attached, Event, Skipped, Told
from cicpe.sessions.session import Session
from cicpe.sessions.stores.base import StopName
from cicpe.sessions.values import LARGEST
from cicpe.spaces import Sphere

ASKED = "cicpe:query"
"""Attribute of a trial: the query that the agent asked for, so that any other place counts as measured elsewhere."""
RESULT = "cicpe"
"""Attribute of a study: what is believed, and why it goes on or has ended."""
NEAR = 1e-4
"""How far from what was asked, in the coordinates of networks, still counts as there."""
ENDED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)

Space = Mapping[str, BaseDistribution]


@final
class CicpeSampler(BaseSampler):
    """Suggests what a trained agent would measure next, until it says stop.

    The objective's value is the observation: it has to be of the kind and the scale that the model was trained on, and
    the study's direction does not matter. Trials of others (enqueued, or before the first suggestion) count as
    measured elsewhere, failed and pruned ones as queries that cannot be made. Trials that run at the same time are
    suggested with different seeds. Once the agent has stopped, and for parameters that it does not know, the
    suggestions are random.

    Args:
        model: A trained model.
        epsilon: How far off the answer may be.
        delta: How often it may be farther off.
        search_space: The parameters by name, in the order of the model's coordinates: each range is mapped to that
            coordinate's. Where it is not given, the first trial is random, and its numerical parameters are taken in
            the order of their names.
        seed: Seeds the suggestions.
        stop: The stop rule.
        context: What the model wants to know beforehand, such as ``noise``.
    """

    def __init__(
        self,
        model: SessionModel,
        epsilon: float,
        delta: float,
        search_space: Space | None = None,
        *,
        seed: int = 0,
        stop: StopName = "confidence",
        **context: float,
    ) -> None:
        self._model, self._stop, self._context = model, stop, context
        self._epsilon, self._delta, self._seed = epsilon, delta, seed
        self._random = RandomSampler(seed)
        fresh = self._fresh(seed)
        if isinstance(fresh.query_space, Sphere):
            raise InvalidInput("model", "queries on a sphere", "one whose queries are a box")
        self._dim, self._observations = fresh.query_space.dim, fresh.observation_dim
        self._space = None if search_space is None else dict(search_space)
        if self._space is not None and not self._suits(self._space):
            raise InvalidInput("search_space", self._space, f"{self._dim} numerical ranges, one a coordinate")

    # What Optuna asks.

    def reseed_rng(self) -> None:
        self._random.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._search_space(study)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        self._check(study)
        if not self._suits(search_space):
            return {}
        running = sum(one.number < trial.number for one in study.get_trials(False, (TrialState.RUNNING,)))
        session = self._replayed(study, search_space, self._seed + running)
        if session.stopped:
            return {}
        query = torch.from_numpy(session.ask())
        study._storage.set_trial_system_attr(trial._trial_id, ASKED, query.tolist())
        shares = (session.query_space.to_unit(query).double() + 1) / 2
        named = zip(search_space.items(), shares.tolist(), strict=True)
        return {name: _value(distribution, share) for (name, distribution), share in named}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        self._check(study)
        return self._random.sample_independent(study, trial, param_name, param_distribution)

    # What it believes.

    def session(self, study: Study) -> Session:
        """The session that the study's trials make; empty where their parameters are not yet known."""
        space = self._search_space(study)
        return self._replayed(study, space, self._seed) if space else self._fresh(self._seed)

    def stop_when_confident(self, study: Study, trial: FrozenTrial) -> None:
        """A callback for ``study.optimize``: ends the study once the agent stops, and says why in its attributes."""
        session = self.session(study)
        status = session.status()
        result = status.model_dump(mode="json", exclude={"history", "query", "version"})
        space = self._search_space(study)
        if space and session.answer_space == session.query_space:
            place = session.query_space.to_unit(torch.tensor(status.recommendation)).double()
            shares = ((place + 1) / 2).tolist()
            named = zip(space.items(), shares, strict=True)
            result["params"] = {name: _value(distribution, share) for (name, distribution), share in named}
        study.set_user_attr(RESULT, result)
        if status.stopped:
            study.stop()

    # Inside.

    def _fresh(self, seed: int) -> Session:
        return self._model.session(self._epsilon, self._delta, seed=seed, stop=self._stop, **self._context)

    def _check(self, study: Study) -> None:
        if len(study.directions) != self._observations:
            raise InvalidInput(
                "directions", len(study.directions), f"{self._observations}, as many as the model observes at a query"
            )

    def _suits(self, space: Space) -> bool:
        """Whether every parameter is a range of numbers, and there are as many as coordinates."""
        return len(space) == self._dim and all(
            isinstance(one, FloatDistribution | IntDistribution) and not one.single() for one in space.values()
        )

    def _search_space(self, study: Study) -> dict[str, BaseDistribution]:
        if self._space is not None:
            return dict(self._space)
        space = intersection_search_space(study.get_trials(deepcopy=False))
        return dict(sorted(space.items())) if self._suits(space) else {}

    def _replayed(self, study: Study, space: Space, seed: int) -> Session:
        session = self._fresh(seed)
        made = (self._event(session, space, trial) for trial in study.get_trials(False, ENDED))
        events = [event for event in made if event is not None]
        try:
            return session.replay(events)
        except (SessionError, InvalidInput):  # more than the model can take, or a value far beyond any in training
            for event in events:
                with suppress(SessionError, InvalidInput):
                    session.take(event)
            return session

    def _event(self, session: Session, space: Space, trial: FrozenTrial) -> Event | None:
        """What a trial was to the session; None where it has not all the parameters, or a value too large."""
        if not all(name in trial.params for name in space):
            return None
        shares = [_share(one, trial.params[name]) for name, one in space.items()]
        if not all(-1e-9 <= share <= 1 + 1e-9 for share in shares):  # a range that has been another
            return None
        place = session.query_space.from_unit(2 * torch.tensor(shares, dtype=torch.float32) - 1)
        query = session.query_space.project(place).tolist()
        if trial.state != TrialState.COMPLETE:
            return Skipped(query=query, reason=f"trial {trial.number} {trial.state.name.lower()}")
        values: Sequence[float] = trial.values
        if len(values) != self._observations or not all(abs(value) <= LARGEST for value in values):
            return None
        asked = trial.system_attrs.get(ASKED)
        scale = session.query_space.unit_scale.tolist()
        there = asked is not None and all(
            abs(one - two) <= NEAR * unit for one, two, unit in zip(query, asked, scale, strict=True)
        )
        return (Told if there else Attached)(query=query, observation=tuple(values))


def _share(distribution: BaseDistribution, value: float) -> float:
    """Where in its range a value lies, from 0 to 1."""
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high = distribution.low, distribution.high
    if distribution.log:
        return (math.log(value) - math.log(low)) / (math.log(high) - math.log(low)) if value > 0 else math.inf
    return (value - low) / (high - low)


def _value(distribution: BaseDistribution, share: float) -> float | int:
    """The inverse of ``_share``, at the nearest value that the distribution has."""
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high = distribution.low, distribution.high
    share = min(max(share, 0.0), 1.0)
    value = low * (high / low) ** share if distribution.log else low + share * (high - low)
    if distribution.step is not None and not distribution.log:
        value = low + round((value - low) / distribution.step) * distribution.step
    if isinstance(distribution, IntDistribution):
        value = round(value)
    return min(max(value, low), high)
