"""Campaigns under stress: clients that are killed, clients in crowds, and how long one step takes.

    python benchmarks/campaigns.py kills --size 1000                    # SIGKILLs of a telling client, SQLite
    python benchmarks/campaigns.py kills --size 200 --store postgres    # the same on a PostgreSQL of its own
    python benchmarks/campaigns.py crowd --size 32 --each 100           # processes that ask and tell, SQLite
    python benchmarks/campaigns.py crowd --size 100 --each 20 --threads 10 --store postgres
    python benchmarks/campaigns.py latency                              # ask + tell at t = 100, without fsync
    python benchmarks/campaigns.py http --size 20 --each 20             # clients of a server, each at its own campaign

Each prints one JSON object; ``faults`` lists every promise that was broken, and is empty. The exit code says so too.
With ``--keep`` the figures are kept for docs/results/attack.md.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kept_results import keep

from cicpe.sessions.events import Told
from cicpe.sessions.stores import Conflict, Store, open_store

MODEL, EPSILON, DELTA = "binary-search-6d", 0.1, 0.1
WINDOW = 0.2
"""A client lives for a random time up to this many seconds."""


@contextmanager
def place(wanted: str) -> Iterator[str]:
    """``sqlite`` and ``postgres`` mean a fresh one; anything else is an address."""
    if wanted == "postgres":
        from cicpe.testing.postgres import temporary_postgres

        with temporary_postgres() as url:
            yield url
    elif wanted == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield str(Path(folder) / "campaigns.db")
    else:
        yield wanted


def integrity(address: str) -> list[str]:
    """What SQLite itself says of its file."""
    if "://" in address:
        return []
    import sqlite3

    with sqlite3.connect(address) as file:
        (found,) = file.execute("PRAGMA integrity_check").fetchone()
    return [] if found == "ok" else [f"integrity_check: {found}"]


# Kills.


def observation(campaign: str, t: int) -> list[float]:
    """What is told at a step: it depends on nothing else, so that it can be told again."""
    rng = random.Random(f"{campaign}/{t}")
    return [rng.choice((-1.0, 1.0)) for _ in range(6)]


def tell_until_killed(address: str, name: str, model: Any, first: int, output: int) -> None:
    """The client: tells from a step on, the first perhaps for a second time, and acknowledges each."""
    from cicpe.sessions.campaign import Campaign

    store = open_store(address)
    campaign = Campaign.open(store, name, lambda _: model)
    os.write(output, b"telling\n")
    t = first
    while t < len(campaign.session.history) or not campaign.session.stopped:
        campaign.tell(observation(name, t), key=f"step {t}")
        os.write(output, f"{t}\n".encode())
        t += 1
    os.write(output, b"done\n")


def run_and_kill(address: str, name: str, model: Any, first: int, lifetime: float) -> tuple[list[str], bool]:
    """One client: what it acknowledged, and whether it was alive when it was killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            tell_until_killed(address, name, model, first, writer)
            code = 0
        except BaseException as error:
            os.write(writer, f"failed: {error}\n".encode())
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        lines = [pipe.readline()]  # its life begins when it is ready to tell
        time.sleep(lifetime)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        lines += pipe.readlines()
    return [line.strip() for line in lines if line not in ("telling\n", "")], os.WIFSIGNALED(status)


def kills(address: str, size: int) -> dict[str, Any]:
    import torch

    import cicpe

    torch.set_num_threads(1)
    model, rng = cicpe.load(MODEL), random.Random(0)
    faults: list[str] = []
    acknowledged: dict[str, int] = {}
    killed, name = 0, ""
    began = time.perf_counter()
    while killed < size and not faults:
        if not name:
            name = f"kills-{len(acknowledged)}"
            acknowledged[name] = 0
            store = open_store(address)
            store.create(name=name, model=MODEL, model_sha256=model.fingerprint, epsilon=EPSILON, delta=DELTA)
            store.close()  # before the fork: no connection is shared with a child
        lines, alive = run_and_kill(address, name, model, acknowledged[name], rng.uniform(0, WINDOW))
        killed += alive
        for line in lines:
            if line == "done":
                name = ""
            elif line == str(acknowledged[name]):
                acknowledged[name] += 1
            else:
                faults.append(f"{name}: {line}")
    took = time.perf_counter() - began
    for campaign, steps in acknowledged.items():
        faults += _faults_of(address, campaign, steps, model)
    result = {"kills": killed, "campaigns": len(acknowledged), "acknowledged": sum(acknowledged.values())}
    return result | {"seconds": took, "faults": faults + integrity(address)}


def _faults_of(address: str, name: str, acknowledged: int, model: Any) -> list[str]:
    """Whether a log holds every acknowledged step once, and gives the session that an unharmed one would be."""
    from cicpe.sessions.campaign import Campaign

    store = open_store(address)
    campaign = Campaign.open(store, name, lambda _: model)
    keys = [stored.key for stored in store.events(campaign.record.id)]
    store.close()
    faults = []
    if len(keys) not in (acknowledged, acknowledged + 1):  # one may have been recorded just before the kill
        faults.append(f"{name}: {acknowledged} steps were acknowledged, {len(keys)} are there")
    if keys != [f"step {t}" for t in range(len(keys))]:
        faults.append(f"{name}: the log is {keys}")
    unharmed = model.session(EPSILON, DELTA)
    for t in range(len(keys)):
        unharmed.tell(observation(name, t))
    if unharmed.export()["status"] != campaign.session.export()["status"]:
        faults.append(f"{name}: the rebuilt session is another")
    return faults


# Crowds.


def client(address: str, number: int, each: int, campaigns: int, output: dict[str, Any]) -> None:
    """One client: asks (reads the log), tells, and tries again where another was faster."""
    store = open_store(address)
    name = f"crowd-{number % campaigns}"
    for i in range(each):
        event = Told(query=(float(number),), observation=(float(i),))
        began = time.perf_counter()
        while True:
            try:
                asked = time.perf_counter()
                record = store.find(name)
                store.events(record.id, since=max(record.version - 1, 0))
                store.append(record.id, event, expected_version=record.version, key=f"{number}/{i}")
                break
            except Conflict:
                output["conflicts"] += 1
            except Exception as error:
                output["errors"].append(f"{type(error).__name__}: {error}")
                return
        now = time.perf_counter()
        output["once"].append(now - asked)
        output["until done"].append(now - began)
    store.close()


def clients(address: str, first: int, threads: int, each: int, campaigns: int) -> None:
    """A process of the crowd: waits for the word, then runs its clients in threads."""
    output: dict[str, Any] = {"conflicts": 0, "errors": [], "once": [], "until done": []}
    open_store(address).close()
    print("ready", flush=True)
    sys.stdin.readline()
    crowd = [
        threading.Thread(target=client, args=(address, first + i, each, campaigns, output)) for i in range(threads)
    ]
    for one in crowd:
        one.start()
    for one in crowd:
        one.join()
    print(json.dumps(output), flush=True)


def crowd(address: str, size: int, each: int, threads: int, campaigns: int) -> dict[str, Any]:
    store = open_store(address)
    for i in range(campaigns):
        store.create(name=f"crowd-{i}", model="none", model_sha256="0" * 64, epsilon=EPSILON, delta=DELTA)
    store.close()
    command = [sys.executable, __file__, "clients", "--store", address, "--threads", str(threads)]
    command += ["--each", str(each), "--campaigns", str(campaigns)]
    mixture = [
        subprocess.Popen([*command, "--first", str(first)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for first in range(0, size, threads)
    ]
    for process in mixture:
        assert process.stdout is not None
        process.stdout.readline()
    began = time.perf_counter()
    for process in mixture:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [json.loads(process.communicate()[0]) for process in mixture]
    took = time.perf_counter() - began
    store = open_store(address)
    faults = [error for one in said for error in one["errors"]] + _misnumbered(store, size, each, campaigns)
    store.close()
    once = [value for one in said for value in one["once"]]
    done = [value for one in said for value in one["until done"]]
    return {
        "clients": size,
        "processes": len(mixture),
        "campaigns": campaigns,
        "events": len(done),
        "conflicts": sum(one["conflicts"] for one in said),
        "seconds": took,
        "ask_tell_ms": _quantiles(once),
        "with_retries_ms": _quantiles(done),
        "faults": faults + integrity(address),
    }


def _misnumbered(store: Store, size: int, each: int, campaigns: int) -> list[str]:
    faults = []
    for i in range(campaigns):
        events = store.events(store.find(f"crowd-{i}").id)
        if [stored.position for stored in events] != list(range(len(events))):
            faults.append(f"crowd-{i}: misnumbered")
        for number in range(i, size, campaigns):
            own = [stored.key for stored in events if stored.key and stored.key.startswith(f"{number}/")]
            if own != [f"{number}/{step}" for step in range(each)]:
                faults.append(f"client {number}: the store has {own}")
        if len(events) != each * len(range(i, size, campaigns)):
            faults.append(f"crowd-{i}: {len(events)} events")
    return faults


def _quantiles(seconds: list[float]) -> dict[str, float]:
    if len(seconds) < 2:
        return {}
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {"median": 1000 * cuts[49], "p99": 1000 * cuts[98], "max": 1000 * max(seconds)}


# Latency.


def latency(address: str, size: int, repeats: int = 20) -> dict[str, Any]:
    """Milliseconds of one ask and tell around step ``size``, in memory and with a store that does not fsync."""
    from dataclasses import replace

    import torch

    import cicpe
    from cicpe.sessions.campaign import Campaign
    from cicpe.sessions.session import Session
    from cicpe.sessions.stores.sql import SqlStore

    torch.set_num_threads(1)
    model = cicpe.load(MODEL)
    belief = replace(model.belief, horizon=10**6)

    class Endless:
        """The model without a stop and a horizon, so that it gets this far."""

        fingerprint = model.fingerprint

        def session(self, epsilon: float, delta: float, *, seed: int = 0, stop: str = "", **context: float) -> Session:
            agent = replace(model.unstopped(epsilon), belief=belief)
            return Session(agent, belief.query_space, 6, [0.1], epsilon, delta, seed)

    store = open_store(address)
    assert isinstance(store, SqlStore)
    from sqlalchemy import event

    event.listen(store.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
    store.engine.dispose()
    kept = Campaign.new(store, Endless(), MODEL, name="latency", epsilon=EPSILON, delta=DELTA)
    plain = Endless().session(EPSILON, DELTA)
    for t in range(size):
        kept.session.ask(), plain.ask()
        plain.tell(observation("latency", t))
        kept.tell(observation("latency", t))
    times: dict[str, list[float]] = {"session": [], "campaign": []}
    for t in range(size, size + repeats):
        for name, one in (("session", plain), ("campaign", kept)):
            began = time.process_time()  # of this process: other work on the machine does not count
            (one if isinstance(one, Session) else one.session).ask()
            one.tell(observation("latency", t))
            times[name].append(time.process_time() - began)
    result = {f"{name}_median_ms": 1000 * statistics.median(values) for name, values in times.items()}
    faults = [f"{name} = {value:.1f}: 5 ms were asked for" for name, value in result.items() if value >= 5]
    return {"t": size, **result, "faults": faults}


# Over HTTP.


def visitor(address: str, number: int, each: int, output: dict[str, Any]) -> None:
    """A client of a server: asks, tells, and begins anew where a campaign has stopped."""
    import httpx

    name = ""
    with httpx.Client(base_url=address, timeout=120) as client:
        for i in range(each):
            name = name or f"http-{number}-{i}"
            client.post("/api/campaigns", json={"name": name, "model": MODEL, "epsilon": EPSILON, "delta": DELTA})
            began = time.perf_counter()
            seen = client.get(f"/api/campaigns/{name}/ask").json()
            body = {"observation": observation(name, i), "expected_version": seen["version"]}
            said = client.post(f"/api/campaigns/{name}/tell", json=body)
            output["seconds"].append(time.perf_counter() - began)
            if said.status_code != 200:
                output["faults"].append(said.text[:300])
            elif said.json()["status"]["stopped"]:
                name = ""


def over_http(address: str, size: int, each: int) -> dict[str, Any]:
    """Milliseconds of one ask and one tell, for clients that all work at the same time."""
    from server_process import campaign_server

    output: dict[str, Any] = {"seconds": [], "faults": []}
    with tempfile.TemporaryDirectory() as folder, campaign_server(address, Path(folder)) as server:
        visitor(server.address, size, 2, {"seconds": [], "faults": []})  # the model is read
        people = [threading.Thread(target=visitor, args=(server.address, i, each, output)) for i in range(size)]
        began = time.perf_counter()
        for one in people:
            one.start()
        for one in people:
            one.join()
        took = time.perf_counter() - began
    waits = output["seconds"]
    figures = {"clients": size, "tells": len(waits), "seconds": took, "ask_tell_ms": _quantiles(waits)}
    return figures | {"faults": output["faults"] + integrity(address)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["kills", "crowd", "latency", "http", "clients"])
    parser.add_argument("--store", default="sqlite", help="sqlite, postgres, or the address of an empty store")
    parser.add_argument("--size", type=int, help="kills, clients, or the step (default: 1000, 32, 100)")
    parser.add_argument("--each", type=int, default=100, help="events of each client of a crowd")
    parser.add_argument("--threads", type=int, default=1, help="clients in one process of a crowd")
    parser.add_argument("--campaigns", type=int, help="campaigns that a crowd shares (default: one for four clients)")
    parser.add_argument("--keep", action="store_true", help="in benchmarks/results/attack")
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.what == "clients":
        clients(given.store, given.first, given.threads, given.each, given.campaigns)
        return 0
    with place(given.store) as address:
        if given.what == "kills":
            result = kills(address, given.size or 1000)
        elif given.what == "crowd":
            size = given.size or 32
            result = crowd(address, size, given.each, given.threads, given.campaigns or max(1, size // 4))
        elif given.what == "http":
            result = over_http(address, given.size or 20, given.each)
        else:
            result = latency(address, given.size or 100)
    if given.keep:
        keep(f"attack/{given.what}-{given.store}", result)
    print(json.dumps(result, indent=1))
    return 1 if result["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
