"""Races at one accuracy: what a method would have answered after every measurement, its stop threshold, and its figures.

A method is a player (``cicpe.episodes.play``) whose proposals carry a recommendation. A *score* says how far it is: a probability of success,
a standard deviation with its sign turned, a number of reversals. It stops where the score reaches a threshold, which is chosen on held-out
tasks: the lowest one before the first, from the safest down, that falls short of the accuracy that is asked for.
"""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from cicpe.episodes.play import Player, play
from cicpe.problems import TaskBatch
from cicpe.statistics import clopper_pearson

ScoreOf = Callable[[Any], Tensor]
"""From proposals to how far each episode is; the higher, the safer."""
LEVELS = 400
"""Thresholds that are tried, at most."""


def by_confidence(proposal: Any) -> Tensor:
    """The method's own probability that its recommendation succeeds."""
    confidence: Tensor = proposal.confidence
    return confidence


def by_spread(proposal: Any) -> Tensor:
    """Minus the posterior standard deviation, the largest of the answer's coordinates."""
    std: Tensor = proposal.std
    return -std.amax(dim=-1)


class PlayedOn(NamedTuple):
    """What a method believed after every number of measurements; of an episode that has ended, as at its end."""

    score_BT: Tensor
    success_BT: Tensor

    def at(self, threshold: float) -> tuple[Tensor, Tensor]:
        """Measurements of each episode at a threshold (all that it may make where it never stops), and whether it was right."""
        hit_BT = self.score_BT >= threshold
        stop_B = torch.where(hit_BT.any(dim=1), hit_BT.int().argmax(dim=1), hit_BT.shape[1] - 1)
        return stop_B, self.success_BT.gather(1, stop_B[:, None])[:, 0]


def play_on(
    player: Player[Any], tasks: TaskBatch, epsilon: float, score_of: ScoreOf, enough: float, rng: Generator
) -> PlayedOn:
    """Plays every task until its score is ``enough``, or to the horizon.

    Args:
        player: Who plays; what it says of stopping is not asked for.
        tasks: The hidden tasks.
        epsilon: How close is close enough.
        score_of: How far an episode is.
        enough: A score at which nothing more needs to be seen.
        rng: Draws what the method and the measurements leave to chance.

    Returns:
        One row per task, one column per number of measurements from 0 on.
    """
    score_BT = torch.full((len(tasks), player.horizon + 1), -math.inf, dtype=torch.float64)
    success_BT = torch.zeros(score_BT.shape, dtype=torch.bool)
    for step in play(player, tasks, rng, ends=lambda rows, proposal: score_of(proposal) >= enough):
        score_BT[step.rows, step.time :] = score_of(step.proposal).double()[:, None]
        success_BT[step.rows, step.time :] = (step.tasks.loss(step.proposal.recommendation) <= epsilon)[:, None]
    return PlayedOn(score_BT, success_BT)


def choose_threshold(played: PlayedOn, accuracy: float) -> float | None:
    """The lowest threshold before the first, from the safest down, at which too few are right.

    Args:
        played: Held-out episodes.
        accuracy: The share of them that has to be right.

    Returns:
        The threshold; None where even episodes that never stop are right too seldom.
    """
    reached = played.score_BT[played.score_BT.isfinite()].unique()
    levels = reached[torch.linspace(0, len(reached) - 1, min(LEVELS, len(reached))).round().long()]
    chosen = None
    for level in [math.inf, *levels.flip(0).tolist()]:
        if float(played.at(level)[1].double().mean()) < accuracy:
            break
        chosen = level
    return chosen


class Tally:
    """How many episodes ended after each number of measurements, right and wrong: all that the figures need, and little to keep."""

    def __init__(self, kept: dict[str, list[int]] | None = None) -> None:
        self.ends: Counter[tuple[int, bool]] = Counter()
        for measurements, (wrong, right) in (kept or {}).items():
            self.ends[int(measurements), False] += wrong
            self.ends[int(measurements), True] += right

    def add(self, measurements: Tensor, success: Tensor) -> None:
        self.ends.update(zip(measurements.tolist(), success.tolist(), strict=True))

    def to_json(self) -> dict[str, list[int]]:
        times = sorted({measurements for measurements, _ in self.ends})
        return {str(time): [self.ends[time, False], self.ends[time, True]] for time in times}

    @property
    def episodes(self) -> int:
        return sum(self.ends.values())

    def figures(self, horizon: int) -> dict[str, Any]:
        """Accuracy with its exact 95 % interval, and mean measurements with their normal one."""
        n, right = self.episodes, sum(count for (_, success), count in self.ends.items() if success)
        low, high = clopper_pearson(right, n)
        each = np.repeat([time for time, _ in self.ends], list(self.ends.values())).astype(float)
        mean, half = float(each.mean()), 1.959964 * float(each.std(ddof=1)) / math.sqrt(n)
        return {
            "tasks": n,
            "accuracy": right / n,
            "accuracy_ci": [float(low), float(high)],
            "measurements": mean,
            "measurements_ci": [mean - half, mean + half],
            "at_the_limit": float((each >= horizon).mean()),
        }
