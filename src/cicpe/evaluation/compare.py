"""Several agents on the same tasks with the same noise, and what each did there."""

import time
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from cicpe import trees
from cicpe.agents.base import Agent
from cicpe.episodes.outcomes import Outcomes
from cicpe.evaluation.bootstrap import Mean, bootstrap_mean, paired_difference
from cicpe.evaluation.evaluate import proportion_interval
from cicpe.problems import Problem, TaskBatch

ALONE = 3
"""Tasks that are played one at a time to see how long a query takes."""


class Played(NamedTuple):
    """What one agent did on the first tasks of a comparison."""

    success: Tensor
    """task x trajectory, boolean."""
    queries: Tensor
    """task x trajectory."""
    stopped: Tensor
    seconds_per_query: float
    """Wall-clock of one episode at a time: what a person waits."""
    batched_seconds_per_query: float
    """Wall-clock of all episodes at once: what a simulation pays."""

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

    def minus(self, other: "Played") -> tuple[Mean, Mean]:
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

    hidden: TaskBatch
    trajectories: int
    seed: int

    @classmethod
    def draw(cls, problem: Problem, tasks: int, seed: int, trajectories: int = 1) -> "CommonTasks":
        """Fresh tasks."""
        hidden = TaskBatch.draw(problem, tasks, torch.Generator().manual_seed(seed))
        rows = torch.arange(tasks).repeat_interleave(trajectories)
        return cls(hidden.select(rows), trajectories, seed)

    def play(self, agent: Agent, epsilon: float, tasks: int) -> Played:
        """An agent on the first ``tasks`` of them, all at once, and on a few alone for the time."""
        some = self.hidden.select(torch.arange(min(len(self.hidden), tasks * self.trajectories)))
        outcomes = play_with_common_noise(agent, some, len(self.hidden), self.seed)
        shape = (-1, self.trajectories)
        alone = [
            play_with_common_noise(agent, some.select(torch.tensor([row])), 1, self.seed + row)
            for row in range(min(ALONE, len(some)))
        ]
        queries = sum(int(one.queries.sum()) for one in alone)
        return Played(
            success=(outcomes.loss <= epsilon).view(shape),
            queries=outcomes.queries.view(shape),
            stopped=outcomes.stopped.view(shape),
            seconds_per_query=sum(one.seconds for one in alone) / max(1, queries),
            batched_seconds_per_query=outcomes.seconds / max(1, int(outcomes.queries.sum())),
        )


def play_with_common_noise(agent: Agent, hidden: TaskBatch, rows: int, seed: int) -> Outcomes:
    """As ``run_episodes``, but step t of task i sees the same random numbers whichever agent plays.

    The simulator is asked about ``rows`` tasks at every step, ended ones and absent ones included, so that
    the noise of a task does not depend on how many others are still under way.
    """
    began = time.perf_counter()
    n, rng = len(hidden), _generator(seed, 0)
    filled = torch.arange(rows).clamp_max(n - 1)
    everyone = hidden.select(filled)
    asked = hidden.problem.query_space.sample(n, rng)
    queries, stopped = torch.full((n,), agent.horizon), torch.zeros(n, dtype=torch.bool)
    confidence, recommendation = torch.zeros(n), torch.zeros(n, hidden.target.shape[-1])
    active, state = torch.arange(n), agent.begin(hidden.context)
    for t in range(agent.horizon + 1):
        proposal = agent.propose(state, rng)
        ending = proposal.stop if t < agent.horizon else torch.ones_like(proposal.stop)
        done, keep = active[ending], ~ending
        queries[done], stopped[done] = t, proposal.stop[ending]
        confidence[done], recommendation[done] = proposal.confidence[ending], proposal.recommendation[ending]
        if not bool(keep.any()):
            break
        active, state = active[keep], trees.select(state, keep)
        asked[active] = proposal.query[keep]
        observation = everyone.observe(asked[filled], _generator(seed, t + 1))
        state = agent.observe(state, asked[active], observation[active])
    loss, seconds = hidden.loss(recommendation), time.perf_counter() - began
    return Outcomes(queries, loss, confidence, stopped, hidden.context, recommendation, seconds)


def _generator(seed: int, step: int) -> Generator:
    """One of its own for every step."""
    return torch.Generator().manual_seed(int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0] >> 1))
