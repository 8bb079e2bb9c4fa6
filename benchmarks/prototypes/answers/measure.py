"""Queries at accuracy 1 - delta, with the threshold chosen on held-out episodes and measured on others."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from clock import CLOCK
from torch import Tensor

from cicpe import trees
from cicpe.problems.base import Problem, TaskBatch


class Played(NamedTuple):
    """Confidence and success before every query of recorded episodes."""

    confidence_ETB: Tensor
    success_ETB: Tensor
    seconds: float
    queries: int
    """How many were made in all."""


@torch.no_grad()
def record(
    belief: Any, problem: Problem, epsilons: Sequence[float], n: int, steps: int, seed: int, enough: float = 0.985
) -> Played:
    """Plays ``n`` episodes; one that is sure at every epsilon is not played on, and keeps its last assessment."""
    rng = torch.Generator().manual_seed(seed)
    hidden = TaskBatch.draw(problem, n, rng)
    state = belief.begin(hidden.context)
    going = torch.arange(n)
    latest_confidence = torch.zeros(len(epsilons), n)
    latest_success = torch.zeros(len(epsilons), n, dtype=torch.bool)
    confidence, success, played = [], [], 0
    began = CLOCK()
    for step in range(steps + 1):
        last = step == steps
        here = hidden.select(going)
        seen = belief.assess(state, epsilons, rng, query=not last)
        right = torch.stack(
            [here.loss(answer) <= eps for answer, eps in zip(seen.recommendation, epsilons, strict=False)]
        )
        latest_confidence[:, going], latest_success[:, going] = seen.confidence, right
        confidence.append(latest_confidence.clone())
        success.append(latest_success.clone())
        on = seen.confidence.amin(dim=0) < enough
        if last or not bool(on.any()):
            break
        going, keep = going[on], on.nonzero()[:, 0]
        played += len(going)
        observation = hidden.select(going).observe(seen.query[keep], rng)
        state = belief.observe(trees.select(state, keep), seen.query[keep], observation)
    return Played(torch.stack(confidence, 1), torch.stack(success, 1), CLOCK() - began, played)


def stopped(confidence_TB: Tensor, success_TB: Tensor, threshold: float) -> tuple[float, float, float]:
    """Accuracy, mean queries and share truncated of stopping at the threshold."""
    hit = confidence_TB >= threshold
    hit[-1] = True
    first = hit.float().argmax(dim=0)
    truncated = ~(confidence_TB >= threshold).any(dim=0)
    rows = torch.arange(hit.shape[1])
    return float(success_TB[first, rows].float().mean()), float(first.float().mean()), float(truncated.float().mean())


def queries_at(played: Played, delta: float = 0.1) -> list[dict[str, float]]:
    """For each epsilon: the least threshold that is accurate on half of the episodes, measured on the other half,
    both ways round; with the accuracy and queries that follow."""
    found = []
    for confidence, success in zip(played.confidence_ETB, played.success_ETB, strict=False):
        n = confidence.shape[1] // 2
        sides = [(slice(0, n), slice(n, None)), (slice(n, None), slice(0, n))]
        rows = []
        for here, there in sides:
            threshold = _threshold(confidence[:, here], success[:, here], 1 - delta)
            rows.append((threshold, *stopped(confidence[:, there], success[:, there], threshold)))
        mean = [sum(column) / 2 for column in zip(*rows, strict=False)]
        last = float(success[-1].float().mean())
        found.append(
            {"threshold": mean[0], "accuracy": mean[1], "queries": mean[2], "truncated": mean[3], "final": last}
        )
    return found


def _threshold(confidence: Tensor, success: Tensor, wanted: float) -> float:
    """The least threshold from the safest down that keeps the accuracy."""
    levels = torch.sigmoid(torch.linspace(4.15, -1.0, 104)).tolist()
    best = levels[0]
    for level in levels:
        if stopped(confidence, success, level)[0] < wanted:
            break
        best = level
    return best
