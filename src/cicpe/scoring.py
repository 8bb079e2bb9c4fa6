"""How many queries a belief needs for an accuracy on held-out simulated tasks: what races and estimates rest on."""

import math
import time
from typing import Any, NamedTuple

import torch

from cicpe.agents.stop_rules import STOP_RULES
from cicpe.beliefs.base import Belief
from cicpe.episodes.table import EpisodeTable, RecordSettings, tabulate
from cicpe.problems import Problem, TaskBatch

DELTA = 0.1
"""The delta that contenders are compared at."""
LONGEST = 100
"""Queries of a scored episode, at most."""
EPISODES = 512
"""Held-out tasks, at most."""
TOGETHER = 32
"""Tasks that are played together, and the fewest that tell enough."""
FIRST = 8
"""The same while it is not known how long they take."""
HONEST = 0.02
"""How far, beyond chance, a computed belief's confidence may be from how often it is right, for the race to end."""
CERTAIN = 0.96
"""Confidence at which a scored episode need not be played on."""


class Score(NamedTuple):
    """How a contender did on held-out tasks."""

    recipe: str
    queries: float
    """Needed at the middle epsilon for the accuracy that calibration will ask for so that 1 - DELTA is kept; above the
    horizon where that was not reached."""
    accuracy: float
    """After all of its queries."""
    horizon: int
    episodes: int
    seconds: float
    """Of fitting and scoring."""
    query_rule: str = ""
    """How it chooses its queries."""
    confidence: float = float("nan")
    """Its mean confidence where these queries end; NaN where the accuracy was not reached."""
    stopped_accuracy: float = float("nan")
    """How often it is right there."""
    expected: float = float("inf")
    """The queries, were it right just as often as it says: at the middle epsilon, or the geometric mean with those at
    the smallest one where that was looked at."""
    is_honest_at_smallest: bool = True
    """Whether it is right as often as it says there too; True where that was not looked at."""
    search: str = ""
    """How it finds the posterior, in a word, where its kind has several ways."""
    fault: str | None = None
    """Why it does not suit the problem."""

    @property
    def is_honest(self) -> bool:
        """Whether it reached the accuracy and is right as often as it says, at the middle epsilon."""
        return is_as_said(self.confidence, self.stopped_accuracy, self.episodes)

    @property
    def is_slow(self) -> bool:
        """Whether so few tasks ended in time that a calibration would have too few, too."""
        return 0 < self.episodes < TOGETHER

    @property
    def has_reached(self) -> bool:
        """Whether it reached the accuracy."""
        return self.fault is None and self.queries <= self.horizon

    @property
    def way(self) -> str:
        """How it chooses its queries, and how it finds the posterior where that is not the only way."""
        return ", ".join(filter(None, (self.query_rule, self.search)))

    @property
    def row(self) -> dict[str, Any]:
        """As it is kept; null queries where the accuracy was not reached."""
        return {
            "belief": self.recipe,
            "query_rule": self.query_rule,
            "search": self.search,
            "queries_at_target": self.queries if self.has_reached else None,
            "accuracy": self.accuracy,
            "seconds": self.seconds,
            "episodes": self.episodes,
            "horizon": self.horizon,
            "fault": self.fault,
        }

    @property
    def line(self) -> str:
        """In words."""
        if self.fault is not None:
            return f"tried {self.recipe}: {self.fault}"
        needs = f"{self.queries:.1f} queries" if self.has_reached else "too many queries"
        close = "" if self.is_honest_at_smallest else "; at the smallest epsilon it is not right as often as it says"
        return (
            f"tried {self.recipe} ({self.way}) for {self.seconds:.0f} s: {needs} to keep delta {DELTA:g}; "
            f"{self.accuracy:.2f} are right after at most {self.horizon} queries ({self.episodes} tasks)"
            f"{close}"
        )


def is_as_said(confidence: float, accuracy: float, episodes: int) -> bool:
    """Whether a mean confidence is how often that many episodes were right, but for chance; not where it is NaN."""
    chance = 2 * math.sqrt(DELTA * (1 - DELTA) / episodes)
    return abs(confidence - accuracy) <= HONEST + chance


def played(belief: Belief, problem: Problem, epsilons: tuple[float, ...], seconds: float, seed: int) -> EpisodeTable:
    """As many held-out episodes as fit in the time; up to ``TOGETHER`` of them may take twice as long.

    Args:
        belief: Who plays.
        problem: Draws the tasks.
        epsilons: How close is close enough: what is recorded, in this order.
        seconds: A limit.
        seed: Seeds the tasks.

    Returns:
        What the belief would have done at every prefix.
    """
    belief.prepare()
    rng, began = torch.Generator().manual_seed(seed), time.perf_counter()
    parts: list[EpisodeTable] = []
    settings = RecordSettings(epsilons, certain=CERTAIN, deadline=began + 2 * seconds)
    done, size = 0, FIRST
    while done < EPISODES:
        parts.append(tabulate(belief, TaskBatch.draw(problem, size, rng), settings, rng))
        done += size
        size = FIRST if done < TOGETHER else TOGETHER
        spent = time.perf_counter() - began
        if spent * (1 + size / done) > seconds * (2 if done < TOGETHER else 1):
            break  # the next ones would be cut short, and look as if they never ended
    return EpisodeTable.joined(parts)


class Needed(NamedTuple):
    """What an accuracy takes."""

    queries: float
    """On average; above the horizon where the accuracy is not reached, by how much is missing."""
    accuracy: float
    """After all queries."""
    confidence: float = float("nan")
    """The mean confidence where episodes end after these queries; NaN where the accuracy is not reached."""
    stopped_accuracy: float = float("nan")
    """How often they were right there."""


def needed(
    table: EpisodeTable,
    epsilon: float,
    horizon: int,
    wanted: float = 1 - DELTA,
    by_confidence: bool = False,
    fall: float = 0.0,
    place: int = 0,
) -> Needed:
    """The queries that an accuracy takes, and the accuracy at the end.

    Args:
        table: Recorded episodes.
        epsilon: How close is close enough.
        horizon: The most queries that the problem allows.
        wanted: The accuracy.
        by_confidence: Whether accuracy is what the belief itself expects, in the place of what happened.
        fall: By how much what is asked falls with the number of queries.
        place: Where the epsilon is among those that were recorded.

    Returns:
        Both, with the confidence and the accuracy of the episodes where they end.
    """
    success, confidence = (table.loss[place] <= epsilon).double(), table.confidence[place].double()
    judged = confidence if by_confidence else success
    rule, rows = STOP_RULES["confidence"].falling(fall), torch.arange(len(success))
    stops = rule.stop_times(table, place, rule.thresholds(None))
    reached = float(judged[:, -1].mean())
    enough = [
        Needed(
            float(stop.double().mean()),
            reached,
            float(confidence[rows, stop].mean()),
            float(success[rows, stop].mean()),
        )
        for stop in stops
        if float(judged[rows, stop].mean()) >= wanted
    ]
    return min(enough, default=Needed(horizon * (2 - reached), reached))
