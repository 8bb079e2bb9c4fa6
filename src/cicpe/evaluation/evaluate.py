"""Accuracy and queries of an agent on fresh tasks, with confidence intervals."""

import time
from functools import partial
from typing import NamedTuple

from torch import Tensor

from cicpe.agents.base import Agent
from cicpe.episodes.blocks import EpisodeBlock, blocks
from cicpe.episodes.outcomes import Outcomes, join_outcomes, run_episodes
from cicpe.errors import InvalidInput
from cicpe.parallel import HERE, Executor
from cicpe.problems import Problem, TaskBatch
from cicpe.statistics import clopper_pearson
from cicpe.streams import block_stream, seed_for


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
    """Wall-clock, whoever played."""
    outcomes: Outcomes


def evaluate_agent(
    agent: Agent, problem: Problem, epsilon: float, episodes: int, seed: int, executor: Executor = HERE
) -> Evaluation:
    """Plays fresh tasks.

    Args:
        agent: Who plays.
        problem: Draws the tasks.
        epsilon: How close is close enough.
        episodes: How many tasks.
        seed: Seeds them, block by block.
        executor: Where they are played; the figures do not depend on it.

    Returns:
        The figures with their 95 % intervals, and how every episode ended.
    """
    if episodes < 1:
        raise InvalidInput("episodes", episodes, "a whole number of at least 1")
    if not epsilon > 0:
        raise InvalidInput("epsilon", epsilon, "a positive number")
    began = time.perf_counter()
    play = partial(_play_block, agent, problem, seed)
    outcomes = join_outcomes(list(executor.map(play, blocks(episodes, agent.most_at_once))))
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
        seconds=time.perf_counter() - began,
        outcomes=outcomes,
    )


def _play_block(agent: Agent, problem: Problem, seed: int, block: EpisodeBlock) -> Outcomes:
    rng = block_stream(seed_for(seed, "evaluation"), block.number)
    return run_episodes(agent, TaskBatch.draw(problem, block.size, rng), rng)


def proportion_interval(successes: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of one binomial proportion."""
    low, high = clopper_pearson(successes, n, (1 - level) / 2)
    return float(low), float(high)


def mean_interval(values: Tensor) -> tuple[float, float]:
    """The normal 95 % interval of a mean."""
    mean = float(values.double().mean())
    half = 1.959964 * float(values.double().std()) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return mean - half, mean + half
