"""Stop thresholds for every (epsilon, delta), chosen on held-out episodes.

Episodes are played once to the horizon without stopping; what the agent would have recommended and
how confident it was are recorded at every prefix, for a grid of epsilon. Any threshold can then be
judged without playing again. For each (epsilon, delta) the thresholds are tested from the safest
down, each at level ``alpha`` by an exact binomial bound on success, until the first that fails. A tenth
of delta is kept in reserve; less where episodes are few, whose bound is wide, and nothing where no threshold
would be safe enough with it.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cicpe.agents.stop_rules import STOP_RULES, StopRule, rules_for
from cicpe.beliefs.base import Belief, CalibrationPlan
from cicpe.calibration.pace import FIRST_SHARE, find_pace, needed_certainty
from cicpe.calibration.platt import Platt, fit_platt
from cicpe.calibration.table import Calibration, Cells, Curve, CurvePoint, ThresholdCell, reserve
from cicpe.episodes.blocks import EpisodeBlock, blocks
from cicpe.episodes.table import EpisodeTable, RecordSettings, tabulate
from cicpe.parallel import HERE, Executor
from cicpe.problems import Problem, TaskBatch
from cicpe.problems.context import ContextGrid, knots_per_context, rank_groups
from cicpe.statistics import clopper_pearson, log_grid
from cicpe.streams import block_stream, seed_for

DELTAS = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)
PILOT_EPISODES = 512
"""Episodes of a pilot, at most; a chunk of them where episodes are slow."""
CURVE_POINTS = 12
"""About how many points a curve of success has."""
COST_SHARE = 0.125
"""Share of the episodes on which rules that value queries are recorded: they take a network pass per cost."""
COST_TIME = 1.67
"""How much longer calibration takes with them."""
DEFAULT_PLAN = CalibrationPlan()
Bools = npt.NDArray[np.bool_]


@final
@dataclass(frozen=True)
class CalibrationRun:
    """A belief on its family: what calibration plays."""

    belief: Belief
    problem: Problem
    settings: RecordSettings
    chunk: int = 2048
    on_played: Callable[[int], None] = lambda episodes: None
    """Told of every chunk, once it is played."""

    deadline: float | None = None
    """When to end, by ``time.perf_counter``; None to play all."""
    executor: Executor = HERE
    """Where episodes are played; what comes out does not depend on it, unless a deadline cuts it short."""

    def play(self, episodes: int, seed: int, problem: Problem | None = None) -> EpisodeTable:
        """``tabulate`` on fresh tasks, a block at a time."""
        return self.play_all(episodes, [(problem or self.problem, seed)])[0]

    def play_all(
        self, episodes: int, places: Sequence[tuple[Problem, int]], min_share: float = 0.0, done: int = 0
    ) -> list[EpisodeTable]:
        """The same for several problems and their seeds, in turn, until all are played or the time is up.

        Args:
            episodes: Of each.
            places: The problems, each with the seed of its tasks.
            min_share: Share of the episodes that is played however long it takes.
            done: Blocks of each that were played before, and are left out.

        Returns:
            As many episodes of each problem, of one block at least.
        """
        episodes = max(1, episodes)
        rounds = blocks(episodes, min(self.chunk, self.belief.most_at_once))[done:]
        work = [(place, block) for block in rounds for place in range(len(places))]
        parts: list[list[EpisodeTable]] = [[] for _ in places]
        played, began = 0, time.perf_counter()
        play = partial(_tabulate_block, self.belief, self.settings, tuple(places))
        with closing(self.executor.map(play, work)) as tables:
            for (place, block), table in zip(work, tables, strict=True):
                parts[place].append(table)
                self.on_played(block.size)
                if place < len(places) - 1:
                    continue
                played += block.size
                now = time.perf_counter()
                next_round = now + (now - began) * rounds[0].size / played
                if self.deadline is not None and played >= min_share * episodes and next_round > self.deadline:
                    break
        return [EpisodeTable.joined(own) for own in parts]


def _tabulate_block(
    belief: Belief, settings: RecordSettings, places: Sequence[tuple[Problem, int]], work: tuple[int, EpisodeBlock]
) -> EpisodeTable:
    place, block = work
    problem, seed = places[place]
    rng = block_stream(seed, block.number)
    return tabulate(belief, TaskBatch.draw(problem, block.size, rng), settings, rng)


@final
@dataclass(frozen=True)
class CalibrationRequest:
    """What a calibration is asked for, beside the plan of the belief's kind."""

    epsilon: tuple[float, float]
    """The range of epsilon."""
    plan: CalibrationPlan = DEFAULT_PLAN
    episodes: int | None = None
    """Held-out episodes, at most; as many as the plan says where not given."""
    seed: int = 1
    purpose: str = "calibration"
    """Whose stream the episodes are drawn from, by its name in ``cicpe.streams``."""
    alpha: float = 0.05
    """Level of each test."""
    seconds: float | None = None
    """A limit: as many of the episodes are played as fit."""
    on_progress: Callable[[float], None] = lambda share: None
    """Told from time to time what share of the episodes is played."""
    executor: Executor = HERE
    """Where they are played."""

    def seed_of(self, part: str) -> int:
        """The seed of one part of the calibration."""
        return seed_for(self.seed, self.purpose, part)

    @property
    def most_episodes(self) -> int:
        """The episodes that are played where there is time for all of them."""
        most = self.plan.max_episodes
        return most if self.episodes is None else min(self.episodes, most)


def calibrate(belief: Belief, problem: Problem, request: CalibrationRequest) -> Calibration:
    """Chooses the spread of deployed queries, then a threshold for every rule and (epsilon, delta).

    Args:
        belief: What is to be calibrated.
        problem: Draws the held-out tasks.
        request: Epsilons, episodes, seed and limits.

    Returns:
        The thresholds, with what they gave on the episodes that they were chosen on.
    """
    began, plan = time.perf_counter(), request.plan
    epsilons = log_grid(*request.epsilon, plan.n_epsilons)
    settings = RecordSettings(epsilons, costs=plan.costs, minimum_time=plan.minimum_time)
    run = CalibrationRun(belief, problem, settings, plan.chunk, executor=request.executor)
    if request.seconds is not None and plan.hasty is not None:
        grid = problem.context_grid(plan.n_context_knots)
        contexts = 1 if grid is None else len(grid)
        pace = find_pace(belief, problem, settings, plan.hasty, request.seconds, request.seed_of("pace"), contexts)
        run = replace(run, settings=replace(settings, certain=pace.certain), chunk=pace.chunk)
    spread = _best_spread(run, plan, request.seed_of("spread"))
    run = replace(run, settings=replace(run.settings, query_spread=spread))
    rules = [rule.falling(plan.fall) for rule in rules_for(belief.cost_rule)]
    costly = tuple(rule for rule in rules if rule.uses_cost and plan.costs is not None)
    episodes = _affordable(run, request, began) if costly else request.most_episodes
    for_costs = max(plan.n_context_knots, int(COST_SHARE * episodes)) if costly else 0
    # Where nothing has to be known beforehand, episodes are played until the time is up.
    deadline = None if costly or request.seconds is None else began + request.seconds
    run = replace(run, on_played=_counted(episodes + for_costs, request.on_progress, deadline), deadline=deadline)
    grid, tables = _by_context(run, episodes, request, "episodes", plan.n_context_knots)
    episodes = sum(table.loss.shape[1] for table in tables)
    free = [rule for rule in rules if not rule.uses_cost and not rule.for_each]
    chosen = {rule.name: _table(rule, tables, epsilons, request.alpha, plan) for rule in free}
    average = next(rule for rule in free if rule.name == "confidence")
    platt = _platt_table(average, tables, epsilons, chosen["confidence"])
    each = [rule for rule in rules if rule.for_each]
    chosen |= {rule.name: _table(rule, tables, epsilons, request.alpha, plan, platt) for rule in each}
    if costly:
        valued = replace(run, settings=replace(run.settings, rules=costly))
        _, tables_for_costs = _by_context(valued, for_costs, request, "costs", plan.n_context_knots)
        chosen |= {rule.name: _table(rule, tables_for_costs, epsilons, request.alpha, plan) for rule in costly}
    return Calibration(
        episodes=episodes,
        seed=request.seed,
        alpha=request.alpha,
        margin=reserve(episodes / len(tables)),
        query_spread=run.settings.query_spread,
        minimum_time=plan.minimum_time,
        fall=plan.fall,
        epsilons=epsilons,
        deltas=DELTAS,
        context_knots=grid.knots,
        context_edges=grid.edges,
        rules=chosen,
        platt=platt,
        curves=tuple(tuple(_curve(table.loss[e] <= value) for e, value in enumerate(epsilons)) for table in tables),
    )


def _table(
    rule: StopRule,
    tables: Sequence[EpisodeTable],
    epsilons: Sequence[float],
    alpha: float,
    plan: CalibrationPlan,
    platt: Sequence[Sequence[Platt]] = (),
) -> tuple[tuple[Cells, ...], ...]:
    """The thresholds of one rule, by context and epsilon; with ``platt``, none below what each episode has to reach."""
    thresholds = rule.thresholds(plan.costs)

    def cells(point: int, e: int) -> Cells:
        table = tables[point]
        floors = [platt[point][e].raw(1 - delta) for delta in DELTAS] if platt else None
        times = rule.stop_times(table, e, thresholds)
        return choose_cells(table.loss[e] <= epsilons[e], times, thresholds, alpha, floors)

    return tuple(tuple(cells(point, e) for e in range(len(epsilons))) for point in range(len(tables)))


def _affordable(run: CalibrationRun, request: CalibrationRequest, began: float) -> int:
    """How many of the episodes fit in the time, where rules that value queries are recorded too."""
    plan, episodes = request.plan, request.most_episodes
    if request.seconds is None:
        return episodes
    start, tried = time.perf_counter(), min(PILOT_EPISODES, run.chunk)
    run.play(tried, request.seed_of("pilot"))
    each = COST_TIME * (time.perf_counter() - start) / tried / request.executor.workers
    affordable = int((request.seconds - (time.perf_counter() - began)) / each)
    return min(episodes, max(int(plan.min_share * episodes), affordable))


def _counted(total: int, on_progress: Callable[[float], None], deadline: float | None = None) -> Callable[[int], None]:
    """What counts episodes and tells the share of ``total`` (or of the time) that is spent."""
    played, began = 0, time.perf_counter()

    def count(episodes: int) -> None:
        nonlocal played
        played += episodes
        by_time = 0.0 if deadline is None else (time.perf_counter() - began) / max(deadline - began, 1e-3)
        on_progress(min(1.0, max(played / total, by_time)))

    return count


def _curve(success: Tensor) -> Curve:
    """The share of successes after some numbers of queries, closer together where they are few."""
    last = success.shape[1] - 1
    times = sorted({0, last, *(round(last ** (k / CURVE_POINTS)) for k in range(CURVE_POINTS + 1))})
    return tuple(CurvePoint(t, round(float(success[:, t].double().mean()), 4)) for t in times if t <= last)


def _platt_table(
    rule: StopRule, tables: Sequence[EpisodeTable], epsilons: Sequence[float], cells: Sequence[Sequence[Cells]]
) -> tuple[tuple[Platt, ...], ...]:
    """How confidence is shown, by context and epsilon."""
    return tuple(
        tuple(_platt(rule, table, e, value, cells[point][e]) for e, value in enumerate(epsilons))
        for point, table in enumerate(tables)
    )


def _platt(rule: StopRule, table: EpisodeTable, e: int, epsilon: float, cells: Cells) -> Platt:
    """Fitted at the prefixes where episodes would stop for any delta, and at the last."""
    thresholds = torch.tensor(sorted({cell.threshold for cell in cells if cell is not None}))
    success, confidence = table.loss[e] <= epsilon, table.confidence[e]
    stops = rule.stop_times(table, e, thresholds) if len(thresholds) else []
    at = torch.stack([*stops, torch.full((len(confidence),), confidence.shape[1] - 1)], dim=1)
    weight = at.shape[1]  # one episode counts once, however many of its prefixes are looked at
    return fit_platt(confidence.gather(1, at).flatten(), success.gather(1, at).flatten(), strength=4.0 * weight)


def choose_cells(
    success: Tensor,
    stops: Sequence[Tensor],
    thresholds: Tensor,
    alpha: float,
    floors: Sequence[float] | None = None,
) -> Cells:
    """For each delta, the last threshold before the first whose success bound falls below 1 - (1 - reserve) delta.

    Where already the first does, the reserve is given up.

    Args:
        success: Whether the recommendation at every prefix succeeds: episode x prefix.
        stops: The stopping time of every episode, for every threshold.
        thresholds: From the safest down.
        alpha: Level of the bound.
        floors: For each delta, what a threshold has to be at least; nothing where not given.

    Returns:
        One cell per delta.
    """
    n, times = len(success), torch.stack(list(stops), dim=1)
    correct = success.gather(1, times).sum(dim=0).numpy()
    queries = times.double().mean(dim=0).tolist()
    accuracy = correct / n
    bound, _ = clopper_pearson(correct, n, alpha)
    cells: list[ThresholdCell | None] = []
    for column, delta in enumerate(DELTAS):
        # What cannot be served with a reserve is served without one: the bound holds all the same.
        wanted = (1 - (1 - reserve(n)) * delta, 1 - delta)
        last = next((last for need in wanted if (last := _last_before(bound < need)) >= 0), -1)
        if floors is not None:
            last = min(last, int((thresholds >= floors[column]).sum()) - 1)
        if last < 0:
            cells.append(None)
            continue
        cell = ThresholdCell(float(thresholds[last]), float(accuracy[last]), queries[last])
        lower = np.nonzero(accuracy[last + 1 :] < 1 - delta)[0]
        if floors is None and len(lower) and cell.accuracy > 1 - delta:
            next_accuracy = float(accuracy[last + 1 + lower[0]])
            share = (1 - delta - next_accuracy) / (cell.accuracy - next_accuracy)
            cell = cell._replace(risky=float(thresholds[last + 1 + lower[0]]), share=share)
        cells.append(cell)
    return tuple(cells)


def _last_before(failed: Bools) -> int:
    """The place before the first failure; the last where there is none, and -1 where the first fails."""
    return int(np.argmax(failed)) - 1 if failed.any() else len(failed) - 1


def _best_spread(run: CalibrationRun, plan: CalibrationPlan, seed: int, episodes: int = 2048) -> float:
    """The spread of queries that needs the fewest of them for 90 % success at the middle epsilon."""
    candidates = sorted(set(plan.query_spreads))
    if len(candidates) == 1:
        return candidates[0]
    epsilon = run.settings.epsilons[len(run.settings.epsilons) // 2]
    rule = STOP_RULES["confidence"]
    thresholds = rule.thresholds(None)
    needed = {}
    for spread in candidates:
        table = replace(run, settings=RecordSettings((epsilon,), spread)).play(episodes, seed)
        success = table.loss[0] <= epsilon
        cells = choose_cells(success, rule.stop_times(table, 0, thresholds), thresholds, alpha=0.5)
        cell = cells[DELTAS.index(0.1)]
        # A spread that never reaches it comes after every one that does, by how far it gets.
        reached = float(success[:, -1].float().mean())
        needed[spread] = cell.queries if cell is not None else run.belief.horizon * (2 - reached)
    return min(needed, key=lambda spread: needed[spread])


def _by_context(
    run: CalibrationRun, episodes: int, request: CalibrationRequest, part: str, n_knots: int
) -> tuple[ContextGrid, list[EpisodeTable]]:
    """Held-out episodes at several contexts: accuracy has to hold at each, not on average.

    Contexts that can be set are set to each value; others are grouped by their rank among the episodes.
    """
    problem = run.problem
    grid = problem.context_grid(n_knots)
    if grid is not None:
        each = max(1, episodes // len(grid))
        places = [(problem.at_context(point), request.seed_of(f"{part} {i}")) for i, point in enumerate(grid.points)]
        return grid, _played(run, each, places, request.plan)
    (table,) = _played(run, episodes, [(problem, request.seed_of(part))], request.plan)
    grid, groups = rank_groups(table.context, knots_per_context(n_knots, table.context.shape[-1]))
    return grid, [table.select(rows) for rows in groups]


def _played(
    run: CalibrationRun, episodes: int, places: Sequence[tuple[Problem, int]], plan: CalibrationPlan
) -> list[EpisodeTable]:
    """The episodes of all places. Where the time is short, the first of them tell where others may be left."""
    certain, now = run.settings.certain, time.perf_counter()
    if run.deadline is None or plan.hasty is None or certain >= plan.hasty:
        return run.play_all(episodes, places, plan.min_share)
    patient = replace(run, settings=replace(run.settings, certain=plan.hasty))
    first = replace(patient, deadline=now + FIRST_SHARE * (run.deadline - now)).play_all(episodes, places)
    played = len(first[0].length)
    if played >= episodes or time.perf_counter() >= run.deadline:
        return first
    certain = max(certain, needed_certainty(first, run.settings.epsilons, plan.hasty))
    rest = replace(run, settings=replace(run.settings, certain=certain))
    done = len(blocks(played, min(run.chunk, run.belief.most_at_once)))
    others = rest.play_all(episodes, places, plan.min_share, done)
    return [EpisodeTable.joined(parts) for parts in zip(first, others, strict=True)]
