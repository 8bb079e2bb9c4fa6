"""One episode, step by step: what was asked, and what was believed after every observation."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.agents.base import Agent, Proposal
from cicpe.episodes.play import never, play
from cicpe.errors import InvalidInput
from cicpe.plates import only_query
from cicpe.problems import TaskBatch

INTERVAL = (0.05, 0.95)
"""The quantiles of the interval that is kept of an episode's end."""


class Trace(NamedTuple):
    """An episode of T queries. Beliefs have one row more: the first is before any query."""

    query: Float[np.ndarray, "T query"]
    observation: Float[np.ndarray, "T observation"]
    mean: Float[np.ndarray, "T+1 answer"]
    """The recommendation, should the episode have ended there."""
    std: Float[np.ndarray, "T+1 answer"]
    confidence: Float[np.ndarray, " T+1"]
    target: Float[np.ndarray, " answer"]
    stop_time: int
    """Queries made when the episode ended; later rows show what would have followed."""
    stopped: bool
    """Ended by the agent's choice; otherwise truncated at the horizon."""
    loss: float
    """Of the recommendation at the stop."""
    interval: Float[np.ndarray, "answer 2"] | None
    """Of each coordinate of the target at the stop, by the quantiles at ``INTERVAL``; None without a posterior."""


def trace_episode(agent: Agent, tasks: TaskBatch, rng: Generator, extra: int = 0) -> Trace:
    """Plays one task and keeps every step.

    Args:
        agent: Any decision-maker.
        tasks: A single one.
        rng: Draws the agent's randomness and the observations.
        extra: Queries to go on for past the stop (up to the horizon), to see what they would have changed.

    Returns:
        The episode, with what would have followed its stop.
    """
    if len(tasks) != 1:
        raise InvalidInput("tasks", f"{len(tasks)} tasks", "a single task")
    proposals: list[Proposal] = []
    seen = [torch.zeros(1, 0, tasks.problem.observation_dim)]
    stop_time: int | None = None
    interval: Tensor | None = None
    for step in play(agent, tasks, rng, ends=never):
        proposals.append(step.proposal)
        if stop_time is None and (bool(step.proposal.stop[0]) or step.observation is None):
            stop_time = step.time
            interval = agent.quantiles(step.state, INTERVAL, torch.Generator().manual_seed(0))
        if step.observation is None or (stop_time is not None and step.time >= stop_time + extra):
            break
        seen.append(step.observation)
    assert stop_time is not None
    columns = [(step.query, step.recommendation, step.confidence, step.std) for step in proposals]
    plate, mean, confidence, std = (torch.cat(column) for column in zip(*columns, strict=True))
    return Trace(
        query=only_query(plate)[:-1].numpy(),
        observation=torch.cat(seen, dim=1)[0].numpy(),
        mean=mean.numpy(),
        std=std.numpy(),
        confidence=confidence.numpy(),
        target=tasks.target[0].numpy(),
        stop_time=stop_time,
        stopped=bool(proposals[stop_time].stop[0]),
        loss=float(tasks.loss(proposals[stop_time].recommendation)[0]),
        interval=None if interval is None else interval[0].numpy(),
    )
