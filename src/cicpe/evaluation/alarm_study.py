"""How often an alarm is raised: under the prior, where it should not be, and in worlds that are off."""

from typing import NamedTuple

from torch import Tensor

from cicpe.agents.alarm import DOUBTFUL, NO
from cicpe.agents.base import Agent
from cicpe.errors import InvalidInput
from cicpe.evaluation.evaluate import evaluate_agent, proportion_interval
from cicpe.parallel import HERE, Executor
from cicpe.problems import Problem
from cicpe.problems.shifted import named_shifts

PRIOR = "the prior"


class AlarmRow(NamedTuple):
    """An alarm in one world."""

    world: str
    episodes: int
    accuracy: float
    mean_queries: float
    no: float
    """Share of episodes that end with ``in_prior: no``: detections, or under the prior false alarms."""
    doubtful: float
    """Share that end with ``doubtful`` or ``no``."""
    doubtful_ci: tuple[float, float]
    wrong: int
    """Episodes that failed."""
    wrong_flagged: float | None
    """Share of those that end with ``doubtful`` or ``no``; None where none failed."""
    misleads: bool
    """Whether the accuracy is below 1 - 2 delta: the worlds in which the alarm matters."""
    doubtful_at_horizon: float
    """Share of ``doubtful`` or ``no`` had every episode gone on to the horizon."""


def alarm_study(
    agent: Agent,
    unstopped: Agent,
    problem: Problem,
    epsilon: float,
    delta: float,
    episodes: int,
    seed: int,
    executor: Executor = HERE,
) -> list[AlarmRow]:
    """The prior first, then every named shift that makes sense for the problem.

    Args:
        agent: The agent as deployed, with an alarm.
        unstopped: The same without a stop rule: what the alarm says of longer histories.
        problem: Its prior.
        epsilon: How close is close enough.
        delta: How often it may fail.
        episodes: Fresh tasks a world.
        seed: Seeds them.
        executor: Where they are played.
    """
    rows = []
    for world, shifted in {PRIOR: problem, **named_shifts(problem)}.items():
        found = evaluate_agent(agent, shifted, epsilon, episodes, seed, executor)
        longer = evaluate_agent(unstopped, shifted, epsilon, episodes, seed, executor)
        p_value, p_longer = found.outcomes.p_value, longer.outcomes.p_value
        if p_value is None or p_longer is None:
            raise InvalidInput("model", "without an alarm", "one with an alarm: cicpe.fit_alarm fits it")
        flagged, wrong = p_value <= DOUBTFUL, found.outcomes.loss > epsilon
        failed = int(wrong.sum())
        rows.append(
            AlarmRow(
                world=world,
                episodes=episodes,
                accuracy=found.accuracy,
                mean_queries=found.mean_queries,
                no=_share(p_value <= NO),
                doubtful=_share(flagged),
                doubtful_ci=proportion_interval(int(flagged.sum()), episodes),
                wrong=failed,
                wrong_flagged=_share(flagged[wrong]) if failed else None,
                misleads=found.accuracy < 1 - 2 * delta,
                doubtful_at_horizon=_share(p_longer <= DOUBTFUL),
            )
        )
    return rows


def _share(which: Tensor) -> float:
    return float(which.double().mean())
