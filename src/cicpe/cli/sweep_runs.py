"""The runs of a sweep: what its file asks for, the processes that train, and what each model is worth."""

import importlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from cicpe.cli.evaluate import measured
from cicpe.cli.tasks import tasks_of, typed_options
from cicpe.cli.train import NOT_RELIABLE
from cicpe.errors import InvalidInput, allowed_by
from cicpe.files import write_atomic
from cicpe.model import load
from cicpe.problems import make_problem
from cicpe.training.run import CHECKPOINT

FLAGS = ("actor", "calibration-episodes", "epsilon", "minutes", "recipe", "seed", "updates")
"""What a file says to ``cicpe train``; any other name is an option of the problem."""
ASKED, LOG = "run.json", "train.log"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Cell(BaseModel, extra="forbid", allow_inf_nan=False):
    """Where a model is measured; without a noise level, on the range that it was trained for."""

    epsilon: float
    delta: float
    noise: float | None = None


class Sweep(BaseModel, extra="forbid"):
    """The content of a file: a run for every combination of the values in ``product``."""

    problem: str
    out: Path
    cells: list[Cell] = Field(min_length=1)
    episodes: int = Field(default=1000, ge=1)
    train: dict[str, Any] = {}
    product: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}
    tasks: dict[str, Any] = {}
    """Options of the problem that are replaced where models are measured."""


class Run(NamedTuple):
    """One of them."""

    folder: Path
    settings: dict[str, Any]
    """Its values in the product."""
    words: list[str]
    """Of the command that trains it."""

    @property
    def asked(self) -> str:
        """The same as its folder keeps it, to know it by."""
        return json.dumps(self.words, indent=1) + "\n"

    @property
    def finished(self) -> bool:
        """Whether its model is there: ``config.json`` is written last."""
        return (self.folder / "config.json").exists()


Trained = Generator[tuple[Run, str | None], None, None]
"""Each run as it ends, and its fault, if it has one."""


def read_sweep(path: Path) -> Sweep:
    """The sweep in a file, or an error that says which part of it is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        return Sweep.model_validate(json.loads(json.dumps(found, default=str, allow_nan=False)))
    except ValidationError as error:
        fault = error.errors()[0]
        value = None if fault["type"] == "missing" else fault["input"]
        allowed = f"{allowed_by(fault['msg'])}; a sweep has {', '.join(Sweep.model_fields)}"
        raise InvalidInput(".".join(map(str, fault["loc"])) or "file", value, allowed) from None
    except ValueError as error:
        raise InvalidInput("file", str(path), f"TOML, or JSON in a file that ends in .json ({error})") from None


def runs_of(sweep: Sweep) -> list[Run]:
    """Every run, once it is known that its problem can be made and that its folder is its own."""
    for key in sweep.train.keys() & sweep.product.keys():
        raise InvalidInput(key, sweep.train[key], "either in train or in product, not in both")
    runs: dict[Path, Run] = {}
    for values in itertools.product(*sweep.product.values()):
        run = _run(sweep, dict(zip(sweep.product, values, strict=True)))
        if runs.setdefault(run.folder, run) != run:
            raise InvalidInput("product", run.settings, "values that differ in their letters and digits")
        asked = run.folder / ASKED
        if asked.exists() and asked.read_text(encoding="utf-8") == run.asked:
            continue
        if asked.exists() or run.finished or (run.folder / CHECKPOINT).exists():
            raise InvalidInput("out", str(run.folder), "a folder without a run of other settings; choose another")
    return list(runs.values())


def _run(sweep: Sweep, chosen: dict[str, Any]) -> Run:
    words, options = ["train", sweep.problem], {}
    for key, value in sorted((sweep.train | chosen).items()):
        flag = key.replace("_", "-")
        if flag in FLAGS:
            words += [f"--{flag}", *map(str, value if isinstance(value, list) else [value])]
        else:
            options[key] = value
    _check_problem(sweep.problem, options)
    _check_problem(sweep.problem, options | sweep.tasks)
    words += itertools.chain.from_iterable(("--option", pair) for pair in _pairs(options))
    name = "_".join(re.sub(r"[^\w.+-]+", "-", pair).strip("-") for pair in _pairs(dict(sorted(chosen.items()))))
    return Run(sweep.out.resolve() / (name or "run"), chosen, words)


def _pairs(options: dict[str, Any]) -> list[str]:
    return [f"{key}={json.dumps(value)}" for key, value in options.items()]


def _check_problem(problem: str, options: dict[str, Any]) -> None:
    try:
        make_problem(problem, **typed_options(problem, options))
    except InvalidInput as error:
        if error.field not in options:
            raise
        raise InvalidInput(error.field, error.value, f"{error.allowed}; training takes {', '.join(FLAGS)}") from None


def train_here(runs: Sequence[Run], jobs: int) -> Trained:
    """Trains ``jobs`` runs at a time. Interrupted, it interrupts those under way."""
    waiting, under_way = list(runs), list[tuple[Run, "subprocess.Popen[bytes]"]]()
    try:
        while waiting or under_way:
            while waiting and len(under_way) < jobs:
                under_way.append((waiting[0], _start(waiting.pop(0))))
            for run, child in [pair for pair in under_way if pair[1].poll() is not None]:
                under_way.remove((run, child))
                yield run, _fault(run, child)
            time.sleep(0.05)
    finally:
        for _, child in under_way:
            child.send_signal(signal.SIGINT)
        for _, child in under_way:
            child.wait()


def train_on_ray(runs: Sequence[Run]) -> Trained:
    """The same, wherever Ray has a free processor; all its machines have to see the sweep's folder."""
    ray = the_ray()
    ray.init(ignore_reinit_error=True)
    train = ray.remote(num_cpus=1)(lambda run: _fault(run, _start(run)))
    waiting = {train.remote(run): run for run in runs}
    while waiting:
        for ended in ray.wait(list(waiting))[0]:
            yield waiting.pop(ended), ray.get(ended)


def the_ray() -> Any:
    """Ray, or an error that says how to get it."""
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError:
        raise InvalidInput("backend", "ray", "local, as ray is not installed here: pip install ray") from None


def _start(run: Run) -> "subprocess.Popen[bytes]":
    """Begins a run, or goes on from its checkpoint."""
    write_atomic(run.folder / ASKED, run.asked.encode())
    command = [sys.executable, "-m", "cicpe", *run.words, "--out", str(run.folder), "--resume"]
    with (run.folder / LOG).open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | ONE_THREAD)


def _fault(run: Run, child: "subprocess.Popen[bytes]") -> str | None:
    """Waits for a run; what went wrong, if anything did."""
    if child.wait() == 0 or (child.returncode == NOT_RELIABLE and (run.folder / "config.json").exists()):
        return None
    lines = (run.folder / LOG).read_text(encoding="utf-8", errors="replace").splitlines()
    return lines[-1] if lines else f"exit code {child.returncode}"


def measure(run: Run, sweep: Sweep, known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for every cell: one that is known already, or the figures of fresh tasks, or why the model refuses."""
    model, rows = load(run.folder), []
    for cell in sweep.cells:
        asked = cell.model_dump() | {"episodes": sweep.episodes, "tasks": sweep.tasks}
        about = {"run": run.folder.name, "settings": run.settings, "asked": asked, "model_sha256": model.sha256}
        row = next((row for row in known if about.items() <= row.items()), None)
        if row is None:
            row = about | cell.model_dump() | {"minutes": model.description.minutes, "refused": None}
            try:
                played = tasks_of(model, None, _pairs(sweep.tasks), cell.noise)
                row |= measured(model, played, cell.epsilon, cell.delta, episodes=sweep.episodes)
            except InvalidInput as error:
                row["refused"] = str(error)
        rows.append(row)
    return rows
