"""Runs any agent on fresh tasks: the one runner behind evaluation, comparison and certification."""

import time
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from cicpe import trees
from cicpe.agents.base import Agent
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


def run_episodes(agent: Agent, hidden: TaskBatch, rng: Generator) -> Outcomes:
    """Plays every task to its stop or to the horizon; ended episodes cost nothing more."""
    n, most = len(hidden), agent.most_at_once
    if n > most:
        parts = [torch.arange(begin, min(n, begin + most)) for begin in range(0, n, most)]
        return join_outcomes([run_episodes(agent, hidden.select(part), rng) for part in parts])
    began = time.perf_counter()
    queries = torch.full((n,), agent.horizon)
    confidence = torch.zeros(n)
    stopped = torch.zeros(n, dtype=torch.bool)
    recommendation = torch.zeros(n, hidden.target.shape[-1])
    p_value = None
    active = torch.arange(n)
    live, state = hidden, agent.begin(hidden.context)
    for t in range(agent.horizon + 1):
        proposal = agent.propose(state, rng)
        ending = proposal.stop if t < agent.horizon else torch.ones_like(proposal.stop)
        query = proposal.query
        if bool(ending.any()):
            done, keep = active[ending], ~ending
            queries[done] = t
            confidence[done] = proposal.confidence[ending]
            recommendation[done] = proposal.recommendation[ending]
            stopped[done] = proposal.stop[ending]
            odd = agent.p_value(state)
            if odd is not None:
                p_value = torch.ones(n) if p_value is None else p_value
                p_value[done] = odd[ending]
            if len(done) == len(active):
                break
            active, live, state, query = active[keep], live.select(keep), trees.select(state, keep), query[keep]
        state = agent.observe(state, query, live.observe(query, rng))
    loss = hidden.loss(recommendation)
    seconds = time.perf_counter() - began
    return Outcomes(queries, loss, confidence, stopped, hidden.context, recommendation, seconds, p_value)


def join_outcomes(parts: Sequence[Outcomes]) -> Outcomes:
    """Several batches as one."""
    *columns, seconds, p_values = zip(*parts, strict=True)
    p_value = None if p_values[0] is None else torch.cat(p_values)
    return Outcomes(*map(torch.cat, columns), sum(seconds), p_value)  # type: ignore[call-arg, arg-type]
