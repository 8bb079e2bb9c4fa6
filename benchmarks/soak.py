"""A long day in a lab, in a few minutes or an hour: people tell, correct, skip, undo and attach, and things are killed.

    python benchmarks/soak.py --minutes 60                       # SQLite
    python benchmarks/soak.py --minutes 60 --store postgres      # a PostgreSQL of its own, which is crashed as well
    python benchmarks/soak.py --minutes 2 --clients 4 --every 5

Clients work on shared campaigns over HTTP, some of them on the store itself. The server is killed at random, and so is
the database; a client that got no answer sends the same change again, with its key. At the end the logs are read and
every promise is checked:

  * what was acknowledged is in the log, once, with the values that were sent;
  * what was refused is not, and nothing is there that nobody has sent;
  * every value lies at the query that its sender had seen;
  * the logs have no holes, could be written by the model, and give the sessions that the server shows;
  * a backup holds the same.

One JSON object is printed; ``faults`` lists every promise that was broken, and is empty. The exit code says so too.
With ``--keep`` the figures are kept for docs/results/attack.md.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from kept_results import keep
from server_process import CampaignServer, Database, campaign_server, database

import cicpe
from cicpe.errors import CicpeError, SessionError
from cicpe.sessions.campaign import Campaign
from cicpe.sessions.stores import StoreError, open_store
from cicpe.sessions.stores.moving import back_up, check_store
from cicpe.sessions.stores.opening import open_existing

MODEL = "binary-search-6d"
EPSILON, DELTA = 0.1, 0.1
KINDS = ["tell"] * 14 + ["correct"] * 2 + ["skip", "skip", "undo", "attach"]
PAST = {"tell": "told", "correct": "corrected", "skip": "skipped", "undo": "undone", "attach": "attached"}
PATIENCE = 1200.0
"""Seconds after which a client that gets no answer gives up; that is a fault."""


class Sent(NamedTuple):
    """A change, and what its sender was told of it."""

    campaign: str
    kind: str
    body: dict[str, Any]
    seen: list[float] | None
    """The open query, as its sender had seen it."""
    code: int


@dataclass
class Day:
    """What everybody did. Clients write to it, one key each."""

    sent: dict[str, Sent] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    codes: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    again: int = 0
    """Changes that were sent more than once."""


def change(rng: random.Random, status: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Something to do with a campaign that is open."""
    kind = rng.choice(KINDS)
    values = [rng.choice((-1.0, 1.0)) for _ in range(6)]
    if kind == "correct" and status["history"]:
        return kind, {"step": rng.randint(1, len(status["history"])), "observation": values}
    if kind == "skip":
        return kind, {"reason": rng.choice(["stuck", "", "überlaufen"])}
    if kind == "undo" and status["version"]:
        return kind, {}
    if kind == "attach":
        return kind, {"query": [round(rng.uniform(-1, 1), 3) for _ in range(6)], "observation": values}
    return "tell", {"observation": values}


def visitor(number: int, server: CampaignServer, names: list[str], day: Day) -> None:
    """One client over HTTP."""
    rng = random.Random(number)
    client = httpx.Client(base_url=server.address, timeout=30)
    while not day.over.is_set():
        name = rng.choice(names)
        try:
            view = _insist(client, "GET", f"/api/campaigns/name:{name}", None, None, day)
            status = view.json()["status"]
            if status["stopped"]:
                _replace(client, names, name, day)
                continue
            kind, body = change(rng, status)
            time.sleep(rng.uniform(0, 0.1))  # someone measures
            named = {"expected_version": status["version"]}
            if kind in ("tell", "skip") and rng.random() < 0.5:
                named = {"query": status["query"], "step": status["step"]} | (named if rng.random() < 0.5 else {})
            key = uuid.uuid4().hex
            said = _insist(client, "POST", f"/api/campaigns/name:{name}/{kind}", body | named, key, day)
        except TimeoutError:
            day.faults.append(f"client {number} had no answer within {PATIENCE:g} seconds")
            return
        day.codes[said.status_code] += 1
        day.sent[key] = Sent(name, kind, body, status["query"], said.status_code)
        if said.status_code not in (200, 409):
            day.faults.append(f"{kind} {body} was answered with {said.status_code}: {said.text[:300]}")


def _insist(client: httpx.Client, method: str, path: str, body: Any, key: str | None, day: Day) -> httpx.Response:
    """Sends a request until it is answered."""
    headers = {} if key is None else {"Idempotency-Key": key}
    until, tries = time.monotonic() + PATIENCE, 0
    while time.monotonic() < until:
        began = time.perf_counter()
        try:
            said = client.request(method, path, json=body, headers=headers)
            if said.status_code not in (503, 408):
                if method == "POST" and said.status_code == 200 and not tries:
                    day.waits.append(time.perf_counter() - began)
                day.again += key is not None and tries > 0
                return said
        except httpx.HTTPError:
            pass
        tries += 1
        time.sleep(0.2)
    raise TimeoutError


def _replace(client: httpx.Client, names: list[str], name: str, day: Day) -> None:
    """A campaign that has stopped is left, for a new one."""
    fresh = f"c{uuid.uuid4().hex[:12]}"
    wish = {"name": fresh, "model": MODEL, "epsilon": EPSILON, "delta": DELTA, "seed": len(day.sent)}
    _insist(client, "POST", "/api/campaigns", wish, None, day)
    if name in names:
        names[names.index(name)] = fresh


def local(number: int, place: str, names: list[str], day: Day, model: Any) -> None:
    """One client at the store itself."""
    rng = random.Random(number)
    store = open_store(place)
    while not day.over.is_set():
        time.sleep(rng.uniform(0, 0.3))
        name, key = rng.choice(names), uuid.uuid4().hex
        values = [rng.choice((-1.0, 1.0)) for _ in range(6)]
        try:
            campaign = Campaign.open(store, f"name:{name}", lambda _: model)
            if campaign.session.stopped:
                continue
            seen = campaign.session.ask().tolist()
        except StoreError:
            continue
        day.sent[key] = Sent(name, "tell", {"observation": values}, seen, _told(campaign, values, key))
    store.close()


def _told(campaign: Campaign, values: list[float], key: str) -> int:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            campaign.tell(values, key=key)
            return 200
        except StoreError:
            time.sleep(0.2)
        except SessionError:
            return 409
    return 0


def trouble(server: CampaignServer, base: Database | None, given: argparse.Namespace, day: Day) -> Counter[str]:
    """Kills the server, or the database, again and again."""
    rng, done = random.Random(0), Counter[str]()
    share = {"both": 0.5, "server": 0.0, "database": 1.0}[given.kill]
    try:
        while not day.over.wait(rng.uniform(0.5, 1.5) * given.every):
            if base is not None and rng.random() < share:
                base.crash()
                base.start()
                done["database crashes"] += 1
            else:
                server.kill()
                server.start()
                done["server kills"] += 1
    except Exception as error:  # without it nothing would be killed any more, and nobody would say so
        day.faults.append(f"what was killed did not start again: {error}")
        day.over.set()
    return done


def check(place: str, server: CampaignServer, day: Day, model: Any, folder: Path) -> dict[str, int]:
    """Every promise; what is broken is added to the day's faults."""
    store = open_existing(place)
    whole = check_store(store)
    day.faults += whole.faults
    acknowledged = {key for key, sent in day.sent.items() if sent.code == 200}
    recorded: set[str] = set()
    for one in store.snapshot():
        keys = [stored.key for stored in one.events]
        if None in keys or len(set(keys)) != len(keys):
            day.faults.append(f"{one.record.name}: a change without a key, or one that was made twice")
        for stored in one.events:
            day.faults += _entry_faults(stored, day.sent.get(stored.key or ""), one.record.name)
        recorded |= {key for key in keys if key is not None}
        day.faults += _session_faults(store, one.record.name, server, model)
    day.faults += [f"{day.sent[key]} was acknowledged and is lost" for key in acknowledged - recorded]
    day.faults += [f"{day.sent[key]} was refused and is there" for key in (recorded & set(day.sent)) - acknowledged]
    kept = back_up(place, folder / "backup.db")
    with_backup = open_existing(folder / "backup.db")
    if kept.faults or repr(with_backup.snapshot()) != repr(store.snapshot()):
        day.faults.append(f"the backup is another: {kept}")
    with_backup.close()
    store.close()
    return {"campaigns": whole.campaigns, "entries": whole.events, "acknowledged": len(acknowledged)}


def _entry_faults(stored: Any, sent: Sent | None, name: str) -> list[str]:
    event = stored.event
    if sent is None:
        return [f"{name}: {event} is there, and nobody has sent it"]
    faults = [] if (sent.campaign, PAST[sent.kind]) == (name, event.kind) else [f"{name}: {event} was sent as {sent}"]
    if "observation" in sent.body and list(getattr(event, "observation", ())) != sent.body["observation"]:
        faults.append(f"{name}: {event} was sent as {sent}")
    if sent.kind in ("tell", "skip") and list(getattr(event, "query", ())) != sent.seen:
        faults.append(f"{name}: {event} was sent for the query at {sent.seen}")
    return faults


def _session_faults(store: Any, name: str, server: CampaignServer, model: Any) -> list[str]:
    try:
        session = Campaign.open(store, f"name:{name}", lambda _: model).session
    except CicpeError as error:
        return [f"{name} cannot be opened: {error}"]
    faults = [f"{name}: entries {wrong} have queries that the model does not ask"] if (wrong := session.audit()) else []
    shown = httpx.get(f"{server.address}/api/campaigns/name:{name}", timeout=60).json()["status"]
    if shown != json.loads(session.status().model_dump_json()):
        faults.append(f"{name}: the server shows another session than its log gives")
    return faults


def soak(
    place: str, server: CampaignServer, base: Database | None, given: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    day, model, done = Day(), cicpe.load(MODEL), Counter[str]()
    names: list[str] = [f"first-{i}" for i in range(max(1, given.clients // 3))]
    with httpx.Client(base_url=server.address, timeout=60) as client:
        for name in names:
            wish = {"name": name, "model": MODEL, "epsilon": EPSILON, "delta": DELTA}
            client.post("/api/campaigns", json=wish).raise_for_status()
    people = [threading.Thread(target=visitor, args=(i, server, names, day)) for i in range(given.clients)]
    people.append(threading.Thread(target=local, args=(999, place, names, day, model)))
    chaos = threading.Thread(target=lambda: done.update(trouble(server, base, given, day)))
    began = time.monotonic()
    for one in (*people, chaos):
        one.start()
    day.over.wait(60 * given.minutes)
    day.over.set()
    for one in (*people, chaos):
        one.join()
    took = time.monotonic() - began
    counted = check(place, server, day, model, folder)
    cuts = statistics.quantiles(day.waits, n=100, method="inclusive") if len(day.waits) > 1 else [0.0] * 99
    return {
        "store": given.store,
        "minutes": took / 60,
        "clients": given.clients + 1,
        **{kind: done[kind] for kind in ("server kills", "database crashes")},
        **counted,
        "conflicts": day.codes[409],
        "sent_again": day.again,
        "change_ms": {"median": 1000 * cuts[49], "p99": 1000 * cuts[98]},
        "faults": day.faults[:50],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--clients", type=int, default=6, help="over HTTP; one more works on the store itself")
    parser.add_argument("--every", type=float, default=15.0, help="seconds between two kills, on average")
    parser.add_argument("--kill", choices=["both", "server", "database"], default="both", help="what is killed")
    parser.add_argument("--keep", action="store_true", help="in benchmarks/results/attack")
    given = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    with ExitStack() as until:
        folder = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="cicpe-soak-")))
        base = until.enter_context(database()) if given.store == "postgres" else None
        place = str(folder / "campaigns.db") if base is None else base.url
        server = until.enter_context(campaign_server(place, folder))
        result = soak(place, server, base, given, folder)
    if given.keep:
        keep(f"attack/soak-{given.store}", result)
    print(json.dumps(result, indent=1))
    return 1 if result["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
