"""A campaign: a session that is kept in a store, and its model, which must stay the same."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, final, runtime_checkable

from cicpe.display import as_table, in_a_line
from cicpe.errors import InvalidInput, ModelError, SessionError
from cicpe.sessions.events import Event, in_digits, in_words
from cicpe.sessions.session import Session
from cicpe.sessions.stores.base import CampaignRecord, Conflict, StopName, Store, StoredEvent, check_key
from cicpe.sessions.values import Observed, Values, numbers

if TYPE_CHECKING:
    from pandas import DataFrame


@runtime_checkable
class SessionModel(Protocol):
    """What a campaign needs of a model; ``cicpe.Model`` is one."""

    @property
    def fingerprint(self) -> str:
        """Which model it is."""

    def session(
        self, epsilon: float, delta: float, *, seed: int = 0, stop: StopName = "each", verify: int = 0, **context: float
    ) -> Session:
        """A session with an empty log, or with the wish to verify in it."""


class OtherQuery(SessionError):
    """A value was told for a query that is not the open one: nothing was recorded."""

    def __init__(self, campaign: str, field: str, given: object, now: object) -> None:
        super().__init__(
            f"{field} = {given} is not the open query of campaign {campaign}, which is {now}; nothing was recorded. "
            "Look at the open query again before going on, or attach the value where it was measured"
        )
        self.field, self.given, self.now = field, given, now


@final
class Campaign:
    """A session in a store: a change is in the store first and in the session then, or in neither.

    Every change may carry a ``key``, so that sending it again after a lost answer does not make it twice, and an
    ``expected_version``: the version that whoever decided on the change had seen. Where someone else has changed
    the campaign since, it is refused (``Conflict``); ``refresh`` reads what they did. What is about the open query
    may name that query instead, by its ``step`` (from 1) or as the ``query`` itself; another is an ``OtherQuery``.

    Args:
        store: Where the log is kept.
        record: What the campaign is.
        session: The session that the log makes, with the campaign's model.
    """

    def __init__(self, store: Store, record: CampaignRecord, session: Session) -> None:
        self.store, self.session = store, session
        self._record = record

    @classmethod
    def new(
        cls,
        store: Store,
        model: SessionModel,
        reference: str,
        *,
        name: str,
        epsilon: float,
        delta: float,
        seed: int = 0,
        stop: StopName = "each",
        context: Mapping[str, float] | None = None,
        verify: SupportsIndex = 0,
    ) -> "Campaign":
        """Begins a campaign, with a log that is empty but for its wishes.

        Args:
            store: Where to keep it.
            model: The model that will run it, and must stay the same.
            reference: Where the model will be found again: a name in the zoo, or its folder.
            name: What the campaign is called; no other in the store may have that name.
            epsilon: How far off the answer may be.
            delta: How often it may be farther off.
            seed: Seeds the queries.
            stop: The stop rule.
            context: What is known beforehand, by name, such as the noise level.
            verify: How many redundant queries are wished for; the log begins with that.

        Returns:
            The campaign, with its first query open.
        """
        context_values = dict(context or {})
        for reserved in {"epsilon", "delta", "seed", "stop", "verify", "self"} & set(context_values):
            raise InvalidInput("context", {reserved: context_values[reserved]}, "a context of this model")
        session = model.session(epsilon, delta, seed=seed, stop=stop, verify=0, **context_values)
        if verify:
            session.ask_to_verify(verify)
        record = store.create(
            name=name,
            model=reference,
            model_sha256=model.fingerprint,
            epsilon=epsilon,
            delta=delta,
            seed=seed,
            stop=stop,
            context=context_values,
            events=session.log,
        )
        return cls(store, record, session)

    @classmethod
    def open(cls, store: Store, campaign: str, load: Callable[[str], SessionModel]) -> "Campaign":
        """Opens a campaign as its log says; refused where its model is no longer the same.

        Args:
            store: Where it is kept.
            campaign: Its name or id.
            load: Reads a model by its reference, as ``cicpe.load`` does.

        Returns:
            The campaign, at the newest version of its log.
        """
        record = store.find(campaign)
        model = load(record.model)
        # Campaigns of earlier versions know a model by its weights and thresholds alone.
        if record.model_sha256 not in (model.fingerprint, getattr(model, "earlier_fingerprint", None)):
            raise ModelError(
                f"campaign {record.name} was made with model {record.model} of sha256 "
                f"{record.model_sha256[:12]}..., and that is {model.fingerprint[:12]}... now: its config, weights, "
                "thresholds, alarm or problem have changed. To go on with the campaign put the first one back; or go "
                f"on knowingly, in a new campaign with the same past:  cicpe session adopt -c {record.name}"
            )
        session = _replayed(store, record, model)
        return cls(store, record, session)

    @classmethod
    def adopt(cls, store: Store, campaign: str, model: SessionModel, reference: str, name: str) -> "Campaign":
        """Goes on, knowingly, with another model than a campaign was made with: a new one with the same past.

        Args:
            store: Where the campaign is, and where the new one will be.
            campaign: Its name or id. It stays as it is.
            model: The model to go on with.
            reference: Where the model will be found again.
            name: What the new campaign is called.

        Returns:
            The new campaign. Its queries so far are those that were made.
        """
        record = store.find(campaign)
        session = _replayed(store, record, model)
        kept = record.model_dump(include={"epsilon", "delta", "seed", "stop", "context"})
        new_record = store.create(
            name=name, model=reference, model_sha256=model.fingerprint, events=session.log, **kept
        )
        return cls(store, new_record, session)

    def __repr__(self) -> str:
        return in_a_line(f"Campaign {self._record.name}", self._facts())

    def _repr_html_(self) -> str:
        return as_table(f"Campaign {self._record.name}", self._facts())

    def _facts(self) -> dict[str, str]:
        return {"model": self._record.model, **self.session.facts()}

    def to_frame(self) -> "DataFrame":
        """The history, as ``Session.to_frame`` has it.

        Returns:
            A pandas data frame with a row per step.
        """
        return self.session.to_frame()

    @property
    def record(self) -> CampaignRecord:
        """What the campaign is, at the version that this object has seen."""
        return self._record.model_copy(update={"version": self.session.version})

    def refresh(self) -> list[StoredEvent]:
        """Reads what others did since this object last looked.

        Returns:
            Their events, oldest first; an empty list where there are none.
        """
        since = self.store.events(self._record.id, since=self.session.version)
        self.session.replay(stored.event for stored in since)
        return since

    def tell(
        self,
        observation: Observed,
        *,
        at: Mapping[str, float] | None = None,
        confirm: bool = False,
        key: str | None = None,
        expected_version: int | None = None,
        step: int | None = None,
        query: Values | None = None,
    ) -> None:
        """Takes the observation made at the open query, as ``Session.tell`` does.

        Args:
            observation: What was read: a number or several, yes or no, the name of a category, or text such as ``7/20``
                and ``312 HV``.
            at: By name, settings that were really set to something else; the observation then counts as attached.
            confirm: Take the value though it is not plausible; the log says so.
            key: A name for this change: sent again with the same key, it is made once.
            expected_version: The version of the log on which this change was decided; another is a ``Conflict``.
            step: The number of the query that is meant, from 1; another than the open one is refused.
            query: The query that is meant, in numbers; another than the open one is refused.
        """

        def make() -> Event:
            self._check_open(step, query)
            return self.session.told(observation, confirm, at)

        kind = "attached" if at and self.session.really_set(at) != self.session.really_set({}) else "told"
        self._take(make, kind, {"observation": observation}, key, expected_version)

    def attach(
        self,
        query: Values | Mapping[str, float],
        observation: Observed,
        *,
        confirm: bool = False,
        key: str | None = None,
        expected_version: int | None = None,
    ) -> None:
        """Takes an observation made elsewhere, as ``Session.attach`` does.

        Args:
            query: Numbers in the order of the settings, or values by the settings' names.
            observation: What was read: a number or several, yes or no, the name of a category, or text such as ``7/20``
                and ``312 HV``.
            confirm: Take the value though it is not plausible; the log says so.
            key: A name for this change: sent again with the same key, it is made once.
            expected_version: The version of the log on which this change was decided; another is a ``Conflict``.
        """
        arguments = {"query": query, "observation": observation}

        def make() -> Event:
            return self.session.attached(query, observation, confirm)

        self._take(make, "attached", arguments, key, expected_version)

    def attach_all(
        self,
        rows: Iterable[tuple[Values | Mapping[str, float], Observed]],
        *,
        confirm: bool = False,
        key: str | None = None,
        expected_version: int | None = None,
    ) -> int:
        """Takes measurements made before, all of them or, where one cannot be taken, none.

        Args:
            rows: Queries and observations, in the order in which they were made.
            confirm: Take those too that are not plausible.
            key: A name for all of them together: sent again with the same one, they are taken only once.
            expected_version: The version that whoever attaches them has seen.

        Returns:
            How many there were.
        """
        rows = list(rows)
        first = dict(zip(("query", "observation"), rows[0], strict=True)) if rows else {}
        check_key(key)
        if not rows or (key is not None and self._made_before("attached", first, key)):
            return len(rows)
        self._check_version(expected_version)
        trial, events = self.session.fork(), []
        for number, (query, observation) in enumerate(rows, start=1):
            try:
                event = trial.attached(query, observation, confirm)
                trial.take(event)
            except InvalidInput as error:
                raise type(error)(f"row {number}: {error.field}", error.value, error.allowed) from None
            events.append(event)
        self.store.append_all(self._record.id, events, expected_version=self.session.version, key=key)
        self.refresh()  # the same key may have been faster
        return len(events)

    def correct(
        self,
        step: SupportsIndex,
        observation: Observed,
        *,
        confirm: bool = False,
        key: str | None = None,
        expected_version: int | None = None,
        query: Sequence[float] | None = None,
    ) -> None:
        """Replaces the observation of a step, as ``Session.correct`` does.

        Args:
            step: Which one, from 1.
            observation: What was read: a number or several, yes or no, the name of a category, or text such as ``7/20``
                and ``312 HV``.
            confirm: Take the value though it is not plausible; the log says so.
            key: A name for this change: sent again with the same key, it is made once.
            expected_version: The version of the log on which this change was decided; another is a ``Conflict``.
            query: Where the step was measured, as whoever corrects it has seen it; another is refused.
        """

        def make() -> Event:
            event = self.session.corrected(step, observation, confirm)
            now = self.session.history[event.step - 1].query
            if query is not None and tuple(query) != now:
                where = self.session.units.query_words(now)
                raise SessionError(
                    f"step {event.step} of campaign {self._record.name} is another measurement by now, at {where}; "
                    "nothing was recorded. Look at the history again (cicpe session status) before going on"
                )
            return event

        self._take(make, "corrected", {"step": step, "observation": observation}, key, expected_version)

    def skip(
        self,
        reason: str = "",
        *,
        key: str | None = None,
        expected_version: int | None = None,
        step: int | None = None,
        query: Values | None = None,
    ) -> None:
        """Gives up the open query, as ``Session.skip`` does.

        Args:
            reason: Why, for the log.
            key: A name for this change: sent again with the same key, it is made once.
            expected_version: The version of the log on which this change was decided; another is a ``Conflict``.
            step: The number of the query that is meant, from 1; another than the open one is refused.
            query: The query that is meant, in numbers; another than the open one is refused.
        """

        def make() -> Event:
            self._check_open(step, query)
            return self.session.skipped(reason)

        self._take(make, "skipped", {"reason": reason}, key, expected_version)

    def release(self, reason: str = "", *, key: str | None = None, expected_version: int | None = None) -> None:
        """Lets the session stop against its alarm, as ``Session.release`` does.

        Args:
            reason: Why, for the log.
            key: A name for this change: sent again with the same key, it is made once.
            expected_version: The version of the log on which this change was decided; another is a ``Conflict``.
        """
        self._take(lambda: self.session.released(reason), "released", {"reason": reason}, key, expected_version)

    def ask_to_verify(
        self, queries: SupportsIndex, *, key: str | None = None, expected_version: int | None = None
    ) -> None:
        """Asks for redundant queries before a stop, as ``Session.ask_to_verify`` does.

        Args:
            queries: How many.
            key: A name for this change: sent again with the same key, it is made once.
            expected_version: The version of the log on which this change was decided; another is a ``Conflict``.
        """
        arguments = {"queries": queries}
        self._take(lambda: self.session.verifies(queries), "verifying", arguments, key, expected_version)

    def undo(self, *, key: str | None = None, expected_version: int | None = None) -> None:
        """Takes back the last change that still counts, as ``Session.undo`` does.

        Args:
            key: A name for this change: sent again with the same key, it is made once.
            expected_version: The version of the log on which this change was decided; another is a ``Conflict``.
        """
        self._take(self.session.undone, "undone", {}, key, expected_version)

    def fork(self, name: str) -> "Campaign":
        """Another campaign with the same past, under another name.

        Args:
            name: What the other one is called.

        Returns:
            The other campaign; from here on each has a log of its own.
        """
        now = self.record
        shared = now.model_dump(exclude={"id", "name", "created", "version"})
        record = self.store.create(name=name, events=self.session.log, **shared)
        return Campaign(self.store, record, self.session.fork())

    def export(self) -> dict[str, Any]:
        """The session's export, with the campaign and the times and keys of its events.

        Returns:
            A JSON document, with the fields of ``Session.export`` among its own.
        """
        document = self.session.export()
        stored = self.store.events(self._record.id)[: self.session.version]
        document["model_sha256"] = self._record.model_sha256
        document["campaign"] = self.record.model_dump(mode="json")
        document["recorded"] = [{"position": entry.position, "at": entry.at, "key": entry.key} for entry in stored]
        return document

    def _check_open(self, step: int | None, query: Values | None) -> None:
        """Refuses a change that is about another query than the open one; the session itself says if there is none."""
        if step is None and query is None:
            return
        if self._other_query(step, query) is not None:
            self.refresh()  # whoever decided may have seen more than this object
        other = self._other_query(step, query)
        if other is not None:
            raise other

    def _other_query(self, step: int | None, query: Values | None) -> OtherQuery | None:
        session, name = self.session, self._record.name
        if session.stopped:
            return None
        if step is not None and step != len(session.history) + 1:
            return OtherQuery(name, "step", step, len(session.history) + 1)
        if query is not None and not session.is_open(query):
            asked = tuple(session.ask().tolist())
            words = session.units.query_words if session.units.settings else in_digits
            return OtherQuery(name, "query", words(numbers("query", query, len(asked))), words(asked))
        return None

    def _take(
        self, make: Callable[[], Event], kind: str, arguments: Mapping[str, Any], key: str | None, expected: int | None
    ) -> None:
        check_key(key)
        if key is not None and self._made_before(kind, arguments, key):
            return
        try:
            self._take_new(make, kind, arguments, key, expected)
        except SessionError:
            # The same change, sent twice at the same time, may be what has made this one impossible.
            if key is None or not self._made_before(kind, arguments, key):
                raise

    def _take_new(
        self, make: Callable[[], Event], kind: str, arguments: Mapping[str, Any], key: str | None, expected: int | None
    ) -> None:
        session = self.session
        self._check_version(expected)
        event = make()
        seen = session.version

        def record() -> None:
            stored = self.store.append(self._record.id, event, expected_version=seen, key=key)
            if stored.position != seen or stored.event != event:  # the same key, sent twice at the same time
                raise _Repeated

        try:
            session.take(event, record)
        except _Repeated:
            assert key is not None
            self._made_before(kind, arguments, key)

    def _check_version(self, expected: int | None) -> None:
        """Refuses a change by someone who has seen another version."""
        if expected is not None and expected != self.session.version:
            self.refresh()
            if expected != self.session.version:
                since = self.store.events(self._record.id, since=max(expected, 0))
                raise Conflict(self._record.name, expected, since, self.session.version)

    def _made_before(self, kind: str, arguments: Mapping[str, Any], key: str) -> bool:
        """Whether a change with this key is in the log; refused where it was another change."""
        stored = self.store.keyed(self._record.id, key)
        if stored is None:
            return False
        self.refresh()
        event = stored.event
        if event.kind != kind or not all(
            self._same(name, value, getattr(event, name)) for name, value in arguments.items()
        ):
            raise InvalidInput(
                "key", key, f"a new key: with this one, someone has already {in_words(event, self.session.units)}"
            )
        return True

    def _same(self, field: str, value: Any, recorded: Any) -> bool:
        if not isinstance(recorded, tuple):
            return bool(value == recorded)
        if field == "observation":
            return self.session.read_observation(value, confirm=True)[0] == recorded
        values = self.session.read_query(value)  # a point is recorded in single precision
        return all(
            abs(coordinate - recorded_coordinate) <= 1e-6 * max(1.0, abs(recorded_coordinate))
            for coordinate, recorded_coordinate in zip(values, recorded, strict=True)
        )


def _replayed(store: Store, record: CampaignRecord, model: SessionModel) -> Session:
    """The session of a model that a campaign's log makes."""
    wishes = {"seed": record.seed, "stop": record.stop}
    session = model.session(record.epsilon, record.delta, **wishes, **record.context)  # type: ignore[arg-type]
    return session.replay(stored.event for stored in store.events(record.id))


class _Repeated(Exception):
    """The store knew the key already."""
