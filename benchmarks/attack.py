"""What an attacker, a careless program or a colleague in a hurry would do to campaigns, on this machine alone.

    python benchmarks/attack.py                     # everything, at most --minutes 45
    python benchmarks/attack.py half_open names     # some of it
    python benchmarks/attack.py --size 0.1          # a tenth of the kills, cases, values and certificates
    python benchmarks/attack.py --page              # only writes docs/results/attack.md, from what was kept

Each attack prints a line, and at its full size keeps its figures in benchmarks/results/attack as soon as it has ended;
at the end comes one JSON object with all of them, and docs/results/attack.md is written from what is kept. A smaller
run keeps nothing: it only shows that the attacks work. ``faults`` lists every
promise that was broken, and is empty. The exit code says so too. Attacks that were not begun in time are listed as
not run.
"""

import argparse
import fcntl
import json
import os
import random
import resource
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from attack_page import write_page
from kept_results import keep
from server_process import HERE, CampaignServer, campaign_server

from cicpe.errors import CicpeError
from cicpe.sessions.events import Told
from cicpe.sessions.stores import open_store

MODEL = "binary-search-6d"
NEW = {"name": "titan", "model": MODEL, "epsilon": 0.2, "delta": 0.1}
FILES = 1024
"""Open files that the attacked server may have: what many systems give by default."""
Figures = dict[str, Any]
SIZE = [1.0]
"""Share of the full size at which attacks that repeat something are made."""


def many(full: int) -> int:
    """How often something is repeated."""
    return max(1, round(SIZE[0] * full))


def fresh(folder: Path) -> str:
    return str(folder / "campaigns.db")


def connect(server: CampaignServer, content: bytes = b"") -> socket.socket:
    connection = socket.create_connection((HERE, server.port), timeout=20)
    connection.sendall(content)
    return connection


def asked(server: CampaignServer, times: int) -> tuple[list[float], list[str]]:
    """How long an honest client waits, in seconds, and what went wrong for it."""
    waits, faults = [], []
    for _ in range(times):
        began = time.perf_counter()
        try:
            httpx.get(server.address + "/api/campaigns", timeout=20).raise_for_status()
        except httpx.HTTPError as error:
            faults.append(f"an honest request failed: {type(error).__name__} {error}")
        waits.append(time.perf_counter() - began)
    return waits, faults


def crowded(folder: Path, content: bytes, many: int) -> tuple[Figures, list[str]]:
    """Many connections that never finish, while someone else asks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, many + 500), hard))
    held: list[socket.socket] = []
    with campaign_server(fresh(folder), folder, FILES) as server:
        try:
            refused = 0
            for _ in range(many):
                try:
                    held.append(connect(server, content))
                except OSError:
                    refused += 1
            waits, faults = asked(server, 20)
            megabytes = server.resident_megabytes()
        finally:
            for one in held:
                one.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        log = server.log.stat().st_size
    if log > 1_000_000:
        faults.append(f"the log has {log:,} bytes")
    figures = {"connections": len(held), "refused": refused, "worst_wait_s": max(waits), "log_bytes": log}
    return figures | {"resident_mb": megabytes}, faults


def half_open(folder: Path) -> tuple[Figures, list[str]]:
    return crowded(folder, b"GET /api/campaigns HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ", 1100)


def silent(folder: Path) -> tuple[Figures, list[str]]:
    return crowded(folder, b"", 1100)


def half_bodies(folder: Path) -> tuple[Figures, list[str]]:
    head = b"POST /api/campaigns HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{"
    return crowded(folder, head, 1100)


def garbage(folder: Path) -> tuple[Figures, list[str]]:
    """Bytes that are no request, 3,000 times: answered or ended, and not written down one by one."""
    rng = random.Random(0)
    with campaign_server(fresh(folder), folder, FILES) as server:
        for _ in range(3000):
            try:
                with connect(server, rng.randbytes(rng.randrange(1, 200)) + b"\r\n\r\n"):
                    pass
            except OSError:
                pass
        waits, faults = asked(server, 10)
        log = server.log.stat().st_size
    if log > 100_000:
        faults.append(f"the log has {log:,} bytes")
    return {"connections": 3000, "worst_wait_s": max(waits), "log_bytes": log}, faults


HOSTILE = ["http://[", "null", "\x00", "//", "http://[::1", "é" * 50, "a" * 8000, "http://a]b["]


def headers(folder: Path) -> tuple[Figures, list[str]]:
    """Headers that mean nothing, by hand, since clients refuse to send them: no 5xx, and nobody gets in."""
    codes: Counter[str] = Counter()
    with campaign_server(fresh(folder), folder, token="a long secret") as server:
        for name in ("Origin", "Host", "Authorization", "Content-Type", "Idempotency-Key", "Content-Length"):
            for value in HOSTILE:
                first = "" if name == "Host" else "Host: 127.0.0.1\r\n"
                request = f"GET /api/campaigns HTTP/1.1\r\n{first}{name}: {value}\r\nConnection: close\r\n\r\n"
                with connect(server, request.encode("utf-8")) as connection:
                    line = connection.recv(4096).split(b"\r\n")[0].decode("latin-1")
                codes[line.split(" ")[1] if " " in line else "ended"] += 1
    bad = [code for code in codes if code.startswith(("2", "5"))]
    return {"codes": dict(codes)}, [f"{codes[code]} answers with {code}" for code in bad]


def names(folder: Path) -> tuple[Figures, list[str]]:
    """A campaign that is called after another: it must not be taken for it."""
    with campaign_server(fresh(folder), folder) as server, httpx.Client(base_url=server.address, timeout=60) as client:
        titan = client.post("/api/campaigns", json=NEW).json()["campaign"]["id"]
        made = [
            client.post("/api/campaigns", json=NEW | {"name": name}).status_code
            for name in (titan, titan.upper(), titan[:8], titan[:4], f"id:{titan}")
        ]
        told = {"observation": [1] * 6, "step": 1}
        client.post(f"/api/campaigns/{titan}/tell", json=told)
        client.post(f"/api/campaigns/{titan[:8]}/tell", json=told)
        client.post(f"/api/campaigns/{titan[:4]}/tell", json=told)
        steps = {one["name"]: one["version"] for one in client.get("/api/campaigns").json()["campaigns"]}
    wrong = {name: version for name, version in steps.items() if version != (name == "titan")}
    return {"made": made}, [f"values went elsewhere: {wrong}"] if wrong else []


def unseen(folder: Path) -> tuple[Figures, list[str]]:
    """Six people at one campaign, each telling for the query that they saw: no value lands at another query."""
    faults: list[str] = []
    codes: Counter[int] = Counter()
    with campaign_server(fresh(folder), folder) as server:
        httpx.post(server.address + "/api/campaigns", json=NEW | {"epsilon": 0.1}, timeout=60).raise_for_status()

        def person(number: int) -> None:
            rng = random.Random(number)
            with httpx.Client(base_url=server.address, timeout=60) as client:
                for i in range(15):
                    seen = client.get("/api/campaigns/titan/ask").json()
                    if seen["stopped"]:
                        return
                    time.sleep(rng.uniform(0, 0.05))
                    ways = [{"expected_version": seen["version"]}, {"query": seen["query"]}, {"step": seen["step"]}, {}]
                    said = client.post(
                        "/api/campaigns/titan/tell",
                        json={"observation": [1, -1] * 3} | ways[i % 4],
                        headers={"Idempotency-Key": f"{number}/{i}"},
                    )
                    codes[said.status_code] += 1
                    if said.status_code == 200:
                        place = said.json()["status"]["history"][-1]["query"]
                        if place != seen["query"]:
                            faults.append(f"told for {seen['query']}, recorded at {place}")

        people = [threading.Thread(target=person, args=(number,)) for number in range(6)]
        for one in people:
            one.start()
        for one in people:
            one.join()
    return {"codes": dict(codes)}, faults


def stranger(folder: Path) -> tuple[Figures, list[str]]:
    """Another program locks the folder of the store and never lets go: writing goes on."""
    code = (
        "import sys; from cicpe.sessions.stores import open_store; from cicpe.sessions.events import Told\n"
        "store = open_store(sys.argv[1])\n"
        "made = store.create(name='a', model='m', model_sha256='0', epsilon=0.1, delta=0.1)\n"
        "for v in range(50): store.append(made.id, Told(query=(1,), observation=(2,)), expected_version=v)\n"
    )
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    began = time.perf_counter()
    try:
        done = subprocess.run([sys.executable, "-c", code, fresh(folder)], capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return {}, ["50 writes were not done within a minute"]
    finally:
        os.close(descriptor)
    faults = [] if done.returncode == 0 else [done.stderr[-500:]]
    return {"writes": 50, "seconds": time.perf_counter() - began}, faults


def ledger(folder: Path) -> tuple[Figures, list[str]]:
    """Eight certifications at once, of which four have alpha: four are kept, and four are refused."""
    from cicpe import zoo
    from cicpe.certification.certificate import ALPHA_LIMIT, read_ledger
    from cicpe.cli.main import main

    model = folder / "model"
    shutil.copytree(zoo.folder(MODEL), model, ignore=shutil.ignore_patterns("certificate.json"))
    words = ["certify", str(model), "--epsilon", "0.2", "--delta", "0.1", "--episodes", "50", "--json"]
    children = []
    for _ in range(8):
        child = os.fork()
        if child == 0:
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), 1)
                os.dup2(nowhere.fileno(), 2)
            os._exit(main(words))
        children.append(child)
    codes = Counter(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)
    kept = read_ledger(model / "certificate.json")
    spent = sum(one.alpha for one in kept)
    faults = [] if codes[2] == 4 and len(kept) == 4 else [f"{len(kept)} were kept, and they ended with {dict(codes)}"]
    faults += [] if spent <= ALPHA_LIMIT + 1e-9 else [f"{spent:g} of alpha was spent"]
    return {"codes": dict(codes), "kept": len(kept), "alpha_spent": spent}, faults


def folders(folder: Path) -> tuple[Figures, list[str]]:
    """Folders that name a program which lies beside them, and one that is named like a model of the zoo."""
    from cicpe import zoo

    (folder / "planted.py").write_text("open('ran', 'w').close()\n")
    faults, tried = [], 0
    for name in ("planted.py:Problem", f"{folder}/planted.py:Problem", "planted:Problem"):
        for kind in ("binary-search-6d", "ackley-3d"):
            model = folder / kind
            shutil.rmtree(model, ignore_errors=True)
            shutil.copytree(zoo.folder(kind), model)
            config = json.loads((model / "config.json").read_text())
            (model / "config.json").write_text(json.dumps(config | {"problem": name, "files": {}}))
            commands = (
                ["evaluate", f"./{kind}"],
                ["session", "new", f"./{kind}"],
                ["session", "new", kind],
                ["certify", kind],
            )
            for words in commands:
                asked = [sys.executable, "-m", "cicpe", *words, "--epsilon", "0.2", "--delta", "0.1"]
                asked += [] if words[0] == "session" else ["--episodes", "2"]
                own = {"CICPE_STORE": str(folder / "c.db"), "XDG_STATE_HOME": str(folder / "state")}
                code = subprocess.run(
                    asked, cwd=folder, env=os.environ | own, capture_output=True, timeout=300
                ).returncode
                tried += 1
                faults += [] if code in (0, 1, 2) else [f"{words} ended with {code}"]
                if (folder / "ran").exists():
                    faults.append(f"{words} ran what a folder names as {name}")
                    (folder / "ran").unlink()
    return {"commands": tried}, faults


def saves(folder: Path) -> tuple[Figures, list[str]]:
    """Kills of a process that saves one model over another: the folder is always one of the two."""
    import cicpe

    models = [cicpe.load(name) for name in ("binary-search-6d", "binary-search-8d")]
    known, rng, found = {model.fingerprint for model in models}, random.Random(0), Counter[str]()
    models[0].save(folder / "model")
    tries = many(120)
    for _ in range(tries):
        child = os.fork()
        if child == 0:
            while True:
                for model in models:
                    model.save(folder / "model")
        time.sleep(rng.uniform(0.005, 0.1))
        os.kill(child, 9)
        os.waitpid(child, 0)
        try:
            found["whole" if cicpe.load(folder / "model").fingerprint in known else "another"] += 1
        except CicpeError as error:
            found[str(error)[:80]] += 1
    models[0].save(folder / "model")
    left = [path.name for path in (folder / "model").glob(".*")]
    return {"kills": tries, "found": dict(found)}, [*(found.keys() - {"whole"}), *left]


def holes(folder: Path) -> tuple[Figures, list[str]]:
    """Any one entry of a log deleted behind our back: reading it is an error, and the rest is still read."""
    faults = []
    for gone in range(6):
        place = folder / f"{gone}.db"
        store = open_store(place)
        for name in ("a", "b"):
            made = store.create(name=name, model="m", model_sha256="0", epsilon=0.1, delta=0.1)
            for version in range(6):
                store.append(made.id, Told(query=(1.0,), observation=(2.0,)), expected_version=version)
        with sqlite3.connect(place) as file:
            file.execute(f"DELETE FROM cicpe_events WHERE position = {gone} AND campaign_id = '{store.find('a').id}'")
        try:
            store.events(store.find("a").id)
            faults.append(f"entry {gone} is missing, and nobody says so")
        except CicpeError:
            pass
        if len(store.events(store.find("b").id)) != 6:
            faults.append("another campaign was harmed")
        store.close()
    return {"holes": 6}, faults


def passwords(folder: Path) -> tuple[Figures, list[str]]:
    """Addresses that fail in every way: no answer shows what is secret in them."""
    places = [
        "postgresql://me:{}@127.0.0.1:9/x", "postgresql://127.0.0.1:9/x?user=me&password={}", "mysql://me:{}@127.0.0.1/x",
        "postgresql://127.0.0.1:9/x?sslpassword={}", "postgresql://me:1/{}@127.0.0.1/x", "postgresql://me:{}@127.0.0.1:x/x",
    ]  # fmt: skip
    faults = []
    for place in places:
        done = subprocess.run(
            [sys.executable, "-m", "cicpe", "session", "list", "--store", place.format("s3cret")],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        if done.returncode != 2 or "s3cret" in done.stdout + done.stderr:
            faults.append(f"{place}: exit code {done.returncode}, {done.stderr[-300:]}")
    return {"addresses": len(places)}, faults


def fuzz(folder: Path) -> tuple[Figures, list[str]]:
    """Requests made from the schema, right and wrong: no 5xx, and only what is documented."""
    return _script("fuzz_server.py", "--cases", str(many(4800)), faults="failures")


def kills(folder: Path) -> tuple[Figures, list[str]]:
    """Clients that are killed while they tell: nothing that was acknowledged is lost or there twice."""
    return _script("campaigns.py", "kills", "--size", str(many(600)))


def kills_postgres(folder: Path) -> tuple[Figures, list[str]]:
    return _script("campaigns.py", "kills", "--size", str(many(600)), "--store", "postgres")


def crowd(folder: Path) -> tuple[Figures, list[str]]:
    """Sixteen processes that write to four campaigns, thirty times each."""
    return _script("campaigns.py", "crowd", "--size", "16", "--each", "30")


def crowd_postgres(folder: Path) -> tuple[Figures, list[str]]:
    return _script("campaigns.py", "crowd", "--size", "16", "--each", "30", "--store", "postgres")


def crashes(folder: Path) -> tuple[Figures, list[str]]:
    """Crashes of the database while seven clients write, four at least."""
    figures, faults = _script("soak.py", "--minutes", "2", "--every", "15", "--store", "postgres", "--kill", "database")
    few = figures.get("database crashes", 0) < 4
    return figures, [*faults, *(["there were fewer than four crashes"] if few else [])]


RESUMED = """
import sys
import cicpe, torch
from cicpe.problems.binary_search import BinarySearch
torch.set_num_threads(1)
small = {"first_batch": 16, "batch": 16, "horizon": 6, "adapt_horizon": False}
print("ready", flush=True)
cicpe.train(BinarySearch(dim=1), updates=60, epsilon=(0.8, 1.6), calibration_episodes=256, seed=3, settings=small,
            out=sys.argv[1], resume=True, checkpoint_seconds=0.0)
"""


def resumed(folder: Path) -> tuple[Figures, list[str]]:
    """A training that is killed again and again and goes on from its checkpoint: the same model, bit for bit."""
    command, rng, killed = [sys.executable, "-c", RESUMED], random.Random(0), 0
    subprocess.run([*command, str(folder / "whole")], check=True, capture_output=True, timeout=900)
    for _ in range(many(20)):
        child = subprocess.Popen([*command, str(folder / "killed")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(rng.uniform(0, 0.5))
        child.kill()
        child.communicate()
        killed += child.returncode < 0
    subprocess.run([*command, str(folder / "killed")], check=True, capture_output=True, timeout=900)
    whole, again = (_run_files(folder / name) for name in ("whole", "killed"))
    return {"kills": killed}, [f"{name} is another" for name in whole if whole[name] != again[name]]


def _run_files(run: Path) -> dict[str, Any]:
    """All that a run leaves, to the bit; of the time that it took, its checkpoint and its config may tell otherwise."""
    import cicpe

    data = (run / "checkpoint.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    about = header.pop("__metadata__")
    progress = {name: value for name, value in json.loads(about["progress"]).items() if name != "seconds"}
    return {
        "weights.safetensors": (run / "weights.safetensors").read_bytes(),
        "calibration.json": (run / "calibration.json").read_bytes(),
        "the model": cicpe.load(run).fingerprint,
        "the checkpoint": (data[8 + size :], header, progress, about["identity"], about["losses"]),
    }


def certificates(folder: Path) -> tuple[Figures, list[str]]:
    """Models that succeed with exactly 1 - delta, looked at after every episode: at most alpha of them are certified."""
    import numpy as np

    from cicpe.certification.martingale import first_crossing, log_path
    from cicpe.statistics import clopper_pearson

    alpha, models, episodes, rows, faults = 0.05, many(4000), 2000, [], list[str]()
    for null in (0.8, 0.9, 0.95):
        rng = np.random.default_rng(round(1000 * null))
        parts = [min(200, models - begun) for begun in range(0, models, 200)]
        paths = (log_path(rng.random((part, episodes)) < null, null) for part in parts)
        false = sum(int((first_crossing(path, alpha) > 0).sum()) for path in paths)
        low, high = (float(value) for value in clopper_pearson(false, models, 0.01))
        rows.append({"null": null, "models": models, "false": false, "share": false / models, "low": low, "high": high})
        faults += [f"{false} of {models} were certified at {null}"] if low > alpha else []
    return {"alpha": alpha, "episodes": episodes, "nulls": rows}, faults


def values_folders(folder: Path) -> tuple[Figures, list[str]]:
    """Hostile values in every field of a model's folder."""
    return _script("hostile_values.py", "folders", "--size", str(many(4000)))


def values_bodies(folder: Path) -> tuple[Figures, list[str]]:
    """Hostile values in every field of every request."""
    return _script("hostile_values.py", "bodies", "--size", str(many(4000)))


def _script(name: str, *words: str, faults: str = "faults") -> tuple[Figures, list[str]]:
    command = [sys.executable, str(Path(__file__).parent / name), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    try:
        said: Figures = json.loads(done.stdout)
    except ValueError:
        return {}, [f"{name} ended with {done.returncode}: {done.stderr[-500:]}"]
    return said, [json.dumps(one) for one in said.pop(faults)]


ATTACKS: dict[str, Callable[[Path], tuple[Figures, list[str]]]] = {
    one.__name__: one
    for one in (
        names, unseen, headers, half_open, silent, half_bodies, garbage, stranger, holes, passwords, certificates, ledger,
        folders, saves, crowd, crowd_postgres, resumed, kills, kills_postgres, crashes, values_folders, values_bodies, fuzz,
    )
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", choices=[[], *ATTACKS], help=", ".join(ATTACKS))
    parser.add_argument("--minutes", type=float, default=45.0, help="no attack is begun later")
    parser.add_argument("--size", type=float, default=1.0, help="share of the full number of repetitions")
    parser.add_argument("--page", action="store_true", help="only write the page")
    given = parser.parse_args()
    if given.page:
        write_page()
        return 0
    SIZE[0] = given.size
    began, results, broken, late = time.monotonic(), {}, [], []
    for name in given.attacks or ATTACKS:
        if time.monotonic() - began > 60 * given.minutes:
            late.append(name)
            continue
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="cicpe-attack-") as folder:
            figures, faults = ATTACKS[name](Path(folder))
        results[name] = figures | {"took_s": round(time.monotonic() - start, 1), "faults": faults}
        if given.size >= 1:  # a smaller run shows that the attacks work, and is no evidence
            keep(f"attack/{name}", results[name])
        broken += [f"{name}: {fault}" for fault in faults]
        print(f"{name}: {'held' if not faults else 'BROKEN ' + faults[0][:200]}", file=sys.stderr, flush=True)
    if given.size >= 1:
        write_page()
    print(json.dumps({"attacks": results, "not_run": late, "faults": broken}, indent=1))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
