"""What the families of the battery share: tasks that are rows of numbers, and a true likelihood for references."""

import torch
from torch import Generator, Tensor

from cicpe.problems.base import Problem


def uniform(n: int, rng: Generator, *ranges: tuple[float, float]) -> Tensor:
    """Independent numbers, each even within its range: n x ranges."""
    low, high = torch.tensor(ranges).T
    return low + (high - low) * torch.rand((n, len(ranges)), generator=rng)


def coin(p: Tensor, rng: Generator) -> Tensor:
    """One with probability p, else zero."""
    return (torch.rand(p.shape, generator=rng) < p).float()


def bernoulli(p: Tensor, y: Tensor) -> Tensor:
    """The log probability of such a coin."""
    return torch.where(y > 0.5, p, 1 - p).clamp_min(1e-12).log()


def normal(y: Tensor, mean: Tensor, sd: Tensor | float) -> Tensor:
    """The log density of a normal distribution, but for a constant."""
    sd = torch.as_tensor(sd)
    return -0.5 * ((y - mean) / sd).square() - sd.log()


class Family(Problem):
    """A problem whose task is a tensor n x p of numbers; ``log_p`` (for references only) broadcasts."""

    epsilons: tuple[float, float]
    horizon = 100
    known: tuple[int, ...] = ()
    """Which of the numbers are told beforehand, in the order of the context."""

    def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
        """The true log-likelihood, for references only."""
        raise NotImplementedError
