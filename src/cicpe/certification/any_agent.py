"""A stop threshold for any agent that has a confidence: played once to the horizon, chosen as for our own models."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from cicpe.agents.base import Agent
from cicpe.certification.thresholds import DELTAS, KAPPAS, Cell, choose_cells, confidence_stops
from cicpe.errors import InvalidInput
from cicpe.problems import HiddenTasks, Problem


class Prefixes(NamedTuple):
    """What an agent would have said had it stopped after each number of queries."""

    loss_BT: Float[Tensor, "episode prefix"]
    confidence_BT: Float[Tensor, "episode prefix"]


def record_prefixes(agent: Agent, problem: Problem, episodes: int, seed: int, chunk: int = 512) -> Prefixes:
    """Plays fresh tasks to the agent's horizon whatever it says about stopping."""
    rng = torch.Generator().manual_seed(seed)
    parts = []
    for begin in range(0, episodes, chunk):
        hidden = HiddenTasks.draw(problem, min(chunk, episodes - begin), rng)
        state, losses, confidences = agent.begin(hidden.context), [], []
        for t in range(agent.horizon + 1):
            proposal = agent.propose(state, rng)
            losses.append(hidden.loss(proposal.recommendation))
            confidences.append(proposal.confidence)
            if t < agent.horizon:
                state = agent.observe(state, proposal.query, hidden.observe(proposal.query, rng))
        parts.append((torch.stack(losses, dim=1), torch.stack(confidences, dim=1)))
    loss, confidence = zip(*parts, strict=True)
    return Prefixes(torch.cat(loss), torch.cat(confidence))


def choose_threshold(prefixes: Prefixes, epsilon: float, delta: float, alpha: float = 0.5) -> Cell | None:
    """The lowest threshold before the first, from the safest down, whose accuracy falls short; None where all do.

    With ``alpha`` one half the accuracy on these episodes is taken at its word: right for a comparison at the
    same accuracy, not for a promise.
    """
    safe = [i for i, value in enumerate(DELTAS) if value <= delta * (1 + 1e-9)]
    if not safe:
        raise InvalidInput("delta", delta, f"at least {DELTAS[0]:g}")
    success = prefixes.loss_BT <= epsilon
    return choose_cells(success, confidence_stops(prefixes.confidence_BT), KAPPAS, alpha)[safe[-1]]
