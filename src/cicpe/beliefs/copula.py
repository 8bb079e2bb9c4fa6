"""A Gaussian copula: columns of numbers as functions of coordinates that are standard normal.

Shapes: M draws, V columns, S knots.
"""

import math
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

KNOTS = 257
REACH = 4.0
"""Knots of the quantiles lie at latent coordinates from -REACH to REACH."""


@final
class Copula(NamedTuple):
    """Columns of numbers as functions of latent coordinates that are standard normal."""

    knots_VS: Float[Tensor, "V S"]
    factor_VV: Float[Tensor, "V V"]

    @classmethod
    def learn(cls, columns_MV: Float[Tensor, "M V"], rng: Generator) -> "Copula":
        """The Gaussian copula of columns, with their own quantiles.

        Args:
            columns_MV: Draws of the numbers.
            rng: Breaks ties.

        Returns:
            The copula.
        """
        scores = normal_scores(columns_MV, rng)
        correlation = torch.corrcoef(scores.T).reshape(len(scores.T), -1)
        return cls(quantile_knots(columns_MV), correlation_factor(correlation, len(scores)))

    def misfit(self, columns_MV: Float[Tensor, "M V"], rng: Generator) -> float:
        """How far the joint distribution of columns is from a Gaussian copula.

        Args:
            columns_MV: Draws of the numbers.
            rng: Breaks ties.

        Returns:
            The largest difference between the distribution of the squared length of their latent coordinates and
            chi-square: near 0 where the copula holds, large where numbers have a fixed length or sum.
        """
        scores = normal_scores(columns_MV, rng)
        latent = torch.linalg.solve_triangular(self.factor_VV, scores.T, upper=False)
        squared = latent.square().sum(dim=0).sort().values
        expected = torch.special.gammainc(torch.tensor(len(latent) / 2).double(), squared / 2)
        actual = (torch.arange(len(squared)).double() + 0.5) / len(squared)
        return float((expected - actual).abs().max())

    def values(self, latent: Float[Tensor, "*batch V"]) -> Float[Tensor, "*batch V"]:
        """The numbers at latent coordinates."""
        return values_at_scores(self.knots_VS, correlated_scores(latent, self.factor_VV))


def quantile_knots(columns_MV: Tensor) -> Float[Tensor, "V S"]:
    """Quantiles of columns, at even latent coordinates."""
    levels = torch.special.ndtr(torch.linspace(-REACH, REACH, KNOTS, dtype=torch.float64))
    ordered = columns_MV.double().sort(dim=0).values
    return torch.stack([_quantiles(column, levels) for column in ordered.T])


def correlation_factor(correlation: Tensor, draws: int) -> Float[Tensor, "V V"]:
    """A Cholesky factor of correlations, of which those that may be chance are taken as zero."""
    correlation = torch.where(correlation.abs() < 5 / math.sqrt(draws), 0.0, correlation)
    correlation.fill_diagonal_(1.0)
    return _cholesky(correlation)


def correlated_scores(latent: Tensor, factor_VV: Tensor) -> Tensor:
    """Correlated normal scores of latent coordinates."""
    # Sums of few terms, in their order: the same whatever else is in the batch.
    return (latent[..., None, :] * factor_VV).sum(dim=-1)


def values_at_scores(knots_VS: Tensor, score: Tensor) -> Tensor:
    """Columns at their normal scores, between their knots."""
    at = ((score.clamp(-REACH, REACH) + REACH) / (2 * REACH) * (KNOTS - 1)).clamp(0, KNOTS - 1.001)
    cell = at.long()
    column = torch.arange(score.shape[-1])
    below, above = knots_VS[column, cell], knots_VS[column, cell + 1]
    return below + (above - below) * (at - cell)


def normal_scores(places: Tensor, rng: Generator) -> Float[Tensor, "M V"]:
    """Standard normal scores of every column by its ranks; equal values are put in a random order."""
    n = len(places)
    shuffle = torch.randperm(n, generator=rng)
    ranks = torch.empty(places.shape, dtype=torch.float64)
    for v in range(places.shape[1]):
        order = shuffle[places[shuffle, v].argsort(stable=True)]
        ranks[order, v] = torch.arange(n, dtype=torch.float64)
    value: Tensor = torch.special.ndtri((ranks + 0.5) / n)
    return value


def _quantiles(ordered: Tensor, levels: Tensor) -> Tensor:
    at = (levels * len(ordered) - 0.5).clamp(0, len(ordered) - 1)
    below = at.long().clamp_max(len(ordered) - 2)
    return ordered[below] + (ordered[below + 1] - ordered[below]) * (at - below)


def _cholesky(correlation: Tensor) -> Tensor:
    """The factor of a correlation matrix, whose small eigenvalues may have to be raised."""
    values, vectors = torch.linalg.eigh(correlation)
    raised = vectors @ torch.diag(values.clamp_min(1e-3)) @ vectors.T
    scale = raised.diagonal().rsqrt()
    value: Tensor = torch.linalg.cholesky(scale[:, None] * raised * scale)
    return value
