"""Several agents on the same tasks with the same noise, and what each did there."""

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Generator, Tensor

from cicpe.agents.base import Agent
from cicpe.episodes.blocks import EpisodeBlock, blocks
from cicpe.episodes.outcomes import Outcomes, join_outcomes, play_to_the_end
from cicpe.evaluation.bootstrap import Mean, bootstrap_mean, paired_difference
from cicpe.evaluation.evaluate import proportion_interval
from cicpe.parallel import HERE, Executor
from cicpe.problems import Problem, TaskBatch
from cicpe.streams import stream

TOGETHER = 32
"""Episodes of a block, which have their noise in common: the same for every agent, and few, since some are slow."""
ALONE = 3
"""Tasks that are played one at a time to see how long a query takes."""


class PlayedTasks(NamedTuple):
    """What one agent did on the first tasks of a comparison."""

    success: Tensor
    """task x trajectory, boolean."""
    queries: Tensor
    """task x trajectory."""
    stopped: Tensor
    seconds_per_query: float
    """Wall-clock of one episode at a time: what a person waits."""
    batched_seconds_per_query: float
    """Wall-clock of episodes in blocks of ``TOGETHER``: what a simulation pays."""

    @property
    def accuracy(self) -> Mean:
        """With its 95 % interval: exact where every task is played once, by the bootstrap otherwise."""
        share = float(self.success.double().mean())
        if self.success.shape[1] == 1:
            return Mean(share, *proportion_interval(int(self.success.sum()), len(self.success)))
        return bootstrap_mean(_levels(self.success))

    @property
    def mean_queries(self) -> Mean:
        """With its 95 % bootstrap interval."""
        return bootstrap_mean(_levels(self.queries))

    def minus(self, other: "PlayedTasks") -> tuple[Mean, Mean]:
        """Accuracy and queries, ours minus the other's, on the tasks that both played."""
        n = min(len(self.queries), len(other.queries))
        accuracy = paired_difference(_levels(self.success[:n]), _levels(other.success[:n]))
        return accuracy, paired_difference(_levels(self.queries[:n]), _levels(other.queries[:n]))


def _levels(values: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """One seed x task x trajectory."""
    array: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = values.double()[None].numpy()
    return array


class CommonTasks(NamedTuple):
    """The tasks of a comparison, each repeated ``trajectories`` times, and the seed of their noise."""

    batch: TaskBatch
    trajectories: int
    seed: int

    @classmethod
    def draw(cls, problem: Problem, tasks: int, seed: int, trajectories: int = 1) -> "CommonTasks":
        """Fresh tasks."""
        batch = TaskBatch.draw(problem, tasks, stream(seed, "comparison"))
        rows = torch.arange(tasks).repeat_interleave(trajectories)
        return cls(batch.select(rows), trajectories, seed)

    def play(self, agent: Agent, epsilon: float, tasks: int, executor: Executor = HERE) -> PlayedTasks:
        """An agent on the first ``tasks`` of them, block by block, and on a few alone for the time."""
        wanted = min(len(self.batch), tasks * self.trajectories)
        outcomes = join_outcomes(list(executor.map(partial(_play_block, agent, self), blocks(wanted, TOGETHER))))
        shape = (-1, self.trajectories)
        alone = [
            play_with_common_noise(agent, self.batch.select(torch.tensor([row])), 1, self.seed + row)
            for row in range(min(ALONE, wanted))
        ]
        queries = sum(int(episodes.queries.sum()) for episodes in alone)
        return PlayedTasks(
            success=(outcomes.loss <= epsilon).view(shape),
            queries=outcomes.queries.view(shape),
            stopped=outcomes.stopped.view(shape),
            seconds_per_query=sum(episodes.seconds for episodes in alone) / max(1, queries),
            batched_seconds_per_query=outcomes.seconds / max(1, int(outcomes.queries.sum())),
        )


def _play_block(agent: Agent, common: CommonTasks, block: EpisodeBlock) -> Outcomes:
    """The block's tasks, with the noise of the whole block, though the agent may play the first of them only."""
    first = block.number * TOGETHER
    rows = min(TOGETHER, len(common.batch) - first)
    tasks = common.batch.select(torch.arange(first, first + block.size))
    return play_with_common_noise(agent, tasks, rows, common.seed, block.number)


def play_with_common_noise(agent: Agent, tasks: TaskBatch, rows: int, seed: int, block: int = 0) -> Outcomes:
    """As ``run_episodes``, but step t of task i sees the same random numbers whichever agent plays.

    Args:
        agent: Who plays.
        tasks: The hidden tasks.
        rows: How many tasks the simulator is asked about at every step, ended ones and absent ones included, so that
            the noise of a task does not depend on how many others are still under way.
        seed: Seeds the noise.
        block: Which block of a comparison this is; every one has noise of its own.

    Returns:
        One row per task.
    """
    rng = stream(seed, "comparison", "choices", block)
    return play_to_the_end(agent, tasks, CommonNoise.over(tasks, rows, seed, block, rng), rng)


@final
@dataclass(frozen=True)
class CommonNoise:
    """Tasks whose noise depends on the step and the task alone, whoever asks."""

    everyone: TaskBatch
    asked: Tensor
    """The last query of every task, those that have ended included."""
    filled: Tensor
    """Which task each row of ``everyone`` is."""
    live: Tensor
    """Which tasks are still under way."""
    context: Tensor
    seed: int
    block: int
    steps: list[int]
    """How many observations were made: one number, which all selections share."""

    @classmethod
    def over(cls, tasks: TaskBatch, rows: int, seed: int, block: int, rng: Generator) -> "CommonNoise":
        """All tasks, with queries drawn for those that will never ask."""
        n = len(tasks)
        filled = torch.arange(rows).clamp_max(n - 1)
        asked = tasks.problem.query_space.sample(n, rng)
        return cls(tasks.select(filled), asked, filled, torch.arange(n), tasks.context, seed, block, [0])

    def __len__(self) -> int:
        return len(self.live)

    def select(self, index: Tensor) -> "CommonNoise":
        """Some of the tasks."""
        return replace(self, live=self.live[index], context=self.context[index])

    def observe(self, query: Tensor, rng: Generator) -> Tensor:
        """One observation of each task under way; the generator is the step's own, not the one given."""
        self.asked[self.live] = query
        self.steps[0] += 1
        noise = stream(self.seed, "comparison", "noise", self.block, self.steps[0])
        observation = self.everyone.observe(self.asked[self.filled], noise)
        return observation[self.live]
