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
    wrong_held: float | None
    """Share of those that end with ``no``, which holds the stop of a session: at 1 % false alarms."""
    misleads: bool
    """Whether the accuracy is below 1 - 2 delta: the worlds in which the alarm matters."""
    doubtful_at_horizon: float | None
    """Share of ``doubtful`` or ``no`` had every episode gone on to the horizon; None where that was not played."""
    verify: int = 0
    """Redundant queries before a stop."""


def alarm_study(
    agent: Agent,
    unstopped: Agent | None,
    problem: Problem,
    epsilon: float,
    delta: float,
    episodes: int,
    seed: int,
    verify: int = 0,
    executor: Executor = HERE,
) -> list[AlarmRow]:
    """The prior first, then every named shift that makes sense for the problem.

    Args:
        agent: The agent as deployed, with an alarm.
        unstopped: The same without a stop rule, for what the alarm says of longer histories; None to leave that out.
        problem: Its prior.
        epsilon: How close is close enough.
        delta: How often it may fail.
        episodes: Fresh tasks per world.
        seed: Seeds them.
        verify: Redundant queries that the agent makes before a stop.
        executor: Where they are played.

    Returns:
        One row per world: how often the alarm speaks, and of how many wrong answers it warns.
    """
    rows = []
    deployed = agent.verified(verify)
    for world, shifted in {PRIOR: problem, **named_shifts(problem)}.items():
        result = evaluate_agent(deployed, shifted, epsilon, episodes, seed, executor)
        longer = None if unstopped is None else evaluate_agent(unstopped, shifted, epsilon, episodes, seed, executor)
        p_value, p_longer = result.outcomes.p_value, None if longer is None else longer.outcomes.p_value
        if p_value is None:
            raise InvalidInput("model", "without an alarm", "one with an alarm: cicpe.fit_alarm fits it")
        flagged, wrong = p_value <= DOUBTFUL, result.outcomes.loss > epsilon
        failed = int(wrong.sum())
        rows.append(
            AlarmRow(
                world=world,
                episodes=episodes,
                accuracy=result.accuracy,
                mean_queries=result.mean_queries,
                no=_share(p_value <= NO),
                doubtful=_share(flagged),
                doubtful_ci=proportion_interval(int(flagged.sum()), episodes),
                wrong=failed,
                wrong_flagged=_share(flagged[wrong]) if failed else None,
                wrong_held=_share(p_value[wrong] <= NO) if failed else None,
                misleads=result.accuracy < 1 - 2 * delta,
                doubtful_at_horizon=None if p_longer is None else _share(p_longer <= DOUBTFUL),
                verify=verify,
            )
        )
    return rows


def _share(which: Tensor) -> float:
    return float(which.double().mean())
