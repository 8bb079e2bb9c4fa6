"""A model's folder: the old model or the new one at every moment, and read with every fault named.

It holds ``config.json``, ``weights.safetensors``, ``calibration.json`` and ``card.md``, and where an alarm was fitted
``alarm.json`` and ``alarm.safetensors``. Nothing in it is executable.

Saving over a model: the new files are written beside the old ones, under names with their hashes; then ``config.json``,
which lists the hashes, is renamed over the old one, and from that moment the folder is the new model; then each file is
renamed into its place. Whoever reads in between finds a listed file in its place or beside it. What an interrupted
save has left is taken away by the next one.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

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
from cicpe.files import locked, read_file, sync_folder, write_atomic, write_json
from cicpe.model.description import FORMAT, READABLE, Description
from cicpe.problems import Problem
from cicpe.sessions.texts import unwritable_text
from cicpe.units import Units

CONFIG, WEIGHTS, CALIBRATION = "config.json", "weights.safetensors", "calibration.json"
ALARM, ALARM_WEIGHTS = "alarm.json", "alarm.safetensors"
PATIENCE = 60.0
"""Seconds that a save waits for another one of the same folder."""
READINGS = 20
"""How often a folder is read again, where it is being saved at the same time."""
UNMADE = (RuntimeError, ValueError, TypeError, OverflowError, MemoryError)
"""What torch raises where sizes cannot be."""
C = TypeVar("C", bound=Config)
V = TypeVar("V")


class ModelParts(NamedTuple):
    """All that a model is."""

    belief: Belief
    description: Description
    calibration: Calibration
    alarm: Alarm | None

    def files(self) -> dict[str, bytes]:
        """The files beside ``config.json``, as they are saved."""
        files = {WEIGHTS: weights_of(self.belief, self.description)}
        files[CALIBRATION] = (self.calibration.model_dump_json() + "\n").encode()
        if self.alarm is not None:
            files[ALARM] = (self.alarm.config.model_dump_json() + "\n").encode()
            files[ALARM_WEIGHTS] = _packed(self.alarm.tables.state_dict())
        return files

    def config(self, files: Mapping[str, bytes]) -> dict[str, Any]:
        """The content of ``config.json`` beside those files, but for the hash of that content."""
        hashes = {name: _sha256(data) for name, data in files.items()}
        # What older versions did not know is left out where it says nothing: their models keep their fingerprints.
        later = ("problem_source", "observations", "units")
        unsaid = {name for name in later if not _says(getattr(self.description, name))}
        return self.description.model_dump(mode="json", exclude=unsaid) | {"files": hashes, "format": FORMAT}

    def fingerprint(self) -> str:
        """A hash of everything that decides: config, weights, thresholds, alarm, and the problem's source."""
        return fingerprint_of(self.config(self.files()))


def _says(value: Any) -> bool:
    """Whether a field that older versions did not have says anything."""
    return value is not None and value != Units()


PROVENANCE = ("format", "cicpe", "torch", "minutes", "threads")
"""Fields of ``config.json`` that decide nothing: two runs of the same training differ in them."""


def fingerprint_of(config: Mapping[str, Any]) -> str:
    """A hash of what decides, from the content of ``config.json``: it lists the hashes of the other files."""
    return _content_hash({name: value for name, value in config.items() if name not in PROVENANCE})


def _content_hash(config: Mapping[str, Any]) -> str:
    """A hash of all that ``config.json`` says but this hash, which it lists as that of its own content."""
    others = {name: sha256 for name, sha256 in config.get("files", {}).items() if name != CONFIG}
    return _sha256(json.dumps({**config, "files": others}, sort_keys=True).encode())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def weights_of(belief: Belief, description: Description) -> bytes:
    """The weights as they are saved, with what else decides the agent beside them."""
    return _packed(belief.tensors(), {"belief": description.identity})


def _packed(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    return save_tensors({key: value.contiguous() for key, value in tensors.items()}, metadata)


def write_folder(path: Path, parts: ModelParts, page: str) -> None:
    """Writes a model's folder. At every moment it is the old model or the new one, whole.

    Args:
        path: The folder, made where it is not there. What else lies in it stays.
        parts: The model.
        page: Its card.
    """
    files = parts.files()
    config = parts.config(files)
    beside = {name: path / _staged(name, config["files"][name]) for name in files}
    try:
        path.mkdir(parents=True, exist_ok=True)
        with locked(path / CONFIG, PATIENCE):
            try:
                for name, data in files.items():
                    write_atomic(beside[name], data)
                listed = config["files"] | {CONFIG: _content_hash(config)}
                write_json(path / CONFIG, config | {"files": listed})
            except OSError:
                for staged in beside.values():
                    staged.unlink(missing_ok=True)
                raise
            for name, staged in beside.items():
                os.replace(staged, path / name)
            _take_away_leftovers(path, files)
            write_atomic(path / "card.md", page.encode())
    except OSError as error:
        raise ModelError(f"the model could not be written to {path}: {error}") from error


def _staged(name: str, sha256: str) -> str:
    """What a file is called before it gets into its place."""
    return f".{name}.{sha256[:16]}.saving"


def _take_away_leftovers(path: Path, files: Mapping[str, bytes]) -> None:
    """Removes what interrupted saves and other models have left."""
    for name in {ALARM, ALARM_WEIGHTS} - files.keys():
        (path / name).unlink(missing_ok=True)
    for name in (CONFIG, "card.md", WEIGHTS, CALIBRATION, ALARM, ALARM_WEIGHTS):
        for pattern in (f".{name}.*.saving", f".{name}.*.tmp", f"..{name}.*.tmp"):
            for left in path.glob(pattern):
                left.unlink(missing_ok=True)
    sync_folder(path)


def read_folder(
    path: Path, find_problem: Callable[[Description], Problem] = lambda description: description.problem_spec.make()
) -> tuple[ModelParts, str]:
    """Reads a model's folder; every fault is a ModelError that says which file and why.

    Args:
        path: The folder.
        find_problem: Gives the problem to the kinds of belief that simulate; others are read without it.

    Returns:
        All that a model is, and its fingerprint.
    """
    config, description, files = _consistent(path)
    for name, expected in ((name, sha256) for name, sha256 in description.files.items() if name != CONFIG):
        if name not in files or _sha256(files[name]) != expected:
            raise ModelError(
                f"{path / name} is not the file that config.json describes: it is damaged, "
                "or saving was interrupted; save the model again"
            )
    calibration = _parsed(path / CALIBRATION, files[CALIBRATION], Calibration)
    if len(calibration.grid) > 1 and not description.context_names:
        raise ModelError(f"{path / CALIBRATION} has thresholds for a context, which this model does not know")
    belief = _belief(path, description, files[WEIGHTS], lambda: find_problem(description))
    alarm = _alarm(path, files, belief) if {ALARM, ALARM_WEIGHTS} & files.keys() else None
    if description.files.get(CONFIG, _content_hash(config)) != _content_hash(config):
        raise ModelError(
            f"{path / CONFIG} is not what was saved: it is damaged, or was changed by hand. "
            f"If you have changed it on purpose, take {CONFIG} out of its list of files, and save the model again"
        )
    hashes = {name: _sha256(data) for name, data in files.items()}
    return ModelParts(belief, description, calibration, alarm), fingerprint_of(config | {"files": hashes})


def _consistent(path: Path) -> tuple[dict[str, Any], Description, dict[str, bytes]]:
    """The config and the files that it lists, read again where someone was saving at the same time."""
    for _ in range(READINGS):
        data = _bytes(path / CONFIG)
        config, description = _description(path / CONFIG, data)
        if description.format not in READABLE:
            raise ModelError(f"{path} has format {description.format!r}; this version reads {', '.join(READABLE)}")
        alarmed = {ALARM, ALARM_WEIGHTS} & set(description.files)
        try:
            files = {name: _listed(path, name, description) for name in (WEIGHTS, CALIBRATION, *sorted(alarmed))}
        except ModelError:
            if _bytes(path / CONFIG) == data:
                raise
            continue
        if _bytes(path / CONFIG) == data:
            return config, description, files
    raise ModelError(f"{path} is being saved again and again; try later")


def _listed(path: Path, name: str, description: Description) -> bytes:
    """A file of the model: in its place, or still beside it where saving was interrupted."""
    expected = description.files.get(name)
    in_place, staged = path / name, path / _staged(name, expected or "")
    for place in (in_place, staged, in_place):  # it may come into its place between two looks
        with suppress(OSError):
            data = read_file(place)
            if expected is None or _sha256(data) == expected:
                return data
    return _bytes(in_place)


def _description(path: Path, content: bytes) -> tuple[dict[str, Any], Description]:
    """What ``config.json`` says, raw and read; a fault in the belief's own part is named as one of ``training``."""
    raw = _json(path, content)
    if (odd := unwritable_text(raw)) is not None:
        raise ModelError(f"{path} holds control characters, which no model has: {odd[:80]!r}")
    data = raw
    if isinstance(raw, dict) and isinstance(raw.get("training"), dict):
        data = raw | {"training": _validated(path, raw["training"], read_config, "training.")}
    return raw, _validated(path, data, Description.model_validate)


def _belief(path: Path, description: Description, weights: bytes, make_problem: Callable[[], Problem]) -> Belief:
    """The saved belief."""
    try:
        # Nothing is put into memory before the file is known to hold it.
        belief, module = description.training.build(description.shape(make_problem), description.horizon)
    except UnknownProblem:
        raise  # no fault of the folder: it is for the user to name the problem
    except (CicpeError, *UNMADE) as error:
        raise ModelError(f"{path / CONFIG} describes a belief that cannot be made: {error}") from None
    _fill(module, path / WEIGHTS, weights)
    module.eval().requires_grad_(False)
    saved_with = _metadata(weights).get("belief")
    if saved_with is not None and not description.has_identity(saved_with):
        raise ModelError(f"{path / WEIGHTS} was saved with another belief or problem than config.json describes")
    return belief


def _alarm(path: Path, files: Mapping[str, bytes], belief: Belief) -> Alarm:
    """The saved alarm of a belief."""
    if not files.keys() >= {ALARM, ALARM_WEIGHTS}:
        raise ModelError(f"{path / CONFIG} names one of {ALARM} and {ALARM_WEIGHTS}, and needs both")
    config = _parsed(path / ALARM, files[ALARM], AlarmConfig)
    if config.prediction != belief.prediction_head() or config.horizon != belief.horizon:
        raise ModelError(f"{path / ALARM} is the alarm of another model")
    try:
        with torch.device("meta"):
            tables = AlarmTables(config)
    except UNMADE as error:
        raise ModelError(f"{path / ALARM} describes an alarm that cannot be made: {error}") from None
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
    # Copied to where torch keeps its own: sums are taken in another order where a tensor begins elsewhere in memory.
    # What is read from a file begins anywhere, and a model that is loaded twice is to say the same to the last digit.
    module.load_state_dict({key: value.clone() for key, value in tensors.items()}, assign=True)


def _bytes(path: Path) -> bytes:
    try:
        return read_file(path)
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
