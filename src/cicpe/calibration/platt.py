"""Confidence as it is shown: the raw one, corrected so that it is the share that succeeds.

A slope and an intercept on the log-odds (Platt scaling; temperature scaling is the slope alone), fitted by maximum
likelihood where decisions are made: at the prefixes at which held-out episodes would stop. The map rises, so stop
decisions are the same with or without it.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cicpe.beliefs.base import EDGE

SLOPES = (0.05, 20.0)


class Platt(NamedTuple):
    """log-odds shown = slope * log-odds + intercept."""

    slope: float
    intercept: float

    def raw(self, shown: float) -> float:
        """The raw confidence that is shown as ``shown``."""
        log_odds = (math.log(shown / (1 - shown)) - self.intercept) / self.slope
        return 1 / (1 + math.exp(-max(-700.0, min(700.0, log_odds))))


def fit_platt(
    confidence: Float[Tensor, " n"], success: Bool[Tensor, " n"], strength: float = 4.0, steps: int = 30
) -> Platt:
    """Maximum likelihood by Newton's method, drawn to (1, 0) with the weight of ``strength`` observations."""
    x = torch.logit(confidence.double(), eps=EDGE)
    y = success.double()
    design = torch.stack([x, torch.ones_like(x)], dim=-1)
    start = torch.tensor([1.0, 0.0], dtype=torch.float64)
    weights, ridge = start.clone(), strength * torch.eye(2, dtype=torch.float64)
    value = _loss(design, y, weights, start, strength)
    for _ in range(steps):
        p = torch.sigmoid(design @ weights)
        gradient = design.T @ (p - y) + strength * (weights - start)
        hessian = (design * (p * (1 - p))[:, None]).T @ design + ridge
        step = torch.linalg.solve(hessian, gradient)
        for _ in range(20):  # halve until it helps: far from the optimum a full step may overshoot
            trial = weights - step
            trial_value = _loss(design, y, trial, start, strength)
            if trial_value <= value:
                break
            step = step / 2
        else:
            break
        weights, value = trial, trial_value
    return Platt(float(weights[0].clamp(*SLOPES)), float(weights[1]))


def _loss(design: Tensor, y: Tensor, at: Tensor, start: Tensor, strength: float) -> float:
    logits = design @ at
    fit = torch.nn.functional.binary_cross_entropy_with_logits(logits, y, reduction="sum")
    return float(fit + strength / 2 * (at - start).square().sum())
