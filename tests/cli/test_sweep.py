"""``cicpe sweep``: what a file asks for, real runs that are interrupted and go on, and every kind of bad file."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cicpe
from cicpe.cli import sweep_process, sweep_runs
from cicpe.cli.main import main
from cicpe.cli.sweep_process import LOG, RunRequest
from cicpe.cli.sweep_runs import Run, read_sweep, runs_of, study_of
from cicpe.errors import InvalidInput
from cicpe.reporting.sweep_results import SweepResults
from cicpe.training.callbacks import TrainingCallback
from cicpe.training.run import CHECKPOINT
from commands import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "sweep.toml"
TRAIN = {"noise": 0.1, "epsilon": 0.9, "updates": 6, "calibration-episodes": 256}
CELLS = [{"epsilon": 0.9, "delta": 0.4}]
START = sweep_process.start


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


def interrupt_the_second(monkeypatch: pytest.MonkeyPatch) -> "list[subprocess.Popen[bytes]]":
    """The sweep is interrupted once its second run has begun. Returns the processes that it starts."""
    children: list[subprocess.Popen[bytes]] = []

    def started(folder: Path, asked: Any) -> "subprocess.Popen[bytes]":
        children.append(START(folder, asked))
        if len(children) == 2:
            monkeypatch.setattr(children[-1], "wait", interrupted)
        return children[-1]

    def interrupted(timeout: float | None = None) -> int:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep_process, "start", started)
    return children


@pytest.mark.slow  # processes that import torch and train
def test_a_sweep_is_interrupted_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path)
    first, second = runs_of(read_sweep(path))
    assert [run.name for run in (first, second)] == ["seed-0", "seed-1"]
    with pytest.MonkeyPatch.context() as patch:
        children = interrupt_the_second(patch)
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
    kept = SweepResults(tmp_path / "out" / "results.sqlite").rows()
    for run, row, whole in zip((first, second), rows, kept, strict=True):
        model = cicpe.load(run.folder)
        figures = cicpe.evaluate(model, epsilon=0.9, delta=0.4, episodes=200)
        assert (row["accuracy"], row["mean_queries"]) == (figures.accuracy, figures.mean_queries)
        assert (row["model_sha256"], row["minutes"]) == (model.sha256, model.description.minutes)
        assert (model.description.threads, model.description.updates) == (1, 6)
        assert whole.all_queries.tolist() == figures.outcomes.queries.tolist()
        assert whole.all_losses.tolist() == figures.outcomes.loss.tolist()
    assert rows[0]["model_sha256"] != rows[1]["model_sha256"] == train_directly(1).sha256

    # Nothing is left to do: nothing is started, and the known figures are printed again, to the microsecond.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep_process, "start", None)
        assert run_json(capsys, path) == (0, found)
    # Other cells, one of them out of reach: they are measured, and nothing is trained.
    code, found = run_json(capsys, write(tmp_path, cells=[*CELLS, {"epsilon": 0.1, "delta": 0.4}]))
    assert (first.folder / "weights.safetensors").stat().st_mtime_ns == before["weights.safetensors"]
    assert [row["refused"] is None for row in found["rows"]] == [True, False] * 2
    assert found["rows"][::2] == rows
    assert "epsilon must be" in found["rows"][1]["refused"]
    assert main(["sweep", str(tmp_path / "sweep.json")]) == 0
    out = capsys.readouterr().out
    for words in ("seed", "accuracy", "queries", "minutes", "refused", "results.sqlite"):
        assert words in out


def pretend(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """In place of training: another program, which is run in the run's folder."""

    def start(folder: Path, asked: Any) -> "subprocess.Popen[bytes]":
        with (folder / LOG).open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder
            )

    monkeypatch.setattr(sweep_process, "start", start)


@pytest.mark.slow
def test_several_plays_of_a_task_are_of_tasks_of_their_own_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seeds, tasks and trajectories are nested: two seeds are not judged on the same tasks."""
    path = write(tmp_path, episodes=8, trajectories=3)
    code, result = run_json(capsys, path)
    assert code == 0
    assert [(row["seed"], row["episodes"], row["trajectories"]) for row in result["rows"]] == [(0, 24, 3), (1, 24, 3)]
    first, second = (row.all_losses.reshape(8, 3) for row in SweepResults(tmp_path / "out" / "results.sqlite").rows())
    assert len(first) == len(second) == 8
    # Fewer plays are another question; what is known of the first stays.
    _, again = run_json(capsys, write(tmp_path, episodes=8))
    assert [(row["seed"], row["trajectories"]) for row in again["rows"]] == [(0, 1), (0, 1)]


def test_a_run_that_fails_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = "import os; print('error: no luck'); raise SystemExit(2)"
    killed = "import os, signal; print('so far so good', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    works = "open('figures.json', 'w').write('[]')"
    which = f"import os; name = os.path.basename(os.getcwd())\nexec({{'seed-0': {fails!r}, 'seed-1': {killed!r}}}.get("
    pretend(monkeypatch, f"{which}name, {works!r}))")
    code, found = run_json(capsys, write(tmp_path, product={"seed": [0, 1, 2]}))
    assert code == 1
    assert found["rows"] == []
    assert found["failed"] == {"seed-0": "error: no luck", "seed-1": "ended by signal 9"}
    assert SweepResults(tmp_path / "out" / "results.sqlite").failures() == found["failed"]
    pretend(monkeypatch, works)
    code, found = run_json(capsys, write(tmp_path, product={"seed": [0, 1, 2]}))
    assert (code, found["failed"]) == (0, {})
    assert SweepResults(tmp_path / "out" / "results.sqlite").failures() == {}


def test_a_terminal_shows_a_table_of_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, "print('error: no luck'); raise SystemExit(2)")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["sweep", str(write(tmp_path)), "--json"]) == 1
    shown = capsys.readouterr().err
    assert shown.count("seed-1") >= 2  # as it was, and as it became
    assert "waiting" in shown
    assert "failed: error: no luck" in shown


def test_a_run_ends_when_whoever_started_it_is_gone(tmp_path: Path) -> None:
    """It would train on, with nobody to hear of it."""
    asked = {
        "train": ["demo"],
        "folder": str(tmp_path),
        "problem": None,
        "cells": [],
        "tasks": {},
        "episodes": 1,
        "trajectories": 1,
    }
    # As a shell does for whatever it starts in the background.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        child = sweep_process.start(tmp_path, asked)
    finally:
        signal.signal(signal.SIGINT, before)
    assert child.stdin is not None
    child.stdin.close()
    try:
        assert child.wait(120) != 0
    finally:
        child.kill()


@pytest.mark.slow  # workers and processes
def test_runs_of_several_jobs_are_the_same_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With three workers too: the same models and figures to the last digit, times aside."""

    def figures(jobs: int) -> list[Any]:
        (tmp_path / str(jobs)).mkdir()
        code, found = run_json(capsys, write(tmp_path / str(jobs), product={"seed": [0, 1, 2]}), "--jobs", str(jobs))
        assert code == 0
        return [
            {key: value for key, value in row.items() if key not in ("minutes", "seconds")} for row in found["rows"]
        ]

    assert figures(1) == figures(3)


# --- runs that travel ---------------------------------------------------------------------------------


def test_a_run_that_travels_takes_its_problem_along_and_brings_its_model_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the worker is, neither the problem's file nor the sweep's folder is there."""
    (tmp_path / "beside.py").write_text("HIGH = 2.0\n")
    (tmp_path / "mine.py").write_text(MINE)
    sweep = read_sweep(write(tmp_path, problem=f"{tmp_path}/mine.py:Mine", train={"updates": 1}, product={}))
    study = study_of(sweep, travels=True)
    assert set(study.problem_files) == {"mine.py", "beside.py"}
    seen = "import json, sys; asked = json.loads(sys.stdin.readline()); file = asked['problem'].rpartition(':')[0]; "
    seen += "import os; assert not file.startswith(os.environ['HOME_OF_THE_SWEEP']), file; "
    seen += "assert os.path.exists(os.path.join(os.path.dirname(file), 'beside.py')); "
    seen += "assert asked['train'][1] == asked['problem']; assert open('checkpoint').read() == 'half'; "
    seen += "open('config.json', 'w').write('{}'); open('figures.json', 'w').write('[]')"
    monkeypatch.setenv("HOME_OF_THE_SWEEP", str(tmp_path))

    def start(folder: Path, asked: Any) -> "subprocess.Popen[bytes]":
        with (folder / LOG).open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-c", seen], stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder
            )
        assert child.stdin is not None
        child.stdin.write(json.dumps(asked).encode() + b"\n")
        child.stdin.flush()
        return child

    monkeypatch.setattr(sweep_process, "start", start)
    request = RunRequest(tmp_path / "out" / "run", ["train", sweep.problem], [], {"checkpoint": b"half"})
    result = sweep_process.do_run(study, request)
    assert (result.fault, result.figures) == (None, [])
    assert set(result.files) == {"checkpoint", "config.json", LOG}
    assert not request.folder.exists()
    sweep_process.write_files(request.folder, result.files)
    assert (request.folder / "config.json").read_text() == "{}"


MINE = """
import torch, cicpe
from beside import HIGH

class Mine(cicpe.Problem):
    query_space = answer_space = cicpe.Box(low=[0.0], high=[HIGH])
    def sample(self, n, rng):
        return torch.rand(n, 1, generator=rng)
    def observe(self, task, query, rng):
        return query - task
    def target(self, task):
        return task
"""


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
