"""The conformance suite of stores: any ``Store``, ours or a user's, can be run through it."""

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

from cicpe.errors import CicpeError, InvalidInput
from cicpe.sessions.events import Attached, Corrected, Event, Skipped, Told, Undone
from cicpe.sessions.stores.base import CampaignRecord, Conflict, Store, StoredEvent

EVERY_KIND: tuple[Event, ...] = (
    Told(query=(0.1, -1e-30), observation=(1 / 3,)),
    Attached(query=(0.10000000149011612, 3.4e38), observation=(-0.0,)),
    Skipped(query=(1.0, 2.0), reason="the valve stuck; \u00e9\u4e16 'quoted' \"twice\""),
    Corrected(step=1, observation=(5e-324,)),
    Undone(position=3),
)
"""Numbers that a careless way through JSON would change, and text that careless SQL would break on."""


def check_store(open_store: Callable[[], Store], threads: int = 4, each: int = 5) -> None:
    """Checks that a store keeps the promises of its interface.

    Args:
        open_store: Opens the store, which is empty at first; called several times, always for the same one.
        threads: How many clients append to one campaign at the same time.
        each: How many events each of them appends.

    Raises:
        AssertionError: A promise is broken; the message says which and what was found.
    """
    store, other = open_store(), open_store()
    try:
        _require(store.campaigns() == [], "empty", f"a new store holds {store.campaigns()}")
        first = _new(store, "first", seed=2**62, context={"noise": 0.1})
        _check_records(store, other, first)
        _check_log(store, other, first)
        _check_keys(store, _new(store, "keys"))
        _check_conflict(store, other, _new(store, "conflict"))
        _check_several(store, other, _new(store, "several"))
        _check_isolation(store, first)
        _check_together(open_store, _new(store, "together"), threads, each)
    finally:
        store.close()
        other.close()


def _new(store: Store, name: str, **more: Any) -> CampaignRecord:
    return store.create(name=name, model="zoo-name", model_sha256="ab" * 32, epsilon=0.1, delta=0.05, **more)


def _check_records(store: Store, other: Store, first: CampaignRecord) -> None:
    ways = (store.find("first"), other.find(first.id), other.find(f"id:{first.id[:8]}"), other.get(first.id))
    for record in (*ways, store.campaigns()[0]):
        _require(record == first, "records", f"{record} is not what was made, {first}")
    for wrong in ("", "nobody", "%", "_____", first.id[:2]):
        _refused("find", InvalidInput, partial(store.find, wrong))
    _refused("names are unique", InvalidInput, partial(_new, other, "first"))
    _refused("get", InvalidInput, partial(store.get, "first"))
    for wrong in ("", "-x", "a b", "a/b", "x" * 65, "\u00e9", first.id):
        _refused("names", InvalidInput, partial(_new, store, wrong))
    _require(len(store.campaigns()) == 1, "records", "a refused campaign was made all the same")


def _check_log(store: Store, other: Store, first: CampaignRecord) -> None:
    for version, event in enumerate(EVERY_KIND):
        stored = store.append(first.id, event, expected_version=version)
        _require(stored.position == version and stored.event == event, "append", f"{stored} is not {event}")
    stored_events = other.events(first.id)
    # Compared as text: minus zero is another number than zero.
    _require(
        repr([stored.event for stored in stored_events]) == repr(list(EVERY_KIND)),
        "events come back",
        f"not {stored_events}",
    )
    _require(
        [stored.position for stored in stored_events] == list(range(len(EVERY_KIND))), "positions", f"{stored_events}"
    )
    _require(other.events(first.id, since=3) == stored_events[3:], "since", f"{other.events(first.id, since=3)}")
    _require(other.find("first").version == len(EVERY_KIND), "version", f"{other.find('first').version}")
    copy = _new(store, "copy", events=EVERY_KIND)
    _require(copy.version == len(EVERY_KIND), "create with events", f"version {copy.version}")
    _require([entry.event for entry in other.events(copy.id)] == list(EVERY_KIND), "create with events", "other events")


def _check_keys(store: Store, campaign: CampaignRecord) -> None:
    event = EVERY_KIND[0]
    first = store.append(campaign.id, event, expected_version=0, key="k")
    for version in (0, 1, 7):  # whatever the client believes by now
        try:
            again = store.append(campaign.id, event, expected_version=version, key="k")
        except Conflict as error:
            raise AssertionError(f"idempotency: sent again with its key it was refused: {error}") from None
        _require(again == first, "idempotency", f"sent again with its key it became {again}")
    _require(store.find(campaign.id).version == 1, "idempotency", "a repeated event was counted")
    _require(store.keyed(campaign.id, "k") == first, "keyed", f"{store.keyed(campaign.id, 'k')}")
    _require(store.keyed(campaign.id, "other") is None, "keyed", "an unknown key was found")
    for wrong in ("", "x" * 201, "\ud800", "a\nb"):
        _refused("keys", InvalidInput, partial(store.append, campaign.id, event, expected_version=1, key=wrong))
    elsewhere = _new(store, "keys-elsewhere")
    _require(
        store.append(elsewhere.id, event, expected_version=0, key="k").position == 0, "keys", "shared by campaigns"
    )


def _check_conflict(store: Store, other: Store, campaign: CampaignRecord) -> None:
    first_event, second_event = EVERY_KIND[:2]
    store.append(campaign.id, first_event, expected_version=0)
    for version in (0, 2, -1):
        raised = _refused(
            "conflict", Conflict, partial(other.append, campaign.id, second_event, expected_version=version)
        )
        assert isinstance(raised, Conflict)
        _require(raised.version == 1, "conflict", f"it says version {raised.version} and not 1")
        since: list[Event] = [stored.event for stored in raised.since]
        _require(since == ([first_event] if version <= 0 else []), "conflict", f"it says that {since} happened since")
    _require([stored.event for stored in store.events(campaign.id)] == [first_event], "conflict", "it left a trace")
    _refused("unknown campaign", InvalidInput, partial(store.append, "0" * 32, first_event, expected_version=0))


def _check_several(store: Store, other: Store, campaign: CampaignRecord) -> None:
    """Events that are added together: all of them in their order, or none."""
    store.append(campaign.id, EVERY_KIND[0], expected_version=0)
    added = store.append_all(campaign.id, EVERY_KIND[1:], expected_version=1)
    stored_events = other.events(campaign.id)
    _require(stored_events[1:] == added, "append_all", f"{stored_events[1:]} is not what was acknowledged, {added}")
    _require(
        [stored.event for stored in stored_events] == list(EVERY_KIND),
        "append_all",
        f"{stored_events} are not the events, in order",
    )
    _refused("append_all", Conflict, partial(other.append_all, campaign.id, EVERY_KIND, expected_version=1))
    broken = (EVERY_KIND[0], cast("Event", None))  # the second cannot be written: the first must not be there either
    with suppress(Exception):
        other.append_all(campaign.id, broken, expected_version=len(EVERY_KIND))
    _require(store.events(campaign.id) == stored_events, "append_all", "what was refused has left a trace")
    _refused("unknown campaign", InvalidInput, partial(store.append_all, "0" * 32, EVERY_KIND, expected_version=0))
    again = _new(store, "several-again")
    for version in (0, 0, len(EVERY_KIND), 7):
        kept = other.append_all(again.id, EVERY_KIND, expected_version=version, key="k")
        _require(
            [stored.event for stored in kept] == list(EVERY_KIND), "append_all", f"sent with its key it became {kept}"
        )
    _require(len(store.events(again.id)) == len(EVERY_KIND), "append_all", "sent again with its key it was made again")


def _check_isolation(store: Store, first: CampaignRecord) -> None:
    _require(len(store.events(first.id)) == len(EVERY_KIND), "isolation", "other campaigns changed this one")


def _check_together(open_store: Callable[[], Store], campaign: CampaignRecord, threads: int, each: int) -> None:
    """Several clients at one campaign: each reads, appends, and tries again where another was faster."""
    acknowledged: list[StoredEvent] = []
    failures: list[BaseException] = []

    def client(number: int) -> None:
        store = open_store()
        try:
            for i in range(each):
                event = Told(query=(float(number),), observation=(float(i),))
                while True:
                    try:
                        version = store.find(campaign.id).version
                        acknowledged.append(store.append(campaign.id, event, expected_version=version))
                        break
                    except Conflict:
                        continue
        except BaseException as error:
            failures.append(error)
        finally:
            store.close()

    clients = [threading.Thread(target=client, args=(number,)) for number in range(threads)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    _require(not failures, "together", f"{failures}")
    store = open_store()
    stored_events = store.events(campaign.id)
    store.close()
    _require(
        stored_events == sorted(acknowledged, key=lambda stored: stored.position),
        "together",
        "not what was acknowledged",
    )
    _require(
        [stored.position for stored in stored_events] == list(range(threads * each)), "together", "misnumbered events"
    )


def _refused(promise: str, kind: type[CicpeError], action: Callable[[], object]) -> CicpeError:
    try:
        done = action()
    except kind as error:
        return error
    raise AssertionError(f"{promise}: not refused with {kind.__name__}, but {done!r}")


def _require(holds: bool, promise: str, problem: str) -> None:
    if not holds:
        raise AssertionError(f"{promise}: {problem}")
