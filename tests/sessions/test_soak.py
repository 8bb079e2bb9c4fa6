"""The soak test finds what it is for: each promise broken once. ``make soak`` runs it for an hour."""

import argparse
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from cicpe.sessions.events import Skipped, Told
from cicpe.sessions.stores import StoredEvent
from commands import REPOSITORY


@pytest.fixture
def soak() -> Iterator[ModuleType]:
    sys.path.insert(0, str(REPOSITORY / "benchmarks"))
    yield importlib.import_module("soak")
    sys.path.remove(str(REPOSITORY / "benchmarks"))


def stored(event: Any) -> StoredEvent:
    return StoredEvent(position=0, event=event, key="k", at="2026-11-16")


def test_what_is_recorded_is_compared_with_what_was_sent(soak: ModuleType) -> None:
    told = stored(Told(query=(0.5,), observation=(1.0,)))
    sent = soak.Sent("a", "tell", {"observation": [1.0]}, [0.5], 200)
    assert soak._entry_faults(told, sent, "a") == []
    for wrong, fault in (
        (None, "nobody has sent it"),
        (sent._replace(campaign="b"), "was sent as"),
        (sent._replace(body={"observation": [2.0]}), "was sent as"),
        (sent._replace(seen=[0.25]), r"was sent for the query at [0.25]"),
    ):
        (said,) = soak._entry_faults(told, wrong, "a")
        assert fault in said
    assert soak._entry_faults(stored(Skipped(query=(0.5,))), sent, "a")


def test_what_people_do_is_possible(soak: ModuleType) -> None:
    import random

    rng, status = random.Random(0), {"history": [], "version": 0}
    kinds = {soak.change(rng, status)[0] for _ in range(200)}
    assert kinds == {"tell", "skip", "attach"}
    kinds = {soak.change(rng, {"history": [1], "version": 1})[0] for _ in range(200)}
    assert kinds == set(soak.PAST)


def test_a_server_that_does_not_start_again_is_a_fault(soak: ModuleType) -> None:
    class Server:
        def kill(self) -> None: ...

        def start(self) -> None:
            raise RuntimeError("no memory")

    day = soak.Day()
    done = soak.trouble(Server(), None, argparse.Namespace(every=0.001, kill="server"), day)
    assert (done["server kills"], day.over.is_set()) == (0, True)
    assert "no memory" in day.faults[0]
