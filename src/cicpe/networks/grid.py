"""A histogram of every coordinate of the target: any shape of posterior, at the resolution of a cell."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Generator, Tensor, nn

from cicpe.networks.base import Config, Memory, Reading, mlp
from cicpe.networks.posteriors import Posterior
from cicpe.spaces import Space


@final
@dataclass(frozen=True)
class GridPosterior(Posterior):
    """A piecewise-constant density on [-1, 1] for each coordinate; coordinates are independent.

    Exact in the limit of many cells for one-dimensional answers. With more coordinates it has the right
    marginals, and no correlation between them: two modes that differ in two coordinates become four (use
    a mixture there). Recommendations and samples carry no gradient (see ``MixturePosterior``).
    """

    space: Space
    logits: Float[Tensor, "*batch answer cell"]
    window: float

    @property
    def cell(self) -> float:
        """Width of a cell in unit coordinates."""
        return 2 / self.logits.shape[-1]

    @property
    def centres(self) -> Float[Tensor, " cell"]:
        """The middles of the cells in unit coordinates."""
        return self.cell * (torch.arange(self.logits.shape[-1], dtype=self.logits.dtype) + 0.5) - 1

    @cached_property
    def recommendation(self) -> Float[Tensor, "*batch answer"]:
        """Per coordinate, the middle of the window that holds most mass: E exp(-(x - x*)^2 / 2 window^2) is largest.

        The window has soft edges because a hard one that is wider than the posterior holds all of it in
        many places, and says nothing of where within itself the mass lies. It is searched over the cells;
        one mean-shift step, which never loses, then goes between them.
        """
        with torch.no_grad():
            kernel = torch.exp(-((self.centres[:, None] - self.centres) / self.window).square() / 2)
            kernel = kernel.clamp_min(1e-12)  # numbers too small for single precision are slow
            probability = self.logits.softmax(dim=-1)
            best = (probability @ kernel).argmax(dim=-1)
            near = probability * kernel[best]
            unit = (near * self.centres).sum(dim=-1) / near.sum(dim=-1)
            return self.space.project(self.space.from_unit(unit))

    @property
    def std(self) -> Float[Tensor, "*batch answer"]:
        probability = self.logits.softmax(dim=-1)
        mean = (probability * self.centres).sum(dim=-1, keepdim=True)
        variance = (probability * (self.centres - mean).square()).sum(dim=-1) + self.cell**2 / 12
        return variance.sqrt() * self.space.unit_scale

    def nll(self, target: Float[Tensor, "*batch answer"]) -> Float[Tensor, "*batch"]:
        index = ((self.space.to_unit(target) + 1) / self.cell).long().clamp(0, self.logits.shape[-1] - 1)
        index, _ = torch.broadcast_tensors(index, self.logits[..., 0])  # type: ignore[no-untyped-call]
        log_mass = self.logits.log_softmax(dim=-1).expand(*index.shape, -1).gather(-1, index[..., None])
        return math.log(self.cell) - log_mass[..., 0].mean(dim=-1)

    def sample(self, rng: Generator, scale: Tensor | float = 1.0) -> Float[Tensor, "*batch answer"]:
        """One draw of the density to the power 1 / scale^2, which scales a Gaussian's spread and keeps modes apart."""
        with torch.no_grad():
            scale = torch.as_tensor(scale)
            logits = self.logits / scale.square().clamp_min(1e-6)[..., None]
            below = logits.softmax(dim=-1).cumsum(dim=-1)
            drawn, within = torch.rand((2, *logits.shape[:-1]), generator=rng, dtype=logits.dtype)
            cell = torch.searchsorted(below, below[..., -1:] * drawn[..., None], right=True)[..., 0]
            unit = self.cell * (cell.clamp_max(logits.shape[-1] - 1) + within) - 1
            draw = self.space.project(self.space.from_unit(unit))
            return torch.where(scale > 0, draw, self.recommendation)


@final
class GridConfig(Config):
    """A histogram of every coordinate of the target."""

    kind: Literal["grid"] = "grid"
    cells: int = Field(default=64, ge=2, le=10_000)
    """Cells per coordinate; an epsilon much below 2 / cells in unit coordinates is out of reach."""
    hidden: int = Field(default=64, ge=1)
    """Hidden units between the memory and the cells."""
    window: float = Field(default=0.1, gt=0)
    """How close counts as success when the recommendation is chosen: about epsilon / 2 in unit coordinates."""

    def build(self, memory: Memory, space: Space) -> "GridHead":
        """The head that this describes."""
        return GridHead(self, memory, space)


@final
class GridHead(nn.Module):
    """Logits of every cell, from the summary or, where the memory gives axes, alike for every coordinate."""

    def __init__(self, config: GridConfig, memory: Memory, space: Space) -> None:
        super().__init__()
        self.space, self.window = space, config.window
        shared = memory.axis_width is not None
        width = memory.width if memory.axis_width is None else memory.axis_width
        self.sizes = (1 if shared else space.dim, config.cells)
        self.logits = mlp([width, config.hidden, math.prod(self.sizes)], last_gain=0.1)

    def forward(self, reading: Reading) -> GridPosterior:
        """The posterior at every prefix that was read."""
        if reading.axes is not None:
            logits = self.logits(reading.axes)
        else:
            logits = self.logits(reading.summary).unflatten(-1, self.sizes)
        posterior = GridPosterior(self.space, logits, self.window)
        if reading.anchor is None:
            return posterior
        # A bump at the memory's own estimate, no narrower than a cell; Cauchy tails leave the head its say.
        spread = 0.37 if reading.log_spread is None else reading.log_spread.exp()[..., None]
        z = (posterior.centres - reading.anchor[..., None]) / (spread + posterior.cell)
        return GridPosterior(self.space, logits - torch.log1p(z.square()), self.window)
