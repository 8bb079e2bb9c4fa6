"""A whole run of a training loop: from its checkpoint or from the start, to a frozen belief."""

import copy
import math
import time
from dataclasses import replace

from cicpe.beliefs.base import FitRequest, FittedBelief
from cicpe.beliefs.budget import CALIBRATION_SHARE, Budget
from cicpe.training.base import AnyTrainer
from cicpe.training.checkpoint import restore_checkpoint, save_checkpoint
from cicpe.training.config import NetworkTraining
from cicpe.training.log import TrainingLog
from cicpe.training.trainers import make_trainer

CHECKPOINT = "checkpoint.safetensors"


def train_network(config: NetworkTraining, request: FitRequest) -> FittedBelief:
    """Trains networks to the end of the budget; from the checkpoint in the folder where it is to be resumed.

    Args:
        config: What is trained, and how.
        request: The problem, the budget, and where checkpoints go.

    Returns:
        The averaged network with its query rule, frozen.
    """
    budget, folder = request.budget, request.folder
    if budget.minutes is not None:
        budget = replace(budget, minutes=budget.minutes * (1 - CALIBRATION_SHARE))
    trainer = make_trainer(request.problem, config, budget, request.seed)
    log = TrainingLog(folder)
    if folder is not None and request.resume and (folder / CHECKPOINT).exists():
        restore_checkpoint(trainer, folder / CHECKPOINT, dict(request.identity))
        log.rewind(trainer.at.update)
    else:
        log.start()
        if folder is not None:
            (folder / CHECKPOINT).unlink(missing_ok=True)
    request.on_start(trainer.progress)
    return _go_on(trainer, log, request, math.inf if request.pause is None else request.pause)


def _go_on(trainer: AnyTrainer, log: TrainingLog, request: FitRequest, pause: float) -> FittedBelief:
    """Trains to the end of the budget, or for ``pause`` seconds."""
    folder, began = request.folder, time.perf_counter()
    written = began
    while trainer.progress < 1 and time.perf_counter() - began < pause:
        snapshot = trainer.iterate()
        log.losses(trainer.at.update, trainer.last_losses)
        if snapshot is not None:
            log.snapshot(snapshot)
            request.callback.on_snapshot(snapshot)
        request.callback.on_iteration(trainer)
        request.on_checkpoint(trainer.progress, lambda: freeze(trainer))
        due = time.perf_counter() - written > request.checkpoint_seconds or trainer.progress >= 1
        if folder is not None and due:
            log.flush()
            save_checkpoint(trainer, folder / CHECKPOINT, dict(request.identity))
            written = time.perf_counter()

    def longer(budget: Budget) -> FittedBelief:
        further = 0.0 if budget.minutes is None else budget.minutes * (1 - CALIBRATION_SHARE)
        trainer.go_on(further)
        return _go_on(trainer, log, request, math.inf)

    if trainer.progress < 1:
        log.flush()
        return freeze(trainer)._replace(longer=longer)
    log.close()
    return freeze(trainer)


def freeze(trainer: AnyTrainer) -> FittedBelief:
    """The present state of a run. Its actor looks at the averaged network, which is what is deployed."""
    network = copy.deepcopy(trainer.average).eval().requires_grad_(False)
    config = trainer.trained_config
    return FittedBelief(config.belief_of(network, trainer.at.horizon), config, trainer.at.update, trainer.at.seconds)
