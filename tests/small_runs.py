"""Small problems and runs that several suites of training share."""

from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

import cicpe
from cicpe.model import Model
from cicpe.problems import Problem
from cicpe.problems.binary_search import BinarySearch
from cicpe.spaces import Box, Interval
from cicpe.training.base import AnyTrainer, Losses

TINY: dict[str, Any] = {"first_batch": 12, "batch": 16, "horizon": 5, "query_spreads": (0.5,)}
UPDATES = 40
SHARP = (0.15, 0.85)
"""Where a lens may be sharp."""


def make_rng(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


class Lenses(Problem):
    """The target is seen through a lens that is sharp at one setting, which is known and differs between tasks."""

    query_space = Box([0.0], [1.0])
    answer_space = Interval(-1.0, 1.0)
    horizon = 2
    context_names = ("sharp",)

    def sample(self, n: int, rng: Generator) -> Tensor:
        drawn = torch.rand(n, 2, generator=rng)
        return torch.stack([2 * drawn[:, 0] - 1, SHARP[0] + (SHARP[1] - SHARP[0]) * drawn[:, 1]], dim=1)

    def context(self, task: Tensor) -> Tensor:
        return task[:, 1:]

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        blur = 0.05 + 2 * (query - task[:, 1:]).abs()
        return task[:, :1] + blur * torch.randn(len(task), 1, generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[:, :1]


class Seen(Problem):
    """The target itself is what is observed, wherever one looks."""

    query_space = Box([-1.0], [1.0])
    answer_space = Box([-1.0], [1.0])
    horizon = 4

    def sample(self, n: int, rng: Generator) -> Tensor:
        return 2 * torch.rand(n, 1, generator=rng) - 1

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return task

    def target(self, task: Tensor) -> Tensor:
        return task


def train_with_checkpoints(folder: Path, **options: Any) -> Model:
    """A checkpoint after every iteration, and an adapted horizon, so that there is much to get wrong."""
    defaults = {
        "updates": UPDATES,
        "epsilon": (0.3, 0.6),
        "out": folder,
        "checkpoint_seconds": 0.0,
        "calibration_episodes": 100,
        "settings": TINY,
    }
    return cicpe.train(BinarySearch(dim=1), **(defaults | options))


def curve(trainer: AnyTrainer) -> list[tuple[float, ...]]:
    """The losses and the cost after every iteration of a run, for golden curves."""
    rows = []
    while trainer.progress < 1:
        trainer.iterate()
        rows.append((*trainer.last_losses, trainer.at.cost))
    return rows


def train_until_losses_fall(recipe: str, settings: dict[str, Any]) -> Model:
    """A run on ``Seen`` whose losses of inference and stopping have to fall by a tenth, and stay finite."""
    seen: list[Losses] = []
    callback = cicpe.TrainingCallback(on_iteration=lambda trainer: seen.append(trainer.last_losses))
    options: dict[str, Any] = {"epsilon": (0.3, 0.5), "calibration_episodes": 256}
    model = cicpe.train(Seen(), recipe=recipe, updates=240, settings=settings, callback=callback, **options)
    part = len(seen) // 5
    for name in ("inference", "stop"):
        early, late = (sum(getattr(losses, name) for losses in some) / part for some in (seen[:part], seen[-part:]))
        assert late < early - 0.1 * abs(early), name
    assert all(torch.tensor(losses).isfinite().all() for losses in seen)
    return model
