"""Values that nobody would write, in every place of a model's folder and of a request: refused in words, or harmless.

    python benchmarks/hostile_values.py folders --size 4000      # in every field of config, calibration and alarm
    python benchmarks/hostile_values.py bodies --size 4000       # in every field of every request

A folder is sealed again after the edit, as whoever made it could: all hashes fit. It is loaded, asked and told in a
process of its own, which may take half a minute and six gigabytes for one value. Some values name a program that lies
ready, by file and by module; it must not run. One JSON object is printed; ``faults`` lists what was not refused in
words, and is empty. The exit code says so too.
"""

import argparse
import hashlib
import itertools
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import cicpe
from cicpe import zoo
from cicpe.errors import CicpeError, UnservedWarning
from cicpe.experiments import Experiment
from cicpe.model import Model
from cicpe.problems import make_problem
from cicpe.sessions.tables import table_of
from cicpe.units import Readout, Scale, Units

ZOO = ("binary-search-6d", "ackley-3d", "gp-max-1d", "best-arm-5d", "geochem-2d")
UNITS = Units(
    title="Annealing",
    settings=(Scale(name="time", unit="min", low=10.0, high=240.0, log=True, step=1.0),),
    readout=Readout(name="hardness", unit="HV", low=-465.0, high=1035.0, origin=285.0, scale=67.5),
    answers=(Scale(name="hardness", unit="HV", low=-50.0, high=620.0, start=-5.0, extent=10.0),),
    epsilon=0.2,
    delta=0.1,
)
"""What an experiment file would have made of the coordinates of ``gp-max-1d``."""
PLANTED = ("planted.py:Problem", "planted:Problem", "{folder}/planted.py:Problem", "./planted", "../planted.py")
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**400, -(2**63) - 1, 0.5, -0.0, 1e-320, 1e30, -1e30, 1e308, "", "x",
    "\x00", "\ud800", "é" * 1000, "\x1b]0;x\x07", "<script>", "$\\frac{$", "NaN", "../../../etc/passwd", "os:system",
    [], [[]], [None], [0] * 1000, [1e30, -1e30], {}, {"kind": "x"}, {"": None}, "__class__",
)  # fmt: skip
DEEP = "[" * 100_000 + "]" * 100_000
PATIENCE, GIGABYTES = 30.0, 6
"""What one value may take."""


class Edit(NamedTuple):
    """One value in one place."""

    model: str
    file: str
    place: tuple[str | int, ...]
    value: Any


def places(data: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every field, and the first two entries of every list."""
    yield path
    if isinstance(data, dict):
        for name, below in data.items():
            yield from places(below, (*path, name))
    elif isinstance(data, list):
        for i, below in enumerate(data[:2]):
            yield from places(below, (*path, i))


def replaced(data: Any, place: tuple[str | int, ...], value: Any) -> Any:
    """The same with one value in the place of what was there."""
    if not place:
        return value
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[place[0]] = replaced(copy[place[0]], place[1:], value)
    return copy


def originals(folder: Path) -> dict[str, Path]:
    """The models that are edited: some of the zoo, one that speaks in units, and one of an experiment file."""
    found = {name: zoo.folder(name) for name in ZOO}
    plain = cicpe.load("gp-max-1d")
    replace(plain, description=plain.description.model_copy(update={"units": UNITS})).save(folder / "in-units")
    settings = {"first_batch": 16, "batch": 16, "horizon": 6, "adapt_horizon": False}
    options: dict[str, Any] = {"updates": 4, "calibration_episodes": 128, "settings": settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnservedWarning)  # it has learnt nothing, and need not
        cicpe.train(make_problem("dose-toxicity"), recipe="fast", out=folder / "of-a-file", **options)
    return found | {name: folder / name for name in ("in-units", "of-a-file")}


def edits(models: Mapping[str, Path], size: int) -> list[Edit]:
    """Edits of every place, as many as are wanted, the same ones every time."""
    found = []
    for model, folder in models.items():
        for file in ("config.json", "calibration.json", "alarm.json"):
            path = folder / file
            if path.exists():
                every = [place for place in places(json.loads(path.read_text())) if "files" not in place]
                found += [
                    Edit(model, file, place, value) for place, value in itertools.product(every, (*VALUES, *PLANTED))
                ]
    random.Random(0).shuffle(found)
    return found[:size]


def seal(folder: Path, config: Any) -> None:
    """Makes every hash fit, as whoever made the folder could."""
    from safetensors.torch import load_file, save_file

    from cicpe.model.description import Description
    from cicpe.model.folder import _content_hash, _description

    weights = folder / "weights.safetensors"
    if isinstance(config, dict) and isinstance(config.get("files"), dict):
        try:
            _, description = _description(folder / "config.json", json.dumps(config).encode())
            assert isinstance(description, Description)
            save_file(load_file(weights), weights, {"belief": description.identity})
        except CicpeError:
            pass  # it will be refused before anyone looks at the weights
        listed = [name for name in config["files"] if name != "config.json"]
        config["files"] = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in listed}
        config["files"]["config.json"] = _content_hash(config)
    (folder / "config.json").write_text(json.dumps(config))


def use(edit: Edit, original: Path, folder: Path) -> str:
    """Loads the edited folder, goes through a step of a campaign and plays; what became of it, in a word."""
    model_folder = folder / "model"
    shutil.rmtree(model_folder, ignore_errors=True)
    shutil.copytree(original, model_folder)
    value = edit.value.format(folder=folder) if edit.value in PLANTED else edit.value
    config = json.loads((model_folder / "config.json").read_text())
    if edit.file == "config.json":
        config = replaced(config, edit.place, value)
    else:
        path = model_folder / edit.file
        path.write_text(json.dumps(replaced(json.loads(path.read_text()), edit.place, value)))
    seal(model_folder, config)
    try:
        model = cicpe.load(model_folder)
    except CicpeError:
        return "refused"
    refused = sum(not _taken(model, part) for part in (run_campaign, play))
    return "refused" if refused else "harmless"


def _taken(model: Model, part: Callable[[Model], object]) -> bool:
    """Whether a model does something, and does not refuse it in words."""
    try:
        part(model)
    except CicpeError:
        return False
    return True


def run_campaign(model: Model) -> None:
    """Shows a model, takes a step, and shows all that can be seen of it."""
    model.card()
    session = model.session(model.calibration.epsilons[-1], model.calibration.deltas[-1])
    query = session.ask()
    session.tell([1.0] * model.description.observation_dim, confirm=True)
    session.skip("stuck")
    session.attach(query.tolist(), [0.5] * model.description.observation_dim, confirm=True)
    session.correct(1, [0.5] * model.description.observation_dim, confirm=True)
    session.status().model_dump_json()
    json.dumps(session.export(), allow_nan=False)
    table_of(session)
    session.trace()


def play(model: Model) -> None:
    """Plays two tasks, for which the problem is made."""
    epsilon, delta = model.calibration.epsilons[-1], model.calibration.deltas[-1]
    cicpe.evaluate(model, epsilon=epsilon, delta=delta, episodes=2)


def work(wanted: list[Edit], models: Mapping[str, Path], folder: Path, output: int) -> None:
    """The child: one line per edit."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (GIGABYTES * 2**30, GIGABYTES * 2**30))
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    for edit in wanted:
        try:
            word = use(edit, models[edit.model], folder)
        except BaseException as error:
            word = f"{type(error).__name__}: {str(error)[:200]}".replace("\n", " ")
        if (folder / "ran").exists():
            (folder / "ran").unlink()
            word = "RAN A PROGRAM"
        os.write(output, word.encode("utf-8", "replace") + b"\n")


def folders(size: int) -> dict[str, Any]:
    """Every edit, by children that are replaced where they break."""
    found, faults, tried, began = Counter[str](), list[str](), 0, time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="cicpe-originals-") as kept, tempfile.TemporaryDirectory() as name:
        models, folder = originals(Path(kept)), Path(name)
        waiting = edits(models, size)
        (folder / "planted.py").write_text("open('ran', 'w').close()\n")
        while waiting:
            for word in _child(waiting, models, folder):
                edit, tried = waiting.pop(0), tried + 1
                found[word if word in ("refused", "harmless") else "broken"] += 1
                if word not in ("refused", "harmless"):
                    faults.append(f"{edit.model}/{edit.file} {edit.place} = {str(edit.value)[:60]!r}: {word}")
    return {"values": tried, "found": dict(found), "seconds": time.perf_counter() - began, "faults": faults}


def _child(waiting: list[Edit], models: Mapping[str, Path], folder: Path) -> Iterator[str]:
    """What a child says of each edit, and a last word of our own where it takes too long or is gone."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            work(list(waiting), models, folder, writer)
        finally:
            os._exit(0)
    os.close(writer)
    missing, rest = len(waiting), b""
    try:
        while missing:
            ready, _, _ = select.select([reader], [], [], PATIENCE)
            data = os.read(reader, 65536) if ready else b""
            if not data:
                yield "took too long" if not ready else "the process ended"
                return
            *lines, rest = (rest + data).split(b"\n")
            missing -= len(lines)
            yield from (line.decode() for line in lines)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)


GOOD: dict[str, dict[str, Any]] = {
    "/campaigns": {
        "name": "titan", "model": ZOO[0], "epsilon": 0.2, "delta": 0.1, "seed": 0, "stop": "each", "verify": 0, "context": {}
    },
    "/campaigns/titan/tell": {
        "observation": [1.0] * 6, "expected_version": 0, "step": 1, "query": [0.0] * 6, "at": {}, "confirm": True
    },
    "/campaigns/titan/correct": {"observation": [1.0] * 6, "step": 1, "expected_version": 0},
    "/campaigns/titan/skip": {"reason": "", "expected_version": 0, "step": 1, "query": [0.0] * 6},
    "/campaigns/titan/attach": {"query": [0.0] * 6, "observation": [1.0] * 6, "expected_version": 0},
    "/campaigns/titan/undo": {"expected_version": 0},
    "/campaigns/titan/release": {"expected_version": 0, "reason": ""},
    "/campaigns/titan/verify": {"expected_version": 0, "queries": 1},
    "/campaigns/titan/fork": {"name": "copy"},
    "/campaigns/titan/restart": {"name": "again"},
    "/campaigns/titan/table": {"csv": "x1,y\n0.5,1\n", "confirm": True, "expected_version": 0},
    "/experiments/check": {"document": Experiment.read("michaelis-menten").document, "seed": 0},
    "/training": {"name": "mine", "document": Experiment.read("peak-1d").document, "minutes": 1, "seed": 0},
    "/training/cancel": {"id": "0123456789abcdef"},
}  # fmt: skip
RAW = (b"", b"{", b"\xff\xfe", b'{"name": 1e999}', b"NaN", b'{"a": "\xff"}', DEEP.encode(), b"[" * 5000, b'""')


def hostile_bodies() -> Iterator[tuple[str, bytes]]:
    """Every field of every request, missing, replaced, wrapped in a list, and one field too many; then mere bytes."""
    for path, good in GOOD.items():
        for place, value in itertools.product(list(places(good))[1:], (*VALUES, *PLANTED)):
            for made in (value, [value], {"a": value}):
                yield path, json.dumps(replaced(good, place, made)).encode()
        for field in good:
            yield path, json.dumps({name: value for name, value in good.items() if name != field}).encode()
        for value in VALUES:
            yield path, json.dumps(good | {"more": value}).encode()
            yield path, json.dumps(value).encode()
        for raw in RAW:
            yield path, raw


def bodies(size: int) -> dict[str, Any]:
    """Sends them, in an order of chance, to a campaign that is there; then it must still show itself."""
    from starlette.testclient import TestClient

    from cicpe.server.app import make_app
    from cicpe.sessions.stores import open_store

    waiting = list(hostile_bodies())
    random.Random(0).shuffle(waiting)
    codes, faults, began = Counter[int](), list[str](), time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="cicpe-bodies-") as name:
        store = open_store(Path(name) / "campaigns.db")
        client = TestClient(make_app(store), base_url="http://127.0.0.1", raise_server_exceptions=False)
        client.post("/api/campaigns", json=GOOD["/campaigns"]).raise_for_status()
        for path, body in waiting[:size]:
            headers = {"Content-Type": "application/json"}
            code = client.post(f"/api{path}", content=body, headers=headers).status_code
            codes[code] += 1
            if code >= 500:
                faults.append(f"{path} {body[:100]!r}: {code}")
        for part in ("", "/log", "/plot", "/export", "/table", "/ask"):
            code = client.get(f"/api/campaigns/titan{part}").status_code
            if code != 200:
                faults.append(f"titan{part} cannot be shown any more: {code}")
        store.close()
    found = {str(code): count for code, count in sorted(codes.items())}
    return {"values": sum(codes.values()), "codes": found, "seconds": time.perf_counter() - began, "faults": faults}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["folders", "bodies"])
    parser.add_argument("--size", type=int, default=4000)
    given = parser.parse_args()
    result = folders(given.size) if given.what == "folders" else bodies(given.size)
    print(json.dumps(result, indent=1))
    return 1 if result["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
