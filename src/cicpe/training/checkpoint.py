"""Complete checkpoints in one file, written whole or not at all.

A checkpoint holds weights, averages, optimiser moments, replay, generator state and the moving
numbers of the run, so that a resumed run continues exactly where the file was written: on one thread
its losses are the same, bit for bit, as those of a run that was never interrupted.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from cicpe.errors import CheckpointError
from cicpe.files import read_file, write_atomic
from cicpe.training.base import AnyTrainer, Losses, Progress

FORMAT = "cicpe-checkpoint-1"


def _digest(tensors: dict[str, Tensor], meta: dict[str, str]) -> str:
    """A hash of all that a checkpoint holds: safetensors itself does not notice a flipped bit."""
    digest = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for key in sorted(tensors):
        value = tensors[key].contiguous()
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b"")
    return digest.hexdigest()


def save_checkpoint(trainer: AnyTrainer, path: Path, identity: dict[str, Any]) -> None:
    """Writes everything that ``restore_checkpoint`` needs.

    Args:
        trainer: The run.
        path: The file, replaced whole or not at all.
        identity: What tells this run from others, as JSON values.

    Raises:
        CheckpointError: The file could not be written; an earlier one is kept.
    """
    tensors: dict[str, Tensor] = {"rng": trainer.rng.get_state()}
    for name, module in trainer.modules.items():
        tensors |= {f"{name}.{key}": value for key, value in module.state_dict().items()}
    for i, parameter in enumerate(trainer.network.parameters()):
        state = trainer.optimiser.state.get(parameter, {})
        tensors |= {f"optimiser.{i}.{key}": value for key, value in state.items()}
    tensors |= trainer.replay.tensors()
    # Clones: safetensors refuses tensors that share memory.
    tensors = {key: value.detach().clone() for key, value in tensors.items()}
    meta = {
        "format": FORMAT,
        "identity": json.dumps(identity, sort_keys=True),
        "progress": json.dumps(asdict(trainer.at)),
        "losses": json.dumps(list(trainer.last_losses)),
    }
    try:
        write_atomic(path, save(tensors, metadata=meta | {"sha256": _digest(tensors, meta)}))
    except OSError as error:
        raise CheckpointError(
            f"the checkpoint {path} could not be written ({error}); the last good one is kept"
        ) from error


def restore_checkpoint(trainer: AnyTrainer, path: Path, identity: dict[str, Any]) -> None:
    """Puts a trainer, freshly made with the same settings, where the checkpoint was written.

    Args:
        trainer: A trainer at the beginning of its run.
        path: The checkpoint.
        identity: What tells this run from others; it must be what the checkpoint was saved with.

    Raises:
        CheckpointError: The file is damaged, or belongs to another run or version.
    """
    try:
        data = read_file(path)
        tensors = load(data)
        size = int.from_bytes(data[:8], "little")
        meta = json.loads(data[8 : 8 + size])["__metadata__"]
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{path} cannot be read as a checkpoint ({error}); start again without --resume"
        ) from None
    if meta.get("format") != FORMAT:
        raise CheckpointError(f"{path} was written by another version; start again without --resume")
    if meta.pop("sha256", None) != _digest(tensors, meta):
        raise CheckpointError(f"{path} is damaged: it is not what was written; start again without --resume")
    changed = list(_changes(json.loads(meta["identity"]), json.loads(json.dumps(identity))))
    if changed:
        what = ", ".join(changed)
        raise CheckpointError(f"{path} belongs to another run ({what}); use the same settings, or another --out")
    try:
        _restore(trainer, tensors, meta)
    except (KeyError, TypeError, RuntimeError) as error:
        raise CheckpointError(f"{path} does not fit this version ({error}); start again without --resume") from None


def _changes(before: Any, now: Any, name: str = "") -> Iterator[str]:
    """What differs between two descriptions of a run, in words."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted(before.keys() | now.keys()):
            yield from _changes(before.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif before != now:
        yield f"{name} was {before!r}, is {now!r}"


def _restore(trainer: AnyTrainer, tensors: dict[str, Tensor], meta: dict[str, str]) -> None:
    for name, module in trainer.modules.items():
        module.load_state_dict({k.removeprefix(f"{name}."): v for k, v in tensors.items() if k.startswith(f"{name}.")})
    for i, parameter in enumerate(trainer.network.parameters()):
        keys = ("step", "exp_avg", "exp_avg_sq")
        if f"optimiser.{i}.step" in tensors:
            trainer.optimiser.state[parameter] = {key: tensors[f"optimiser.{i}.{key}"] for key in keys}
    trainer.replay.restore(trainer.problem, tensors)
    trainer.rng.set_state(tensors["rng"])
    trainer.at = Progress(**json.loads(meta["progress"]))
    trainer.last_losses = Losses(*json.loads(meta["losses"]))
    trainer.resume_clock()
