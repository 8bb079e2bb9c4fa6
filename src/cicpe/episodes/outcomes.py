"""How episodes end: the figures of a whole batch, from the steps of the one player."""

import time
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from cicpe.agents.base import Agent
from cicpe.episodes.play import Tasks, play
from cicpe.errors import ModelError
from cicpe.problems import TaskBatch


class Outcomes(NamedTuple):
    """How a batch of episodes ended."""

    queries: Int[Tensor, " episode"]
    loss: Float[Tensor, " episode"]
    confidence: Float[Tensor, " episode"]
    stopped: Bool[Tensor, " episode"]
    """Ended by the agent's choice; the rest were truncated at the horizon."""
    context: Float[Tensor, "episode context"]
    recommendation: Float[Tensor, "episode answer"]
    seconds: float
    """Wall-clock of the whole batch."""
    p_value: Float[Tensor, " episode"] | None = None
    """The alarm's, at the end; None for agents without one."""


def run_episodes(agent: Agent, tasks: TaskBatch, rng: Generator) -> Outcomes:
    """Plays every task to its stop or to the horizon.

    Args:
        agent: Who decides; at most ``agent.most_at_once`` episodes are played together.
        tasks: The hidden tasks.
        rng: Draws the agent's randomness and the observations.

    Returns:
        One row per task, in the order of the tasks.
    """
    n, most = len(tasks), agent.most_at_once
    if n > most:
        parts = [torch.arange(begin, min(n, begin + most)) for begin in range(0, n, most)]
        return join_outcomes([run_episodes(agent, tasks.select(part), rng) for part in parts])
    return play_to_the_end(agent, tasks, tasks, rng)


def play_to_the_end(agent: Agent, batch: TaskBatch, answers: Tasks, rng: Generator) -> Outcomes:
    """Plays the tasks of ``batch``, whose queries ``answers`` answers, and scores what was recommended."""
    began, n = time.perf_counter(), len(batch)
    queries, confidence = torch.zeros(n, dtype=torch.long), torch.zeros(n)
    stopped = torch.zeros(n, dtype=torch.bool)
    recommendation = torch.zeros(n, batch.target.shape[-1])
    p_value: Tensor | None = None
    for step in play(agent, answers, rng):
        ends, proposal = step.ends, step.proposal
        if not bool(ends.any()):
            continue
        done = step.rows[ends]
        queries[done], confidence[done], stopped[done] = step.time, proposal.confidence[ends], proposal.stop[ends]
        recommendation[done] = proposal.recommendation[ends]
        surprise = agent.p_value(step.state)
        if surprise is not None:
            p_value = torch.ones(n) if p_value is None else p_value
            p_value[done] = surprise[ends]
    if not bool(recommendation.isfinite().all() and confidence.isfinite().all()):
        raise ModelError("an answer of the agent is not a number: its weights are damaged, or overflow")
    loss = batch.loss(recommendation)
    seconds = time.perf_counter() - began
    return Outcomes(queries, loss, confidence, stopped, batch.context, recommendation, seconds, p_value)


def join_outcomes(parts: Sequence[Outcomes]) -> Outcomes:
    """Several batches as one.

    Args:
        parts: At least one batch.

    Returns:
        Their rows, one batch after the other; the seconds are summed.
    """
    *columns, seconds, p_values = zip(*parts, strict=True)
    p_value = None if p_values[0] is None else torch.cat(p_values)
    return Outcomes(*map(torch.cat, columns), sum(seconds), p_value)  # type: ignore[call-arg, arg-type]
