"""A trained model: frozen networks, what they were trained for, and their calibrated thresholds.

On disk it is a folder of ``config.json``, ``weights.safetensors``, ``calibration.json`` and ``card.md``, and
where an alarm was fitted ``alarm.json`` and ``alarm.safetensors``.
Nothing in it is executable, and every file is written whole or not at all.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from pydantic import Field, ValidationError, field_validator, model_validator
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from cicpe._version import __version__
from cicpe.agents.alarm import Alarm, AlarmConfig, AlarmTables, make_alarm
from cicpe.agents.belief_agent import BeliefAgent
from cicpe.agents.stop_rules import BellmanStop, ConfidenceStop, StopRule
from cicpe.beliefs.base import Belief
from cicpe.beliefs.functions.belief import FunctionBelief
from cicpe.beliefs.network.belief import NetworkBelief
from cicpe.beliefs.network.memories.base import Dims
from cicpe.beliefs.network.network import Network
from cicpe.beliefs.network.prediction import prediction_config
from cicpe.beliefs.network.query_rules import make_actor
from cicpe.beliefs.network.scaling import Scaling
from cicpe.beliefs.particles.belief import ParticleBelief
from cicpe.beliefs.particles.likelihood import LearnedLikelihood
from cicpe.calibration.table import Calibration, StopName
from cicpe.config import Config
from cicpe.errors import CicpeError, InvalidInput, ModelError
from cicpe.files import write_atomic, write_json
from cicpe.gp.mixture import GPMixture
from cicpe.problems import Problem, ProblemSpec
from cicpe.sessions.session import Session
from cicpe.spaces import space_from_json
from cicpe.training.config import AnyTraining, FunctionTraining, ParticleTraining, TrainingConfig

FORMAT = "cicpe-model-1"
WEIGHTS, CALIBRATION = "weights.safetensors", "calibration.json"
ALARM, ALARM_WEIGHTS = "alarm.json", "alarm.safetensors"
ALARM_CARD = "\nIts alarm (is this history one of the prior's?) ranks histories among {} prior episodes.\n"
NEVER = ConfidenceStop(lambda context: torch.full((len(context),), 2.0))
"""No confidence reaches 2."""


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
    observation_dim: int = Field(ge=1)
    context_names: tuple[str, ...]
    default_context: tuple[float, ...] | None
    context_low: tuple[float, ...]
    """Smallest context values seen in calibration."""
    context_high: tuple[float, ...]
    recipe: str
    training: AnyTraining = Field(discriminator="kind")
    horizon: int = Field(ge=1, le=10**6)
    """The most queries of an episode."""
    seed: int
    minutes: float
    """Wall-clock minutes of training and calibration."""
    updates: int
    threads: int
    files: dict[str, str] = Field(default={})
    """SHA-256 of the other files as they were saved beside this one; what is listed is checked on loading."""

    @field_validator("problem_options")
    @classmethod
    def _lists(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Tuples as the lists that they are in JSON, so that a description equals its own round trip."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}

    @model_validator(mode="after")
    def _contexts(self) -> "Description":
        for name in ("context_low", "context_high", "default_context"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.context_names):
                raise ValueError(f"{name}: needs one number for each of {self.context_names}")
        return self


@final
@dataclass(frozen=True)
class Model:
    """A frozen agent for a family of tasks and a range of (epsilon, delta)."""

    belief: Belief
    description: Description
    calibration: Calibration
    alarm: Alarm | None = None
    """Says whether a history looks like the prior's; None where none was fitted (``cicpe.fit_alarm``)."""

    @property
    def problem(self) -> Problem:
        """The family that the model was trained on, made again from its description."""
        return ProblemSpec(self.description.problem, self.description.problem_options).make()

    def agent(
        self, epsilon: float, delta: float, stop: StopName = "confidence", exact: int | None = None
    ) -> BeliefAgent:
        """The frozen agent for one (epsilon, delta), refused where the calibration does not support it.

        With ``exact``, a seed, every episode draws once between two neighbouring thresholds, so that 1 - delta is met
        rather than exceeded: a few queries less, and no reserve for a certificate.
        """
        training = self.description.training
        valued = "shaped" if isinstance(training, TrainingConfig) and training.shaped else "bellman"
        if stop not in ("confidence", valued):
            raise InvalidInput(
                "stop", stop, f"confidence or {valued}: that is what this model's critic was trained for"
            )
        stop_epsilon = self.calibration.supported_epsilon(epsilon)
        sharing = None if exact is None else torch.Generator().manual_seed(exact)
        threshold = self.calibration.threshold(stop, stop_epsilon, delta, sharing)
        minimum = training.minimum_time if isinstance(training, TrainingConfig) else 0
        rule: StopRule = ConfidenceStop(threshold) if stop == "confidence" else BellmanStop(threshold, minimum)
        platt = self.calibration.platt(epsilon)
        return BeliefAgent(self.belief, rule, epsilon, stop_epsilon, self.calibration.scale, self.alarm, platt)

    def unstopped(self, epsilon: float) -> BeliefAgent:
        """The same agent without a stop rule: it makes every query that it may."""
        platt = self.calibration.platt(epsilon)
        return BeliefAgent(self.belief, NEVER, epsilon, epsilon, self.calibration.scale, self.alarm, platt)

    def session(
        self, epsilon: float, delta: float, *, seed: int = 0, stop: StopName = "confidence", **context: float
    ) -> Session:
        """A live campaign. Context, such as ``noise=0.05``, is given by name; see ``context_names``."""
        agent = self.agent(epsilon, delta, stop)
        values = self._context(context)
        about = self.description
        return Session(
            agent,
            self.belief.query_space,
            about.observation_dim,
            values,
            epsilon,
            delta,
            seed,
            answer_space=self.belief.answer_space,
            typical_queries=self.calibration.typical_queries(stop, agent.stop_epsilon, delta, values),
            model_sha256=self.fingerprint,
        )

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
            try:
                value = float(given.get(name, about.default_context[i] if about.default_context else 0.0))
            except (TypeError, ValueError):
                raise InvalidInput(name, given[name], "a number") from None
            self.check_context(name, value)
            values.append(value)
        return tuple(values)

    def tasks(self, noise: float | None = None, problem: Problem | None = None) -> Problem:
        """The family (or another ``problem`` in its place) at one noise level, which must be one it was trained for."""
        family = problem or self.problem
        if noise is None:
            return family
        if "noise" in self.description.context_names:
            self.check_context("noise", noise)
        return family.with_noise(noise)

    def misfit(self, problem: Problem) -> str | None:
        """In what the shape of a problem's tasks is not that of the model's own, in words; None where it is."""
        found = {
            "query_space": problem.query_space.to_json(),
            "answer_space": problem.answer_space.to_json(),
            "observation_dim": problem.observation_dim,
            "context_names": tuple(problem.context_names),
        }
        for name, value in found.items():
            if value != getattr(self.description, name):
                return f"one with the model's {name}, {getattr(self.description, name)}; this has {value}"
        return None

    def check_contexts(self, context: Tensor) -> None:
        """Refuses tasks of which one has a context that the model was not trained for."""
        for name, values in zip(self.description.context_names, context.unbind(dim=1), strict=True):
            for value in (values.min(), values.max()):
                self.check_context(name, float(value))

    def check_context(self, name: str, value: float) -> None:
        """Refuses a context outside the range that the model was trained and calibrated for."""
        i = self.description.context_names.index(name)
        low, high = self.description.context_low[i], self.description.context_high[i]
        slack = 0.01 * (high - low) + 1e-6 * abs(high)
        if not low - slack <= value <= high + slack:
            raise InvalidInput(name, value, f"from {low:g} to {high:g}, the range that this model was trained for")

    def weights(self) -> bytes:
        """The weights as they are saved."""
        training = self.description.training
        # What is not trained is in its sizes and in the problem: those belong to the file, and to its hash.
        said = None if isinstance(training, TrainingConfig) else {"core": _identity(self.description)}
        return save_tensors({key: value.contiguous() for key, value in self.belief.tensors().items()}, said)

    @property
    def sha256(self) -> str:
        """A hash of the weights."""
        return hashlib.sha256(self.weights()).hexdigest()

    @property
    def fingerprint(self) -> str:
        """A hash of everything that decides what a session does: weights and thresholds."""
        return hashlib.sha256((self.sha256 + self.calibration.model_dump_json()).encode()).hexdigest()

    def save(self, folder: str | Path) -> Path:
        """Writes the model's folder. ``config.json`` comes last: with it, the folder is complete."""
        path = Path(folder)
        files = {WEIGHTS: self.weights(), CALIBRATION: (self.calibration.model_dump_json() + "\n").encode()}
        if self.alarm is not None:
            files[ALARM] = (self.alarm.config.model_dump_json() + "\n").encode()
            files[ALARM_WEIGHTS] = save_tensors(
                {key: value.contiguous() for key, value in self.alarm.tables.state_dict().items()}
            )
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        try:
            for name, data in files.items():
                write_atomic(path / name, data)
            write_atomic(path / "card.md", self.card().encode())
            write_json(path / "config.json", self.description.model_dump(mode="json") | {"files": hashes})
        except OSError as error:
            raise ModelError(f"the model could not be written to {path}: {error}") from error
        return path

    def card(self) -> str:
        """A page about the model, in words."""
        about, low, high = self.description, self.calibration.epsilons[0], self.calibration.epsilons[-1]
        options = ", ".join(f"{key} = {value}" for key, value in about.problem_options.items()) or "none"
        if isinstance(about.training, TrainingConfig):
            belief = f"memory `{about.training.network.memory.kind}`"
        elif isinstance(about.training, ParticleTraining):
            belief = f"{about.training.particles.particles} particles, {about.training.likelihood} likelihood"
        else:
            belief = (
                f"{about.training.functions.functions} functions of {about.training.kinds} kinds of Gaussian process"
            )
        return (
            f"# {about.problem}\n\n"
            f"Options: {options}. Trained for epsilon from {low:g} to {high:g}, at most {about.horizon} queries.\n\n"
            f"Recipe `{about.recipe}`, actor `{about.training.actor}`, {belief}, "
            f"seed {about.seed}: {about.updates} updates, {about.minutes:.1f} minutes on {about.threads} thread(s).\n\n"
            f"Thresholds were chosen on {self.calibration.episodes} held-out episodes "
            f"(exact binomial bound, alpha {self.calibration.alpha:g}).\n"
            + ("" if self.alarm is None else ALARM_CARD.format(self.alarm.config.ranked * len(self.alarm.config.knots)))
        )

    @classmethod
    def load(cls, folder: str | Path) -> "Model":
        """Reads a model's folder; every fault is a ModelError that says which file and why."""
        path = Path(folder)
        description = _parsed(path / "config.json", _bytes(path / "config.json"), Description)
        if description.format != FORMAT:
            raise ModelError(f"{path} has format {description.format!r}; this version reads {FORMAT!r}")
        alarmed = {ALARM, ALARM_WEIGHTS} & set(description.files)
        files = {name: _bytes(path / name) for name in (WEIGHTS, CALIBRATION, *sorted(alarmed))}
        for name, expected in description.files.items():
            if name not in files or hashlib.sha256(files[name]).hexdigest() != expected:
                raise ModelError(
                    f"{path / name} is not the file that config.json describes: it is damaged, "
                    "or saving was interrupted; save the model again"
                )
        calibration = _parsed(path / CALIBRATION, files[CALIBRATION], Calibration)
        if len(calibration.knots) > 1 and not description.context_names:
            raise ModelError(f"{path / CALIBRATION} has thresholds for a context, which this model does not know")
        belief = _core(path, description, files[WEIGHTS])
        return cls(belief, description, calibration, _alarm(path, files, belief) if alarmed else None)


def _identity(description: Description) -> str:
    """What decides an agent that is not trained, beside its weights, as JSON."""
    about = description.model_dump(
        mode="json",
        exclude_none=True,
        include={"problem", "problem_options", "training", "horizon"}
        | ({"query_space", "answer_space", "context_names"} if description.training.kind == "functions" else set()),
    )
    return json.dumps(about, sort_keys=True)


def _alarm(path: Path, files: dict[str, bytes], belief: Belief) -> Alarm:
    """The saved alarm of a core."""
    if not files.keys() >= {ALARM, ALARM_WEIGHTS}:
        raise ModelError(f"{path / 'config.json'} names one of {ALARM} and {ALARM_WEIGHTS}, and needs both")
    config = _parsed(path / ALARM, files[ALARM], AlarmConfig)
    wanted = prediction_config(belief.network) if isinstance(belief, NetworkBelief) else None
    if config.foresight != wanted or config.horizon != belief.horizon:
        raise ModelError(f"{path / ALARM} is the alarm of another model")
    with torch.device("meta"):
        tables = AlarmTables(config)
    _fill(tables, path / ALARM_WEIGHTS, files[ALARM_WEIGHTS])
    return make_alarm(config, tables.eval().requires_grad_(False), belief)


def _core(path: Path, description: Description, weights: bytes) -> Belief:
    """The saved core."""
    training, horizon = description.training, description.horizon
    if isinstance(training, TrainingConfig):
        network = _network(path / "config.json", description, training)
        _fill(network, path / WEIGHTS, weights)
        network.eval().requires_grad_(False)
        try:
            return network_belief(network, training, horizon)
        except CicpeError as error:
            raise ModelError(f"{path / 'config.json'} describes an actor that cannot be made: {error}") from None
    if _said(weights) != _identity(description):
        raise ModelError(f"{path / WEIGHTS} was saved with another belief or problem than config.json describes")
    belief: Belief
    if isinstance(training, FunctionTraining):
        belief = _function_core(path, description, training, weights)
    else:
        belief = _particle_core(path, description, training, weights)
    return belief


def _particle_core(path: Path, description: Description, training: ParticleTraining, weights: bytes) -> ParticleBelief:
    try:
        problem = ProblemSpec(description.problem, description.problem_options).make()
        learned = None if training.likelihood == "exact" else LearnedLikelihood(problem, training.hidden)
        belief = ParticleBelief(problem, description.horizon, training.particles, training.aim, learned)
    except (CicpeError, RuntimeError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise ModelError(f"{path / 'config.json'} describes particles that cannot be made: {error}") from None
    _fill(learned or torch.nn.Module(), path / WEIGHTS, weights)
    if learned is not None:
        learned.eval().requires_grad_(False)
    return belief


def _function_core(path: Path, description: Description, training: FunctionTraining, weights: bytes) -> FunctionBelief:
    """It needs nothing of the problem but its spaces: a session runs where a survey's data are not."""
    try:
        query_space, answer_space = map(space_from_json, (description.query_space, description.answer_space))
        mixture = GPMixture(training.kinds, query_space.dim, len(description.context_names))
        _fill(mixture, path / WEIGHTS, weights)
        mixture.requires_grad_(False)
        return FunctionBelief(query_space, answer_space, mixture, description.horizon, training.functions, training.aim)
    except ModelError:
        raise
    except (CicpeError, RuntimeError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise ModelError(f"{path / 'config.json'} describes functions that cannot be made: {error}") from None


def network_belief(network: Network, training: TrainingConfig, horizon: int) -> NetworkBelief:
    """A trained network with the actor rule that it was trained with."""
    actor = make_actor(training.actor, network.query_space, network.answer_space, network, training.aim)
    return NetworkBelief(network, actor, horizon, training.shaped)


def _network(path: Path, description: Description, training: TrainingConfig) -> Network:
    """The network that a description asks for, without its weights: no memory is taken for them."""
    try:
        query_space, answer_space = map(space_from_json, (description.query_space, description.answer_space))
        context = len(description.context_names)
        dims = Dims(query_space.dim, description.observation_dim, context, answer_space.dim)
        with torch.device("meta"):
            scaling = Scaling(description.observation_dim, context)
            return Network(training.network, scaling, dims, query_space, answer_space)
    except (CicpeError, RuntimeError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise ModelError(f"{path} describes a network that cannot be made: {error}") from None


def _said(weights: bytes) -> str | None:
    """What a weights file says of its core; None if it says nothing that can be read."""
    try:
        size = int.from_bytes(weights[:8], "little")
        said = json.loads(weights[8 : 8 + size])["__metadata__"]["core"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return said if isinstance(said, str) else None


def _fill(network: torch.nn.Module, path: Path, data: bytes) -> None:
    """Puts saved weights into a network, once they are known to fit."""
    try:
        tensors = load_tensors(data)
    except (SafetensorError, ValueError, RuntimeError) as error:
        raise ModelError(f"{path} cannot be read as weights: {error}") from None
    wanted = {key: (tuple(value.shape), value.dtype) for key, value in network.state_dict().items()}
    given = {key: (tuple(value.shape), value.dtype) for key, value in tensors.items()}
    for key in sorted(wanted.keys() | given.keys()):
        if wanted.get(key) != given.get(key):
            raise ModelError(
                f"{path} does not hold this model's weights: {key} is {given.get(key)}, not {wanted.get(key)}"
            )
        if not bool(torch.isfinite(tensors[key]).all()):
            raise ModelError(f"{path} holds weights that are not finite ({key}); the file is damaged")
    network.load_state_dict(tensors, assign=True)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist: {path.parent} is not a saved model") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error}") from None


def _parsed(path: Path, data: bytes, kind: Any) -> Any:
    try:
        return kind.model_validate(json.loads(data))
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        raise ModelError(f"{path} is not valid at {where or 'its top'}: {fault['msg']}") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
