"""Stop thresholds for every (epsilon, delta), chosen on held-out episodes.

Episodes are played once to the horizon without stopping; what the agent would have recommended and
how confident it was are recorded at every prefix, for a grid of epsilon. Any threshold can then be
judged without playing again. For each (epsilon, delta) the thresholds are tested from the safest
down, each at level ``alpha`` by an exact binomial bound on success, until the first that fails. A tenth
of delta is kept in reserve.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, final

import numpy as np
import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from scipy.stats import beta
from torch import Generator, Tensor

from cicpe import trees
from cicpe.agents.core import Core, Temper
from cicpe.agents.stopping import BellmanStop, Threshold
from cicpe.certification.tempering import Tempering, fit_tempering
from cicpe.errors import InvalidInput
from cicpe.networks.base import Config
from cicpe.problems import HiddenTasks, Problem

StopName = Literal["confidence", "bellman", "shaped"]
DELTAS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
KAPPAS = torch.sigmoid(torch.linspace(8.0, -1.0, 361))
"""Confidence thresholds, from the safest down."""
COSTS = 9
"""How many costs the Bellman rule is tried at."""
EPSILONS = 9
"""How many epsilons thresholds are chosen for."""
MARGIN = 0.1
"""Share of delta that is kept in reserve, so that a certificate on a few thousand fresh episodes is within reach."""
KNOTS = 5
"""At how many values of the context thresholds are chosen."""
SURE = 0.9995
"""Confidence at which an episode need not be played on: no threshold that matters is above."""
PILOT = 512
"""Episodes that are played to see how many a budget affords."""
BELLMAN_SHARE = 0.125
"""Share of the episodes on which the Bellman rule is recorded: it takes a network pass a cost."""


class Records(NamedTuple):
    """What an agent would have done at every prefix of held-out episodes."""

    loss: Float[Tensor, "epsilon episode prefix"]
    """Of what would be recommended at each epsilon."""
    context: Float[Tensor, "episode context"]
    confidence: Float[Tensor, "epsilon episode prefix"]
    bellman: Tensor
    """Where the Bellman rule would stop: epsilon x cost x episode x prefix, boolean."""


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
    tempering: tuple[tuple[Tempering, ...], ...] = ()
    """How confidence is shown: knot x epsilon; empty where it is shown as it is."""

    @model_validator(mode="after")
    def _tables(self) -> "Calibration":
        for name in ("epsilons", "deltas", "knots"):
            values = getattr(self, name)
            if list(values) != sorted(values) or (name != "knots" and values[0] <= 0):
                raise ValueError(f"{name} = {values}: needs numbers that rise" + " from above zero" * (name != "knots"))
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

    def temper(self, epsilon: float) -> Temper | None:
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
            raise InvalidInput("epsilon", epsilon, f"{low:g} to {high:g}, the range that this model was trained for")
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


def record(
    core: Core,
    hidden: HiddenTasks,
    epsilons: tuple[float, ...],
    scale: float,
    rng: Generator,
    costs: tuple[float, ...] = (),
    minimum_time: int = 1,
) -> Records:
    """Plays every task to the horizon and records what each stop rule would see.

    Where the Bellman rule is not asked for, an episode that is sure at every epsilon ends there.
    """
    n, steps = len(hidden), core.horizon + 1
    loss, confidence = torch.zeros(len(epsilons), n, steps), torch.zeros(len(epsilons), n, steps)
    bellman = torch.zeros(len(epsilons), len(costs), n, steps, dtype=torch.bool)
    rule = BellmanStop(lambda context: torch.zeros(len(context)), minimum_time)
    context, active, state = hidden.context, torch.arange(n), core.begin(hidden.context)
    for t in range(steps):
        prices = [torch.full((len(active),), cost) for cost in costs]
        look = core.look(state, epsilons, rng, scale, prices)
        one = look.recommendation.stride(0) == 0  # the same at every epsilon
        losses = [hidden.loss(answer) for answer in (look.recommendation[:1] if one else look.recommendation)]
        for e in range(len(epsilons)):
            # What an ended episode had last stays in its later columns.
            loss[e, active, t:] = losses[0 if one else e][:, None]
            confidence[e, active, t:] = look.confidence[e][:, None]
            for c, price in enumerate(prices):
                bellman[e, c, :, t] = rule.decide(look.view(e, c), price)
        go = (look.confidence < SURE).any(dim=0) | (len(costs) > 0)
        if t == core.horizon or not bool(go.any()):
            break
        query = look.query
        if not bool(go.all()):
            hidden, active, query, state = hidden.select(go), active[go], query[go], trees.select(state, go)
        state = core.observe(state, query, hidden.observe(query, rng))
    return Records(loss, context, confidence, bellman)


@dataclass(frozen=True)
class Study:
    """A core on its family, for a range of epsilon: what calibration plays."""

    core: Core
    problem: Problem
    epsilons: tuple[float, ...]
    minimum_time: int = 1
    """Queries before the Bellman rule may stop."""
    chunk: int = 2048

    def play(
        self, episodes: int, seed: int, scale: float, costs: tuple[float, ...] = (), problem: Problem | None = None
    ) -> Records:
        """``record`` on fresh tasks, a chunk at a time."""
        rng = torch.Generator().manual_seed(seed)
        parts = []
        for begin in range(0, episodes, self.chunk):
            hidden = HiddenTasks.draw(problem or self.problem, min(self.chunk, episodes - begin), rng)
            parts.append(record(self.core, hidden, self.epsilons, scale, rng, costs, self.minimum_time))
        loss, context, confidence, bellman = zip(*parts, strict=True)
        return Records(
            torch.cat(loss, dim=1), torch.cat(context), torch.cat(confidence, dim=1), torch.cat(bellman, dim=2)
        )


def calibrate(
    core: Core,
    problem: Problem,
    epsilon: tuple[float, float],
    cost: tuple[float, float] | None = None,
    scales: tuple[float, ...] = (0.0,),
    episodes: int = 32768,
    seed: int = 1,
    alpha: float = 0.05,
    minimum_time: int = 1,
    seconds: float | None = None,
    points: int = EPSILONS,
    knots: int = KNOTS,
    chunk: int = 2048,
    least: float = 0.25,
) -> Calibration:
    """Chooses the spread of deployed queries, then a threshold for every (epsilon, delta).

    Args:
        core: What is to be calibrated.
        problem: Draws the held-out tasks.
        epsilon: The range of epsilon.
        cost: The range of the Bellman rule's cost; None leaves that rule out.
        scales: Spreads of queries to choose from.
        episodes: Held-out episodes.
        seed: Seeds them.
        alpha: Level of each test.
        minimum_time: Queries before the Bellman rule may stop.
        seconds: A limit: as many of the episodes are played as fit.
        points: How many epsilons thresholds are chosen for.
        knots: At how many values of the context.
        chunk: Episodes played at once.
        least: Share of the episodes that is played whatever the limit.
    """
    began = time.perf_counter()
    epsilons = _log_grid(*epsilon, points)
    study = Study(core, problem, epsilons, minimum_time, chunk)
    scale = _best_scale(study, scales, seed + 1)
    if seconds is not None:
        pilot, tried = time.perf_counter(), min(PILOT, chunk)
        study.play(tried, seed + 3, scale)
        now = time.perf_counter()
        # The Bellman rule adds about two thirds.
        each = (1.0 if cost is None else 1.67) * (now - pilot) / tried
        affordable = int((seconds - (now - began)) / each)
        episodes = min(episodes, max(int(least * episodes), affordable))
    by_confidence = _by_knot(study, episodes, seed, scale, (), knots)
    confidence = tuple(
        tuple(
            choose_cells(records.loss[e] <= value, confidence_stops(records.confidence[e]), KAPPAS, alpha)
            for e, value in enumerate(epsilons)
        )
        for _, records in by_confidence
    )
    return Calibration(
        episodes=episodes,
        seed=seed,
        alpha=alpha,
        scale=scale,
        epsilons=epsilons,
        deltas=DELTAS,
        knots=tuple(value for value, _ in by_confidence),
        confidence=confidence,
        tempering=tuple(
            tuple(
                _tempering(records.loss[e] <= value, records.confidence[e], confidence[k][e])
                for e, value in enumerate(epsilons)
            )
            for k, (_, records) in enumerate(by_confidence)
        ),
        bellman=_bellman_table(study, episodes, seed + 2, scale, cost, knots, alpha),
    )


def _bellman_table(
    study: Study,
    episodes: int,
    seed: int,
    scale: float,
    cost: tuple[float, float] | None,
    knots: int,
    alpha: float,
) -> Table:
    """The Bellman rule's costs; all null where the core does not value queries."""
    if cost is None:
        return ()
    costs = _log_grid(*cost, COSTS)
    some = max(knots, int(BELLMAN_SHARE * episodes))
    return tuple(
        tuple(
            choose_cells(
                records.loss[e] <= epsilon,
                [_first_true(records.bellman[e, c]) for c in range(len(costs))],
                torch.tensor(costs),
                alpha,
            )
            for e, epsilon in enumerate(study.epsilons)
        )
        for _, records in _by_knot(study, some, seed, scale, costs, knots)
    )


def _between(grid: Tensor, at: Tensor, values: Tensor) -> Tensor:
    """Linear interpolation along the first axis, constant beyond its ends."""
    if len(grid) == 1:
        return values[:1].expand(len(at), *values.shape[1:])
    at = at.clamp(grid[0], grid[-1])
    upper = torch.searchsorted(grid, at.contiguous()).clamp(1, len(grid) - 1)
    gap = (grid[upper] - grid[upper - 1]).clamp_min(1e-12)
    share = ((at - grid[upper - 1]) / gap).view(-1, *[1] * (values.ndim - 1))
    return (1 - share) * values[upper - 1] + share * values[upper]


def _tempering(success: Tensor, confidence: Tensor, cells: tuple[Cell | None, ...]) -> Tempering:
    """Fitted at the prefixes where episodes would stop for any delta, and at the last."""
    kappas = {cell.threshold for cell in cells if cell is not None}
    stops = [_first_true(confidence >= kappa) for kappa in sorted(kappas)]
    stops.append(torch.full((len(confidence),), confidence.shape[1] - 1))
    at = torch.stack(stops, dim=1)
    weight = len(stops)  # one episode counts once, however many of its prefixes are looked at
    return fit_tempering(confidence.gather(1, at).flatten(), success.gather(1, at).flatten(), strength=4.0 * weight)


def choose_cells(success: Tensor, stops: list[Tensor], thresholds: Tensor, alpha: float) -> tuple[Cell | None, ...]:
    """For each delta, the last threshold before the first whose success bound falls below 1 - (1 - MARGIN) delta."""
    rows = torch.arange(len(success))
    correct = np.array([int(success[rows, stop].sum()) for stop in stops])
    queries = [float(stop.float().mean()) for stop in stops]
    n = len(success)
    accuracy = correct / n
    bound = np.where(correct > 0, beta.ppf(alpha, np.maximum(correct, 1), n - correct + 1), 0.0)
    cells: list[Cell | None] = []
    for delta in DELTAS:
        failed = np.nonzero(bound < 1 - (1 - MARGIN) * delta)[0]
        last = (int(failed[0]) if len(failed) else len(thresholds)) - 1
        if last < 0:
            cells.append(None)
            continue
        cell = Cell(float(thresholds[last]), float(accuracy[last]), queries[last])
        lower = np.nonzero(accuracy[last + 1 :] < 1 - delta)[0]
        if len(lower) and cell.accuracy > 1 - delta:
            next_accuracy = float(accuracy[last + 1 + lower[0]])
            share = (1 - delta - next_accuracy) / (cell.accuracy - next_accuracy)
            cell = cell._replace(risky=float(thresholds[last + 1 + lower[0]]), share=share)
        cells.append(cell)
    return tuple(cells)


def _best_scale(study: Study, scales: tuple[float, ...], seed: int, episodes: int = 2048) -> float:
    """The spread of queries that needs the fewest of them for 90 % success at the middle epsilon."""
    candidates = sorted(set(scales))
    if len(candidates) == 1:
        return candidates[0]
    epsilon = study.epsilons[len(study.epsilons) // 2]
    middle = replace(study, epsilons=(epsilon,))
    needed = {}
    for scale in candidates:
        records = middle.play(episodes, seed, scale)
        success = records.loss[0] <= epsilon
        cell = choose_cells(success, confidence_stops(records.confidence[0]), KAPPAS, alpha=0.5)[DELTAS.index(0.1)]
        # A spread that never reaches it comes after every one that does, by how far it gets.
        reached = float(success[:, -1].float().mean())
        needed[scale] = cell.queries if cell is not None else study.core.horizon * (2 - reached)
    return min(needed, key=lambda scale: needed[scale])


def _by_knot(
    study: Study, episodes: int, seed: int, scale: float, costs: tuple[float, ...], knots: int
) -> list[tuple[float, Records]]:
    """Held-out episodes at several values of the first context: accuracy has to hold at each, not on average.

    A known noise level is set to each value; any other context is grouped by the nearest ``knots``-th of episodes.
    """
    problem = study.problem
    noise = getattr(problem, "noise", None)
    if tuple(problem.context_names)[:1] == ("noise",) and isinstance(noise, tuple) and 0 < noise[0] < noise[1]:
        values = _log_grid(noise[0], noise[1], knots)
        each = max(1, episodes // knots)
        return [
            (value, study.play(each, seed + 10 * i, scale, costs, problem.with_noise(value)))
            for i, value in enumerate(values)
        ]
    records = study.play(episodes, seed, scale, costs)
    context = records.context
    if context.shape[-1] == 0 or float(context[:, 0].max() - context[:, 0].min()) < 1e-12:
        return [(float(context[0, 0]) if context.shape[-1] else 0.0, records)]
    order = context[:, 0].argsort()
    size = len(order) // knots
    groups = [order[i * size : (i + 1) * size] for i in range(knots)]
    low, high = float(context[:, 0].min()), float(context[:, 0].max())
    middles = [float(context[group, 0].median()) for group in groups]
    values = (low, *middles[1:-1], high)
    return [(value, _some(records, group)) for value, group in zip(values, groups, strict=True)]


def _some(records: Records, rows: Tensor) -> Records:
    loss, context, confidence, bellman = records
    return Records(loss[:, rows], context[rows], confidence[:, rows], bellman[:, :, rows])


def _log_grid(low: float, high: float, points: int) -> tuple[float, ...]:
    if low == high:
        return (low,)
    grid = np.exp(np.linspace(math.log(low), math.log(high), points))
    return (low, *map(float, grid[1:-1]), high)


def _first_true(hit: Tensor) -> Tensor:
    """First prefix at which a row is true; the last prefix where none is."""
    found = hit.any(dim=1)
    return torch.where(found, hit.int().argmax(dim=1), hit.shape[1] - 1)


def confidence_stops(confidence: Tensor) -> list[Tensor]:
    """The stopping time of every episode for every kappa, safest first."""
    # The running maximum makes one binary search do for each episode.
    highest = confidence.cummax(dim=1).values.contiguous()
    first = torch.searchsorted(highest, KAPPAS.expand(len(confidence), -1).contiguous())
    return list(first.clamp_max(confidence.shape[1] - 1).T)
