"""Accuracy and queries of an agent on fresh tasks, with confidence intervals."""

import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from cicpe.agents.base import Agent
from cicpe.display import as_table, in_a_line
from cicpe.episodes.blocks import EpisodeBlock, blocks
from cicpe.episodes.outcomes import Outcomes, join_outcomes, run_episodes
from cicpe.errors import InvalidInput
from cicpe.evaluation.bootstrap import bootstrap_mean
from cicpe.frames import to_frame
from cicpe.parallel import HERE, Executor
from cicpe.problems import Problem, TaskBatch
from cicpe.rounding import interval
from cicpe.statistics import clopper_pearson
from cicpe.streams import block_stream, seed_for

if TYPE_CHECKING:
    from pandas import DataFrame


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
    trajectories: int = 1
    """How often each task was played; the plays of a task follow each other in ``outcomes``."""

    def __repr__(self) -> str:
        return in_a_line("Evaluation", self._facts())

    def _repr_html_(self) -> str:
        return as_table("Evaluation", self._facts())

    def _facts(self) -> dict[str, str]:
        """The figures, in words."""
        return {
            "accuracy": f"{self.accuracy:.3f} ({interval(self.accuracy_ci, 3)})",
            "queries": f"{self.mean_queries:.2f} ({interval(self.mean_queries_ci, 2)})",
            "confidence": f"{self.confidence:.3f}",
            "truncated": f"{self.truncated:.1%}",
            "tasks": f"{self.episodes // self.trajectories:,}",
        }

    def to_frame(self) -> "DataFrame":
        """How every episode ended.

        Returns:
            A pandas data frame with a row per task: queries, loss, confidence, whether it stopped by choice, and the
            recommendation (``x1``, ``x2`` ...).
        """
        ends = self.outcomes
        names = ("queries", "loss", "confidence", "stopped")
        columns = {name: getattr(ends, name).tolist() for name in names}
        columns |= {f"x{i + 1}": column.tolist() for i, column in enumerate(ends.recommendation.T)}
        return to_frame([dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)])


def evaluate_agent(
    agent: Agent,
    problem: Problem,
    epsilon: float,
    episodes: int,
    seed: int,
    executor: Executor = HERE,
    trajectories: int = 1,
) -> Evaluation:
    """Plays fresh tasks.

    Args:
        agent: Who plays.
        problem: Draws the tasks.
        epsilon: How close is close enough.
        episodes: How many tasks.
        seed: Seeds them, block by block.
        executor: Where they are played; the figures do not depend on it.
        trajectories: How often each task is played, with other noise and other choices.

    Returns:
        The figures with their 95 % intervals, and how every episode ended. Where tasks are played several times the
        intervals are of the bootstrap over tasks and trajectories, since plays of one task are alike.
    """
    if episodes < 1:
        raise InvalidInput("episodes", episodes, "a whole number of at least 1")
    if trajectories < 1:
        raise InvalidInput("trajectories", trajectories, "a whole number of at least 1")
    if not epsilon > 0:
        raise InvalidInput("epsilon", epsilon, "a positive number")
    began = time.perf_counter()
    play = partial(_play_block, agent, problem, seed, trajectories)
    work = blocks(episodes, max(1, agent.most_at_once // trajectories))
    outcomes = join_outcomes(list(executor.map(play, work)))
    success = outcomes.loss <= epsilon
    correct, played = int(success.sum()), len(success)
    if trajectories == 1:
        accuracy_ci, queries_ci = proportion_interval(correct, played), mean_interval(outcomes.queries)
    else:
        shape = (1, episodes, trajectories)
        accuracy_ci = bootstrap_mean(success.view(shape).numpy()).interval
        queries_ci = bootstrap_mean(outcomes.queries.view(shape).numpy()).interval
    return Evaluation(
        episodes=played,
        accuracy=correct / played,
        accuracy_ci=accuracy_ci,
        mean_queries=float(outcomes.queries.float().mean()),
        mean_queries_ci=queries_ci,
        median_queries=float(outcomes.queries.float().median()),
        truncated=float((~outcomes.stopped).float().mean()),
        confidence=float(outcomes.confidence.mean()),
        seconds=time.perf_counter() - began,
        outcomes=outcomes,
        trajectories=trajectories,
    )


def _play_block(agent: Agent, problem: Problem, seed: int, trajectories: int, block: EpisodeBlock) -> Outcomes:
    rng = block_stream(seed_for(seed, "evaluation"), block.number)
    tasks = TaskBatch.draw(problem, block.size, rng)
    if trajectories > 1:
        tasks = tasks.select(torch.arange(block.size).repeat_interleave(trajectories))
    return run_episodes(agent, tasks, rng)


def proportion_interval(successes: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of one binomial proportion."""
    low, high = clopper_pearson(successes, n, (1 - level) / 2)
    return float(low), float(high)


def mean_interval(values: Tensor) -> tuple[float, float]:
    """The normal 95 % interval of a mean."""
    mean = float(values.double().mean())
    half = 1.959964 * float(values.double().std()) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return mean - half, mean + half
