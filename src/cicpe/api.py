"""The library in a few functions: train, load, evaluate."""

import copy
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, final

import torch
from pydantic import ValidationError

from cicpe import zoo
from cicpe.beliefs.base import Belief
from cicpe.beliefs.functions.belief import FunctionBelief
from cicpe.beliefs.functions.fit import fit_gp_mixture
from cicpe.beliefs.network.belief import NetworkBelief
from cicpe.beliefs.particles.belief import ParticleBelief
from cicpe.beliefs.particles.likelihood import fit_likelihood
from cicpe.calibration.alarm_fit import KNOTS
from cicpe.calibration.alarm_fit import fit_alarm as fit_alarm_to
from cicpe.calibration.table import Calibration, StopName
from cicpe.calibration.thresholds import calibrate, pilot
from cicpe.certification.certificate import LEDGER, append_certificate
from cicpe.certification.checkpoints import CertificationTarget, CheckpointCertifier
from cicpe.errors import InvalidInput, allowed_by
from cicpe.evaluation.evaluate import Evaluation, evaluate_agent
from cicpe.model.model import Description, Model, network_belief
from cicpe.problems import Problem, TaskBatch, make_problem, spec_of
from cicpe.training.checkpoint import restore_checkpoint, save_checkpoint
from cicpe.training.config import AnyTraining, FunctionTraining, ParticleTraining, TrainingConfig
from cicpe.training.log import TrainingLog
from cicpe.training.loop import Snapshot, Trainer
from cicpe.training.recipes import choose
from cicpe.training.schedule import Budget

CHECKPOINT = "checkpoint.safetensors"
FUNCTION_EPISODES = 8192
"""The most calibration episodes of a belief over functions, which takes milliseconds a query."""
FUNCTION_LEAST = 1 / 32
"""Share of them that is played whatever the budget."""
FEW = 32
"""Episodes of a pilot, where one takes a good part of a second."""
FINE = 1000
"""Calibration episodes that a short budget is to have room for; else the horizon is cut to what is needed."""
CALIBRATION_SHARE = 0.1
"""Share of a budget in minutes that is kept for calibration."""


@final
class TrainingCallback:
    """What a caller may follow: the choices made, each iteration, each look, and from 0 to 1 how far calibration is."""

    def __init__(
        self,
        on_choice: Callable[[tuple[str, ...]], None] = lambda reasons: None,
        on_iteration: Callable[[Trainer], None] = lambda trainer: None,
        on_snapshot: Callable[[Snapshot], None] = lambda snapshot: None,
        on_calibration: Callable[[float], None] = lambda share: None,
        on_certificate: Callable[[str], None] = lambda said: None,
    ) -> None:
        self.on_choice, self.on_iteration, self.on_certificate = on_choice, on_iteration, on_certificate
        self.on_snapshot, self.on_calibration = on_snapshot, on_calibration


def train(
    problem: Problem | str,
    *,
    epsilon: tuple[float, float] | float | None = None,
    minutes: float | None = None,
    updates: int | None = None,
    recipe: str | None = None,
    actor: str | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    checkpoint_seconds: float = 20.0,
    calibration_episodes: int = 32768,
    certify_every: float | None = None,
    certify_at: tuple[float, float] | None = None,
    settings: dict[str, Any] | None = None,
    callback: TrainingCallback | None = None,
) -> Model:
    """Meta-trains an agent on a family of tasks and calibrates when it stops.

    Args:
        problem: A problem, or its registered name.
        epsilon: The range of epsilon to serve (or one value); the problem's own where not given.
        minutes: Wall-clock budget, calibration included; 5 where neither budget is given.
        updates: Budget in gradient steps instead: the run is then reproducible bit for bit on one thread.
        recipe: A named training configuration: ``fast``, ``paper``, ``particles`` or
            ``functions``; from the problem if not given.
        actor: ``ts``, ``ttps``, ``ucb``, ``fts``, ``td3``, ``search`` or ``uniform``; from the problem if not given.
        seed: Seeds everything.
        out: A folder for the model, its checkpoint and its log. Without it nothing is written.
        resume: Go on from the checkpoint in ``out``, if there is one.
        checkpoint_seconds: How often a checkpoint is written.
        calibration_episodes: Held-out episodes for the stop thresholds, at least 100; fewer (down to a quarter)
            where a budget in minutes leaves no time for all.
        certify_every: Test a checkpoint every so many minutes (or updates, as the budget is given). The run then
            ends with the certified checkpoint that needs the fewest queries, if any passed.
        certify_at: The (epsilon, delta) of those tests; the largest epsilon and 0.1 if not given.
        settings: Fields of the configuration to override (``TrainingConfig``, or that of particles or functions); what
            is inside a part is given inside a part: ``{"network": {"critic": {"hidden": 32}}}``.
        watcher: Follows the run.
    """
    callback = callback or TrainingCallback()
    if calibration_episodes < 100:
        raise InvalidInput("calibration_episodes", calibration_episodes, "at least 100: thresholds are chosen on them")
    problem = make_problem(problem) if isinstance(problem, str) else problem
    if minutes is None and updates is None:
        minutes = 5.0
    choice = choose(recipe, problem, actor)
    config = _configured(choice.config, problem.default_epsilon if epsilon is None else epsilon, settings)
    callback.on_choice(choice.reasons)
    folder = None if out is None else Path(out)
    spec = spec_of(problem)
    if folder is not None:
        _check_options(dict(spec.options))
    budget = Budget(minutes, updates)
    run = _Run(problem, config, choice.recipe, seed, calibration_episodes)
    if not isinstance(config, TrainingConfig):
        if certify_every is not None:
            raise InvalidInput(
                "certify_every", certify_every, "left out with particles or functions: nothing is trained; use certify"
            )
        made = _fitted(problem, config, budget, seed)
        inspector = None
    else:
        inspector = _inspector(run, budget, certify_every, certify_at, folder, callback)
        identity = {"problem": spec.name, "options": dict(spec.options), "seed": seed, "updates": updates}
        identity["config"] = config.model_dump(mode="json")
        made = _trained(run, config, budget, folder, resume, identity, checkpoint_seconds, callback, inspector)

    if inspector is not None and inspector.best is not None:
        model, certificate = inspector.best
        if folder is not None:
            model.save(folder)
            append_certificate(folder / LEDGER, certificate)
        return model
    callback.on_calibration(0.0)
    seconds = None if minutes is None else max(60 * minutes - made.seconds, 60 * minutes * CALIBRATION_SHARE)
    model = run.model(made, calibration_episodes, seconds, callback.on_calibration)
    if folder is not None:
        model.save(folder)
    return model


@final
@dataclass(frozen=True)
class _Run:
    """What is trained, and how a model is made of it."""

    problem: Problem
    config: AnyTraining
    recipe: str
    seed: int
    calibration_episodes: int

    def model(
        self,
        made: "_Made",
        episodes: int,
        seconds: float | None,
        on_progress: Callable[[float], None] = lambda share: None,
    ) -> Model:
        """Calibrates what training gave, and describes it."""
        problem, spec, began = self.problem, spec_of(self.problem), time.perf_counter()
        belief, seed, each = made.belief, self.seed + 1_000_003, None
        if isinstance(belief, FunctionBelief) and seconds is not None:
            belief, each = _within(belief, problem, self.config.epsilon[0], seconds, seed)
            seconds -= time.perf_counter() - began
        calibration = _calibrated(belief, problem, self.config, made.cost, episodes, seed, seconds, each, on_progress)
        context = TaskBatch.draw(problem, 4096, torch.Generator().manual_seed(self.seed)).context
        description = Description(
            problem=spec.name,
            problem_options=dict(spec.options),
            query_space=problem.query_space.to_json(),
            answer_space=problem.answer_space.to_json(),
            observation_dim=problem.observation_dim,
            context_names=tuple(problem.context_names),
            default_context=problem.default_context(),
            context_low=tuple(context.amin(dim=0).tolist()),
            context_high=tuple(context.amax(dim=0).tolist()),
            recipe=self.recipe,
            training=self.config,
            horizon=belief.horizon,
            seed=self.seed,
            minutes=(made.seconds + time.perf_counter() - began) / 60,
            updates=made.updates,
            threads=torch.get_num_threads(),
        )
        return Model(belief, description, calibration)


def _inspector(
    run: _Run,
    budget: Budget,
    every: float | None,
    at: tuple[float, float] | None,
    folder: Path | None,
    callback: TrainingCallback,
) -> CheckpointCertifier | None:
    if every is None:
        return None
    total = budget.minutes if budget.minutes is not None else float(budget.updates or 0)
    if not 0 < every <= total:
        raise InvalidInput("certify_every", every, f"above 0 and at most the budget of {total:g}, in its unit")
    epsilon, delta = at or (run.config.epsilon[1], 0.1)
    if not run.config.epsilon[0] <= epsilon <= run.config.epsilon[1]:
        low, high = run.config.epsilon
        raise InvalidInput("certify_at", at, f"an epsilon from {low:g} to {high:g}, the range that is trained for")
    wanted = CertificationTarget(epsilon, delta, max(1, int(total / every + 1e-9)))
    return CheckpointCertifier(wanted, run.seed, folder, callback.on_certificate)


class _Made(NamedTuple):
    """What training gives."""

    belief: Belief
    cost: tuple[float, float] | None
    """The range of costs that the critic knows."""
    updates: int
    seconds: float


def _fitted(problem: Problem, config: ParticleTraining | FunctionTraining, budget: Budget, seed: int) -> _Made:
    """What needs no training: at most a likelihood, or the kinds of function that tasks have, are fitted."""
    began, updates = time.perf_counter(), budget.updates or 0
    limit = math.inf if budget.minutes is None else min(config.fit_seconds, 60 * budget.minutes / 4)
    belief: Belief
    if isinstance(config, FunctionTraining):
        mixture = fit_gp_mixture(problem, seed, config.kinds, budget.updates, limit)
        spaces = problem.query_space, problem.answer_space
        belief = FunctionBelief(*spaces, mixture, config.horizon, config.functions, config.aim)
    else:
        learned = None
        if config.likelihood == "learned":
            learned = fit_likelihood(problem, limit, seed, hidden=config.hidden, updates=budget.updates)
        belief = ParticleBelief(problem, config.horizon, config.particles, config.aim, learned)
    return _Made(belief, _costs(config), updates, time.perf_counter() - began)


def _within(
    belief: FunctionBelief, problem: Problem, epsilon: float, seconds: float, seed: int
) -> tuple[FunctionBelief, float]:
    """The same belief, with a shorter horizon where the time is short and the last queries are worth nothing.

    And about how many seconds an episode of it takes.
    """
    needs = pilot(belief, problem, epsilon, FEW, seed + 4)
    if seconds > FINE * needs.seconds:
        return belief, needs.seconds
    return replace(belief, horizon=needs.queries), needs.seconds * needs.queries / belief.horizon


def _trained(
    run: _Run,
    config: TrainingConfig,
    budget: Budget,
    folder: Path | None,
    resume: bool,
    identity: dict[str, Any],
    checkpoint_seconds: float,
    callback: TrainingCallback,
    inspector: CheckpointCertifier | None,
) -> _Made:
    """Networks, by the training loop; from the checkpoint in ``folder`` where it is to be resumed."""
    if budget.minutes is not None:
        budget = replace(budget, minutes=budget.minutes * (1 - CALIBRATION_SHARE))
    trainer = Trainer(run.problem, config, budget, run.seed)
    log = TrainingLog(folder)
    if folder is not None and resume and (folder / CHECKPOINT).exists():
        restore_checkpoint(trainer, folder / CHECKPOINT, identity)
        log.rewind(trainer.at.update)
        if inspector is not None:
            inspector.resume(trainer.progress)
    else:
        log.start()
        if folder is not None:
            (folder / CHECKPOINT).unlink(missing_ok=True)
    written = time.perf_counter()
    while trainer.progress < 1:
        snapshot = trainer.iterate()
        log.losses(trainer.at.update, trainer.last_losses)
        if snapshot is not None:
            log.snapshot(snapshot)
            callback.on_snapshot(snapshot)
        callback.on_iteration(trainer)
        if inspector is not None:
            inspector.inspect(
                trainer.progress,
                lambda: run.model(_made(trainer, config), run.calibration_episodes // 4, None),
            )
        if folder is not None and (time.perf_counter() - written > checkpoint_seconds or trainer.progress >= 1):
            log.flush()
            save_checkpoint(trainer, folder / CHECKPOINT, identity)
            written = time.perf_counter()
    log.close()
    return _made(trainer, config)


def _made(trainer: Trainer, config: TrainingConfig) -> _Made:
    """The present state of a run, frozen. Its actor looks at the averaged network, which is what is deployed."""
    network = copy.deepcopy(trainer.average).eval().requires_grad_(False)
    cost = (max(trainer.at.cost, 1e-6),) * 2 if config.dual_cost else _costs(config)
    return _Made(network_belief(network, config, trainer.at.horizon), cost, trainer.at.update, trainer.at.seconds)


def _costs(config: AnyTraining) -> tuple[float, float] | None:
    """The costs of a query that an agent knows; None where it does not value queries."""
    return config.cost if isinstance(config, TrainingConfig) else None


def _configured(
    config: AnyTraining,
    epsilon: tuple[float, float] | float,
    settings: dict[str, Any] | None,
) -> AnyTraining:
    low, high = epsilon if isinstance(epsilon, tuple | list) else (epsilon, epsilon)
    if not 0 < low <= high:
        raise InvalidInput("epsilon", epsilon, "a positive number, or a low and a high one with low <= high")
    changes: dict[str, Any] = {"epsilon": (float(low), float(high)), **(settings or {})}
    try:
        return type(config).model_validate(_merged(config.model_dump(), changes))
    except ValidationError as error:
        fault = error.errors()[0]
        field, value = ("settings", changes) if not fault["loc"] else (".".join(map(str, fault["loc"])), fault["input"])
        allowed = allowed_by(fault["msg"])
        if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1:
            allowed = f"a setting of this recipe ({', '.join(type(config).model_fields)}), or another recipe"
        raise InvalidInput(field, value, allowed) from None


def _merged(old: Any, new: Any) -> Any:
    """``new`` in place of ``old``; where both describe a part of one kind, field by field."""
    if not (isinstance(old, dict) and isinstance(new, dict)) or new.get("kind", old.get("kind")) != old.get("kind"):
        return new
    return old | {name: _merged(old.get(name), value) for name, value in new.items()}


def _check_options(options: dict[str, Any]) -> None:
    """Refuses, before training rather than after it, options that a model's folder cannot say."""
    for name, value in options.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidInput(name, value, f"numbers, text and lists, to be saved as JSON ({error})") from None


def _calibrated(
    belief: Belief,
    problem: Problem,
    config: AnyTraining,
    cost: tuple[float, float] | None,
    episodes: int,
    seed: int,
    seconds: float | None,
    each: float | None = None,
    on_progress: Callable[[float], None] = lambda share: None,
) -> Calibration:
    """Stop thresholds for what a configuration was trained for."""
    if isinstance(config, FunctionTraining):
        some = min(episodes, FUNCTION_EPISODES)
        return calibrate(
            belief,
            problem,
            config.epsilon,
            cost,
            episodes=some,
            seed=seed,
            seconds=seconds,
            points=5,
            chunk=2048 if seconds is None else FEW,
            least=FUNCTION_LEAST,
            each=each,
            on_progress=on_progress,
        )
    if isinstance(config, ParticleTraining):
        # An episode takes a second, not a millisecond: fewer of them, at fewer knots.
        return calibrate(
            belief,
            problem,
            config.epsilon,
            cost,
            episodes=episodes,
            seed=seed,
            seconds=seconds,
            points=5,
            knots=3,
            chunk=64,
            least=0.0,
            on_progress=on_progress,
        )
    return calibrate(
        belief,
        problem,
        config.epsilon,
        cost,
        config.query_scales,
        episodes=episodes,
        seed=seed,
        minimum_time=config.minimum_time,
        seconds=seconds,
        on_progress=on_progress,
    )


def recalibrate(model: Model, *, episodes: int = 32768, seed: int = 1, minutes: float | None = None) -> Model:
    """The same model with its stop thresholds chosen anew, on fresh held-out episodes.

    ``minutes`` limits it. The minutes in the description stay those of training.
    """
    config = model.description.training
    seconds = None if minutes is None else 60 * minutes
    calibration = _calibrated(model.belief, model.problem, config, _costs(config), episodes, seed, seconds)
    # An alarm knows the prior's histories as the old spread of queries makes them.
    alarm = model.alarm if calibration.scale == model.calibration.scale else None
    return replace(model, calibration=calibration, alarm=alarm)


def fit_alarm(model: Model, *, seed: int = 2, episodes: int | None = None, ranked: int | None = None) -> Model:
    """The same model with an alarm: it will say whether a history looks like the prior's.

    Takes about a minute for networks, which stay as they are. Particles and functions predict by themselves, but play
    slowly: fewer episodes are ranked.
    """
    slow = not isinstance(model.belief, NetworkBelief)
    alarm = fit_alarm_to(
        model.belief,
        model.problem,
        scale=model.calibration.scale,
        epsilon=model.calibration.epsilons[0],
        episodes=episodes or (256 if slow else 4096),
        ranked=ranked or (199 if slow else 999),
        knots=1 if slow else KNOTS,
        seed=seed,
    )
    return replace(model, alarm=alarm)


def load(model: str | Path) -> Model:
    """A trained model, by its folder or by its name in the zoo (``cicpe zoo list``)."""
    path = Path(model)
    if path.is_dir():
        return Model.load(path)
    if str(model) in zoo.names():
        return Model.load(zoo.folder(str(model)))
    raise InvalidInput("model", str(model), f"a folder, or one of the zoo: {', '.join(zoo.names()) or 'it is empty'}")


def evaluate(
    model: Model,
    *,
    epsilon: float,
    delta: float,
    noise: float | None = None,
    stop: StopName = "confidence",
    episodes: int = 4000,
    seed: int = 0,
    problem: Problem | None = None,
) -> Evaluation:
    """Accuracy and queries of a model on fresh tasks of its own family (or of another ``problem``)."""
    return evaluate_agent(
        model.agent(epsilon, delta, stop), model.tasks(noise, problem), epsilon, delta, episodes, seed
    )
