"""Confidences whose calibration is known by construction."""

import torch
from torch import Generator, Tensor


def make_rng(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


def outcomes(n: int = 20_000, slope: float = 1.0, intercept: float = 0.0) -> tuple[Tensor, Tensor]:
    """Confidences, and successes with log-odds slope * log-odds of the confidence + intercept."""
    rng = make_rng()
    logit = 1.5 + 1.5 * torch.randn(n, generator=rng)
    success = torch.rand(n, generator=rng) < torch.sigmoid(slope * logit + intercept)
    return torch.sigmoid(logit), success
