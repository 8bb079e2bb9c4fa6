"""``cicpe sweep``: what a file asks for, real runs that are interrupted and go on, and every kind of bad file."""

import json
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cicpe
from cicpe.cli import sweep_runs
from cicpe.cli.main import main
from cicpe.cli.sweep_runs import LOG, Run, read_sweep, runs_of
from cicpe.errors import InvalidInput
from cicpe.training.callbacks import TrainingCallback
from cicpe.training.run import CHECKPOINT
from commands import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "sweep.toml"
TRAIN = {"noise": 0.1, "epsilon": 0.9, "updates": 6, "calibration-episodes": 256}
CELLS = [{"epsilon": 0.9, "delta": 0.4}]


def write(folder: Path, **changes: Any) -> Path:
    """A sweep over two seeds, as a file."""
    asked = {"problem": "binary-search", "out": str(folder / "out"), "cells": CELLS, "episodes": 200}
    asked |= {"train": TRAIN | {"dim": 1}, "product": {"seed": [0, 1]}}
    path = folder / "sweep.json"
    path.write_text(json.dumps({key: value for key, value in (asked | changes).items() if value is not None}))
    return path


def plan(folder: Path, **changes: Any) -> list[Run]:
    return runs_of(read_sweep(write(folder, **changes)))


def run_json(capsys: pytest.CaptureFixture[str], path: Path, *more: str) -> tuple[int, Any]:
    capsys.readouterr()
    code = main(["sweep", str(path), "--json", *more])
    out = capsys.readouterr().out
    return code, json.loads(out) if out else None


# --- real runs --------------------------------------------------------------------------------------


def interrupt_while_training(monkeypatch: pytest.MonkeyPatch, waits_for: Path) -> "list[subprocess.Popen[bytes]]":
    """Once a file is there, the sweep is interrupted at its next wait. Returns the processes that it starts."""
    children: list[subprocess.Popen[bytes]] = []
    start = sweep_runs._start

    def recorded(run: Run) -> "subprocess.Popen[bytes]":
        children.append(start(run))
        return children[-1]

    def sleep(seconds: float) -> None:
        if waits_for.exists() and children[-1].poll() is None:
            raise KeyboardInterrupt
        time.sleep(seconds)

    monkeypatch.setattr(sweep_runs, "_start", recorded)
    monkeypatch.setattr(sweep_runs, "time", types.SimpleNamespace(sleep=sleep))
    return children


def train_directly(seed: int, out: Path | None = None, callback: TrainingCallback | None = None) -> cicpe.Model:
    """What a run of the sweep trains, without the command line."""
    return cicpe.train(
        cicpe.make_problem("binary-search", dim=1, noise=0.1),
        epsilon=0.9,
        updates=6,
        calibration_episodes=256,
        seed=seed,
        out=out,
        checkpoint_seconds=0.0,
        callback=callback,
    )


def leave_a_checkpoint(run: Run, seed: int) -> None:
    """What an interruption after half of the updates leaves behind, had the checkpoint just been written."""

    def stop(trainer: Any) -> None:
        if trainer.progress > 0.4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_directly(seed, run.folder, TrainingCallback(on_iteration=stop))
    assert (run.folder / CHECKPOINT).exists()


@pytest.mark.slow  # two processes that import torch and train
def test_a_sweep_is_interrupted_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path)
    first, second = runs_of(read_sweep(path))
    assert [run.folder.name for run in (first, second)] == ["seed-0", "seed-1"]
    with pytest.MonkeyPatch.context() as patch:
        children = interrupt_while_training(patch, waits_for=second.folder / LOG)
        assert run_json(capsys, path) == (130, None)
    assert len(children) == 2
    assert all(child.returncode is not None for child in children)
    assert first.finished
    assert not second.finished
    before = {name: (first.folder / name).stat().st_mtime_ns for name in ("weights.safetensors", LOG)}

    leave_a_checkpoint(second, seed=1)
    (second.folder / LOG).unlink()
    code, found = run_json(capsys, path)
    assert code == 0
    assert {name: (first.folder / name).stat().st_mtime_ns for name in before} == before
    assert "no checkpoint" not in (second.folder / LOG).read_text()  # it went on, and did not begin again
    rows = found["rows"]
    assert [row["run"] for row in rows] == ["seed-0", "seed-1"]
    assert [row["settings"] for row in rows] == [{"seed": 0}, {"seed": 1}]
    assert found["failed"] == {}
    assert [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()] == rows
    for run, row in zip((first, second), rows, strict=True):
        model = cicpe.load(run.folder)
        figures = cicpe.evaluate(model, epsilon=0.9, delta=0.4, episodes=200)
        assert (row["accuracy"], row["mean_queries"]) == (figures.accuracy, figures.mean_queries)
        assert (row["model_sha256"], row["minutes"]) == (model.sha256, model.description.minutes)
        assert (model.description.threads, model.description.updates) == (1, 6)
    assert rows[0]["model_sha256"] != rows[1]["model_sha256"] == train_directly(1).sha256

    # Nothing is left to do: nothing is started, and the known figures are printed again, to the microsecond.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep_runs, "_start", None)
        assert run_json(capsys, path) == (0, found)
        # Other cells, one of them out of reach: they are measured, and nothing is trained.
        code, found = run_json(capsys, write(tmp_path, cells=[*CELLS, {"epsilon": 0.1, "delta": 0.4}]))
        assert [row["refused"] is None for row in found["rows"]] == [True, False] * 2
        assert found["rows"][::2] == rows
        assert "epsilon must be" in found["rows"][1]["refused"]
        code = main(["sweep", str(tmp_path / "sweep.json")])
        out = capsys.readouterr().out
    assert code == 0
    for words in ("seed", "accuracy", "queries", "minutes", "refused", "results.jsonl"):
        assert words in out


def test_a_run_that_fails_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(sweep_runs, "_start", pretend("print('error: no luck'); raise SystemExit(2)"))
    code, found = run_json(capsys, write(tmp_path), "--jobs", "2")
    assert code == 1
    assert found["rows"] == []
    assert found["failed"] == {"seed-0": "error: no luck", "seed-1": "error: no luck"}
    assert (tmp_path / "out" / "results.jsonl").read_text() == ""


def pretend(code: str) -> "Callable[[Run], subprocess.Popen[bytes]]":
    """In place of training: another program, whose output goes where a run's log lies."""

    def start(run: Run) -> "subprocess.Popen[bytes]":
        run.folder.mkdir(parents=True, exist_ok=True)
        with (run.folder / LOG).open("ab") as log:
            return subprocess.Popen([sys.executable, "-c", code], stdout=log, stderr=log)

    return start


def test_jobs_run_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sweep_runs, "_start", pretend("import time; print(time.time()); time.sleep(1); print(time.time())")
    )

    def overlap(jobs: int) -> bool:
        runs = plan(tmp_path / str(jobs))
        assert {run.folder: fault for run, fault in sweep_runs.train_here(runs, jobs)} == {r.folder: None for r in runs}
        (_, end), (begin, _) = sorted(tuple(map(float, (run.folder / LOG).read_text().split())) for run in runs)
        return begin < end

    for jobs in (1, 2):
        (tmp_path / str(jobs)).mkdir()
    assert overlap(2)
    assert not overlap(1)


# --- what a file asks for ---------------------------------------------------------------------------


def test_the_product_is_taken(tmp_path: Path) -> None:
    runs = plan(tmp_path, train=TRAIN, product={"seed": [0, 1, 2], "dim": [1, 2], "actor": ["ts", "uniform"]})
    assert len({run.folder for run in runs}) == 12
    assert runs[0].settings == {"seed": 0, "dim": 1, "actor": "ts"}
    assert runs[0].folder == tmp_path / "out" / "actor-ts_dim-1_seed-0"
    assert runs[-1].words == [
        *("train", "binary-search", "--actor", "uniform", "--calibration-episodes", "256", "--epsilon", "0.9"),
        *("--seed", "2", "--updates", "6", "--option", "dim=2", "--option", "noise=0.1"),
    ]
    (alone,) = plan(tmp_path, product={})
    assert (alone.folder.name, alone.settings) == ("run", {})


def test_ranges_are_values_too(tmp_path: Path) -> None:
    train = {"dim": 1, "updates": 6}
    runs = plan(tmp_path, train=train, product={"noise": [0.1, [0.05, 0.1]], "epsilon": [[0.1, 0.2]]})
    assert [run.folder.name for run in runs] == ["epsilon-0.1-0.2_noise-0.1", "epsilon-0.1-0.2_noise-0.05-0.1"]
    assert runs[1].words[-2:] == ["--option", "noise=[0.05, 0.1]"]


def test_the_example_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = runs_of(read_sweep(EXAMPLE))
    assert [run.settings for run in runs] == [{"dim": 1}, {"dim": 2}]


def test_a_folder_with_other_settings_is_refused(tmp_path: Path) -> None:
    run = plan(tmp_path)[0]
    run.folder.mkdir(parents=True)
    (run.folder / sweep_runs.ASKED).write_text(run.asked)
    assert plan(tmp_path)[0] == run
    with pytest.raises(InvalidInput, match=r"out must be .*other settings.*; got .*seed-0"):
        plan(tmp_path, train=TRAIN | {"dim": 2})
    (run.folder / sweep_runs.ASKED).unlink()
    (run.folder / "config.json").write_text("{}")  # a model that no sweep has made
    with pytest.raises(InvalidInput, match=r"out must be .*; got .*seed-0"):
        plan(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"problem": "nothing"}, ["problem must be", "got 'nothing'", "binary-search"]),
        ({"problem": None}, ["problem must be given", "got None"]),
        ({"colour": "red"}, ["colour must be", "got 'red'", "product"]),
        ({"cells": []}, ["cells must be", "got []", "at least 1"]),
        ({"cells": [{"epsilon": 0.1}]}, ["cells.0.delta"]),
        ({"episodes": 0}, ["episodes must be", "got 0"]),
        ({"product": {"seed": 3}}, ["product.seed must be", "got 3", "list"]),
        ({"product": {"seed": []}}, ["product.seed must be", "got []"]),
        ({"product": {"dim": [1, 2]}}, ["dim must be", "got 1", "train", "product"]),
        ({"product": {"seeds": [1, 2]}}, ["seeds must be", "got 1", "binary-search takes dim, noise", "seed"]),
        ({"product": {"noise": ["loud"]}, "train": {}}, ["noise must be", "got 'loud'", "float"]),
        ({"product": {"noise": [0.7]}, "train": {}}, ["noise must be", "got 0.7", "below 0.5"]),
        ({"product": {"actor": ["a b", "a-b"]}}, ["product must be", "got {'actor': 'a-b'}", "differ"]),
        ({"tasks": {"colour": "red"}}, ["colour must be", "got 'red'", "binary-search takes dim, noise"]),
    ],
)
def test_a_bad_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], words: list[str]
) -> None:
    assert main(["sweep", str(write(tmp_path, **changes))]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    for word in words:
        assert word in captured.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("s.toml", b"problem = ", "TOML"),
        ("s.json", b"[1", "JSON"),
        ("s.json", b"[1]", "dictionary"),
        ("s.toml", b"\xff", "TOML"),
        ("s.toml", b"[train]\nminutes = nan", "TOML"),
    ],
)
def test_what_is_no_sweep_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, word: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert main(["sweep", str(tmp_path / name)]) == 2
    assert word in capsys.readouterr().err
    assert main(["sweep", str(tmp_path / "nothing.toml")]) == 2
    assert "nothing.toml" in capsys.readouterr().err


# --- Ray --------------------------------------------------------------------------------------------


def test_without_ray_it_says_how_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["sweep", str(write(tmp_path)), "--backend", "ray"]) == 2
    assert "pip install ray" in capsys.readouterr().err
    assert main(["sweep", str(write(tmp_path)), "--backend", "cloud"]) == 2
    assert "local or ray" in capsys.readouterr().err


def test_with_ray_every_run_is_a_task_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in with the four functions that are used; Ray itself is not among the tools of the tests."""
    done: list[Run] = []

    def remote(**needs: int) -> Callable[[Callable[[Run], Any]], Any]:
        assert needs == {"num_cpus": 1}
        return lambda function: types.SimpleNamespace(
            remote=lambda run: done.append(run) or ("ref", function(run), run.folder)
        )

    ray = types.SimpleNamespace(
        init=lambda **options: None, remote=remote, wait=lambda refs: (refs[:1], refs[1:]), get=lambda ref: ref[1]
    )
    monkeypatch.setitem(sys.modules, "ray", ray)  # type: ignore[arg-type]
    monkeypatch.setattr(sweep_runs, "_start", pretend("raise SystemExit(0)"))
    runs = plan(tmp_path)
    assert list(sweep_runs.train_on_ray(runs)) == [(run, None) for run in runs]
    assert done == runs
