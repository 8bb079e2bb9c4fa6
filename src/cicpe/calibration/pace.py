"""How a calibration keeps to its time, however slow a belief is: a few episodes say how long others will take."""

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cicpe.agents.stop_rules import first_passages
from cicpe.beliefs.base import Belief
from cicpe.episodes.table import CERTAIN, EpisodeTable, RecordSettings, tabulate
from cicpe.problems import Problem, TaskBatch

SHORT_PILOT_EPISODES = 32
"""Episodes of a pilot where one takes a good part of a second."""
PACE_EPISODES, PACE_SHARE = 8, 0.1
"""Episodes that say how long others will take, and the share of the time that they, or a round of others, may take."""
MOST_TOGETHER = 128
"""Episodes that a calibration in a hurry plays together, at most: some end later than others, and the last few of many
take as long per step as all of few."""
WANTED_EPISODES = 4000
"""Calibration episodes for which the smallest deltas are given up where the time is short."""
CERTAINTIES = (0.9995, 0.995, 0.985, 0.97, 0.955)
"""Confidences at which a calibration in a hurry may leave an episode, in the order in which they are tried."""
FIRST_SHARE = 0.25
"""Share of the time in which episodes are played on to the highest of them, to see where they may be left."""
ENOUGH, WORTH = 0.945, 0.01
"""Accuracy above which no more is needed for the usual deltas, and the gain for which episodes are played on."""
MIN_CALIBRATION_EPISODES = 1000
"""Calibration episodes that a short budget is to have room for; else the horizon is cut to what is needed."""
FEWEST_EPISODES = 400
"""Episodes of the shortened horizon that there is time for, if more queries gain nothing; most end before it."""
LEAST_EPISODES = 64
"""Episodes without which no usual promise can be tested: more queries than there is time for then are given up."""
HORIZON_SHARE = 0.15
"""Share of the time for calibration that finding out how many queries are worth making may take."""
LONGER_EPISODES, MOST_TIMES = 256, 10
"""Episodes that say whether a network is to make more queries than in training, and how many times as many at most."""
SLACK = 0.04
"""Accuracy that a pilot of a few episodes does not tell from none."""


class PilotEstimate(NamedTuple):
    """What a pilot shows of a belief."""

    queries: int
    """After which no more is gained, with some to spare; at most the horizon."""
    seconds_per_episode: float
    """Until it is sure, or to the horizon."""
    seconds_per_query: float
    """Of one episode."""
    accuracy: float
    """After all queries."""
    lengths: tuple[int, ...]
    """Of its episodes; the horizon for those that were cut off."""

    def affordable(self, seconds: float, episodes: int, most: int) -> int:
        """The longest horizon, of at most ``most`` queries, at which so many episodes like these fit; at least 1.

        Episodes end when they are sure, most of them long before a horizon that the hardest tasks need.
        """
        queries = seconds * len(self.lengths) / (episodes * max(self.seconds_per_query, 1e-9))
        fits = (h for h in range(2, most + 1) if sum(min(length, h) for length in self.lengths) <= queries)
        return max(fits, default=1)


def pilot(
    belief: Belief,
    problem: Problem,
    epsilon: float,
    episodes: int,
    seed: int,
    limit: float = math.inf,
    certain: float = CERTAIN,
    query_spread: float = 0.0,
) -> PilotEstimate:
    """Plays a few episodes: how many queries are enough for one epsilon, and how long do they take?

    Args:
        belief: Who plays.
        problem: Draws the tasks.
        epsilon: How close is close enough.
        episodes: How many.
        seed: Seeds them.
        limit: Seconds after which they all end, wherever they are.
        certain: Confidence at which an episode is not played on.
        query_spread: Spread of the queries, where the kind of belief has one.

    Returns:
        The queries that are enough, of those that the limit allowed, and how long episodes and queries take.
    """
    belief.prepare()
    began, rng = time.perf_counter(), torch.Generator().manual_seed(seed)
    settings = RecordSettings((epsilon,), query_spread, certain=certain, deadline=began + limit)
    table = tabulate(belief, TaskBatch.draw(problem, episodes, rng), settings, rng)
    seconds = time.perf_counter() - began
    per_query, lengths = seconds / max(1, int(table.length.sum())), table.length
    if seconds > limit:  # those that were cut off might have gone on to the horizon
        lengths = torch.where(lengths == lengths.max(), belief.horizon, lengths)
        seconds += per_query * float((lengths - table.length).sum())
    accuracy = (table.loss[0] <= epsilon).double().mean(dim=0)
    short = (accuracy < accuracy.max() - SLACK).nonzero()
    enough = int(short[-1]) + 1 if len(short) else 1
    needed = min(belief.horizon, math.ceil(1.5 * enough))
    return PilotEstimate(needed, seconds / episodes, per_query, float(accuracy[-1]), tuple(lengths.tolist()))


def shortened(belief: Belief, problem: Problem, epsilon: float, seconds: float, seed: int) -> Belief:
    """The same belief, with a shorter horizon where the time is short and the last queries are worth little.

    Args:
        belief: Who plays.
        problem: Draws the tasks.
        epsilon: The smallest that is served.
        seconds: What calibration has.
        seed: Seeds a pilot.

    Returns:
        The belief as it is where there is time for enough episodes; else with a horizon at which there is.
    """
    limit, certain = HORIZON_SHARE * seconds, CERTAINTIES[-1]
    estimate = pilot(belief, problem, epsilon, SHORT_PILOT_EPISODES, seed, limit, certain)
    if seconds > MIN_CALIBRATION_EPISODES * estimate.seconds_per_episode:
        return belief
    affordable = estimate.affordable(seconds, FEWEST_EPISODES, belief.horizon)
    longest = estimate.affordable(seconds, LEAST_EPISODES, belief.horizon)
    return belief.with_horizon(min(max(estimate.queries, affordable), longest))


def lengthened(
    belief: Belief, problem: Problem, epsilon: float, seconds: float, seed: int, query_spread: float = 0.0
) -> Belief:
    """The same belief with a longer horizon, where its own is not enough and accuracy rises beyond it.

    A network learns from short episodes, and what it has learned holds for longer ones where its memory does.

    Args:
        belief: Who plays.
        problem: Draws the tasks; its own horizon is the most.
        epsilon: The smallest that is served.
        seconds: What calibration has, of which a part is spent; infinite where there is no limit.
        seed: Seeds two pilots.
        query_spread: Spread of the queries.

    Returns:
        The belief as it is where it is accurate enough, or where more queries help little.
    """
    longest = belief.with_horizon(min(problem.horizon, MOST_TIMES * belief.horizon))
    if longest.horizon <= belief.horizon:
        return belief
    limit = HORIZON_SHARE * seconds / 2
    own = pilot(belief, problem, epsilon, LONGER_EPISODES, seed, limit, query_spread=query_spread)
    if own.accuracy >= ENOUGH:
        return belief
    longer = pilot(longest, problem, epsilon, LONGER_EPISODES, seed, limit, query_spread=query_spread)
    return belief.with_horizon(longer.queries) if longer.accuracy > own.accuracy + SLACK else belief


class Pace(NamedTuple):
    """How episodes are played so that enough of them fit."""

    certain: float
    """Confidence at which an episode is not played on."""
    chunk: int
    """Episodes that are played together."""


def find_pace(
    belief: Belief,
    problem: Problem,
    settings: RecordSettings,
    hasty: float,
    seconds: float,
    seed: int,
    contexts: int = 1,
) -> Pace:
    """How early episodes have to end, and how few are played at a time, for a limit in seconds.

    An episode that is played on until it is all but certain tells of the smallest deltas. Where too few such episodes
    fit, they end at a lower confidence: the margin that few episodes need would cost queries at every other delta.

    Args:
        belief: Who plays.
        problem: Draws the tasks.
        settings: What is written down of an episode.
        hasty: The highest confidence at which an episode may be left.
        seconds: What calibration has.
        seed: Seeds the episodes that it is found by.
        contexts: How many of them are played in turn: a round is so many times as long.

    Returns:
        The pace.
    """
    belief.prepare()
    began, rng = time.perf_counter(), torch.Generator().manual_seed(seed)
    settings = replace(settings, certain=hasty, deadline=began + PACE_SHARE * seconds)
    table = tabulate(belief, TaskBatch.draw(problem, PACE_EPISODES, rng), settings, rng)
    per_query = (time.perf_counter() - began) / max(1.0, float(table.length.sum()))

    def seconds_per_episode(certain: float) -> float:
        return per_query * float(_ends(table, certain).double().mean())

    levels = _levels(hasty)
    enough = [level for level in levels if seconds > WANTED_EPISODES * seconds_per_episode(level)]
    certain = enough[0] if enough else levels[-1]
    together = PACE_SHARE * seconds / (contexts * max(seconds_per_episode(certain), 1e-9))
    return Pace(certain, int(min(MOST_TOGETHER, max(PACE_EPISODES // 2, together))))


def needed_certainty(tables: Sequence[EpisodeTable], epsilons: Sequence[float], hasty: float) -> float:
    """The lowest confidence at which episodes may be left without a loss of accuracy that matters.

    A belief can be surer than it is right. An episode that is left too early is then a failure that a few queries
    more would have mended, and the promise is refused where it could be kept.

    Args:
        tables: Episodes that were played on until they were sure by ``hasty``, by context.
        epsilons: Of their rows.
        hasty: The highest confidence at which an episode may be left.

    Returns:
        One of ``CERTAINTIES``, or ``hasty``: accuracy is high enough there, or no higher later, in every context and at
        every epsilon.
    """
    levels = _levels(hasty)

    def accuracies(certain: float) -> Tensor:
        return torch.stack([_accuracies(table, epsilons, _ends(table, certain)) for table in tables])

    wanted = (accuracies(levels[0]) - WORTH).clamp(max=ENOUGH)
    return min(level for level in levels if bool((accuracies(level) >= wanted).all()))


def _levels(hasty: float) -> list[float]:
    """The confidences that may be tried, from the highest down."""
    return [hasty, *(level for level in CERTAINTIES if level < hasty)]


def _ends(table: EpisodeTable, certain: float) -> Int[Tensor, " episode"]:
    """When episodes would end that are left once they are sure at every epsilon."""
    sure = table.confidence.amin(dim=0)
    return first_passages(sure, torch.tensor([certain]))[0].minimum(table.length)


def _accuracies(
    table: EpisodeTable, epsilons: Sequence[float], ends: Int[Tensor, " episode"]
) -> Float[Tensor, " epsilon"]:
    """The share of episodes that are right at each epsilon when they end."""
    loss = table.loss.gather(2, ends.expand(len(epsilons), -1)[..., None])[..., 0]
    return (loss <= torch.tensor(epsilons)[:, None]).double().mean(dim=1)
