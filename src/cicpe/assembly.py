"""A model from a finished fit: calibrated, given an alarm, described and saved, within what is left of a budget."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import torch

from cicpe.beliefs.base import BeliefConfig, FittedBelief
from cicpe.beliefs.budget import CALIBRATION_SHARE, Budget
from cicpe.calibration.alarm_fit import AlarmSizes, affordable_sizes, fit_alarm
from cicpe.calibration.pace import lengthened, shortened
from cicpe.calibration.thresholds import CalibrationRequest, calibrate
from cicpe.certification.checkpoints import CertificationTarget, CheckpointCertifier
from cicpe.errors import InvalidInput
from cicpe.model import Description, Model
from cicpe.parallel import Executor
from cicpe.problems import Problem, TaskBatch, spec_of
from cicpe.problems.structure import observation_kinds
from cicpe.streams import seed_for, stream
from cicpe.training.callbacks import TrainingCallback

ALARM_SHARE = 0.3
"""Share of the time for calibration that the alarm is given."""


@final
@dataclass(frozen=True)
class Assembly:
    """What is trained, and how a model is made of it."""

    problem: Problem
    config: BeliefConfig
    recipe: str
    seed: int
    calibration_episodes: int
    executor: Executor

    def alarm_sizes(self, fitted: FittedBelief) -> AlarmSizes:
        """As large a share of an alarm's usual size as the calibration has: a budget in updates has no time."""
        most = fitted.config.calibration.max_episodes
        return full_alarm(fitted.config).scaled(min(1.0, self.calibration_episodes / most))

    def affordable_alarm(self, fitted: FittedBelief, seconds: float) -> AlarmSizes | None:
        """The sizes of an alarm that can be fitted in a time; None where there are none."""
        return affordable_sizes(
            fitted.belief,
            self.problem,
            query_spread=fitted.config.calibration.query_spreads[0],
            epsilon=fitted.config.epsilon[0],
            sizes=full_alarm(fitted.config),
            seconds=seconds,
            seed=self.seed,
        )

    def model(
        self,
        fitted: FittedBelief,
        episodes: int,
        seconds: float | None,
        on_progress: Callable[[float], None] = lambda share: None,
    ) -> Model:
        """Calibrates what training gave, and describes it."""
        problem, spec, began = self.problem, spec_of(self.problem), time.perf_counter()
        config, seed = fitted.config, self.seed
        belief, plan, horizon_seed = fitted.belief, config.calibration, seed_for(seed, "calibration", "horizon")
        if plan.shortens and seconds is not None:
            belief = shortened(belief, problem, config.epsilon[0], seconds, horizon_seed)
        if plan.lengthens:
            most, widest = math.inf if seconds is None else seconds, max(plan.query_spreads)
            belief = lengthened(belief, problem, config.epsilon[0], most, horizon_seed, widest)
        if seconds is not None:
            seconds -= time.perf_counter() - began
        request = CalibrationRequest(
            config.epsilon,
            config.calibration,
            episodes,
            seed,
            seconds=seconds,
            on_progress=on_progress,
            executor=self.executor,
        )
        calibration = calibrate(belief, problem, request)
        context = TaskBatch.draw(problem, 4096, stream(self.seed, "context")).context
        description = Description(
            problem=spec.name,
            problem_options=spec.plain_options,
            problem_source=spec.source,
            units=problem.units,
            query_space=problem.query_space.to_json(),
            answer_space=problem.answer_space.to_json(),
            observation_dim=problem.observation_dim,
            observations=tuple(observation_kinds(problem, seed_for(self.seed, "context", "observations")).to_json()),
            context_names=tuple(problem.context_names),
            default_context=problem.default_context(),
            context_low=tuple(context.amin(dim=0).tolist()),
            context_high=tuple(context.amax(dim=0).tolist()),
            recipe=self.recipe,
            training=config,
            horizon=belief.horizon,
            seed=self.seed,
            minutes=(fitted.seconds + time.perf_counter() - began) / 60,
            updates=fitted.updates,
            threads=torch.get_num_threads(),
        )
        return Model(belief, description, calibration, family=problem)

    def calibrated(
        self,
        fitted: FittedBelief,
        minutes: float | None,
        began: float,
        callback: TrainingCallback,
        folder: Path | None,
    ) -> Model:
        """The model of a finished fit, calibrated and given an alarm in what is left of the budget, and saved.

        Args:
            fitted: The fit.
            minutes: The whole budget; None where it is not in minutes.
            began: When it began, by ``time.perf_counter``.
            callback: Told how far it is.
            folder: Where the model is saved, before and after the alarm; None for nowhere.

        Returns:
            The model.
        """
        callback.on_calibration(0.0)
        seconds: float | None = None
        sizes: AlarmSizes | None = self.alarm_sizes(fitted)
        if minutes is not None:
            now = time.perf_counter()
            end = max(began + 60 * minutes, now + 60 * minutes * CALIBRATION_SHARE)
            sizes = self.affordable_alarm(fitted, ALARM_SHARE * (end - time.perf_counter()))
            seconds = (1 - ALARM_SHARE * (sizes is not None)) * (end - time.perf_counter())
        model = self.model(fitted, self.calibration_episodes, seconds, callback.on_calibration)
        if folder is not None:
            model.save(folder)  # whatever becomes of the alarm
        callback.on_stage("fitting the alarm, which says whether a campaign looks like the prior", 0.0)
        model, words = _alarmed(model, sizes, self.executor)
        callback.on_stage(words, 0.0)
        if folder is not None:
            model.save(folder)
        return model

    def certifier(
        self,
        budget: Budget,
        every: float | None,
        at: tuple[float, float] | None,
        folder: Path | None,
        callback: TrainingCallback,
    ) -> CheckpointCertifier | None:
        """What tests checkpoints of the run.

        Args:
            budget: That of training.
            every: How often, in the unit of the budget; None for never.
            at: The (epsilon, delta) of the tests; the largest epsilon and 0.1 if not given.
            folder: Where certified checkpoints are kept.
            callback: Told of every certificate.

        Returns:
            None where nothing is to be tested.
        """
        if every is None:
            return None
        if not self.config.has_checkpoints:
            raise InvalidInput(
                "certify_every", every, f"left out: the recipe {self.recipe} trains nothing; use certify"
            )
        total = budget.minutes if budget.minutes is not None else float(budget.updates or 0)
        if not 0 < every <= total:
            raise InvalidInput("certify_every", every, f"above 0 and at most the budget of {total:g}, in its unit")
        epsilon, delta = at or (self.config.epsilon[1], 0.1)
        if not self.config.epsilon[0] <= epsilon <= self.config.epsilon[1]:
            low, high = self.config.epsilon
            raise InvalidInput("certify_at", at, f"an epsilon from {low:g} to {high:g}, the range that is trained for")
        target = CertificationTarget(epsilon, delta, max(1, int(total / every + 1e-9)))
        return CheckpointCertifier(target, self.seed, folder, callback.on_certificate, executor=self.executor)

    def tests(self, certifier: CheckpointCertifier) -> Callable[[float, Callable[[], FittedBelief]], None]:
        """What tests the state of a run whenever a checkpoint is due."""

        def test(progress: float, freeze: Callable[[], FittedBelief]) -> None:
            certifier.inspect(progress, lambda: self.model(freeze(), self.calibration_episodes // 4, None))

        return test


def with_alarm(model: Model, sizes: AlarmSizes, seed: int, executor: Executor) -> Model:
    """The same model with an alarm.

    Args:
        model: What to watch.
        sizes: How large the alarm is.
        seed: Seeds its episodes.
        executor: Where they are played.

    Returns:
        The model with its alarm.
    """
    alarm = fit_alarm(
        model.belief,
        model.problem,
        query_spread=model.calibration.query_spread,
        epsilon=model.calibration.epsilons[0],
        sizes=sizes,
        seed=seed,
        executor=executor,
    )
    return replace(model, alarm=alarm)


def _alarmed(model: Model, sizes: AlarmSizes | None, executor: Executor) -> tuple[Model, str]:
    """The model with an alarm of some size, if any, and in words what came of it."""
    if sizes is None:
        return model, "no alarm: the time left was too short for the smallest one (cicpe alarm MODEL --save fits it)"
    began, full = time.perf_counter(), full_alarm(model.description.training)
    model = with_alarm(model, sizes, model.description.seed, executor)
    spent = (time.perf_counter() - began) / 60
    model = replace(
        model, description=model.description.model_copy(update={"minutes": model.description.minutes + spent})
    )
    small = "" if sizes == full else f", fewer than the usual {full.episodes} and {full.ranked}: the time was short"
    return model, f"alarm fitted on {sizes.episodes} episodes of the prior, ranked among {sizes.ranked}{small}"


def full_alarm(config: BeliefConfig) -> AlarmSizes:
    """The sizes of an alarm for which there is all the time."""
    plan = config.calibration
    return AlarmSizes(episodes=plan.alarm_episodes, ranked=plan.alarm_ranked, knots=plan.alarm_knots)
