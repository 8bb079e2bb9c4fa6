"""Accuracy and queries of an agent on fresh tasks, with confidence intervals."""

from typing import NamedTuple

from torch import Generator, Tensor

from cicpe.agents.base import Agent
from cicpe.episodes.outcomes import Outcomes, join_outcomes, run_episodes
from cicpe.errors import InvalidInput
from cicpe.problems import Problem, TaskBatch
from cicpe.statistics import clopper_pearson
from cicpe.streams import stream

CHUNK = 4096


class Evaluation(NamedTuple):
    """The figures that are reported; intervals are 95 %."""

    episodes: int
    accuracy: float
    accuracy_ci: tuple[float, float]
    mean_queries: float
    mean_queries_ci: tuple[float, float]
    median_queries: float
    truncated: float
    """Share of episodes that ended at the horizon."""
    confidence: float
    """Mean confidence at the end: beside the accuracy, it says whether to believe it."""
    seconds: float
    outcomes: Outcomes


def evaluate_agent(agent: Agent, problem: Problem, epsilon: float, episodes: int, seed: int) -> Evaluation:
    """Plays ``episodes`` fresh tasks, drawn from ``seed``."""
    return evaluate_with(agent, problem, epsilon, episodes, stream(seed, "evaluation"))


def evaluate_with(agent: Agent, problem: Problem, epsilon: float, episodes: int, rng: Generator) -> Evaluation:
    """Plays ``episodes`` fresh tasks, drawn by a generator that the caller answers for."""
    if episodes < 1:
        raise InvalidInput("episodes", episodes, "a whole number of at least 1")
    if not epsilon > 0:
        raise InvalidInput("epsilon", epsilon, "a positive number")
    parts = []
    for begin in range(0, episodes, CHUNK):
        tasks = TaskBatch.draw(problem, min(CHUNK, episodes - begin), rng)
        parts.append(run_episodes(agent, tasks, rng))
    outcomes = join_outcomes(parts)
    correct = int((outcomes.loss <= epsilon).sum())
    return Evaluation(
        episodes=episodes,
        accuracy=correct / episodes,
        accuracy_ci=proportion_interval(correct, episodes),
        mean_queries=float(outcomes.queries.float().mean()),
        mean_queries_ci=mean_interval(outcomes.queries),
        median_queries=float(outcomes.queries.float().median()),
        truncated=float((~outcomes.stopped).float().mean()),
        confidence=float(outcomes.confidence.mean()),
        seconds=outcomes.seconds,
        outcomes=outcomes,
    )


def proportion_interval(successes: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of one binomial proportion."""
    low, high = clopper_pearson(successes, n, (1 - level) / 2)
    return float(low), float(high)


def mean_interval(values: Tensor) -> tuple[float, float]:
    """The normal 95 % interval of a mean."""
    mean = float(values.double().mean())
    half = 1.959964 * float(values.double().std()) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return mean - half, mean + half
