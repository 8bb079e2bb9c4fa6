"""Meta-training: rollouts, replay, losses, the two trainers and their recipes.

Everything here is imported when it is first used: a configuration is read without the trainers.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cicpe.training.base import AnyTrainer, BaseTrainer, Losses, Progress, Snapshot, build_network
    from cicpe.training.checkpoint import restore_checkpoint, save_checkpoint
    from cicpe.training.config import (
        NetworkTraining,
        PaperConfig,
        PrefixMixture,
        TrainingConfig,
        migrate_training,
    )
    from cicpe.training.log import TrainingLog
    from cicpe.training.loop import Trainer
    from cicpe.training.paper import PaperTrainer
    from cicpe.training.recipes import RECIPES, Choice, choose
    from cicpe.training.schedule import Budget
    from cicpe.training.trainers import make_trainer

_PLACES = {
    "AnyTrainer": "base",
    "BaseTrainer": "base",
    "Budget": "schedule",
    "Choice": "recipes",
    "Losses": "base",
    "NetworkTraining": "config",
    "PaperConfig": "config",
    "PaperTrainer": "paper",
    "PrefixMixture": "config",
    "Progress": "base",
    "RECIPES": "recipes",
    "Snapshot": "base",
    "Trainer": "loop",
    "TrainingConfig": "config",
    "TrainingLog": "log",
    "build_network": "base",
    "choose": "recipes",
    "make_trainer": "trainers",
    "migrate_training": "config",
    "restore_checkpoint": "checkpoint",
    "save_checkpoint": "checkpoint",
}

__all__ = [
    "RECIPES",
    "AnyTrainer",
    "BaseTrainer",
    "Budget",
    "Choice",
    "Losses",
    "NetworkTraining",
    "PaperConfig",
    "PaperTrainer",
    "PrefixMixture",
    "Progress",
    "Snapshot",
    "Trainer",
    "TrainingConfig",
    "TrainingLog",
    "build_network",
    "choose",
    "make_trainer",
    "migrate_training",
    "restore_checkpoint",
    "save_checkpoint",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
