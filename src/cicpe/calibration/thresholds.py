"""Stop thresholds for every (epsilon, delta), chosen on held-out episodes.

Episodes are played once to the horizon without stopping; what the agent would have recommended and
how confident it was are recorded at every prefix, for a grid of epsilon. Any threshold can then be
judged without playing again. For each (epsilon, delta) the thresholds are tested from the safest
down, each at level ``alpha`` by an exact binomial bound on success, until the first that fails. A tenth
of delta is kept in reserve.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cicpe.beliefs.base import Belief
from cicpe.calibration.platt import Platt, fit_platt
from cicpe.calibration.table import MARGIN, Calibration, Cell, Table
from cicpe.episodes.table import EpisodeTable, record
from cicpe.problems import Problem, TaskBatch
from cicpe.statistics import clopper_pearson, log_grid

DELTAS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
KAPPAS = torch.sigmoid(torch.linspace(8.0, -1.0, 361))
"""Confidence thresholds, from the safest down."""
COSTS = 9
"""How many costs the Bellman rule is tried at."""
EPSILONS = 9
"""How many epsilons thresholds are chosen for."""
KNOTS = 5
"""At how many values of the context thresholds are chosen."""
PILOT = 512
"""Episodes that are played to see how many a budget affords."""
SLACK = 0.04
"""Accuracy that a pilot of a few episodes does not tell from none."""
BELLMAN_SHARE = 0.125
"""Share of the episodes on which the Bellman rule is recorded: it takes a network pass a cost."""


@dataclass(frozen=True)
class CalibrationRun:
    """A core on its family, for a range of epsilon: what calibration plays."""

    belief: Belief
    problem: Problem
    epsilons: tuple[float, ...]
    minimum_time: int = 1
    """Queries before the Bellman rule may stop."""
    chunk: int = 2048
    on_played: Callable[[int], None] = lambda episodes: None
    """Told of every chunk, once it is played."""

    def play(
        self, episodes: int, seed: int, scale: float, costs: tuple[float, ...] = (), problem: Problem | None = None
    ) -> EpisodeTable:
        """``record`` on fresh tasks, a chunk at a time."""
        rng, chunk = torch.Generator().manual_seed(seed), min(self.chunk, self.belief.most_at_once)
        parts = []
        for begin in range(0, episodes, chunk):
            tasks = TaskBatch.draw(problem or self.problem, min(chunk, episodes - begin), rng)
            parts.append(record(self.belief, tasks, self.epsilons, scale, rng, costs, self.minimum_time))
            self.on_played(len(tasks))
        return EpisodeTable.joined(parts)


class PilotEstimate(NamedTuple):
    """What a pilot shows of a core."""

    queries: int
    """After which no more is gained, with some to spare; at most the horizon."""
    seconds: float
    """Of an episode to the horizon."""


def pilot(belief: Belief, problem: Problem, epsilon: float, episodes: int, seed: int) -> PilotEstimate:
    """Plays a few episodes: how many queries are enough for one epsilon, and how long do they take?"""
    began = time.perf_counter()
    rng = torch.Generator().manual_seed(seed)
    records = record(belief, TaskBatch.draw(problem, episodes, rng), (epsilon,), 0.0, rng)
    seconds = (time.perf_counter() - began) / episodes
    accuracy = (records.loss[0] <= epsilon).double().mean(dim=0)
    short = (accuracy < accuracy.max() - SLACK).nonzero()
    enough = int(short[-1]) + 1 if len(short) else 1
    return PilotEstimate(min(belief.horizon, math.ceil(1.5 * enough)), seconds)


def calibrate(
    belief: Belief,
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
    each: float | None = None,
    on_progress: Callable[[float], None] = lambda share: None,
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
        each: Seconds that an episode takes, where that is known; else a pilot finds out.
        on_progress: Told from time to time what share of the episodes is played.
    """
    began = time.perf_counter()
    epsilons = log_grid(*epsilon, points)
    study = CalibrationRun(belief, problem, epsilons, minimum_time, chunk)
    scale = _best_scale(study, scales, seed + 1)
    if seconds is not None:
        if each is None:
            start, tried = time.perf_counter(), min(PILOT, chunk)
            study.play(tried, seed + 3, scale)
            # The Bellman rule adds about two thirds.
            each = (1.0 if cost is None else 1.67) * (time.perf_counter() - start) / tried
        affordable = int((seconds - (time.perf_counter() - began)) / each)
        episodes = min(episodes, max(int(least * episodes), affordable))
    study = replace(study, on_played=_counted(episodes + _for_bellman(episodes, cost, knots), on_progress))
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


def _counted(total: int, on_progress: Callable[[float], None]) -> Callable[[int], None]:
    """What counts episodes and tells the share of ``total`` that is played."""
    played = 0

    def count(episodes: int) -> None:
        nonlocal played
        played += episodes
        on_progress(min(1.0, played / total))

    return count


def _for_bellman(episodes: int, cost: tuple[float, float] | None, knots: int) -> int:
    """How many more episodes the Bellman rule is recorded on."""
    return 0 if cost is None else max(knots, int(BELLMAN_SHARE * episodes))


def _bellman_table(
    study: CalibrationRun,
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
    costs, some = log_grid(*cost, COSTS), _for_bellman(episodes, cost, knots)
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


def _tempering(success: Tensor, confidence: Tensor, cells: tuple[Cell | None, ...]) -> Platt:
    """Fitted at the prefixes where episodes would stop for any delta, and at the last."""
    kappas = {cell.threshold for cell in cells if cell is not None}
    stops = [_first_true(confidence >= kappa) for kappa in sorted(kappas)]
    stops.append(torch.full((len(confidence),), confidence.shape[1] - 1))
    at = torch.stack(stops, dim=1)
    weight = len(stops)  # one episode counts once, however many of its prefixes are looked at
    return fit_platt(confidence.gather(1, at).flatten(), success.gather(1, at).flatten(), strength=4.0 * weight)


def choose_cells(success: Tensor, stops: list[Tensor], thresholds: Tensor, alpha: float) -> tuple[Cell | None, ...]:
    """For each delta, the last threshold before the first whose success bound falls below 1 - (1 - MARGIN) delta."""
    rows = torch.arange(len(success))
    correct = np.array([int(success[rows, stop].sum()) for stop in stops])
    queries = [float(stop.float().mean()) for stop in stops]
    n = len(success)
    accuracy = correct / n
    bound, _ = clopper_pearson(correct, n, alpha)
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


def _best_scale(study: CalibrationRun, scales: tuple[float, ...], seed: int, episodes: int = 2048) -> float:
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
        needed[scale] = cell.queries if cell is not None else study.belief.horizon * (2 - reached)
    return min(needed, key=lambda scale: needed[scale])


def _by_knot(
    study: CalibrationRun, episodes: int, seed: int, scale: float, costs: tuple[float, ...], knots: int
) -> list[tuple[float, EpisodeTable]]:
    """Held-out episodes at several values of the first context: accuracy has to hold at each, not on average.

    A known noise level is set to each value; any other context is grouped by the nearest ``knots``-th of episodes.
    """
    problem = study.problem
    noise = getattr(problem, "noise", None)
    if tuple(problem.context_names)[:1] == ("noise",) and isinstance(noise, tuple) and 0 < noise[0] < noise[1]:
        values = log_grid(noise[0], noise[1], knots)
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
    return [(value, records.select(group)) for value, group in zip(values, groups, strict=True)]


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
