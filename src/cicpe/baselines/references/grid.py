"""Binary search with the exact posterior: flips are independent, so every coordinate has its own, on a grid.

A coordinate's posterior is piecewise constant with steps at the queries. Queries are rounded to the edges of
``CELLS`` equal cells, so that cell probabilities are exact; within a cell the target is uniform.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.agents.base import Agent, Proposal
from cicpe.errors import InvalidInput
from cicpe.problems.base import Problem
from cicpe.problems.binary_search import BinarySearch

CELLS = 512
"""Cells along a coordinate of [-1, 1]."""
BINS = 128
"""Bins of squared error from 0 to epsilon^2."""


class GridState(NamedTuple):
    """The posterior of every coordinate, and the flip probability."""

    noise_B: Float[Tensor, " batch"]
    probability_BDG: Float[Tensor, "batch dim cell"]


@final
@dataclass(frozen=True)
class GridReference(Agent):
    """Queries every coordinate's median, or its mean; recommends every coordinate's mean."""

    problem: Problem
    epsilon: float
    horizon: int
    query: Literal["median", "mean"] = "median"

    def __post_init__(self) -> None:
        if not isinstance(self.problem, BinarySearch):
            raise InvalidInput("problem", type(self.problem).__name__, "binary-search")

    def begin(self, context: Float[Tensor, "batch context"]) -> GridState:
        prior = torch.full((len(context), self.problem.query_space.dim, CELLS), 1 / CELLS, dtype=torch.float64)
        return GridState(context[:, 0].double(), prior)

    def update(
        self, state: GridState, query: Float[Tensor, "batch query"], observation: Float[Tensor, "batch observation"]
    ) -> GridState:
        edge = ((query.double() + 1) * CELLS / 2).round()
        above = torch.arange(CELLS) >= edge[..., None]
        agree = above == (observation > 0)[..., None]
        flip = state.noise_B[:, None, None]
        weight = state.probability_BDG * torch.where(agree, 1 - flip, flip)
        return GridState(state.noise_B, weight / weight.sum(dim=-1, keepdim=True))

    def propose(self, state: GridState, rng: Generator) -> Proposal:
        p = state.probability_BDG
        centre = (torch.arange(CELLS, dtype=torch.float64) + 0.5) * 2 / CELLS - 1
        mean = p @ centre
        within = (2 / CELLS) ** 2 / 12
        std = ((p * (centre - mean[..., None]).square()).sum(dim=-1) + within).sqrt()
        return Proposal(
            query=(_median(p) if self.query == "median" else _nearest_edge(mean)).float()[:, None],
            stop=torch.zeros(len(p), dtype=torch.bool),
            recommendation=mean.float(),
            confidence=success(p, mean, self.epsilon).float(),
            std=std.float(),
        )


def _median(probability_BDG: Tensor) -> Tensor:
    """The edge between cells that divides the mass most evenly; never the ends, which tell nothing."""
    below = probability_BDG.cumsum(dim=-1)[..., :-1]
    return ((below - 0.5).abs().argmin(dim=-1) + 1).double() * 2 / CELLS - 1


def _nearest_edge(point_BD: Tensor) -> Tensor:
    """The edge between cells that is nearest to a point; never the ends."""
    return ((point_BD + 1) * CELLS / 2).round().clamp(1, CELLS - 1) * 2 / CELLS - 1


def success(
    probability_BDG: Float[Tensor, "batch dim cell"], answer_BD: Float[Tensor, "batch dim"], epsilon: float
) -> Float[Tensor, " batch"]:
    """P(|target - answer| <= epsilon): the squared errors of the coordinates are independent, so they convolve.

    Each cell's mass goes to the two bins next to its mean squared error, in proportion, which keeps the mean.
    """
    p = probability_BDG
    centre = (torch.arange(CELLS, dtype=torch.float64) + 0.5) * 2 / CELLS - 1
    error = (centre - answer_BD[..., None]).square() + (2 / CELLS) ** 2 / 12
    place = error / epsilon**2 * BINS
    low = place.floor().clamp_max(BINS + 1)
    share = (place - low).clamp(0, 1)
    histogram = p.new_zeros(*p.shape[:2], BINS + 3)
    histogram.scatter_add_(-1, low.long(), p * (1 - share))
    histogram.scatter_add_(-1, low.long() + 1, p * share)
    spectrum = torch.fft.rfft(histogram[..., : BINS + 1], n=2 * (BINS + 1))
    total = histogram[:, 0, : BINS + 1]
    for axis in range(1, p.shape[1]):
        # Beyond epsilon^2 the sum cannot come back, so it is cut off after every coordinate.
        total = torch.fft.irfft(torch.fft.rfft(total, n=2 * (BINS + 1)) * spectrum[:, axis], n=2 * (BINS + 1))
        total = total[:, : BINS + 1]
    # A bin reaches half its width to either side; of the last, half lies within epsilon.
    inside = total[:, :BINS].sum(dim=-1) + 0.5 * total[:, BINS]
    return inside.clamp(0, 1)
