"""A trained model: frozen networks, what they were trained for, and their calibrated thresholds.

On disk it is a folder of ``config.json``, ``weights.safetensors``, ``calibration.json`` and ``card.md``.
Nothing in it is executable, and every file is written whole or not at all.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from cicpe._version import __version__
from cicpe.agents.actors import make_actor
from cicpe.agents.network_agent import NetworkAgent
from cicpe.agents.stopping import BellmanStop, ConfidenceStop, StopRule
from cicpe.certification.thresholds import Calibration, StopName
from cicpe.errors import InvalidInput, ModelError
from cicpe.files import write_atomic, write_json
from cicpe.networks.base import Config, Dims
from cicpe.networks.network import Network
from cicpe.networks.scaling import Scaling
from cicpe.problems import Problem, ProblemSpec
from cicpe.sessions.session import Session
from cicpe.spaces import space_from_json
from cicpe.training.config import TrainingConfig

FORMAT = "cicpe-model-1"


@final
class Description(Config):
    """What a model is and where it came from: the content of ``config.json``."""

    format: str = FORMAT
    cicpe: str = __version__
    torch: str = torch.__version__
    problem: str
    """Registered name, module:Class, or file.py:Class."""
    problem_options: dict[str, Any]
    query_space: dict[str, Any]
    answer_space: dict[str, Any]
    observation_dim: int
    context_names: tuple[str, ...]
    default_context: tuple[float, ...] | None
    context_low: tuple[float, ...]
    """Smallest context values seen in calibration."""
    context_high: tuple[float, ...]
    recipe: str
    training: TrainingConfig
    horizon: int
    """The most queries of an episode."""
    seed: int
    minutes: float
    """Wall-clock minutes of training and calibration."""
    updates: int
    threads: int


@final
@dataclass(frozen=True)
class Model:
    """A frozen agent for a family of tasks and a range of (epsilon, delta)."""

    network: Network
    description: Description
    calibration: Calibration

    @property
    def problem(self) -> Problem:
        """The family that the model was trained on, made again from its description."""
        return ProblemSpec(self.description.problem, self.description.problem_options).make()

    def agent(self, epsilon: float, delta: float, stop: StopName = "confidence") -> NetworkAgent:
        """The frozen agent for one (epsilon, delta), refused where the calibration does not support it."""
        threshold = self.calibration.threshold(stop, epsilon, delta)
        minimum = self.description.training.minimum_time
        rule: StopRule = ConfidenceStop(threshold) if stop == "confidence" else BellmanStop(threshold, minimum)
        actor = make_actor(self.description.training.actor, self.network.query_space, self.network.answer_space)
        horizon, scale = self.description.horizon, self.calibration.scale
        return NetworkAgent(self.network, actor, rule, epsilon, horizon, scale)

    def session(
        self, epsilon: float, delta: float, *, seed: int = 0, stop: StopName = "confidence", **context: float
    ) -> Session:
        """A live campaign. Context, such as ``noise=0.05``, is given by name; see ``context_names``."""
        agent = self.agent(epsilon, delta, stop)
        values = self._context(context)
        about = self.description
        return Session(agent, self.network.query_space, about.observation_dim, values, epsilon, delta, seed)

    def _context(self, given: dict[str, float]) -> tuple[float, ...]:
        about = self.description
        unknown = set(given) - set(about.context_names)
        if unknown:
            name = sorted(unknown)[0]
            raise InvalidInput(
                name, given[name], f"a context of this model: {', '.join(about.context_names) or 'none'}"
            )
        values = []
        for i, name in enumerate(about.context_names):
            if name not in given and about.default_context is None:
                raise InvalidInput(name, None, f"a number from {about.context_low[i]:g} to {about.context_high[i]:g}")
            value = float(given.get(name, about.default_context[i] if about.default_context else 0.0))
            self.check_context(name, value)
            values.append(value)
        return tuple(values)

    def check_context(self, name: str, value: float) -> None:
        """Refuses a context outside the range that the model was trained and calibrated for."""
        i = self.description.context_names.index(name)
        low, high = self.description.context_low[i], self.description.context_high[i]
        slack = 0.01 * (high - low) + 1e-6 * abs(high)
        if not low - slack <= value <= high + slack:
            raise InvalidInput(name, value, f"{low:g} to {high:g}, the range that this model was trained for")

    def weights(self) -> bytes:
        """The weights as they are saved."""
        return save_tensors({key: value.contiguous() for key, value in self.network.state_dict().items()})

    @property
    def sha256(self) -> str:
        """A hash of the weights."""
        return hashlib.sha256(self.weights()).hexdigest()

    def save(self, folder: str | Path) -> Path:
        """Writes the model's folder. ``config.json`` comes last: with it, the folder is complete."""
        path = Path(folder)
        try:
            write_atomic(path / "weights.safetensors", self.weights())
            write_atomic(path / "calibration.json", (self.calibration.model_dump_json() + "\n").encode())
            write_atomic(path / "card.md", self.card().encode())
            write_json(path / "config.json", self.description.model_dump(mode="json"))
        except OSError as error:
            raise ModelError(f"the model could not be written to {path}: {error}") from error
        return path

    def card(self) -> str:
        """A page about the model, in words."""
        about, low, high = self.description, self.calibration.epsilons[0], self.calibration.epsilons[-1]
        options = ", ".join(f"{key} = {value}" for key, value in about.problem_options.items()) or "none"
        return (
            f"# {about.problem}\n\n"
            f"Options: {options}. Trained for epsilon from {low:g} to {high:g}, at most {about.horizon} queries.\n\n"
            f"Recipe `{about.recipe}`, actor `{about.training.actor}`, memory `{about.training.network.memory.kind}`, "
            f"seed {about.seed}: {about.updates} updates, {about.minutes:.1f} minutes on {about.threads} thread(s).\n\n"
            f"Thresholds were chosen on {self.calibration.episodes} held-out episodes "
            f"(exact binomial bound, alpha {self.calibration.alpha:g}).\n"
        )

    @classmethod
    def load(cls, folder: str | Path) -> "Model":
        """Reads a model's folder; every fault is a ModelError that says which file and why."""
        path = Path(folder)
        description = _read(path / "config.json", Description)
        if description.format != FORMAT:
            raise ModelError(f"{path} has format {description.format!r}; this version reads {FORMAT!r}")
        calibration = _read(path / "calibration.json", Calibration)
        query_space, answer_space = map(space_from_json, (description.query_space, description.answer_space))
        context = len(description.context_names)
        dims = Dims(query_space.dim, description.observation_dim, context, answer_space.dim)
        scaling = Scaling(description.observation_dim, context)
        network = Network(description.training.network, scaling, dims, query_space, answer_space)
        file = path / "weights.safetensors"
        try:
            network.load_state_dict(load_tensors(file.read_bytes()))
        except (OSError, SafetensorError, RuntimeError, ValueError) as error:
            first = str(error).splitlines()[0]
            raise ModelError(f"{file} cannot be read as this model's weights: {first}") from None
        if not all(bool(torch.isfinite(value).all()) for value in network.state_dict().values()):
            raise ModelError(f"{file} holds weights that are not finite; the file is damaged")
        network.eval().requires_grad_(False)
        return cls(network, description, calibration)


def _read(path: Path, kind: Any) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist: {path.parent} is not a saved model") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from None
    try:
        return kind.model_validate(json.loads(text))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        raise ModelError(f"{path} is not valid at {where or 'its top'}: {fault['msg']}") from None
