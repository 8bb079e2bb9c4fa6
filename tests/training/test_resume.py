"""Interrupted training goes on bit for bit: killed at every stage of a write and at random, then resumed."""

import json
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import cicpe
from cicpe import files
from cicpe.model.model import Model
from cicpe.training.base import AnyTrainer
from small_runs import train_with_checkpoints as train


def log_of(folder: Path) -> list[dict[str, Any]]:
    """Every line of the log, without the wall-clock in it."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


# Killed. A process dies by SIGKILL, from inside at a chosen call or from outside at a random moment.

FORKS = multiprocessing.get_context("forkserver")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying(function: Callable[..., Any], call: int, before: Callable[..., None] | None) -> Callable[..., Any]:
    """``function``, killed at its ``call``-th call: before it runs (after ``before``), or just after."""
    count = 0

    def counted(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == call and before is not None:
            before(*arguments)
            die()
        result = function(*arguments)
        if count == call:
            die()
        return result

    return counted


def halve(descriptor: int) -> None:
    """Leaves a file half written."""
    os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)


def nothing(*arguments: Any) -> None:
    pass


# Each checkpoint syncs its file and its folder, then renames: call 2 k - 1 of fsync is the k-th file.
MOMENTS: dict[str, tuple[str, int, Callable[..., None] | None]] = {
    "in the first checkpoint": ("fsync", 1, halve),
    "half of a checkpoint written": ("fsync", 9, halve),
    "checkpoint written, not synced": ("fsync", 7, nothing),
    "before the rename": ("replace", 4, nothing),
    "after the rename": ("replace", 5, None),
}


def work(folder: Path, moment: str | None) -> None:
    torch.set_num_threads(1)
    if moment is not None:
        name, call, before = MOMENTS[moment]
        setattr(files.os, name, dying(getattr(os, name), call, before))
    train(folder, resume=True)


def start(folder: Path, moment: str | None = None) -> Any:
    process = FORKS.Process(target=work, args=(folder, moment))
    process.start()
    return process


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    FORKS.set_forkserver_preload(["cicpe.api", "torch.utils.tensorboard", "torch._dynamo", "pytest"])
    folder = tmp_path_factory.mktemp("a")
    process = start(folder)
    process.join(120)
    assert process.exitcode == 0
    return folder


def finish_and_compare(folder: Path, uninterrupted: Path) -> None:
    process = start(folder)
    process.join(120)
    assert process.exitcode == 0
    assert log_of(folder) == log_of(uninterrupted)
    for name in ("weights.safetensors", "checkpoint.safetensors"):
        ours, theirs = load_file(folder / name), load_file(uninterrupted / name)
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert torch.equal(ours[key], theirs[key]), key
    assert (folder / "calibration.json").read_bytes() == (uninterrupted / "calibration.json").read_bytes()
    assert Model.load(folder).sha256 == Model.load(uninterrupted).sha256


def test_killed_at_every_stage_of_a_write(uninterrupted: Path, tmp_path: Path) -> None:
    for moment in MOMENTS:
        process = start(tmp_path, moment)
        process.join(120)
        assert process.exitcode == -signal.SIGKILL, moment
    # What the kills left behind is there, and in nobody's way.
    assert len(list(tmp_path.glob(".checkpoint.safetensors.*.tmp"))) == 4
    finish_and_compare(tmp_path, uninterrupted)


def test_killed_at_random_moments(uninterrupted: Path, tmp_path: Path) -> None:
    rng = random.Random(0)
    checkpoint = tmp_path / "checkpoint.safetensors"
    kills = 0
    for _ in range(5):
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        process = start(tmp_path)
        # Wait until it writes, so that the kill falls into training, then a little more.
        for _ in range(10_000):
            if not process.is_alive() or (checkpoint.exists() and checkpoint.stat().st_mtime_ns != before):
                break
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.04))
        process.kill()
        process.join(60)
        kills += process.exitcode == -signal.SIGKILL
    assert kills >= 3
    finish_and_compare(tmp_path, uninterrupted)


def test_resuming_a_run_that_had_ended_changes_nothing(uninterrupted: Path) -> None:
    log, weights = log_of(uninterrupted), (uninterrupted / "weights.safetensors").read_bytes()
    train(uninterrupted, resume=True)
    assert log_of(uninterrupted) == log
    assert (uninterrupted / "weights.safetensors").read_bytes() == weights


# The log.


def run_to(folder: Path, update: int) -> None:
    """Trains up to an update and is interrupted there, as by control-C."""

    def on_iteration(trainer: AnyTrainer) -> None:
        if trainer.at.update >= update:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(folder, callback=cicpe.TrainingCallback(on_iteration=on_iteration))


def test_a_half_written_line_of_the_log_is_dropped(uninterrupted: Path, tmp_path: Path) -> None:
    run_to(tmp_path, 20)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"update": 20, "inference": 0.12')
    train(tmp_path, resume=True)
    assert log_of(tmp_path) == log_of(uninterrupted)


def test_a_kill_while_the_log_is_rewound_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_to(tmp_path, 20)
    before = log_of(tmp_path)

    def killed(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, resume=True)
    assert log_of(tmp_path) == before


def test_without_resume_a_run_starts_afresh(tmp_path: Path) -> None:
    run_to(tmp_path, 20)
    train(tmp_path, updates=4)
    assert [line["update"] for line in log_of(tmp_path) if "look" not in line] == [2, 4]


def test_resume_without_a_checkpoint_starts_at_the_beginning(tmp_path: Path) -> None:
    train(tmp_path, updates=4, resume=True)
    assert [line["update"] for line in log_of(tmp_path) if "look" not in line] == [2, 4]
