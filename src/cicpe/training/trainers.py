"""The trainer that a configuration asks for."""

import time
from collections.abc import Callable

from cicpe.problems import Problem
from cicpe.training.base import AnyTrainer
from cicpe.training.config import NetworkTraining, PaperConfig, TrainingConfig
from cicpe.training.loop import Trainer
from cicpe.training.paper import PaperTrainer
from cicpe.training.schedule import Budget


def make_trainer(
    problem: Problem,
    config: NetworkTraining,
    budget: Budget,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> AnyTrainer:
    """Makes the trainer of a configuration: ours, or the published one.

    Args:
        problem: The family of tasks.
        config: What is trained, and how.
        budget: How long.
        seed: Seeds everything.
        clock: Counts the seconds of the budget.

    Returns:
        A trainer at the beginning of its run.
    """
    if isinstance(config, PaperConfig):
        return PaperTrainer(problem, config, budget, seed, clock)
    assert isinstance(config, TrainingConfig)
    return Trainer(problem, config, budget, seed, clock)
