"""Maximum value of a random smooth function.

f ~ GP(0, RBF(l)) on [0, 1]^d with unit variance and a hidden length scale l ~ U[0.05, 0.2]. A query is
a place and returns f there plus Gaussian noise; the answer is a number, max f. The loss is the absolute error.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe import trees
from cicpe.errors import InvalidInput
from cicpe.problems.base import Problem
from cicpe.problems.context import Noise, noise_range, sample_noise
from cicpe.spaces import Box, Interval

GRID: Mapping[int, int] = {1: 512, 2: 64}
"""Dimension -> grid points along a side of [0, 1]^d."""
LENGTHSCALE = (0.05, 0.2)
"""The range of l."""


class GPMaxTask(NamedTuple):
    """``n`` hidden functions on the grid, with their length scales and noise levels."""

    values: Float[Tensor, " n *grid"]
    lengthscale: Float[Tensor, " n"]
    noise: Float[Tensor, " n"]


@final
@dataclass(frozen=True)
class GPMax(Problem):
    """Estimate the maximum of a function from noisy values at chosen places."""

    dim: int = 1
    """Number of coordinates of a query: 1 or 2."""
    noise: Noise = (0.0375, 0.1)
    """Standard deviation of an observation: a number, or a range over which it is log-uniform and told to the agent."""

    context_names = ("noise",)
    default_epsilon = (0.15, 0.2)

    def __post_init__(self) -> None:
        if self.dim not in GRID:
            raise InvalidInput("dim", self.dim, "1 or 2")
        object.__setattr__(self, "noise", noise_range(self.noise))
        object.__setattr__(self, "query_space", Box([0.0] * self.dim, [1.0] * self.dim))
        object.__setattr__(self, "answer_space", Interval(-5.0, 5.0))

    def sample(self, n: int, rng: Generator) -> GPMaxTask:
        noise = sample_noise(noise_range(self.noise), n, rng)
        low, high = LENGTHSCALE
        lengthscale = low + (high - low) * torch.rand(n, generator=rng)
        return GPMaxTask(sample_paths(lengthscale, self.dim, rng), lengthscale, noise)

    def value(self, task: GPMaxTask, query: Float[Tensor, "n dim"]) -> Float[Tensor, " n"]:
        """f at the query: linear (d = 1) or bilinear (d = 2) between grid points; outside, f of the nearest edge.

        Args:
            task: A batch of n tasks, as ``sample`` drew them.
            query: Points: n x dim.

        Returns:
            Shape n.
        """
        last = GRID[self.dim] - 1
        place = self.query_space.project(query) * last
        cell = place.floor().clamp(0, last - 1)
        share = place - cell
        rows = torch.arange(len(query))
        total = torch.zeros(len(query))
        for corner in itertools.product((0, 1), repeat=self.dim):
            upper = torch.tensor(corner)
            weight = torch.where(upper == 1, share, 1 - share).prod(dim=-1)
            index = (cell.long() + upper).unbind(dim=-1)
            total = total + weight * task.values[(rows, *index)]
        return total

    def observe(self, task: GPMaxTask, query: Float[Tensor, "n dim"], rng: Generator) -> Float[Tensor, "n 1"]:
        noise = task.noise * torch.randn(len(query), generator=rng)
        return (self.value(task, query) + noise)[:, None]

    def target(self, task: GPMaxTask) -> Float[Tensor, "n 1"]:
        return self.answer_space.project(task.values.flatten(1).amax(dim=1, keepdim=True))

    def context(self, task: GPMaxTask) -> Float[Tensor, "n 1"]:
        return task.noise[:, None]

    def default_context(self) -> tuple[float, ...]:
        return (noise_range(self.noise)[1],)

    def log_likelihood(
        self, task: GPMaxTask, query: Float[Tensor, "n dim"], observation: Float[Tensor, "n 1"]
    ) -> Float[Tensor, " n"]:
        noise = task.noise.clamp_min(1e-6)  # without noise there is no density; this is an observation's last digit
        error = (observation[:, 0] - self.value(task, query)) / noise
        return -0.5 * error.square() - torch.log(noise) - 0.5 * math.log(2 * math.pi)


def sample_paths(lengthscale: Float[Tensor, " n"], dim: int, rng: Generator) -> Float[Tensor, " n *grid"]:
    """One path of GP(0, RBF(l)) on the grid of [0, 1]^dim for each length scale, by circulant embedding.

    The grid is half of a ring (d = 2: a quarter of a torus) on which the covariance is circulant,
    C = F* diag(s) F with s the Fourier transform of its first row, so F* diag(sqrt s) F w has
    covariance C for white noise w. The RBF kernel is a product over coordinates, and so is s.

    On the ring the kernel is summed both ways round, k(lag) + k(period - lag). Cut off at half a period
    instead, it has a kink there, whose spectrum is a visible roughness of the path at l = 0.2; the sum
    changes no covariance by more than k(1) <= exp(-12.5) < 4e-6.
    """
    side = GRID[dim]
    white = torch.randn((len(lengthscale), *[2 * side] * dim), generator=rng)
    row_bytes = 2 * 8 * 2 * side + 2 * 4 * (2 * side) ** dim
    with torch.no_grad():
        path: Tensor = trees.by_pieces(lambda part: _coloured(*part), (lengthscale, white), row_bytes)
    return path


def _coloured(lengthscale: Float[Tensor, " n"], white: Float[Tensor, " n *ring"]) -> Float[Tensor, " n *grid"]:
    """Paths from white noise on the ring or torus."""
    dim, ring = white.ndim - 1, white.shape[1]
    side = ring // 2
    # In float64: rounding in s enters the path as its square root, as roughness that a GP does not have.
    steps = torch.arange(ring, dtype=torch.float64)
    lags = torch.stack([steps, ring - steps]) / (side - 1)
    row = torch.exp(-0.5 * (lags / lengthscale.double()[:, None, None]) ** 2).sum(dim=1)
    root = torch.fft.fft(row).real.clamp_min(0).sqrt().float()
    half = root[:, : side + 1]
    axes = tuple(range(1, dim + 1))
    scale = half if dim == 1 else root[:, :, None] * half[:, None, :]
    path: Tensor = torch.fft.irfftn(torch.fft.rfftn(white, dim=axes) * scale, s=[ring] * dim, dim=axes)
    # A copy, so that a batch of tasks does not keep the rest of the ring in memory.
    return path[(slice(None), *[slice(side)] * dim)].clone()
