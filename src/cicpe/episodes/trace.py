"""One episode, step by step: what was asked, and what was believed after every observation."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator

from cicpe.agents.base import Agent, Proposal
from cicpe.errors import InvalidInput
from cicpe.problems import TaskBatch


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


def trace_episode(agent: Agent, tasks: TaskBatch, rng: Generator, extra: int = 0) -> Trace:
    """Plays one task and keeps every step.

    Args:
        agent: Any decision-maker.
        hidden: A single task.
        rng: Draws the agent's randomness and the observations.
        extra: Queries to go on for past the stop (up to the horizon), to see what they would have changed.
    """
    if len(tasks) != 1:
        raise InvalidInput("hidden", f"{len(tasks)} tasks", "a single task")
    proposals: list[Proposal] = []
    seen = [torch.zeros(0, tasks.problem.observation_dim)]
    state = agent.begin(tasks.context)
    stop_time: int | None = None
    for t in range(agent.horizon + 1):
        proposal = agent.propose(state, rng)
        proposals.append(proposal)
        if stop_time is None and (bool(proposal.stop[0]) or t == agent.horizon):
            stop_time = t
        if t == agent.horizon or (stop_time is not None and t >= stop_time + extra):
            break
        seen.append(tasks.observe(proposal.query, rng))
        state = agent.observe(state, proposal.query, seen[-1])
    assert stop_time is not None
    query, _, mean, confidence, std = (torch.cat(column).numpy() for column in zip(*proposals, strict=True))
    return Trace(
        query=query[:-1],
        observation=torch.cat(seen).numpy(),
        mean=mean,
        std=std,
        confidence=confidence,
        target=tasks.target[0].numpy(),
        stop_time=stop_time,
        stopped=bool(proposals[stop_time].stop[0]),
        loss=float(tasks.loss(proposals[stop_time].recommendation)[0]),
    )
