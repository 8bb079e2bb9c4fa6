"""Complete checkpoints in one file, written whole or not at all.

A checkpoint holds weights, averages, optimiser moments, replay, generator state and the moving
numbers of the run, so that a resumed run continues exactly where the file was written: on one thread
its losses are the same, bit for bit, as those of a run that was never interrupted.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from cicpe.errors import CheckpointError
from cicpe.files import write_atomic
from cicpe.training.loop import Losses, Progress, Trainer

FORMAT = "cicpe-checkpoint-1"


def _modules(trainer: Trainer) -> dict[str, torch.nn.Module]:
    modules: dict[str, torch.nn.Module] = {"network": trainer.network, "average": trainer.average}
    if trainer.target is not None:
        modules["target"] = trainer.target
    return modules


def save_checkpoint(trainer: Trainer, path: Path, identity: dict[str, Any]) -> None:
    """Writes everything that ``restore_checkpoint`` needs; ``identity`` says which run this is."""
    tensors: dict[str, Tensor] = {"rng": trainer.rng.get_state()}
    for name, module in _modules(trainer).items():
        tensors |= {f"{name}.{key}": value for key, value in module.state_dict().items()}
    for i, parameter in enumerate(trainer.network.parameters()):
        state = trainer.optimiser.state.get(parameter, {})
        tensors |= {f"optimiser.{i}.{key}": value for key, value in state.items()}
    tensors |= trainer.replay.tensors()
    meta = {
        "format": FORMAT,
        "identity": json.dumps(identity, sort_keys=True),
        "progress": json.dumps(asdict(trainer.at)),
        "losses": json.dumps(list(trainer.last_losses)),
    }
    try:
        # Clones: safetensors refuses tensors that share memory.
        write_atomic(path, save({key: value.detach().clone() for key, value in tensors.items()}, metadata=meta))
    except OSError as error:
        raise CheckpointError(
            f"the checkpoint {path} could not be written ({error}); the last good one is kept"
        ) from error


def restore_checkpoint(trainer: Trainer, path: Path, identity: dict[str, Any]) -> None:
    """Puts a trainer, freshly made with the same settings, where the checkpoint was written."""
    try:
        data = path.read_bytes()
        tensors = load(data)
        size = int.from_bytes(data[:8], "little")
        meta = json.loads(data[8 : 8 + size])["__metadata__"]
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{path} cannot be read as a checkpoint ({error}); start again without --resume"
        ) from None
    if meta.get("format") != FORMAT:
        raise CheckpointError(f"{path} was written by another version; start again without --resume")
    before = json.loads(meta["identity"])
    changed = [key for key in identity if before.get(key) != json.loads(json.dumps(identity[key]))]
    if changed:
        what = ", ".join(f"{key} was {before.get(key)!r}, is {identity[key]!r}" for key in changed)
        raise CheckpointError(f"{path} belongs to another run ({what}); use the same settings, or another --out")
    for name, module in _modules(trainer).items():
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
