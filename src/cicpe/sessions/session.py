"""A session: one real campaign, asked and told step by step.

A session is a log of events (``events.py``) that is only ever appended to. What it asks, recommends and
believes is derived from the log: the open query is a pure function of the model, the seed and the log.

What it says and takes, and what the log holds, is in the units of whoever measures (``cicpe.units``); the agent's own
coordinates are inside.
"""

import copy
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, final

import numpy as np

from cicpe._version import __version__
from cicpe.agents.alarm import InPrior, in_prior
from cicpe.agents.base import Agent, Proposal
from cicpe.display import as_table, in_a_line
from cicpe.errors import Implausible, InvalidInput, SessionError
from cicpe.frames import to_frame
from cicpe.problems.observations import ObservationKinds, kind_of_readout
from cicpe.rounding import decimals_for
from cicpe.sessions.derivation import Derivation
from cicpe.sessions.events import (
    MOST_VERIFICATIONS,
    Attached,
    Corrected,
    Event,
    Released,
    Skipped,
    Told,
    Undone,
    Verifying,
    in_digits,
)
from cicpe.sessions.status import Reason, Skip, Status, StatusStep
from cicpe.sessions.texts import check_text
from cicpe.sessions.values import Observed, Values, entries, numbers
from cicpe.spaces import Box, Interval, Space, Sphere
from cicpe.units import Units

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

FORMAT = "cicpe-session-1"
SAME_PLACE = 1e-3
"""How far, in units of the query space, a query may be from the open one and still mean it."""
ALARMS = {
    "doubtful": " Doubtful: one history of the prior in twenty looks as odd as this one; check the last measurements.",
    "no": " Alarm: hardly any history of the prior looks like this one, so the promise may not hold; check the "
    "measurements, their units and the noise.",
}
"""What the alarm adds to a reason."""
MIRRORED = " A reversed sign would not be noticed: make sure that a larger value means more."
"""What a stop adds where the prior has every value with either sign."""
HELD = (
    "But it does not stop before you have looked at this: correct a slip, go on measuring, or release the stop "
    "knowingly (session.release(), cicpe session release)."
)
"""Why a session goes on whose stop rule is met."""


class BeliefSummary(NamedTuple):
    """What a session believed after one step."""

    recommendation: np.ndarray
    std: np.ndarray
    confidence: float


@final
class Session:
    """Asks for one query at a time, takes its result, and says when to stop and what to answer.

    ``ask`` gives the same open query until it is told, skipped, or something before it changes. A refused
    value changes nothing. Not for several threads at once.

    Args:
        agent: Who decides.
        query_space: Where queries lie.
        observations: What an observation can be: a kind for each of its entries, or how many numbers it has.
        context: What is known of the task beforehand, such as its noise level.
        epsilon: How far off an answer may be.
        delta: How often it may be farther off.
        seed: Seeds the queries.
        answer_space: Where answers lie; the credible region is cut to it.
        typical_queries: Mean number of queries on calibration episodes, where known.
        model_sha256: Which model this is, for the export.
        context_names: What each number of the context is.
        units: What the coordinates mean to whoever measures; the coordinates themselves where not given.
    """

    def __init__(
        self,
        agent: Agent,
        query_space: Space,
        observations: ObservationKinds | int,
        context: Sequence[float],
        epsilon: float,
        delta: float,
        seed: int = 0,
        *,
        answer_space: Space | None = None,
        typical_queries: float | None = None,
        model_sha256: str | None = None,
        context_names: Sequence[str] = (),
        units: Units | None = None,
    ) -> None:
        self.units = units or Units()
        self.epsilon, self.delta, self.seed = epsilon, delta, seed
        self.query_space, self.answer_space = query_space, answer_space
        if isinstance(observations, int):
            observations = ObservationKinds.any_number(observations)
        readout = self.units.readout
        self.observations = observations if readout is None else ObservationKinds((kind_of_readout(readout),))
        self.context, self.model_sha256 = tuple(map(float, context)), model_sha256
        self.context_names = tuple(context_names)
        self._agent, self._typical_queries = agent, typical_queries
        self._derivation = Derivation(agent, query_space, self.units, self.context, seed)
        self._log: tuple[Event, ...] = ()
        self._now = self._derivation.start

    # What it says.

    @property
    def observation_dim(self) -> int:
        """How many numbers an observation has."""
        return len(self.observations.kinds)

    @property
    def log(self) -> tuple[Event, ...]:
        """Everything that happened, in order."""
        return self._log

    @property
    def version(self) -> int:
        """Length of the log: every change makes it longer."""
        return len(self._log)

    @property
    def history(self) -> tuple[StatusStep, ...]:
        """Every query so far with its observation, as corrected. Step 1 is ``history[0]``."""
        return self._now.steps

    @property
    def skips(self) -> tuple[Skip, ...]:
        """Queries that could not be made. The session keeps away from them."""
        return self._now.skips

    @property
    def stopped(self) -> bool:
        """Whether the session has ended, by the agent's choice or at the horizon."""
        return self.truncated or self._may_stop

    @property
    def truncated(self) -> bool:
        """Whether it ended at the horizon, short of the confidence that was asked for or held by the alarm."""
        return len(self.history) >= self._agent.horizon and not self._may_stop

    @property
    def held(self) -> bool:
        """Whether the stop rule is met, but the alarm holds the stop: not before someone has looked at this."""
        return bool(self._now.proposal.stop[0]) and self.in_prior == "no" and not self._now.released

    @property
    def verify(self) -> int:
        """How many redundant queries are made before a stop is final."""
        return self._now.verify

    @property
    def verifying(self) -> bool:
        """Whether the open query is a redundant one, which is to expose a wrong prior."""
        verifies = self._now.proposal.verifies
        return verifies is not None and bool(verifies[0]) and not self.stopped

    @property
    def _may_stop(self) -> bool:
        return bool(self._now.proposal.stop[0]) and not self.held

    @property
    def recommendation(self) -> np.ndarray:
        """The answer, should the session end now."""
        return self._summary(self._now.proposal).recommendation

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of each coordinate of the answer."""
        return self._summary(self._now.proposal).std

    @property
    def p_value(self) -> float | None:
        """How likely a history of the prior is to look as odd at any time; None without an alarm."""
        p_value = self._now.agent.p_value(self._now.state)
        return None if p_value is None else float(p_value[0])

    @property
    def in_prior(self) -> InPrior:
        """Whether the history looks like the prior's, for which alone the promise holds."""
        return in_prior(self.p_value)

    @property
    def confidence(self) -> float:
        """Probability that the recommendation is within epsilon."""
        return float(self._now.proposal.confidence[0])

    @property
    def stops_at(self) -> float | None:
        """The confidence at which it stops, as it is shown; None where the stop rule looks at more than that."""
        threshold = self._now.agent.stops_at(self._now.state)
        return None if threshold is None else float(threshold[0])

    @property
    def credible_region(self) -> np.ndarray:
        """A box that holds the recommendation, one row of (low, high) per coordinate, cut to the answer space.

        By the agent's belief all coordinates of the target are inside at once with a probability of 1 - delta or
        more: the sides are its quantiles at delta / (2 dim) and 1 - delta / (2 dim), Bonferroni's share of delta. It is
        a picture of the posterior; what the stop rule goes by, and what is calibrated, is the confidence. Only an agent
        that has no posterior, but a mean and a standard deviation, is taken to be normal.
        """
        return self._region(self._now.agent, self._now.state, self._now.proposal, len(self._now.positions))

    def _region(self, agent: Agent, state: Any, proposal: Proposal, position: int) -> np.ndarray:
        middle = proposal.recommendation[0].double().numpy()
        tail = self.delta / (2 * len(middle))
        quantiles = agent.quantiles(state, (tail, 1 - tail), self._derivation.rng(position))
        if quantiles is None:
            reach = NormalDist().inv_cdf(1 - tail) * proposal.std[0].double().numpy()
            region = np.stack([middle - reach, middle + reach], axis=1)
        else:
            region = quantiles[0].double().numpy()
        region = np.stack([np.minimum(region[:, 0], middle), np.maximum(region[:, 1], middle)], axis=1)
        limits = _limits_of(self.answer_space)
        return self._answers_in_units(region if limits is None else np.clip(region, limits[:, :1], limits[:, 1:]))

    @property
    def answer_limits(self) -> np.ndarray | None:
        """The smallest and largest value of each coordinate of an answer, where the answer space is known."""
        limits = _limits_of(self.answer_space)
        return None if limits is None else self._answers_in_units(limits)

    @property
    def query_limits(self) -> np.ndarray:
        """The smallest and largest value of each coordinate of a query."""
        limits = _limits_of(self.query_space)
        assert limits is not None
        if not self.units.settings:
            return limits
        return np.array([[setting.least, setting.most] for setting in self.units.settings])

    def _answers_in_units(self, ends: np.ndarray) -> np.ndarray:
        """Rows of (low, high), from the agent's coordinates."""
        if not self.units.answers:
            return ends
        return np.sort(np.array([self.units.answer_values(side) for side in ends.T.tolist()]).T, axis=1)

    def _summary(self, proposal: Proposal) -> BeliefSummary:
        """What a proposal says of the answer."""
        answer, std = proposal.recommendation[0].numpy().copy(), proposal.std[0].numpy().copy()
        if self.units.answers:
            std = np.array(self.units.answer_spread(answer.tolist(), std.tolist()))
            answer = np.array(self.units.answer_values(answer.tolist()))
        return BeliefSummary(answer, std, float(proposal.confidence[0]))

    @property
    def expected_remaining_queries(self) -> float | None:
        """How many more queries to expect: the mean on calibration episodes, less those made, but at least 1.

        A typical number for tasks of this family, epsilon, delta and context. It does not look at what was
        observed here: a campaign that takes longer than most stays at 1. None where no mean is known.
        """
        if self.stopped:
            return 0.0
        if self._typical_queries is None:
            return None
        n_steps = len(self.history)
        return float(min(max(self._typical_queries - n_steps, 1.0), self._agent.horizon - n_steps))

    @property
    def reason(self) -> Reason:
        """Why it stopped or goes on, as a code and in words."""
        within = self.units.tolerance_words(self.epsilon)
        confidence_words = f"a confidence of {self.confidence:.3f} that the answer is within {within}"
        rule = f"The stop rule for delta {self.delta:g} is"
        if self.held and not self.truncated:
            return Reason("held", f"{rule} met: {confidence_words}. {HELD}{self._remarks()}")
        if self.verifying:
            return Reason(
                "verifying", f"{rule} met: {confidence_words}. The open query is to check the prior.{self._remarks()}"
            )
        if not self.stopped:
            return Reason("unsure", f"{rule} not met yet: {confidence_words}.{self._remarks()}")
        if self.held:
            return Reason("horizon", f"It made as many queries as the model can take. {HELD}{self._remarks()}")
        if self.truncated:
            horizon_words = f"It made {self._agent.horizon} queries, as many as the model can take."
            return Reason("horizon", f"{horizon_words} {rule} not met: {confidence_words}.{self._remarks()}")
        return Reason("confident", f"{rule} met: {confidence_words}.{self._remarks()}")

    def _remarks(self) -> str:
        remarks = [f"{n} {what}" for what, n in self._counts().items() if n]
        noted = f" Of note: {', '.join(remarks)}." if remarks else ""
        unseen = MIRRORED if self.stopped and self.observations.mirrored else ""
        return noted + ALARMS.get(self.in_prior, "") + unseen

    def _counts(self) -> dict[str, int]:
        """What a reader of the result should know of its data: how much of it is not as asked and first told."""
        return {
            "attached": sum(step.source == "attached" for step in self.history),
            "corrected": sum(step.first_observation is not None for step in self.history),
            "skipped": len(self.skips),
        }

    def status(self) -> Status:
        """Everything above as plain data.

        Returns:
            A frozen record, which ``model_dump`` makes JSON of.
        """
        n_steps, region = len(self.history), self.credible_region.tolist()
        return Status(
            version=self.version,
            epsilon=self.epsilon,
            delta=self.delta,
            step=n_steps if self.stopped else n_steps + 1,
            query=None if self.stopped else tuple(self.ask().tolist()),
            stopped=self.stopped,
            truncated=self.truncated,
            reason=self.reason,
            confidence=self.confidence,
            stops_at=self.stops_at,
            p_value=self.p_value,
            in_prior=self.in_prior,
            held=self.held,
            released=self._now.released,
            verify=self.verify,
            verifying=self.verifying,
            recommendation=tuple(self.recommendation.tolist()),
            std=tuple(self.std.tolist()),
            credible_region=tuple((low, high) for low, high in region),
            decimals=tuple(decimals_for(low, high) for low, high in region),
            expected_remaining_queries=self.expected_remaining_queries,
            history=self.history,
            units=self.units,
            **self._counts(),
        )

    def __repr__(self) -> str:
        return in_a_line("Session", self.facts())

    def _repr_html_(self) -> str:
        return as_table("Session", self.facts())

    def facts(self) -> dict[str, str]:
        """What a person wants to know of it at first sight, by name.

        Returns:
            Names and values, in words.
        """
        answer = self.units.answer_with_region(self.recommendation.tolist(), self.credible_region.tolist())
        state = "ended at its horizon" if self.truncated else "stopped" if self.stopped else "asking"
        return {
            "epsilon": f"{self.epsilon:g}",
            "delta": f"{self.delta:g}",
            **{name: f"{value:g}" for name, value in zip(self.context_names, self.context, strict=False)},
            "state": f"{state} after {len(self.history)} step{'' if len(self.history) == 1 else 's'}",
            "answer": answer if self.units.answers else f"({answer})",
            "confidence": f"{self.confidence:.3f}",
            **({} if self.stopped else {"next query": self._next_words()}),
        }

    def _next_words(self) -> str:
        query = self.ask().tolist()
        return self.units.query_words(query) if self.units.settings else in_digits(query)

    def to_frame(self) -> "DataFrame":
        """The history, with what was believed after each step.

        Returns:
            A pandas data frame with a row per step: the query (``a1``, ``a2`` ...), the observation (``y1`` ...), its
            source and its first value where that was corrected, then the confidence and the answer (``x1`` ...) that
            followed.
        """
        rows = []
        for number, (step, then) in enumerate(zip(self.history, self.trace()[1:], strict=True), start=1):
            row: dict[str, Any] = {"step": number}
            row |= {f"a{i + 1}": value for i, value in enumerate(step.query)}
            row |= {f"y{i + 1}": value for i, value in enumerate(step.observation)}
            row |= {"source": step.source, "first_observation": step.first_observation, "confidence": then.confidence}
            rows.append(row | {f"x{i + 1}": float(value) for i, value in enumerate(then.recommendation)})
        return to_frame(rows)

    def plot(self) -> "Figure":
        """The campaign so far: what was measured, the answer with its credible interval, and the confidence.

        Returns:
            A matplotlib figure, which a notebook shows and ``savefig`` keeps.
        """
        from cicpe.plots.campaign import plot_campaign

        proposals, regions = [], []
        for n_steps, state in enumerate(self._derivation.states(self.history)):
            proposals.append(self._agent.propose(state, self._derivation.rng(n_steps)))
            regions.append(self._region(self._derivation.start.agent, state, proposals[-1], n_steps))
        return plot_campaign(
            np.array([step.observation for step in self.history]).reshape(-1, self.observation_dim),
            np.stack([self._summary(proposal).recommendation for proposal in proposals]),
            np.stack(regions),
            np.array([float(proposal.confidence[0]) for proposal in proposals]),
            asked=1 - self.delta,
            stopped=self.stopped and not self.truncated,
        )

    def trace(self) -> list[BeliefSummary]:
        """What it believes before the first step and after each, by the history as it is known now.

        Returns:
            One summary more than there are steps.
        """
        states = enumerate(self._derivation.states(self.history))
        return [self._summary(self._agent.propose(state, self._derivation.rng(n_steps))) for n_steps, state in states]

    def export(self) -> dict[str, Any]:
        """A JSON document with everything. ``replay`` of its events in a new session of the model gives this one.

        Returns:
            Plain lists, dictionaries and numbers.
        """
        return {
            "format": FORMAT,
            "cicpe": __version__,
            "model_sha256": self.model_sha256,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "seed": self.seed,
            "context": list(self.context),
            "events": [event.model_dump(mode="json") for event in self.log],
            "status": self.status().model_dump(mode="json"),
        }

    # What is done to it. Every change is an event; the first group only checks and makes it.

    def ask(self) -> np.ndarray:
        """The next query. Asking again before telling gives the same one.

        Returns:
            One number per setting, in the experiment's units where the model has any.
        """
        self._check_open("read its recommendation; there is nothing more to measure")
        return np.array(self._open_place) if self.units.settings else self._now.open_query.numpy().copy()

    def ask_by_name(self) -> dict[str, float]:
        """The next query by the names of its settings; ``x1``, ``x2`` ... where they have none.

        Returns:
            Values by name, in the experiment's units where the model has any.
        """
        names = self.units.names or tuple(f"x{i + 1}" for i in range(self.query_space.dim))
        return dict(zip(names, self.ask().tolist(), strict=True))

    def told(
        self, observation: Observed, confirm: bool = False, at: Mapping[str, float] | None = None
    ) -> Told | Attached:
        """The event of telling, not yet taken.

        Args:
            observation: What was read: a number or several, yes or no, the name of a category, or text such as ``7/20``
                and ``312 HV``.
            confirm: Take the value though it is not plausible; the log says so.
            at: By name, settings that were really set to something else.

        Returns:
            The event; where other settings were really set, one of attaching.
        """
        self._check_open("this observation was not taken; its recommendation stands")
        place = self.really_set(at or {})
        if place != self._open_place:
            return self.attached(place, observation, confirm)
        values, confirmed = self.read_observation(observation, confirm)
        others = [step.observation for step in self.history if not self.is_open(step.query)]
        slip = self.observations.slip(values, others, list(place))
        if slip is not None and not confirm:
            readout = self.units.readout
            raise Implausible("observation" if readout is None else readout.name, observation, slip)
        return Told(query=place, observation=values, confirmed=confirmed or slip is not None)

    def really_set(self, at: Mapping[str, float]) -> tuple[float, ...]:
        """The open query with some of its settings replaced.

        Args:
            at: The settings that differ, by name.

        Returns:
            One number per setting.
        """
        if at and not self.units.settings:
            raise InvalidInput("at", dict(at), "left out: this model's settings have no names")
        self.units.check_names(at)
        named = zip(self.units.names, self._open_place, strict=False)
        return tuple(at.get(name, value) for name, value in named) if at else self._open_place

    def read_observation(self, observation: Observed, confirm: bool = False) -> tuple[tuple[float, ...], bool]:
        """Reads an observation; one that cannot be is refused.

        Args:
            observation: What was read: a number or several, yes or no, the name of a category, or text such as ``7/20``
                and ``312 HV``.
            confirm: Take the value though it is not plausible; the log says so.

        Returns:
            One number per observed quantity, and whether they had to be confirmed.
        """
        name, reading = self.units.read_observation(observation)
        values = entries(name, reading, self.observation_dim)
        try:
            return self.observations.read(name, values), False
        except Implausible:
            if not confirm:
                raise
            return self.observations.read(name, values, confirm=True), True

    def read_query(self, given: Values | Mapping[str, float]) -> tuple[float, ...]:
        """Reads settings and checks them.

        Args:
            given: Numbers in the order of the settings, or values by the settings' names.

        Returns:
            One number per setting, as the log holds them.
        """
        return numbers("query", self.units.read_query(given), self.query_space.dim)

    def is_open(self, query: Values) -> bool:
        """Whether a query is the open one, but for the digits that were not written down.

        Args:
            query: One number per setting.

        Returns:
            True where it is; False for another, and after a stop.
        """
        place = self._derivation.coordinates(numbers("query", query, self.query_space.dim))
        off = (self._now.open_query - place).abs() / self.query_space.unit_scale
        return not self.stopped and bool((off <= SAME_PLACE).all())

    def attached(self, query: Values | Mapping[str, float], observation: Observed, confirm: bool = False) -> Attached:
        """The event of attaching, not yet taken.

        Args:
            query: Numbers in the order of the settings, or values by the settings' names.
            observation: What was read: a number or several, yes or no, the name of a category, or text such as ``7/20``
                and ``312 HV``.
            confirm: Take the value though it is not plausible; the log says so.

        Returns:
            The event.
        """
        place = self.read_query(query)
        point = self._derivation.coordinates(place)
        off = (self.query_space.project(point) - point).abs() / self.query_space.unit_scale
        if not bool((off <= 1e-4).all()):
            raise InvalidInput("query", query, self.query_space.words)
        values, confirmed = self.read_observation(observation, confirm)
        made_at = place if self.units.settings else point.tolist()
        return Attached(query=made_at, observation=values, confirmed=confirmed)

    def corrected(self, step: SupportsIndex, observation: Observed, confirm: bool = False) -> Corrected:
        """The event of correcting, not yet taken.

        Args:
            step: Which one, from 1.
            observation: What was read: a number or several, yes or no, the name of a category, or text such as ``7/20``
                and ``312 HV``.
            confirm: Take the value though it is not plausible; the log says so.

        Returns:
            The event.
        """
        n_steps = len(self.history)
        try:
            number = operator.index(step)
        except TypeError:
            raise InvalidInput("step", step, "a whole number") from None
        if not 1 <= number <= n_steps:
            raise InvalidInput(
                "step", step, f"from 1 to {n_steps}" if n_steps else "one that was told; nothing was told yet"
            )
        values, confirmed = self.read_observation(observation, confirm)
        return Corrected(step=number, observation=values, confirmed=confirmed)

    def skipped(self, reason: str = "") -> Skipped:
        """The event of skipping, not yet taken.

        Args:
            reason: Why, for the log.

        Returns:
            The event.
        """
        self._check_open("there is no open query to skip")
        return Skipped(query=self._open_place, reason=check_text("reason", reason))

    def released(self, reason: str = "") -> Released:
        """The event of releasing, not yet taken.

        Args:
            reason: Why, for the log.

        Returns:
            The event; refused where nothing holds the stop.
        """
        if not self.held:
            raise SessionError("nothing holds this session: there is no stop to release")
        return Released(reason=check_text("reason", reason))

    def verifies(self, queries: SupportsIndex) -> Verifying:
        """The event of asking for redundant queries, not yet taken.

        Args:
            queries: How many; refused where the model has no alarm.

        Returns:
            The event.
        """
        allowed = f"a whole number from 0 to {MOST_VERIFICATIONS}"
        try:
            number = operator.index(queries)
        except TypeError:
            raise InvalidInput("verify", queries, allowed) from None
        if not 0 <= number <= MOST_VERIFICATIONS:
            raise InvalidInput("verify", queries, allowed)
        self._agent.verified(number)  # refuses where there is no alarm
        return Verifying(queries=number)

    def undone(self) -> Undone:
        """The event of undoing, not yet taken.

        Returns:
            The event; refused where there is nothing to undo.
        """
        if not self._now.positions:
            raise SessionError("there is nothing to undo")
        return Undone(position=self._now.positions[-1])

    def tell(self, observation: Observed, *, confirm: bool = False, at: Mapping[str, float] | None = None) -> None:
        """Takes the observation made at the query that ``ask`` gave.

        Args:
            observation: Of the kind that the problem's observations are: a number or several, or yes and no, or the
                name of a category, or text such as ``7/20`` and ``312 HV``. What cannot be is refused.
            confirm: Take it though it is not plausible (``cicpe.errors.Implausible``); the log says so.
            at: By name, settings that were really set to something else; the observation then counts as attached.
        """
        self.take(self.told(observation, confirm, at))

    def attach(self, query: Values | Mapping[str, float], observation: Observed, *, confirm: bool = False) -> None:
        """Takes an observation made elsewhere, at any point of the query space; after a stop too.

        The calibrated guarantee is about queries that the agent chose: the status counts the others.

        Args:
            query: Numbers in the order of the settings, or values by the settings' names.
            observation: What was read: a number or several, yes or no, the name of a category, or text such as ``7/20``
                and ``312 HV``.
            confirm: Take the value though it is not plausible; the log says so.
        """
        self.take(self.attached(query, observation, confirm))

    def correct(self, step: SupportsIndex, observation: Observed, *, confirm: bool = False) -> None:
        """Replaces the observation of a step. The queries stay as they were made; the open one is new.

        Args:
            step: Which one, from 1.
            observation: What was read: a number or several, yes or no, the name of a category, or text such as ``7/20``
                and ``312 HV``.
            confirm: Take the value though it is not plausible; the log says so.
        """
        self.take(self.corrected(step, observation, confirm))

    def skip(self, reason: str = "") -> None:
        """Gives up the open query, which cannot be made: another is asked for, and from now on none close to this one.

        Args:
            reason: Why, for the log.
        """
        self.take(self.skipped(reason))

    def release(self, reason: str = "") -> None:
        """Lets the session stop although the alarm says that its history is not the prior's. The log keeps that.

        Args:
            reason: Why, for the log.
        """
        self.take(self.released(reason))

    def ask_to_verify(self, queries: SupportsIndex) -> None:
        """From now on a stop is final only after some redundant queries, by which the alarm decides.

        Args:
            queries: How many; refused where the model has no alarm.
        """
        self.take(self.verifies(queries))

    def undo(self) -> None:
        """Takes back the last change that still counts. The session is then exactly as it was before that."""
        self.take(self.undone())

    def take(self, event: Event, record: Callable[[], object] | None = None) -> None:
        """Appends an event, or refuses it and changes nothing.

        Args:
            event: What happened.
            record: Called once the event is known to be possible; it may still refuse by raising.
        """
        now = self._derivation.after(self._now, self._log, [event])
        if record is not None:
            record()
        self._log, self._now = (*self._log, event), now

    def replay(self, events: Iterable[Event]) -> "Session":
        """Appends the events of a log, queries as they were made.

        Args:
            events: In the order in which they happened.

        Returns:
            The session itself.
        """
        added = tuple(events)
        if added:
            self._now, self._log = self._derivation.after(self._now, self._log, added), self._log + added
        return self

    def fork(self) -> "Session":
        """Another session with the same past: what happens to one does not touch the other.

        Returns:
            The other session.
        """
        return copy.copy(self)  # everything inside is immutable

    def audit(self) -> list[int]:
        """Compares the log with what this model would have asked.

        Returns:
            Positions at which the query is another; none where the log is the model's own.
        """
        other = self.fork()
        other._log, other._now = (), self._derivation.start
        wrong = []
        for position, event in enumerate(self._log):
            if isinstance(event, Told | Skipped):
                asked = None if other.stopped else tuple(other.ask().tolist())
                wrong += [position] if event.query != asked else []
            other.take(event)
        return wrong

    # How it is derived.

    @property
    def _open_place(self) -> tuple[float, ...]:
        """The open query in units, as it can be set."""
        return self.units.settable(self._now.open_query.tolist())

    def _check_open(self, otherwise: str) -> None:
        if self.stopped:
            raise SessionError(f"the session has stopped: {otherwise}")


def _limits_of(space: Space | None) -> np.ndarray | None:
    """Rows of (low, high), one per coordinate."""
    match space:
        case Box(low=low, high=high):
            return np.array([low, high]).T
        case Interval(low=low, high=high):
            return np.array([[low, high]])
        case Sphere(dim=dim):
            return np.array([[-1.0, 1.0]] * dim)
    return None
