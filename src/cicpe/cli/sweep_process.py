"""One run of a sweep, in a process of its own: wherever a worker is, and whatever becomes of the run.

Nothing heavy is imported here: a worker only starts the process that trains (``sweep_child.py``) and waits for it.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from cicpe.files import write_atomic

LOG, FIGURES, MODEL = "train.log", "figures.json", "config.json"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
PATIENCE = 30.0
"""Seconds that an interrupted run has to end."""

Files = dict[str, bytes]
"""What is in a folder, by the names from there."""


class Study(NamedTuple):
    """What all runs of a sweep have in common."""

    problem: str
    problem_file: str
    """The file in its name, where it is a user's own; empty otherwise."""
    problem_files: Files
    """That file and the neighbours that it imports, where the run travels: they travel with it."""
    tasks: dict[str, Any]
    episodes: int
    travels: bool
    """Whether a run is done in a folder that only its worker sees."""
    trajectories: int = 1


class RunRequest(NamedTuple):
    """One run: what is left to do of it."""

    folder: Path
    words: Sequence[str]
    """Of the command that trains it."""
    cells: Sequence[dict[str, Any]]
    """Where it is to be measured; those that are known are left out."""
    files: Files
    """What its folder holds already, where the run travels."""


class RunResult(NamedTuple):
    """What came of it."""

    figures: list[dict[str, Any]]
    """One per cell, with how every episode ended."""
    fault: str | None
    """What went wrong, if anything did."""
    files: Files
    """What its folder holds, where the run travels."""


def do_run(study: Study, request: RunRequest) -> RunResult:
    """Trains a model where there is none, measures it, and says what came of it; a run that fails is a result too.

    Args:
        study: The sweep.
        request: The run.

    Returns:
        Figures, or what went wrong.
    """
    with _workplace(study, request) as (folder, problem):
        (folder / FIGURES).unlink(missing_ok=True)
        asked = {
            "train": [*request.words[:1], problem, *request.words[2:], "--out", str(folder), "--resume"],
            "folder": str(folder),
            "problem": problem if study.problem_files and ":" in problem else None,
            "cells": list(request.cells),
            "tasks": study.tasks,
            "episodes": study.episodes,
            "trajectories": study.trajectories,
        }
        fault = _finish(start(folder, asked), folder)
        figures = [] if fault is not None else json.loads((folder / FIGURES).read_bytes())
        (folder / FIGURES).unlink(missing_ok=True)
        return RunResult(figures, fault, read_files(folder) if study.travels else {})


@contextmanager
def _workplace(study: Study, request: RunRequest) -> Iterator[tuple[Path, str]]:
    """The folder of a run and the name of its problem there."""
    with TemporaryDirectory() if study.travels else nullcontext(request.folder) as place:
        folder, problem = Path(place), study.problem
        if study.travels:
            if study.problem_files:
                there = folder / "problem" / Path(study.problem_file).name
                problem = study.problem.replace(study.problem_file, str(there), 1)
                write_files(folder / "problem", study.problem_files)
            folder = folder / "run"
            write_files(folder, request.files)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder, problem


def start(folder: Path, asked: Mapping[str, Any]) -> "subprocess.Popen[bytes]":
    """Begins a run, or goes on from its checkpoint. It ends when its standard input does, so it outlives nobody."""
    with (folder / LOG).open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "cicpe.cli.sweep_child"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=os.environ | ONE_THREAD,
        )
    assert child.stdin is not None
    child.stdin.write(json.dumps(asked).encode() + b"\n")
    child.stdin.flush()
    return child


def _finish(child: "subprocess.Popen[bytes]", folder: Path) -> str | None:
    """Waits for a run; what went wrong, if anything did."""
    try:
        code = child.wait()
    finally:
        assert child.stdin is not None
        child.stdin.close()
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
            try:
                child.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
    if code == 0 and (folder / FIGURES).exists():
        return None
    lines = (folder / LOG).read_text(encoding="utf-8", errors="replace").split("\n")
    log_lines = [line for line in lines if line.strip()]
    return log_lines[-1] if log_lines and code > 0 else f"ended by signal {-code}" if code < 0 else f"exit code {code}"


def read_files(folder: Path) -> Files:
    """All files of a folder; none where there is no such folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def write_files(folder: Path, files: Files) -> None:
    """Writes them, and last of all the description that makes a model of a folder."""
    for name in sorted(files, key=lambda name: name == MODEL):
        write_atomic(folder / name, files[name])
