"""What is known of the answer before the first query, learned from simulated targets.

Shapes: B episodes, N candidates, X answer.
"""

import torch
from jaxtyping import Float
from simulate import nuisance_of
from task_numbers import EDGE, TaskNumbers
from torch import Generator, Tensor

from cicpe.problems.base import Problem, TaskBatch
from cicpe.spaces import Sphere

MOST_VALUES = 256
"""Targets with at most this many different values are a finite set of answers."""
BINS = 64


class AnswerPrior:
    """Draws of the target (and the nuisance that was read) in unit coordinates, and an estimate of their density.

    The density is a product of smoothed histograms joined by a Gaussian copula; on a sphere it is taken as even.
    """

    def __init__(self, problem: Problem, n: int, rng: Generator, numbers: TaskNumbers | None = None) -> None:
        hidden = TaskBatch.draw(problem, n, rng)
        self.dim = problem.answer_space.dim
        target = problem.answer_space.to_unit(hidden.target)
        self.draws_MV = torch.cat([target, nuisance_of(hidden, numbers)], dim=1)
        values, counts = target.unique(dim=0, return_counts=True)
        self.values = values if len(values) <= MOST_VALUES else None
        self.shares = counts / counts.sum() if len(values) <= MOST_VALUES else None
        self.low, self.high = self.draws_MV.amin(dim=0), self.draws_MV.amax(dim=0)
        self.even = isinstance(problem.answer_space, Sphere)
        if not self.even:
            self._fit()

    def _fit(self) -> None:
        draws = self.draws_MV.double()
        n = len(draws)
        width = (self.high - self.low).double().clamp_min(1e-9)
        # The bounds of the data are moved out a little: the true ones are at least as wide.
        self._low, self._width = self.low.double() - width / n, width * (1 + 2 / n)
        place = ((draws - self._low) / self._width * BINS).long().clamp(0, BINS - 1)
        counts_XB = torch.stack([torch.bincount(column, minlength=BINS).double() for column in place.T])
        padded = torch.nn.functional.pad(counts_XB[:, None], (1, 1), mode="replicate")
        smooth = torch.nn.functional.conv1d(padded, torch.tensor([[[0.25, 0.5, 0.25]]]).double())[:, 0]
        flat = (counts_XB - n / BINS).square().sum(dim=1) / (n / BINS)
        # An even histogram is taken as exactly even: chi-square with BINS - 1 degrees of freedom.
        smooth = torch.where((flat < BINS - 1 + 5 * (2 * (BINS - 1)) ** 0.5)[:, None], torch.ones_like(smooth), smooth)
        self._log_density_XB = (smooth + 0.05).log() - (smooth + 0.05).mean(dim=1, keepdim=True).log()
        self._cdf_XB = torch.cat([torch.zeros(len(smooth), 1).double(), smooth.cumsum(dim=1)], dim=1)
        self._cdf_XB = self._cdf_XB / self._cdf_XB[:, -1:]
        scores = self._scores(draws)
        correlation = torch.corrcoef(scores.T).reshape(draws.shape[1], -1)
        self._precision = None
        if float((correlation - torch.eye(len(correlation))).abs().max()) > 0.05:
            self._precision = torch.linalg.inv(correlation) - torch.eye(len(correlation)).double()

    def _scores(self, unit: Tensor) -> Tensor:
        place = ((unit.double() - self._low) / self._width * BINS).clamp(0, BINS - 1e-9)
        cell = place.long()
        column = torch.arange(unit.shape[-1])
        below, above = self._cdf_XB[column, cell], self._cdf_XB[column, cell + 1]
        level = below + (above - below) * (place - cell)
        return torch.special.ndtri(level.clamp(1e-6, 1 - 1e-6))

    def log_density(self, unit: Float[Tensor, "*batch X"]) -> Float[Tensor, " *batch"]:
        """Log density of targets, or of targets with nuisances, up to a constant; minus infinity outside.

        Given targets alone, the copula's correlations are left out.
        """
        if self.even:
            beside = unit[..., self.dim :]
            return torch.where((beside.abs() <= EDGE).all(dim=-1), 0.0, -torch.inf).double()
        dims = unit.shape[-1]
        place = (unit.double() - self._low[:dims]) / self._width[:dims]
        inside = ((place >= 0) & (place <= 1)).all(dim=-1)
        cell = (place * BINS).long().clamp(0, BINS - 1)
        found = self._log_density_XB[torch.arange(dims), cell].sum(dim=-1)
        if self._precision is not None and dims == len(self._low):
            scores = self._scores(unit)
            found = found - 0.5 * ((scores @ self._precision) * scores).sum(dim=-1)
        return torch.where(inside, found, -torch.inf)

    def dependence(self, unit: Float[Tensor, "*batch V"]) -> Float[Tensor, " *batch"]:
        """What the copula adds to the log density of targets with nuisances."""
        if self.even or self._precision is None:
            return torch.zeros(unit.shape[:-1], dtype=torch.float64)
        scores = self._scores(unit)
        return -0.5 * ((scores @ self._precision) * scores).sum(dim=-1)
