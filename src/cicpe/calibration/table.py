"""Thresholds by rule, context, epsilon and delta, and how they are looked up: the content of ``calibration.json``."""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from torch import Generator, Tensor

from cicpe.agents.belief_agent import PlattByContext, ShownBy
from cicpe.agents.stop_rules import StopRule, Threshold, stop_rule
from cicpe.beliefs.base import EDGE
from cicpe.calibration.platt import SLOPES, Platt
from cicpe.config import Config
from cicpe.errors import InvalidInput
from cicpe.problems.context import ContextGrid

MARGIN = 0.1
"""Share of delta that is kept in reserve, so that a certificate on a few thousand fresh episodes is within reach."""
FULL_RESERVE = 2000
"""Episodes from which on all of it is kept: the bound of fewer is so wide that it holds a reserve of its own."""


def reserve(episodes: float) -> float:
    """The share of delta that is kept in reserve by thresholds that are chosen on so many episodes.

    Args:
        episodes: How many, in one context.

    Returns:
        A share from 0 to ``MARGIN``.
    """
    return MARGIN * min(1.0, episodes / FULL_RESERVE)


class ThresholdCell(NamedTuple):
    """A chosen threshold and what it gave on the episodes it was chosen on."""

    threshold: float
    accuracy: float
    queries: float
    risky: float | None = None
    """The first threshold after it whose accuracy was below 1 - delta, if there was one."""
    share: float = 1.0
    """With this probability the chosen threshold, else the risky one: together exactly 1 - delta."""


class CurvePoint(NamedTuple):
    """What was measured of episodes that go on past every stop."""

    queries: int
    share: float
    """Of tasks whose recommendation is within epsilon after so many queries."""


Curve = tuple[CurvePoint, ...]
"""From no query to the most that were allowed."""
Cells = tuple[ThresholdCell | None, ...]
"""One per delta; None where no threshold was safe enough."""
ThresholdTable = tuple[tuple[Cells, ...], ...]
"""Thresholds by point of the context grid, epsilon and delta."""


@final
class Calibration(Config):
    """Thresholds by rule, context, epsilon and delta; null where none was safe enough."""

    episodes: int = Field(ge=1, le=10**12)
    seed: int
    alpha: float = Field(gt=0, lt=1)
    margin: float = Field(default=MARGIN, ge=0, lt=1)
    """Share of delta that was kept in reserve."""
    query_spread: float = Field(ge=0)
    """Spread of the deployed queries about the posterior mean."""
    minimum_time: int = Field(default=1, ge=0)
    """Queries before a rule that values queries may stop: deployed as it was calibrated."""
    fall: float = Field(default=0.0, ge=0, le=100)
    """By how much what the rule ``confidence`` asks falls with the number of queries: in log-odds, where there were e
    times as many."""
    epsilons: tuple[float, ...] = Field(min_length=1)
    deltas: tuple[float, ...] = Field(min_length=1)
    context_knots: tuple[tuple[float, ...], ...]
    """Values of each context at which thresholds were chosen; their combinations are the points of the tables."""
    context_edges: tuple[tuple[float, ...], ...] = ()
    """Where the contexts that each of these values stands for end, where contexts could not be set; else none."""
    rules: dict[str, ThresholdTable]
    """The tables of every rule that was calibrated, by its name: point x epsilon x delta."""
    platt: tuple[tuple[Platt, ...], ...] = ()
    """How confidence is shown: point x epsilon; empty where it is shown as it is."""
    curves: tuple[tuple[Curve, ...], ...] = ()
    """How success grows with the queries: point x epsilon; empty in models of earlier versions."""

    @model_serializer(mode="wrap")
    def _without_what_is_unknown(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A model of an earlier version is written as it was read: its hash stays."""
        data: dict[str, Any] = write(self)
        later = {"curves": self.curves, "fall": self.fall, "context_edges": self.context_edges}
        return {name: value for name, value in data.items() if later.get(name, True)}

    @model_validator(mode="before")
    @classmethod
    def _migrate(cls, data: Any) -> Any:
        """Reads what the first format called ``confidence``, ``bellman``, ``scale``, ``knots`` and ``tempering``."""
        if not isinstance(data, dict) or "scale" not in data:
            return data
        data = dict(data)
        data["query_spread"] = data.pop("scale")
        data["platt"] = data.pop("tempering", ())
        data["context_knots"] = (data.pop("knots", ()),)
        tables = {name: data.pop(name, ()) for name in ("confidence", "bellman")}
        data["rules"] = {name: table for name, table in tables.items() if table}
        return data

    @model_validator(mode="after")
    def _tables(self) -> "Calibration":
        for name, values in (("epsilons", self.epsilons), ("deltas", self.deltas)):
            if list(values) != sorted(values) or values[0] <= 0:
                raise ValueError(f"{name} must be numbers that rise from above zero; got {values}")
        if not all(0 < 1 - delta < 1 for delta in self.deltas):
            raise ValueError(f"deltas must be probabilities between 0 and 1; got {self.deltas}")
        for values in self.context_knots:
            if not values or list(values) != sorted(values):
                raise ValueError(f"context_knots must be numbers that rise; got {values}")
        lengths = [len(edges) + 1 for edges in self.context_edges]
        if self.context_edges and lengths != [len(values) for values in self.context_knots]:
            raise ValueError(f"context_edges must be one fewer per context than its knots; got {self.context_edges}")
        if any(list(edges) != sorted(edges) for edges in self.context_edges):
            raise ValueError(f"context_edges must be numbers that rise; got {self.context_edges}")
        shape = len(self.grid), len(self.epsilons), len(self.deltas)
        for name, table in self.rules.items():
            fits = len(table) == shape[0] and all(len(rows) == shape[1] for rows in table)
            if not fits or any(len(cells) != shape[2] for rows in table for cells in rows):
                raise ValueError(f"{name}: needs a table of {' x '.join(map(str, shape))} (point x epsilon x delta)")
        if self.platt and (len(self.platt) != shape[0] or any(len(row) != shape[1] for row in self.platt)):
            raise ValueError(f"platt: needs a table of {shape[0]} x {shape[1]} (point x epsilon)")
        if not all(SLOPES[0] <= cell.slope <= SLOPES[1] for row in self.platt for cell in row):
            raise ValueError(f"platt must have slopes from {SLOPES[0]:g} to {SLOPES[1]:g}")
        return self

    @property
    def grid(self) -> ContextGrid:
        """The contexts at which thresholds were chosen."""
        return ContextGrid(self.context_knots, self.context_edges)

    def platt_at(self, epsilon: float) -> PlattByContext | None:
        """How confidence is shown in each episode's context, between calibrated values by interpolation.

        No more is shown than the held-out episodes of a context can show: had all n of them been right, the next one is
        with probability (n + 1) / (n + 2), by the rule of succession.
        """
        if not self.platt:
            return None
        nothing: ThresholdTable = (((),) * len(self.epsilons),) * len(self.platt)
        rows = [
            [(*platt, self._lowest(cells)) for platt, cells in zip(platts, by_epsilon, strict=True)]
            for platts, by_epsilon in zip(self.platt, self.rules.get("confidence", nothing), strict=True)
        ]
        table = torch.tensor(rows, dtype=torch.float64)  # point x epsilon x 3
        epsilons = torch.tensor(self.epsilons, dtype=torch.float64).log()
        by_point = _interpolated(epsilons, math.log(epsilon), table.transpose(0, 1))
        grid = self.grid

        most = 1 - 1 / (self.episodes / len(grid) + 2)

        def by_context(context: Float[Tensor, "batch context"]) -> ShownBy:
            corners = grid.corners(context)
            shown = (by_point[corners.point] * corners.weight[..., None]).sum(dim=1).float()
            slope, intercept, low = shown.unbind(dim=-1)
            return ShownBy(slope, intercept, torch.full_like(slope, most), low)

        return by_context

    def rule(self, stop: str) -> StopRule:
        """The rule of that name, as its thresholds were chosen."""
        return stop_rule(stop).falling(self.fall)

    def _lowest(self, cells: Cells) -> float:
        """Log-odds of the lowest confidence at which usual episodes stop; of an even chance where none does."""
        rule = self.rule("confidence")
        asked = (
            float(rule.asked(torch.tensor(cell.threshold), torch.tensor(cell.queries)))
            for cell in cells
            if cell is not None
        )
        return _log_odds(min(asked, default=0.5))

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

    def table(self, stop: str) -> ThresholdTable:
        """The thresholds of a rule, refused where it was not calibrated."""
        if stop not in self.rules and stop_rule(stop).for_each and "confidence" in self.rules:
            return self._each
        if stop not in self.rules:
            allowed = " or ".join(self.rules)
            raise InvalidInput("stop", stop, f"{allowed}: the rules that this model was calibrated for")
        return self.rules[stop]

    @cached_property
    def _each(self) -> ThresholdTable:
        """The thresholds at which every episode is as sure as is promised, for models of earlier versions."""

        def cell(point: int, e: int, column: int) -> ThresholdCell | None:
            average = self.rules["confidence"][point][e][column]
            platt = self.platt[point][e] if self.platt else Platt(1.0, 0.0)
            floor = platt.raw(1 - self.deltas[column])
            if average is None or average.threshold >= floor:
                return None if average is None else average._replace(risky=None, share=1.0)
            return _between(self.rules["confidence"][point][e], floor)

        points, columns = range(len(self.grid)), range(len(self.deltas))
        return tuple(
            tuple(tuple(cell(point, e, c) for c in columns) for e in range(len(self.epsilons))) for point in points
        )

    def threshold(self, stop: str, epsilon: float, delta: float, sharing: Generator | None = None) -> Threshold:
        """The threshold as a function of an episode's context, or an error that says what is possible.

        With ``sharing``, each episode draws once between the chosen threshold and the next that is too risky, so
        that 1 - delta is met (as far as calibration could tell) and not exceeded.

        ``epsilon`` is a calibrated one; between two values of delta the safer is taken, and between several
        contexts the safest threshold. A context next to a point at which no threshold was safe is refused when
        it is met; where no point has one, at once.
        """
        rows = [by_epsilon[self.epsilons.index(epsilon)] for by_epsilon in self.table(stop)]
        column, rule, grid = self._delta_column(delta), stop_rule(stop), self.grid
        cells = [row[column] for row in rows]
        if all(cell is None for cell in cells):
            raise self._refusal(rows, epsilon, delta, stop)
        heights = torch.tensor([math.nan if cell is None else cell.threshold for cell in cells])
        risky = torch.tensor([math.nan if c is None or c.risky is None else c.risky for c in cells])
        share = torch.tensor([1.0 if c is None or c.risky is None else c.share for c in cells])

        def by_context(context: Float[Tensor, "batch context"]) -> Float[Tensor, " batch"]:
            point = grid.corners(context).point
            chosen = rule.safer(heights[point])
            if bool(chosen.isnan().any()):
                worst = int(chosen.isnan().int().argmax())
                near = [rows[i] for i in point[worst].tolist()]
                raise self._refusal(near, epsilon, delta, stop, context[worst].tolist())
            if sharing is None:
                return chosen
            own = point.gather(1, (heights[point] == chosen[:, None]).int().argmax(dim=1, keepdim=True))[:, 0]
            safe = torch.rand(len(chosen), generator=sharing) < share[own]
            return torch.where(safe, chosen, risky[own])

        return by_context

    def typical_queries(self, stop: str, epsilon: float, delta: float, context: Sequence[float]) -> float | None:
        """Mean queries of the calibration episodes at the nearest context; None for a rule that is not calibrated.

        ``epsilon`` is a calibrated one.
        """
        if not stop_rule(stop).calibrated:
            return None
        point = int(self.grid.nearest(torch.tensor([list(context)], dtype=torch.float32))[0])
        cell = self.table(stop)[point][self.epsilons.index(epsilon)][self._delta_column(delta)]
        return None if cell is None else cell.queries

    def _delta_column(self, delta: float) -> int:
        if not 0 < delta < 1:
            raise InvalidInput("delta", delta, "a probability of error, between 0 and 1")
        safe = [i for i, value in enumerate(self.deltas) if value <= delta * (1 + 1e-9)]
        if not safe:
            raise InvalidInput("delta", delta, f"at least {self.deltas[0]:g}, the smallest that was calibrated")
        return safe[-1]

    def _refusal(
        self, rows: Sequence[Cells], epsilon: float, delta: float, stop: str, context: Sequence[float] = ()
    ) -> InvalidInput:
        reached = [d for i, d in enumerate(self.deltas) if all(row[i] is not None for row in rows)]
        where = f"at epsilon {epsilon:g}"
        if context:
            where += f" and context {', '.join(f'{value:g}' for value in context)}"
        allowed = f"at least {reached[0]:g} {where}" if reached else f"above {self.deltas[-1]:g} {where}"
        why = f"with less, this model's {stop} rule was not reliable enough"
        measured = self._measured(epsilon, context)
        help_with = self._help(epsilon, delta, stop, reached, measured)
        return InvalidInput("delta", delta, f"{allowed}: {why}{_sentence(measured, epsilon)}{help_with}")

    def _measured(self, epsilon: float, context: Sequence[float]) -> Curve:
        """The curve at an epsilon, at the context (or, without one, at the point where least is reached)."""
        column = self.epsilons.index(epsilon)
        if not self.curves:
            return ()
        if context:
            point = int(self.grid.nearest(torch.tensor([list(context)], dtype=torch.float32))[0])
            return self.curves[point][column]
        return min((row[column] for row in self.curves), key=lambda curve: curve[-1].share)

    def _help(self, epsilon: float, delta: float, stop: str, reached: Sequence[float], curve: Curve) -> str:
        """What would help, in the user's terms."""
        column = self._delta_column(delta)
        ways = []
        for i, wider in enumerate(self.epsilons):
            cells = [row[i][column] for row in self.table(stop)]
            if wider > epsilon and all(cell is not None for cell in cells):
                queries = max(cell.queries for cell in cells if cell is not None)
                ways.append(f"epsilon {wider:g} ({queries:.0f} queries on average)")
                break
        if reached:
            ways.append(f"delta {reached[0]:g}")
        if curve and _still_rises(curve):
            ways.append(f"a horizon above {curve[-1].queries} queries, if the problem allows it")
        if curve and _stays(curve):
            ways.append("observations that tell of the answer, if `cicpe doctor` finds that these do not")
        return f". What would help: {', '.join([*ways, 'more minutes of training'])}"


def _between(cells: Cells, threshold: float) -> ThresholdCell:
    """What a threshold would have given, by those that were tried: in between, or as the nearest."""
    tried = sorted({(cell.threshold, cell.accuracy, cell.queries) for cell in cells if cell is not None})
    places, accuracies, queries = zip(*((_log_odds(t), a, q) for t, a, q in tried), strict=True)
    at = _log_odds(threshold)
    return ThresholdCell(threshold, float(np.interp(at, places, accuracies)), float(np.interp(at, places, queries)))


def _log_odds(confidence: float) -> float:
    inside = min(max(confidence, EDGE), 1 - EDGE)
    return math.log(inside / (1 - inside))


def _still_rises(curve: Curve) -> bool:
    """Whether more queries would still raise the share of tasks within epsilon."""
    before = [point.share for point in curve if point.queries <= 0.75 * curve[-1].queries]
    return bool(before) and curve[-1].share > before[-1] + 0.015


def _stays(curve: Curve) -> bool:
    """Whether as few tasks are within epsilon after all queries as before the first."""
    return curve[0].queries == 0 and curve[-1].share <= curve[0].share + 0.015


def _sentence(curve: Curve, epsilon: float) -> str:
    """What was measured, in words."""
    if not curve:
        return ""
    last = curve[-1]
    if _stays(curve):
        return (
            f". After {last.queries} queries (the most) {last.share:.2f} of tasks are within {epsilon:g}, as after none"
        )
    half = next((point for point in curve if point.share >= 0.8 * last.share), last)
    rises = "still rising" if _still_rises(curve) else "more queries hardly help"
    return (
        f". After {half.queries} queries {half.share:.2f} of tasks are within {epsilon:g}, "
        f"after {last.queries} (the most) {last.share:.2f}: {rises}"
    )


def _interpolated(grid: Tensor, at: float, values: Float[Tensor, "knot ..."]) -> Float[Tensor, "..."]:
    """Linear interpolation along the first axis, constant beyond its ends."""
    if len(grid) == 1:
        return values[0]
    place = min(max(at, float(grid[0])), float(grid[-1]))
    upper = int(torch.searchsorted(grid, place).clamp(1, len(grid) - 1))
    share = (place - float(grid[upper - 1])) / max(float(grid[upper] - grid[upper - 1]), 1e-12)
    return (1 - share) * values[upper - 1] + share * values[upper]
