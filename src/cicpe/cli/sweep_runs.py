"""The runs of a sweep: what its file asks for, and what is left to do of it."""

import itertools
import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from cicpe.cli.sweep_process import MODEL, RunRequest, Study, read_files
from cicpe.cli.tasks import typed_options
from cicpe.errors import InvalidInput, allowed_by
from cicpe.problems import make_problem
from cicpe.problems.source import neighbours
from cicpe.reporting.sweep_results import SweepRow
from cicpe.training.run import CHECKPOINT

FLAGS = ("actor", "calibration-episodes", "epsilon", "minutes", "recipe", "seed", "updates")
"""What a file says to ``cicpe train``; any other name is an option of the problem."""
ASKED = "run.json"


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
    """Fresh tasks in every cell."""
    trajectories: int = Field(default=1, ge=1)
    """Plays of each task; where there are several, every seed of training has tasks of its own."""
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
    def name(self) -> str:
        """The last part of its folder."""
        return self.folder.name

    @property
    def finished(self) -> bool:
        """Whether its model is there: its description is written last."""
        return (self.folder / MODEL).exists()

    @property
    def model_sha256(self) -> str | None:
        """The hash of its weights, as the model's own description has it; None where there is no model yet."""
        try:
            return str(json.loads((self.folder / MODEL).read_bytes())["files"]["weights.safetensors"])
        except (OSError, ValueError, KeyError, TypeError):
            return None


def read_sweep(path: Path) -> Sweep:
    """The sweep in a file, or an error that says which part of it is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        return Sweep.model_validate(json.loads(json.dumps(document, default=str, allow_nan=False)))
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


def left_to_do(sweep: Sweep, runs: Sequence[Run], known: Sequence[SweepRow], travels: bool) -> dict[str, RunRequest]:
    """What is not done yet, by the names of runs: training, or the figures of some cells.

    Args:
        sweep: What was asked for.
        runs: All of its runs.
        known: The figures that are kept already.
        travels: Whether runs are done elsewhere, and take with them what their folders hold.

    Returns:
        A request for every run that is not complete.
    """
    kept = {(row.run, row.row["asked"], row.row["model_sha256"]) for row in known}
    requests = {}
    for run in runs:
        sha256 = run.model_sha256
        cells = [cell for cell in _cells(sweep) if (run.name, cell["asked"], sha256) not in kept]
        if cells:
            files = read_files(run.folder) if travels else {}
            requests[run.name] = RunRequest(run.folder, run.words, cells, files)
    return requests


def wanted_rows(sweep: Sweep, runs: Sequence[Run], known: Sequence[SweepRow]) -> list[dict[str, Any]]:
    """The rows of the runs and cells that were asked for, as they are printed; other ones of the file are left out."""
    rows = {(row.run, row.row["asked"], row.row["model_sha256"]): row for row in known}
    selected = [rows.get((run.name, cell["asked"], run.model_sha256)) for run in runs for cell in _cells(sweep)]
    return [
        {"run": row.run, "settings": row.settings} | row.row | {"asked": json.loads(row.row["asked"])}
        for row in selected
        if row is not None
    ]


def _cells(sweep: Sweep) -> list[dict[str, Any]]:
    """Where models are measured, each with what its figures are known by."""
    common: dict[str, Any] = {"episodes": sweep.episodes, "tasks": sweep.tasks}
    if sweep.trajectories > 1:  # otherwise figures are known by what they were known by before there were several
        common["trajectories"] = sweep.trajectories
    cells = [cell.model_dump() for cell in sweep.cells]
    return [cell | {"asked": json.dumps(cell | common)} for cell in cells]


def study_of(sweep: Sweep, travels: bool) -> Study:
    """What all runs have in common, with the program of a problem that is a user's own file."""
    program, colon, _ = sweep.problem.rpartition(":")
    file, files = program if colon else sweep.problem, dict[str, bytes]()
    path = Path(file)
    if travels and path.is_file():
        files = {name: neighbour.read_bytes() for name, neighbour in neighbours(path).items()} if colon else {}
        files[path.name] = path.read_bytes()
    return Study(sweep.problem, file if files else "", files, sweep.tasks, sweep.episodes, travels, sweep.trajectories)
