"""A frozen agent under a grid of Beta priors: what it does, beside what the bounds promise.

Under the training prior every task is played twice. The covariance of the two plays is the variance of a profile
over tasks (Var s, Var t), since given the task they are independent. A good set needs the profile itself. It is
taken along the density ratio w of the two priors, the one number that decides how much more often a task comes:
given w both priors have the same law of tasks, so p' is the average of E[s | w] under the new prior.

Every bound uses the safe end of a 95 % interval for what was measured under the training prior.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cicpe.agents.base import Agent
from cicpe.episodes.blocks import EpisodeBlock, blocks
from cicpe.episodes.outcomes import Outcomes, join_outcomes, run_episodes
from cicpe.errors import InvalidInput
from cicpe.evaluation import prior_shift as bounds
from cicpe.evaluation.evaluate import mean_interval, proportion_interval
from cicpe.evaluation.prior_shift import BetaShift
from cicpe.parallel import HERE, Executor
from cicpe.problems import Problem
from cicpe.problems.beta_prior import EDGE, PriorShift, prior_shift
from cicpe.streams import block_stream, seed_for, stream

Floats = npt.NDArray[np.float64]
GRID = (0.5, 1.0, 3.0, 5.0, 7.0)
"""Values of alpha and of beta."""
PROFILE_FACTOR = 4
"""Tasks under the training prior, for one in a cell: every bound rests on them."""
BINS = 10
POINTS = 20_000
"""Points of the new prior that lay out the bins; they cost no episodes."""


class ProfileBin(NamedTuple):
    """Success and queries under the training prior where a shifted coordinate lies in [low, high]."""

    low: float
    high: float
    success: float
    queries: float


class TrainingPrior(NamedTuple):
    """What was measured under the training prior, each task played twice."""

    unit: Floats
    """Tasks x shifted coordinates."""
    success: Floats
    """Of both plays: tasks x 2."""
    queries: Floats
    accuracy: float
    accuracy_ci: tuple[float, float]
    mean_queries: float
    mean_queries_ci: tuple[float, float]
    success_variance: float
    """Upper 95 % limit of Var s."""
    queries_variance: float
    """Upper 95 % limit of Var t."""

    def profile(self) -> list[ProfileBin]:
        """s and t along a shifted coordinate, averaged over coordinates."""
        edges = np.linspace(0, 1, BINS + 1)
        place = np.minimum((self.unit * BINS).astype(int), BINS - 1)
        bins = []
        for i in range(BINS):
            tasks = np.nonzero(place == i)[0]
            if len(tasks):
                averages = float(self.success[tasks].mean()), float(self.queries[tasks].mean())
                bins.append(ProfileBin(float(edges[i]), float(edges[i + 1]), *averages))
        return bins


class RobustnessCell(NamedTuple):
    """One prior of the grid: measured, and bounded. A bound is None where its distance is infinite."""

    alpha: float
    beta: float
    episodes: int
    distinct: int
    """Different tasks among the episodes."""
    accuracy: float
    accuracy_ci: tuple[float, float]
    mean_queries: float
    mean_queries_ci: tuple[float, float]
    truncated: float
    distances: dict[str, float | None]
    promised_bounds: dict[str, float | None]
    """Lower bounds of the accuracy from 1 - delta alone, with no measurement."""
    accuracy_bounds: dict[str, float | None]
    """Lower bounds from what was measured under the training prior."""
    queries_bounds: dict[str, float | None]
    """Upper bounds of the mean number of queries, in the same way."""


class Robustness(NamedTuple):
    """The whole grid."""

    shifted: str
    coordinates: int
    training: TrainingPrior
    cells: list[RobustnessCell]


def robustness(
    agent: Agent,
    problem: Problem,
    epsilon: float,
    delta: float,
    episodes: int = 1000,
    seed: int = 0,
    field: str | None = None,
    grid: tuple[float, ...] = GRID,
    executor: Executor = HERE,
) -> Robustness:
    """Plays ``episodes`` tasks under every Beta(alpha, beta) of the grid; see ``evaluation/shift.py`` for what shifts.

    Args:
        agent: Frozen, for this (epsilon, delta).
        problem: Its family under the training prior.
        epsilon: How far off an answer may be.
        delta: How often it may be farther off, under the training prior.
        episodes: Tasks per cell of the grid.
        seed: Seeds everything.
        field: The number of a task to shift; by default what determines the target.
        grid: Values of alpha and beta.
        executor: Where the tasks are played; the figures do not depend on it.

    Returns:
        Accuracy and queries per cell, beside those under the training prior.
    """
    if episodes < 2:
        raise InvalidInput("episodes", episodes, "a whole number of at least 2")
    shift = prior_shift(problem, field, stream(seed, "robustness"))
    training = measure_training_prior(agent, shift, epsilon, PROFILE_FACTOR * episodes, seed, executor)
    priors = [(alpha, beta) for alpha in grid for beta in grid]
    parts = blocks(episodes, agent.most_at_once)
    work = [_ShiftedBlock(*prior, 1, block) for prior in priors for block in parts]
    played = list(executor.map(partial(_play_block, agent, shift, seed), work))
    cells = []
    for i, prior in enumerate(priors):
        own = played[i * len(parts) : (i + 1) * len(parts)]
        distinct = len(np.unique(torch.cat([block.unit for block in own]).numpy(), axis=0))
        outcomes = join_outcomes([block.plays[0] for block in own])
        law = BetaShift(*prior, shift.coordinates)
        cells.append(_cell(law, outcomes, distinct, training, epsilon, delta, agent.horizon))
    return Robustness(shift.of, shift.coordinates, training, cells)


class _ShiftedBlock(NamedTuple):
    """Tasks of one prior."""

    alpha: float
    beta: float
    times: int
    """How often each of them is played."""
    block: EpisodeBlock


class _PlayedBlock(NamedTuple):
    """How they ended."""

    unit: Tensor
    """Where they lie in the shifted coordinates."""
    plays: list[Outcomes]


def _play_block(agent: Agent, shift: PriorShift, seed: int, work: _ShiftedBlock) -> _PlayedBlock:
    own = seed_for(seed, "robustness", work.alpha, work.beta, work.times)
    rng = block_stream(own, work.block.number)
    drawn = shift.draw(work.alpha, work.beta, work.block.size, rng)
    return _PlayedBlock(drawn.unit, [run_episodes(agent, drawn.tasks, rng) for _ in range(work.times)])


def measure_training_prior(
    agent: Agent, shift: PriorShift, epsilon: float, tasks: int, seed: int, executor: Executor = HERE
) -> TrainingPrior:
    """Plays every task twice, with other noise and other choices."""
    work = [_ShiftedBlock(1.0, 1.0, 2, block) for block in blocks(tasks, agent.most_at_once)]
    played = list(executor.map(partial(_play_block, agent, shift, seed), work))
    firsts, seconds = (join_outcomes([block.plays[i] for block in played]) for i in range(2))
    won = (torch.stack([firsts.loss, seconds.loss], dim=1) <= epsilon).double()
    asked = torch.stack([firsts.queries, seconds.queries], dim=1).double()
    # The first plays alone are independent; the pair only serves the variances.
    return TrainingPrior(
        unit=torch.cat([block.unit for block in played]).double().numpy(),
        success=won.numpy(),
        queries=asked.numpy(),
        accuracy=float(won[:, 0].mean()),
        accuracy_ci=proportion_interval(int(won[:, 0].sum()), tasks),
        mean_queries=float(asked[:, 0].mean()),
        mean_queries_ci=mean_interval(asked[:, 0]),
        success_variance=_covariance_limit(won),
        queries_variance=_covariance_limit(asked),
    )


def _covariance_limit(pairs: Tensor) -> float:
    """The upper 95 % limit of the covariance of the two plays of a task."""
    products = (pairs - pairs.mean()).prod(dim=1)
    return max(0.0, mean_interval(products)[1])


def _cell(
    law: BetaShift,
    played: Outcomes,
    distinct: int,
    training: TrainingPrior,
    epsilon: float,
    delta: float,
    horizon: int,
) -> RobustnessCell:
    n, correct = len(played.loss), int((played.loss <= epsilon).sum())
    return RobustnessCell(
        alpha=law.alpha,
        beta=law.beta,
        episodes=n,
        distinct=distinct,
        accuracy=correct / n,
        accuracy_ci=proportion_interval(correct, n),
        mean_queries=float(played.queries.double().mean()),
        mean_queries_ci=mean_interval(played.queries),
        truncated=float((~played.stopped).double().mean()),
        distances=_distances(law),
        promised_bounds=_success_bounds(law, 1 - delta, None),
        accuracy_bounds=_accuracy_bounds(law, training),
        queries_bounds=_queries_bounds(law, training, horizon),
    )


def _distances(law: BetaShift) -> dict[str, float | None]:
    return {
        "density_ratio": _finite(law.density_ratio),
        "chi_square": _finite(law.chi_square),
        "total_variation": law.total_variation,
        "divergence": law.divergence,
        "reversed_divergence": law.reversed_divergence,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _success_bounds(law: BetaShift, success: float, variance: float | None) -> dict[str, float | None]:
    ratio, chi_square = law.density_ratio, law.chi_square
    by_chi_square = bounds.chi_square_success(success, chi_square, variance)
    return {
        "density_ratio": bounds.density_ratio_success(success, ratio) if math.isfinite(ratio) else None,
        "chi_square": by_chi_square if math.isfinite(chi_square) else None,
        "total_variation": bounds.total_variation_success(success, law.total_variation),
        "pinsker": bounds.pinsker_success(success, law.divergence),
        "pinsker_reversed": bounds.pinsker_success(success, law.reversed_divergence),
    }


def _accuracy_bounds(law: BetaShift, training: TrainingPrior) -> dict[str, float | None]:
    success_bounds = _success_bounds(law, training.accuracy_ci[0], training.success_variance)
    return success_bounds | {"good_set": _good_set_bound(law, training)}


def _queries_bounds(law: BetaShift, training: TrainingPrior, horizon: int) -> dict[str, float | None]:
    mean = training.mean_queries_ci[1]
    limits = {
        "density_ratio": bounds.density_ratio_queries(mean, law.density_ratio),
        "chi_square": bounds.chi_square_queries(mean, law.chi_square, training.queries_variance),
        "total_variation": bounds.total_variation_queries(mean, law.total_variation, horizon),
        "fast_set": _fast_set_bound(law, training, horizon),
    }
    return {name: min(value, float(horizon)) if math.isfinite(value) else None for name, value in limits.items()}


def _good_set_bound(law: BetaShift, training: TrainingPrior) -> float:
    """The best (1 - eta) nu'(G_eta), with G made of bins of the density ratio that are safely good."""
    low = []
    for rows in _bins(law, training):
        won = training.success[rows, 0]
        level = 1 - 0.05 / BINS  # all bins at once
        low.append(proportion_interval(int(won.sum()), len(won), level)[0] if len(won) else 0.0)
    return max(bounds.good_set_success(1 - s, sum(other >= s for other in low) / BINS) for s in low)


def _fast_set_bound(law: BetaShift, training: TrainingPrior, horizon: int) -> float:
    """The best tau + (T_max - tau) nu'(not F_tau), with F made of bins that are safely fast."""
    high = []
    for rows in _bins(law, training):
        enough = len(rows) >= 30  # below, a normal interval says too little
        high.append(mean_interval(torch.from_numpy(training.queries[rows, 0]))[1] if enough else float(horizon))
    return min(bounds.fast_set_queries(t, sum(other > t for other in high) / BINS, horizon) for t in high)


def _bins(law: BetaShift, training: TrainingPrior) -> list[npt.NDArray[np.int64]]:
    """Tasks of the training prior in bins of the log density ratio that are equally likely under the new prior.

    Within a bin the profile is taken to be even. A bin that the training prior hardly reaches has few tasks or
    none, and counts as unknown.
    """
    if law.alpha == law.beta == 1:
        return [np.arange(len(training.unit))] * BINS
    points = np.random.default_rng(0).beta(law.alpha, law.beta, (POINTS, law.coordinates)).clip(EDGE, 1 - EDGE)
    edges = np.quantile(law.log_ratio(points), np.linspace(0, 1, BINS + 1))
    place = np.searchsorted(edges, law.log_ratio(training.unit), side="right") - 1
    return [np.nonzero(place == i)[0] for i in range(BINS)]
