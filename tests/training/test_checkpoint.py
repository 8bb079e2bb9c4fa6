"""Checkpoints: a restored trainer goes on exactly, and what is damaged, foreign or unwritable is refused."""

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cicpe
from cicpe import files
from cicpe.beliefs.network.memories.regression import RegressionConfig
from cicpe.beliefs.network.network import NetworkConfig
from cicpe.errors import CheckpointError
from cicpe.problems import Problem, make_problem
from cicpe.problems.ackley import Ackley
from cicpe.problems.best_arm import BestArm
from cicpe.problems.binary_search import BinarySearch
from cicpe.problems.per_task import PerTaskProblem
from cicpe.spaces import Box
from cicpe.training.base import AnyTrainer
from cicpe.training.checkpoint import restore_checkpoint, save_checkpoint
from cicpe.training.recipes import choose
from cicpe.training.schedule import Budget
from cicpe.training.trainers import make_trainer
from small_runs import TINY
from small_runs import train_with_checkpoints as train

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


REGRESSION = NetworkConfig(memory=RegressionConfig(basis=8, probes=9))


def make(problem: Problem, recipe: str, **settings: Any) -> AnyTrainer:
    chosen = choose(recipe, problem).config
    tiny = {"batch": 16, "horizon": 5, "query_spreads": (0.5,), "minimum_time": 1}
    tiny |= {"warmup": 0.0} if recipe == "paper" else {"first_batch": 12}
    config = type(chosen).model_validate(chosen.model_dump() | tiny | settings)
    return make_trainer(problem, config, Budget(updates=24), seed=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("problem", "recipe", "settings"),
    [
        (BinarySearch(dim=2), "fast", {}),
        (BinarySearch(dim=2), "paper", {}),
        (BestArm(dim=3), "fast", {"actor": "ttps"}),
        (Ackley(dim=2), "fast", {"network": REGRESSION.model_dump()}),
        (OneByOne(), "fast", {}),
        (BinarySearch(dim=2), "fast", {"actor": "td3"}),
        (BinarySearch(dim=2), "fast", {"actor": "search"}),
        (BinarySearch(dim=2), "paper", {"actor": "td3", "actor_start": 0.0}),
    ],
    ids=["fast", "paper", "sphere-ttps", "float64", "per-task", "td3", "search", "paper-td3"],
)
def test_a_restored_trainer_goes_on_exactly(
    problem: Problem, recipe: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    path, identity = tmp_path / "checkpoint.safetensors", {"seed": 3}
    trainer = make(problem, recipe, **settings)
    for _ in range(3):
        trainer.iterate()
    save_checkpoint(trainer, path, identity)
    restored = make(problem, recipe, **settings)
    restore_checkpoint(restored, path, identity)
    assert restored.at == trainer.at
    assert restored.last_losses == trainer.last_losses
    for _ in range(3):
        trainer.iterate()
        restored.iterate()
        assert restored.last_losses == trainer.last_losses
    assert trainer.modules.keys() == restored.modules.keys()
    for name, module in trainer.modules.items():
        for (key, a), b in zip(module.state_dict().items(), restored.modules[name].state_dict().values(), strict=True):
            assert torch.equal(a, b), (name, key)
    assert trainer.at.update == restored.at.update
    assert trainer.at.cost == restored.at.cost


def test_saving_does_not_disturb_the_run(tmp_path: Path) -> None:
    undisturbed, saved = make(BinarySearch(dim=1), "fast"), make(BinarySearch(dim=1), "fast")
    for _ in range(3):
        undisturbed.iterate()
        saved.iterate()
        save_checkpoint(saved, tmp_path / "checkpoint.safetensors", {})
    assert undisturbed.last_losses == saved.last_losses


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
    restored = make(BinarySearch(dim=1), "fast")
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
        ({"recipe": "paper", "settings": {"batch": 16}}, "config.network.memory.kind was 'axis', is 'lstm'"),
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
    save_checkpoint(make(BinarySearch(dim=2), "fast"), path, {})
    with pytest.raises(CheckpointError, match="does not fit this version"):
        restore_checkpoint(make(BinarySearch(dim=2), "paper"), path, {})


# A full disk.


def no_space(*arguments: Any) -> None:
    raise OSError(28, "No space left on device")


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.endswith(".tmp")]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_fails_keeps_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    trainer, path = make(BinarySearch(dim=1), "fast"), tmp_path / "checkpoint.safetensors"
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
    trainer = make(BinarySearch(dim=1), "fast")
    path = small_disk / "checkpoint.safetensors"
    save_checkpoint(trainer, path, {})
    before = path.read_bytes()
    assert 200_000 < len(before) < 400_000
    trainer.iterate()
    with pytest.raises(CheckpointError, match="No space left on device"):
        save_checkpoint(trainer, path, {})
    assert path.read_bytes() == before
    assert leftovers(small_disk) == []
    restore_checkpoint(make(BinarySearch(dim=1), "fast"), path, {})


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # TensorBoard's own thread
def test_training_on_a_full_disk_says_so(small_disk: Path) -> None:
    with pytest.raises(CheckpointError, match="No space left on device"):
        train(small_disk / "run", updates=100)
    assert leftovers(small_disk / "run") == []
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "filler").write_bytes(b"\0" * 10**6)
    with pytest.raises(CheckpointError, match=r"log .*could not be written .*No space left on device"):
        train(small_disk / "other")
    for thread in threading.enumerate():
        if type(thread).__name__ == "_AsyncWriterThread":
            thread.join(timeout=2)  # on a busy machine its complaint would reach a later test
