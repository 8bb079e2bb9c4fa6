"""A model's folder: written whole or not at all, and read with every fault named.

It holds ``config.json``, ``weights.safetensors``, ``calibration.json`` and ``card.md``, and where an alarm was fitted
``alarm.json`` and ``alarm.safetensors``. Nothing in it is executable.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from cicpe.agents.alarm import Alarm, AlarmConfig, AlarmTables
from cicpe.beliefs.base import Belief
from cicpe.beliefs.registry import read_config
from cicpe.calibration.table import Calibration
from cicpe.config import Config
from cicpe.errors import CicpeError, ModelError, UnknownProblem
from cicpe.files import write_atomic, write_json
from cicpe.model.description import FORMAT, READABLE, Description
from cicpe.problems import Problem

CONFIG, WEIGHTS, CALIBRATION = "config.json", "weights.safetensors", "calibration.json"
ALARM, ALARM_WEIGHTS = "alarm.json", "alarm.safetensors"
C = TypeVar("C", bound=Config)
V = TypeVar("V")


def weights_of(belief: Belief, description: Description) -> bytes:
    """The weights as they are saved, with what else decides the agent beside them."""
    return _packed(belief.tensors(), {"belief": description.identity})


def _packed(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    return save_tensors({key: value.contiguous() for key, value in tensors.items()}, metadata)


def write_folder(
    path: Path, belief: Belief, description: Description, calibration: Calibration, alarm: Alarm | None, page: str
) -> None:
    """Writes a model's folder. ``config.json`` comes last: with it, the folder is complete."""
    files = {
        WEIGHTS: weights_of(belief, description),
        CALIBRATION: (calibration.model_dump_json() + "\n").encode(),
    }
    if alarm is not None:
        files[ALARM] = (alarm.config.model_dump_json() + "\n").encode()
        files[ALARM_WEIGHTS] = _packed(alarm.tables.state_dict())
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    try:
        for name, data in files.items():
            write_atomic(path / name, data)
        write_atomic(path / "card.md", page.encode())
        write_json(path / CONFIG, description.model_dump(mode="json") | {"files": hashes, "format": FORMAT})
    except OSError as error:
        raise ModelError(f"the model could not be written to {path}: {error}") from error


def read_folder(
    path: Path, find_problem: Callable[[Description], Problem] = lambda description: description.problem_spec.make()
) -> tuple[Belief, Description, Calibration, Alarm | None]:
    """Reads a model's folder; every fault is a ModelError that says which file and why.

    Args:
        path: The folder.
        find_problem: Gives the problem to the kinds of belief that simulate; others are read without it.

    Returns:
        All that a model is.
    """
    description = _description(path / CONFIG)
    if description.format not in READABLE:
        raise ModelError(f"{path} has format {description.format!r}; this version reads {', '.join(READABLE)}")
    alarmed = {ALARM, ALARM_WEIGHTS} & set(description.files)
    files = {name: _bytes(path / name) for name in (WEIGHTS, CALIBRATION, *sorted(alarmed))}
    for name, expected in description.files.items():
        if name not in files or hashlib.sha256(files[name]).hexdigest() != expected:
            raise ModelError(
                f"{path / name} is not the file that config.json describes: it is damaged, "
                "or saving was interrupted; save the model again"
            )
    calibration = _parsed(path / CALIBRATION, files[CALIBRATION], Calibration)
    if len(calibration.grid) > 1 and not description.context_names:
        raise ModelError(f"{path / CALIBRATION} has thresholds for a context, which this model does not know")
    belief = _belief(path, description, files[WEIGHTS], lambda: find_problem(description))
    return belief, description, calibration, _alarm(path, files, belief) if alarmed else None


def _description(path: Path) -> Description:
    """What ``config.json`` says; a fault in the belief's own part is named as one of ``training``."""
    data = _json(path, _bytes(path))
    if isinstance(data, dict) and isinstance(data.get("training"), dict):
        data["training"] = _validated(path, data["training"], read_config, "training.")
    return _validated(path, data, Description.model_validate)


def _belief(path: Path, description: Description, weights: bytes, make_problem: Callable[[], Problem]) -> Belief:
    """The saved belief."""
    try:
        # Nothing is put into memory before the file is known to hold it.
        belief, module = description.training.build(description.shape(make_problem), description.horizon)
    except UnknownProblem:
        raise  # no fault of the folder: it is for the user to name the problem
    except (CicpeError, RuntimeError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise ModelError(f"{path / CONFIG} describes a belief that cannot be made: {error}") from None
    _fill(module, path / WEIGHTS, weights)
    module.eval().requires_grad_(False)
    saved_with = _metadata(weights).get("belief")
    if saved_with is not None and saved_with != description.identity:
        raise ModelError(f"{path / WEIGHTS} was saved with another belief or problem than config.json describes")
    return belief


def _alarm(path: Path, files: Mapping[str, bytes], belief: Belief) -> Alarm:
    """The saved alarm of a belief."""
    if not files.keys() >= {ALARM, ALARM_WEIGHTS}:
        raise ModelError(f"{path / CONFIG} names one of {ALARM} and {ALARM_WEIGHTS}, and needs both")
    config = _parsed(path / ALARM, files[ALARM], AlarmConfig)
    if config.prediction != belief.prediction_head() or config.horizon != belief.horizon:
        raise ModelError(f"{path / ALARM} is the alarm of another model")
    with torch.device("meta"):
        tables = AlarmTables(config)
    _fill(tables, path / ALARM_WEIGHTS, files[ALARM_WEIGHTS])
    tables.eval().requires_grad_(False)
    return Alarm(config, tables, belief.predictor(tables.head))


def _metadata(weights: bytes) -> dict[str, Any]:
    """What a weights file says beside its tensors; nothing if that cannot be read."""
    try:
        size = int.from_bytes(weights[:8], "little")
        metadata = json.loads(weights[8 : 8 + size])["__metadata__"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return metadata if isinstance(metadata, dict) else {}


def _fill(module: torch.nn.Module, path: Path, data: bytes) -> None:
    """Puts saved weights into a module, once they are known to fit."""
    try:
        tensors = load_tensors(data)
    except (SafetensorError, ValueError, RuntimeError) as error:
        raise ModelError(f"{path} cannot be read as weights: {error}") from None
    wanted = {key: (tuple(value.shape), value.dtype) for key, value in module.state_dict().items()}
    held = {key: (tuple(value.shape), value.dtype) for key, value in tensors.items()}
    for key in sorted(wanted.keys() | held.keys()):
        if wanted.get(key) != held.get(key):
            raise ModelError(
                f"{path} does not hold this model's weights: {key} is {held.get(key)}, not {wanted.get(key)}"
            )
        if not bool(torch.isfinite(tensors[key]).all()):
            raise ModelError(f"{path} holds weights that are not finite ({key}); the file is damaged")
    module.load_state_dict(tensors, assign=True)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist: {path.parent} is not a saved model") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error}") from None


def _parsed(path: Path, data: bytes, kind: type[C]) -> C:
    return _validated(path, _json(path, data), kind.model_validate)


def _validated(path: Path, data: Any, validate: Callable[[Any], V], inside: str = "") -> V:
    try:
        return validate(data)
    except ValidationError as error:
        fault = error.errors()[0]
        where = inside + ".".join(map(str, fault["loc"]))
        raise ModelError(f"{path} is not valid at {where or 'its top'}: {fault['msg']}") from None
    except (CicpeError, RecursionError) as error:
        raise ModelError(f"{path} is not valid at {inside or 'its top'}: {error}") from None


def _json(path: Path, data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
