"""Thresholds by rule, context, epsilon and delta, and how they are looked up: the content of ``calibration.json``."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, final

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Generator, Tensor

from cicpe.agents.belief_agent import PlattByContext
from cicpe.agents.stop_rules import Threshold
from cicpe.calibration.platt import Platt
from cicpe.config import Config
from cicpe.errors import InvalidInput

StopName = Literal["confidence", "bellman", "shaped"]
MARGIN = 0.1
"""Share of delta that is kept in reserve, so that a certificate on a few thousand fresh episodes is within reach."""


class Cell(NamedTuple):
    """A chosen threshold and what it gave on the episodes it was chosen on."""

    threshold: float
    accuracy: float
    queries: float
    risky: float | None = None
    """The first threshold after it whose accuracy was below 1 - delta, if there was one."""
    share: float = 1.0
    """With this probability the chosen threshold, else the risky one: together exactly 1 - delta."""


Table = tuple[tuple[tuple[Cell | None, ...], ...], ...]
"""Thresholds by context knot, epsilon and delta."""


@final
class Calibration(Config):
    """Thresholds by rule, context knot, epsilon and delta; null where none was safe enough."""

    episodes: int = Field(ge=1)
    seed: int
    alpha: float = Field(gt=0, lt=1)
    margin: float = Field(default=MARGIN, ge=0, lt=1)
    """Share of delta that was kept in reserve."""
    scale: float = Field(ge=0)
    """Spread of the deployed queries about the posterior mean."""
    epsilons: tuple[float, ...] = Field(min_length=1)
    deltas: tuple[float, ...] = Field(min_length=1)
    knots: tuple[float, ...] = Field(min_length=1)
    """Values of the first context coordinate at which thresholds were chosen; one where there is no context."""
    confidence: Table
    """kappa: knot x epsilon x delta."""
    bellman: Table
    """cost: knot x epsilon x delta; empty for agents that do not value queries."""
    tempering: tuple[tuple[Platt, ...], ...] = ()
    """How confidence is shown: knot x epsilon; empty where it is shown as it is."""

    @model_validator(mode="after")
    def _tables(self) -> "Calibration":
        for name in ("epsilons", "deltas", "knots"):
            values = getattr(self, name)
            if list(values) != sorted(values) or (name != "knots" and values[0] <= 0):
                above = "" if name == "knots" else " from above zero"
                raise ValueError(f"{name} must be numbers that rise{above}; got {values}")
        shape = len(self.knots), len(self.epsilons), len(self.deltas)
        for name in ("confidence", "bellman"):
            table = getattr(self, name)
            if name == "bellman" and not table:
                continue
            fits = len(table) == shape[0] and all(len(rows) == shape[1] for rows in table)
            if not fits or any(len(cells) != shape[2] for rows in table for cells in rows):
                raise ValueError(f"{name}: needs a table of {' x '.join(map(str, shape))} (knot x epsilon x delta)")
        rows = self.tempering
        if rows and (len(rows) != shape[0] or any(len(row) != shape[1] for row in rows)):
            raise ValueError(f"tempering: needs a table of {shape[0]} x {shape[1]} (knot x epsilon)")
        return self

    def platt(self, epsilon: float) -> PlattByContext | None:
        """Slope and intercept for each episode's context, between calibrated values by interpolation."""
        if not self.tempering:
            return None
        table = torch.tensor(self.tempering, dtype=torch.float64)  # knot x epsilon x 2
        epsilons = torch.tensor(self.epsilons, dtype=torch.float64).log()
        by_knot = _between(epsilons, torch.tensor([math.log(epsilon)], dtype=torch.float64), table.transpose(0, 1))[0]
        knots = torch.tensor(self.knots, dtype=torch.float64)

        def by_context(context: Float[Tensor, "batch context"]) -> tuple[Tensor, Tensor]:
            if context.shape[-1] == 0 or len(knots) == 1:
                slope, intercept = by_knot[0].float().expand(len(context), -1).unbind(dim=-1)
            else:
                slope, intercept = _between(knots, context[:, 0].double(), by_knot).float().unbind(dim=-1)
            return slope, intercept

        return by_context

    def supported_epsilon(self, epsilon: float) -> float:
        """The largest calibrated epsilon that is not above the one asked for.

        An agent that stops for it keeps the promise for the one asked for: success can only grow with epsilon.
        """
        low, high = self.epsilons[0], self.epsilons[-1]
        if not low * (1 - 1e-6) <= epsilon <= high * (1 + 1e-6):
            raise InvalidInput(
                "epsilon", epsilon, f"from {low:g} to {high:g}, the range that this model was trained for"
            )
        return max(value for value in self.epsilons if value <= epsilon * (1 + 1e-6))

    def threshold(self, stop: StopName, epsilon: float, delta: float, sharing: Generator | None = None) -> Threshold:
        """The threshold as a function of an episode's context, or an error that says what is possible.

        With ``sharing``, each episode draws once between the chosen threshold and the next that is too risky, so
        that 1 - delta is met (as far as calibration could tell) and not exceeded.

        ``epsilon`` is a calibrated one; between two values of delta the safer is taken, and between two
        contexts the safer threshold. A context next to a knot at which no threshold was safe is refused when
        it is met; where no knot has one, at once.
        """
        table = self.confidence if stop == "confidence" else self.bellman
        if not table:
            raise InvalidInput("stop", stop, "confidence: this model does not value queries")
        rows = [by_epsilon[self.epsilons.index(epsilon)] for by_epsilon in table]
        column = self._delta_column(delta)
        if all(row[column] is None for row in rows):
            raise self._refusal(rows, epsilon, delta, stop)
        cells = [row[column] for row in rows]
        knots = torch.tensor(self.knots)
        heights = torch.tensor([math.nan if cell is None else cell.threshold for cell in cells])
        safer = torch.maximum if stop == "confidence" else torch.minimum
        risky = torch.tensor([math.nan if c is None or c.risky is None else c.risky for c in cells])
        share = torch.tensor([1.0 if c is None or c.risky is None else c.share for c in cells])

        def shared(heights: Tensor, knot: Tensor) -> Tensor:
            if sharing is None:
                return heights
            safe = torch.rand(len(heights), generator=sharing) < share[knot]
            return torch.where(safe, heights, risky[knot])

        def by_context(context: Float[Tensor, "batch context"]) -> Float[Tensor, " batch"]:
            if context.shape[-1] == 0 or len(knots) == 1:
                return shared(heights.expand(len(context)).clone(), torch.zeros(len(context), dtype=torch.long))
            value = context[:, 0].clamp(float(knots[0]), float(knots[-1])).contiguous()
            slack = 1e-4 * (knots[-1] - knots[0])
            below = (torch.searchsorted(knots, value + slack, right=True) - 1).clamp(0, len(knots) - 1)
            above = torch.searchsorted(knots, value - slack).clamp(0, len(knots) - 1)
            found = safer(heights[below], heights[above])
            if bool(found.isnan().any()):
                worst = int(found.isnan().int().argmax())
                near = [rows[int(below[worst])], rows[int(above[worst])]]
                raise self._refusal(near, epsilon, delta, stop, float(value[worst]))
            return shared(found, torch.where(found == heights[below], below, above))

        return by_context

    def typical_queries(self, stop: StopName, epsilon: float, delta: float, context: Sequence[float]) -> float | None:
        """Mean queries of the calibration episodes at the nearest context; ``epsilon`` is a calibrated one."""
        table = self.confidence if stop == "confidence" else self.bellman
        knot = min(range(len(self.knots)), key=lambda i: abs(self.knots[i] - context[0])) if context else 0
        cell = table[knot][self.epsilons.index(epsilon)][self._delta_column(delta)]
        return None if cell is None else cell.queries

    def _delta_column(self, delta: float) -> int:
        if not 0 < delta < 1:
            raise InvalidInput("delta", delta, "a probability of error, between 0 and 1")
        safe = [i for i, value in enumerate(self.deltas) if value <= delta * (1 + 1e-9)]
        if not safe:
            raise InvalidInput("delta", delta, f"at least {self.deltas[0]:g}, the smallest that was calibrated")
        return safe[-1]

    def _refusal(
        self,
        rows: list[tuple[Cell | None, ...]],
        epsilon: float,
        delta: float,
        stop: StopName,
        context: float | None = None,
    ) -> InvalidInput:
        reached = [d for i, d in enumerate(self.deltas) if all(row[i] is not None for row in rows)]
        where = f"at epsilon {epsilon:g}" + ("" if context is None else f" and context {context:g}")
        allowed = f"at least {reached[0]:g} {where}" if reached else f"a larger epsilon than {epsilon:g}"
        return InvalidInput("delta", delta, f"{allowed}: with less, this model's {stop} rule was not reliable enough")


def _between(grid: Tensor, at: Tensor, values: Tensor) -> Tensor:
    """Linear interpolation along the first axis, constant beyond its ends."""
    if len(grid) == 1:
        return values[:1].expand(len(at), *values.shape[1:])
    at = at.clamp(grid[0], grid[-1])
    upper = torch.searchsorted(grid, at.contiguous()).clamp(1, len(grid) - 1)
    gap = (grid[upper] - grid[upper - 1]).clamp_min(1e-12)
    share = ((at - grid[upper - 1]) / gap).view(-1, *[1] * (values.ndim - 1))
    return (1 - share) * values[upper - 1] + share * values[upper]
