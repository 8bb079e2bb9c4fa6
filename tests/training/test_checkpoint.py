"""Interrupted training goes on bit for bit: killed at every stage of a write and at random, then resumed."""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import cicpe
from cicpe import files
from cicpe.beliefs.network.memories.regression import RegressionConfig
from cicpe.beliefs.network.network import NetworkConfig
from cicpe.errors import CheckpointError
from cicpe.model import Model
from cicpe.problems import Problem, make_problem
from cicpe.problems.ackley import Ackley
from cicpe.problems.best_arm import BestArm
from cicpe.problems.binary_search import BinarySearch
from cicpe.problems.per_task import PerTaskProblem
from cicpe.spaces import Box
from cicpe.training.checkpoint import restore_checkpoint, save_checkpoint
from cicpe.training.config import TrainingConfig
from cicpe.training.loop import Trainer
from cicpe.training.recipes import choose
from cicpe.training.schedule import Budget

TINY: dict[str, Any] = {"first_batch": 12, "batch": 16, "horizon": 5, "query_scales": (0.5,)}
UPDATES = 40


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Sums are the same in every process only if they are made in the same order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def train(folder: Path, **options: Any) -> Model:
    # A checkpoint after every iteration, and an adapted horizon, so that there is much to get wrong.
    given = {
        "updates": UPDATES,
        "epsilon": (0.3, 0.6),
        "out": folder,
        "checkpoint_seconds": 0.0,
        "calibration_episodes": 100,
        "settings": TINY,
    }
    return cicpe.train(BinarySearch(dim=1), **(given | options))


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

    def on_iteration(trainer: Trainer) -> None:
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


# Every recipe and memory: a trainer that is written down and restored goes on exactly.


class OneByOne(PerTaskProblem):
    """Tasks that are NumPy objects, drawn again from their seed on restoring."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])

    def sample_one(self, rng: np.random.Generator) -> Any:
        return {"target": rng.random()}

    def observe_one(self, task: Any, query: np.ndarray, rng: np.random.Generator) -> float:
        return float(task["target"] - query[0] + 0.1 * rng.normal())

    def target_one(self, task: Any) -> float:
        return float(task["target"])


"""Two lessons, so that the third iteration is an update."""
REGRESSION = NetworkConfig(memory=RegressionConfig(basis=8, probes=9))


def made(problem: Problem, recipe: str, **settings: Any) -> Trainer:
    config = choose(recipe, problem).config.model_dump() | TINY | {"minimum_time": 1} | settings
    return Trainer(problem, TrainingConfig.model_validate(config), Budget(updates=24), seed=3)


@pytest.mark.parametrize(
    ("problem", "recipe", "settings"),
    [
        (BinarySearch(dim=2), "fast", {}),
        (BinarySearch(dim=2), "paper", {"warmup": 0.0}),
        (BestArm(dim=3), "fast", {"actor": "ttps"}),
        (Ackley(dim=2), "fast", {"network": REGRESSION.model_dump()}),
        (OneByOne(), "fast", {}),
        (BinarySearch(dim=2), "fast", {"actor": "td3"}),
        (BinarySearch(dim=2), "fast", {"actor": "search"}),
    ],
    ids=["fast", "paper", "sphere-ttps", "float64", "per-task", "td3", "search"],
)
def test_a_restored_trainer_goes_on_exactly(
    problem: Problem, recipe: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    path, identity = tmp_path / "checkpoint.safetensors", {"seed": 3}
    one = made(problem, recipe, **settings)
    for _ in range(3):
        one.iterate()
    save_checkpoint(one, path, identity)
    two = made(problem, recipe, **settings)
    restore_checkpoint(two, path, identity)
    assert two.at == one.at
    assert two.last_losses == one.last_losses
    for _ in range(3):
        one.iterate()
        two.iterate()
        assert two.last_losses == one.last_losses
    for name in ("network", "average", "target"):
        ours, theirs = getattr(one, name), getattr(two, name)
        assert (ours is None) == (theirs is None)
        if ours is not None:
            for (key, a), b in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
                assert torch.equal(a, b), key
    assert one.at.update == two.at.update
    assert one.at.cost == two.at.cost


def test_saving_does_not_disturb_the_run(tmp_path: Path) -> None:
    one, two = made(BinarySearch(dim=1), "fast"), made(BinarySearch(dim=1), "fast")
    for _ in range(3):
        one.iterate()
        two.iterate()
        save_checkpoint(two, tmp_path / "checkpoint.safetensors", {})
    assert one.last_losses == two.last_losses


# Refused.


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("run")
    train(folder, updates=4)
    return (folder / "checkpoint.safetensors").read_bytes()


def refused(tmp_path: Path, data: bytes, message: str, **options: Any) -> str:
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=message) as caught:
        train(tmp_path, **({"updates": 4, "resume": True} | options))
    assert str(path) in str(caught.value)
    assert path.read_bytes() == data
    return str(caught.value)


@pytest.mark.parametrize("share", [0.0, 1e-4, 0.01, 0.5, 0.999])
def test_a_truncated_checkpoint_is_refused(tmp_path: Path, written: bytes, share: float) -> None:
    refused(tmp_path, written[: int(share * len(written))], "cannot be read as a checkpoint.*without --resume")


@pytest.mark.parametrize("data", [b"not a checkpoint", b"\0" * 100, b"\xff" * 100], ids=["text", "zeros", "ones"])
def test_what_is_no_checkpoint_is_refused(tmp_path: Path, data: bytes) -> None:
    refused(tmp_path, data, "cannot be read as a checkpoint.*without --resume")


def test_every_flipped_byte_is_refused(tmp_path: Path, written: bytes) -> None:
    restored = made(BinarySearch(dim=1), "fast")
    path = tmp_path / "checkpoint.safetensors"
    places = torch.randint(len(written), (60,), generator=torch.Generator().manual_seed(0)).tolist()
    header = int.from_bytes(written[:8], "little")
    for place in [0, 9, header // 2, header + 8, len(written) - 1, *places]:
        damaged = bytearray(written)
        damaged[place] ^= 0x04
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="start again without --resume"):
            restore_checkpoint(restored, path, {})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 1}, "seed was 0, is 1"),
        ({"updates": 6}, "updates was 4, is 6"),
        ({"epsilon": (0.3, 0.5)}, r"config.epsilon was \[0.3, 0.6\], is \[0.3, 0.5\]"),
        ({"settings": {**TINY, "batch": 17}}, r"\(config.batch was 16, is 17\)"),
        ({"recipe": "paper"}, "config.network.memory.kind was 'axis', is 'lstm'"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(
    tmp_path: Path, written: bytes, options: dict[str, Any], message: str
) -> None:
    text = refused(tmp_path, written, f"belongs to another run .*{message}", **options)
    assert "use the same settings, or another --out" in text


def test_a_checkpoint_of_another_problem_is_refused(tmp_path: Path, written: bytes) -> None:
    (tmp_path / "checkpoint.safetensors").write_bytes(written)
    for problem, message in [
        (BinarySearch(dim=1, noise=0.05), "options.noise was"),
        (make_problem("ackley", dim=1), "problem was 'binary-search', is 'ackley'"),
    ]:
        with pytest.raises(CheckpointError, match=message):
            cicpe.train(problem, updates=4, epsilon=(0.3, 0.6), out=tmp_path, resume=True, settings=TINY, recipe="fast")


def test_a_checkpoint_of_another_format_is_refused(
    tmp_path: Path, written: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cicpe.training.checkpoint.FORMAT", "cicpe-checkpoint-99")
    refused(tmp_path, written, "was written by another version; start again without --resume")


def test_a_checkpoint_that_does_not_fit_the_network_is_refused(tmp_path: Path) -> None:
    # The settings are the same; the library is another.
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(made(BinarySearch(dim=2), "fast"), path, {})
    with pytest.raises(CheckpointError, match="does not fit this version"):
        restore_checkpoint(made(BinarySearch(dim=2), "paper"), path, {})


# A full disk.


def no_space(*arguments: Any) -> None:
    raise OSError(28, "No space left on device")


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.endswith(".tmp")]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_fails_keeps_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    trainer, path = made(BinarySearch(dim=1), "fast"), tmp_path / "checkpoint.safetensors"
    save_checkpoint(trainer, path, {})
    before = path.read_bytes()
    trainer.iterate()
    with monkeypatch.context() as patch:
        patch.setattr(files.os, call, no_space)
        with pytest.raises(CheckpointError, match=r"could not be written .*No space left.*the last good one is kept"):
            save_checkpoint(trainer, path, {})
    assert path.read_bytes() == before
    assert leftovers(tmp_path) == []
    save_checkpoint(trainer, path, {})
    assert path.read_bytes() != before


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 400 kB: one checkpoint fits, a second one beside it does not."""
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)]
    try:
        subprocess.run(options, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a small disk needs privileges")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_really_full_disk(small_disk: Path) -> None:
    trainer = made(BinarySearch(dim=1), "fast")
    path = small_disk / "checkpoint.safetensors"
    save_checkpoint(trainer, path, {})
    before = path.read_bytes()
    assert 200_000 < len(before) < 400_000
    trainer.iterate()
    with pytest.raises(CheckpointError, match="No space left on device"):
        save_checkpoint(trainer, path, {})
    assert path.read_bytes() == before
    assert leftovers(small_disk) == []
    restore_checkpoint(made(BinarySearch(dim=1), "fast"), path, {})


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # TensorBoard's own thread
def test_training_on_a_full_disk_says_so(small_disk: Path) -> None:
    with pytest.raises(CheckpointError, match="No space left on device"):
        train(small_disk / "run", updates=100)
    assert leftovers(small_disk / "run") == []
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "filler").write_bytes(b"\0" * 10**6)
    with pytest.raises(CheckpointError, match=r"log .*could not be written .*No space left on device"):
        train(small_disk / "other")
