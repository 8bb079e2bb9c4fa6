"""The library in a few functions: train, evaluate, recalibrate, change the rule for queries, fit an alarm."""

import math
import time
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from cicpe.assembly import Assembly, with_alarm
from cicpe.beliefs.base import Belief, BeliefConfig, FitRequest, FittedBelief
from cicpe.beliefs.budget import Budget
from cicpe.calibration.alarm_fit import AlarmSizes
from cicpe.calibration.pace import pilot, shortened
from cicpe.calibration.thresholds import CalibrationRequest, calibrate
from cicpe.certification.certificate import LEDGER, append_certificate
from cicpe.errors import InvalidInput, UnservedWarning
from cicpe.evaluation.evaluate import Evaluation, evaluate_agent
from cicpe.experiments import Experiment, shape_difference
from cicpe.model import Model
from cicpe.parallel import HERE, Executor
from cicpe.problems import Problem, make_problem, spec_of
from cicpe.progress import followed
from cicpe.race import Race, chosen_before
from cicpe.streams import seed_for
from cicpe.training.callbacks import TrainingCallback
from cicpe.training.posterior_actor import with_learned_actor
from cicpe.training.recipes import candidates, choose
from cicpe.training.settings import configured

USUAL_DELTA = 0.1
"""The delta at which a finished training says what the model can and cannot."""
ACTOR_UPDATES = 6000
"""Of an actor that learns on a posterior, where there is no limit in minutes."""
HORIZON_EPISODES = 256
"""Episodes that say how many queries another rule is worth, at most."""


def train(
    problem: Problem | Experiment | str,
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
    progress: bool | None = None,
    executor: Executor = HERE,
) -> Model:
    """Meta-trains an agent on a family of tasks and calibrates when it stops.

    Args:
        problem: A problem, its registered name, an experiment, or the path of its file.
        epsilon: The range of epsilon to serve (or one value); the problem's own where not given.
        minutes: Wall-clock budget, calibration included; 5 where neither budget is given.
        updates: Budget in gradient steps instead: the run is then reproducible bit for bit on one thread.
        recipe: A named training configuration: ``answers``, ``fast``, ``particles``, ``functions`` or ``paper``. Where
            it is not given and the budget is in minutes, those that may suit the problem are tried on short slices,
            and the one that needs the fewest queries goes on.
        actor: ``ts``, ``ttps``, ``ucb``, ``fts``, ``td3``, ``search``, ``acquisition`` or ``uniform``; from the problem
            if not given.
        seed: Seeds everything.
        out: A folder for the model, its checkpoint and its log. Without it nothing is written.
        resume: Go on from the checkpoint in ``out``, if there is one.
        checkpoint_seconds: How often a checkpoint is written.
        calibration_episodes: Held-out episodes for the stop thresholds, at least 100; fewer (down to a quarter)
            where a budget in minutes leaves no time for all.
        certify_every: Test a checkpoint every so many minutes (or updates, as the budget is given). The run then
            ends with the certified checkpoint that needs the fewest queries, if any passed.
        certify_at: The (epsilon, delta) of those tests; the largest epsilon and 0.1 if not given.
        settings: Fields of the configuration to override; what is inside a part is given inside a part:
            ``{"network": {"critic": {"hidden": 32}}}``.
        callback: Follows the run, in place of what is shown.
        progress: Whether to show how far it is, what was tried and what was chosen: a bar on a terminal or in a
            notebook, lines elsewhere. Where it is not given, on a terminal and in a notebook.
        executor: Where held-out episodes are played, for calibration, certificates and the alarm; it trains here.

    Returns:
        The trained and calibrated model, which is also in ``out``. Where it cannot serve all of epsilon at delta 0.1, a
        ``cicpe.UnservedWarning`` says what it can and what would help.
    """
    began = time.perf_counter()
    with followed(progress) if callback is None else nullcontext(callback) as callback:
        if calibration_episodes < 100:
            raise InvalidInput(
                "calibration_episodes", calibration_episodes, "at least 100: thresholds are chosen on them"
            )
        problem = make_problem(problem) if isinstance(problem, str) else problem
        problem = problem.problem() if isinstance(problem, Experiment) else problem
        if minutes is None and updates is None:
            minutes = 5.0
        budget = Budget(minutes, updates)
        if minutes is not None and updates is not None:
            raise InvalidInput("updates", updates, "left out with minutes: a run ends after one or after the other")
        wanted = problem.default_epsilon if epsilon is None else epsilon
        folder = None if out is None else Path(out)
        spec = spec_of(problem)
        if folder is not None:
            spec.check_options()
        if resume and recipe is None:
            recipe = chosen_before(folder)
        identity = {"problem": spec.name, "options": spec.plain_options, "seed": seed, "updates": updates}
        identity |= {} if spec.source is None else {"problem_source": spec.source}
        request = FitRequest(
            problem, budget, seed_for(seed, "training"), callback, folder, resume, checkpoint_seconds, identity
        )
        as_asked = (recipe, actor, updates, certify_every, settings or None)
        if minutes is not None and all(wish is None for wish in as_asked):
            race = Race(
                problem,
                request,
                lambda config: configured(config, wanted, None),
                callback,
                began,
                seed_for(seed, "race"),
            )
            winner, fitted = race.run(candidates(problem))
            run = Assembly(problem, fitted.config, winner.recipe, seed, calibration_episodes, executor)
            if race.interrupted:
                began = -math.inf  # only the share that calibration always has
            model = run.calibrated(fitted, minutes, began, callback, folder)
            return _with_warning(replace(model, tried=tuple(score.row for score in race.scores)))
        choice = choose(recipe, problem, actor)
        config = configured(choice.config, wanted, settings)
        callback.on_choice(choice.reasons)
        run = Assembly(problem, config, choice.recipe, seed, calibration_episodes, executor)
        certifier = run.certifier(budget, certify_every, certify_at, folder, callback)
        request = replace(request, identity=identity | {"config": config.model_dump(mode="json")})
        if certifier is not None:
            begin = certifier.resume if resume else lambda progress: certifier.start()
            request = replace(request, on_start=begin, on_checkpoint=run.tests(certifier))
        fitted = with_learned_actor(config.fit(request), request)
        if certifier is not None and certifier.best is not None:
            model, certificate = replace(certifier.best[0], family=problem), certifier.best[1]
            if folder is not None:
                model.save(folder)
                append_certificate(folder / LEDGER, certificate)
            return _with_warning(model)
        began = time.perf_counter() - fitted.seconds  # a resumed run has spent some of its budget before
        return _with_warning(run.calibrated(fitted, minutes, began, callback, folder))


def _with_warning(model: Model) -> Model:
    """The model; warns of what it cannot serve of the epsilons that it was trained for."""
    limits = model.limits(USUAL_DELTA)
    if limits is not None:
        warnings.warn(limits, UnservedWarning, stacklevel=3)
    return model


def adapt(model: Model, experiment: Experiment | str) -> Model:
    """The same model for another experiment of the same shape, in that one's units: nothing is trained.

    Args:
        model: A model that was trained on an experiment, such as a ready-made one.
        experiment: One's own, or the path of its file. What it asks has to be what the model was trained for, once its
            ranges are mapped.

    Returns:
        A model whose sessions speak in the units of the experiment.
    """
    plan = Experiment.read(experiment) if isinstance(experiment, str) else experiment
    problem, about = plan.problem(), model.description
    difference = shape_difference(model.problem, problem)
    low, high = about.training.epsilon
    if difference is None and not 0.999 * low <= problem.default_epsilon[0] <= 1.001 * high:
        trained = f"{about.units.tolerance_words(low)} to {about.units.tolerance_words(high)}"
        difference = f"as exact as the model was trained for, {trained} of its own range"
    if difference is not None:
        raise InvalidInput("experiment", plan.title or "this one", difference)
    epsilon = min(max(problem.default_epsilon[0], low), high)
    units = problem.units.model_copy(update={"epsilon": epsilon})
    spec = spec_of(problem)
    changes = {"problem": spec.name, "problem_options": spec.plain_options, "units": units}
    return replace(model, description=about.model_copy(update=changes), family=problem)


def recalibrate(
    model: Model,
    *,
    episodes: int = 32768,
    seed: int = 1,
    minutes: float | None = None,
    executor: Executor = HERE,
) -> Model:
    """The same model with its stop thresholds chosen anew, on fresh held-out episodes.

    Args:
        model: What to calibrate; the minutes in its description stay those of training.
        episodes: Held-out episodes, at most.
        seed: Seeds them.
        minutes: A limit.
        executor: Where they are played; without a limit the thresholds do not depend on it.

    Returns:
        The model with new thresholds; without its alarm, if the spread of its queries has changed.
    """
    model = _with_config(model, model.description.training.renewed())
    config = model.description.training
    seconds = None if minutes is None else 60 * minutes
    request = CalibrationRequest(
        config.epsilon,
        config.calibration,
        episodes,
        seed,
        purpose="recalibration",
        seconds=seconds,
        executor=executor,
    )
    calibration = calibrate(model.belief, model.problem, request)
    # An alarm knows the prior's histories as the old spread of queries makes them.
    alarm = model.alarm if calibration.query_spread == model.calibration.query_spread else None
    return replace(model, calibration=calibration, alarm=alarm)


def with_actor(
    model: Model,
    actor: str,
    *,
    episodes: int = 32768,
    seed: int = 1,
    minutes: float | None = None,
    executor: Executor = HERE,
) -> Model:
    """The same weights with another rule for queries that reads a posterior, calibrated anew.

    Nothing is trained, but for ``td3`` on a model of the recipe ``answers``: there an actor learns, on the posterior
    as it is, for a share of the minutes. The posterior is as good as training has made it for the histories that the
    new rule brings about. Where those are of another kind (uniform queries, say, for a network that learned from its
    own), the thresholds are still safe, but the number of queries says more about the weights than about the rule.

    Args:
        model: Networks of the recipe ``fast``, or a model of the recipes ``answers``, ``particles`` or ``functions``.
        actor: ``ts``, ``ttps`` or ``uniform``; with the recipe ``answers``, also ``td3``.
        episodes: Held-out episodes for the thresholds, at most.
        seed: Seeds them.
        minutes: A limit.
        executor: Where they are played; without a limit the thresholds do not depend on it.

    Returns:
        A model without an alarm. It may make more queries than the given one, as many as its accuracy gains by.
    """
    began, problem = time.perf_counter(), model.problem
    model = _with_config(model, model.description.training.with_actor(actor))
    budget = Budget(minutes, None if minutes is not None else ACTOR_UPDATES)
    request = FitRequest(problem, budget, seed_for(seed, "training"), TrainingCallback())
    fitted = with_learned_actor(FittedBelief(model.belief, model.description.training, 0, 0.0), request)
    belief, config = fitted.belief, fitted.config
    seconds = None if minutes is None else 60 * (minutes - fitted.seconds / 60)
    belief = _with_enough_queries(belief, problem, config, seconds, seed_for(seed, "recalibration", "horizon"))
    description = model.description.model_copy(update={"training": config, "horizon": belief.horizon})
    other = Model(belief, description, model.calibration, family=model.family)
    left = None if minutes is None else max(0.0, minutes - (time.perf_counter() - began) / 60)
    return recalibrate(other, episodes=episodes, seed=seed, minutes=left, executor=executor)


def _with_config(model: Model, config: BeliefConfig) -> Model:
    """The same weights in a belief of another configuration, without the alarm where it is another one."""
    about, problem = model.description, model.problem
    if config == about.training:
        return model
    belief, module = config.build(about.shape(lambda: problem), about.horizon)
    # All but a learned actor's, which the given model may have in vain, or the other one has yet to learn.
    own = module.state_dict()
    module.load_state_dict(
        own | {name: value for name, value in model.belief.tensors().items() if name in own}, assign=True
    )
    module.eval().requires_grad_(False)
    return replace(model, belief=belief, description=about.model_copy(update={"training": config}), alarm=None)


def _with_enough_queries(
    belief: Belief, problem: Problem, config: BeliefConfig, seconds: float | None, seed: int
) -> Belief:
    """The belief with a horizon after which no more is gained; not a shorter one, unless the time asks for it."""
    plan = config.calibration
    # A computed belief makes no more queries than its recipe lets it: every one takes longer than the one before.
    most = min(problem.horizon, config.horizon) if plan.shortens else problem.horizon
    longest = belief.with_horizon(max(belief.horizon, most))
    if plan.shortens and seconds is not None:
        return shortened(longest, problem, config.epsilon[0], seconds, seed)
    if longest.horizon == belief.horizon:
        return belief
    episodes, widest = min(HORIZON_EPISODES, plan.chunk), max(plan.query_spreads)
    enough = pilot(longest, problem, config.epsilon[0], episodes, seed, query_spread=widest).queries
    return belief.with_horizon(max(belief.horizon, enough))


def fit_alarm(
    model: Model,
    *,
    seed: int = 2,
    episodes: int | None = None,
    ranked: int | None = None,
    sizes: AlarmSizes | None = None,
    executor: Executor = HERE,
) -> Model:
    """The same model with an alarm: it will say whether a history looks like the prior's. Training fits one itself.

    Args:
        model: What to watch. Networks take about a minute, and stay as they are; slower beliefs are ranked on fewer
            episodes.
        seed: Seeds the episodes.
        episodes: Episodes of the prior by which it knows what is odd; as many as suit the belief where not given.
        ranked: Episodes of the prior among which a history is ranked, likewise.
        sizes: All sizes at once, in the place of these two.
        executor: Where the episodes of both are played; the alarm does not depend on it.

    Returns:
        The model with its alarm.
    """
    plan = model.description.training.calibration
    usual = AlarmSizes(
        episodes=episodes or plan.alarm_episodes, ranked=ranked or plan.alarm_ranked, knots=plan.alarm_knots
    )
    return with_alarm(model, sizes or usual, seed, executor)


def evaluate(
    model: Model,
    *,
    epsilon: float,
    delta: float,
    stop: str = "confidence",
    episodes: int = 4000,
    seed: int = 0,
    problem: Problem | None = None,
    context: Mapping[str, float] | None = None,
    noise: float | None = None,
    executor: Executor = HERE,
    trajectories: int = 1,
) -> Evaluation:
    """Accuracy and queries of a model on fresh tasks of its own family.

    Args:
        model: What to measure.
        epsilon: How far off an answer may be.
        delta: How often it may be farther off.
        stop: The stop rule; ``own`` is that of a model of the recipe ``paper`` as it was trained, uncalibrated.
        episodes: How many tasks.
        seed: Seeds them.
        problem: Another family, in place of the model's own.
        context: Known contexts by name, at one value each; as the family draws them where not given.
        noise: The context of that name, said shortly.
        executor: Where they are played: ``cicpe.Executor(jobs=8)``, say. The figures do not depend on it.
        trajectories: How often each task is played; intervals are then of the bootstrap over tasks and trajectories.

    Returns:
        The figures with their 95 % intervals, and how every episode ended.
    """
    known = {**(context or {}), **({} if noise is None else {"noise": noise})}
    agent, tasks = model.agent(epsilon, delta, stop), model.tasks(known, problem)
    return evaluate_agent(agent, tasks, epsilon, episodes, seed, executor, trajectories)
