"""How many queries a problem may take, before anything is trained."""

import math
from typing import NamedTuple

from cicpe.beliefs.base import FitRequest
from cicpe.beliefs.budget import Budget
from cicpe.display import amount
from cicpe.doctor import diagnose_problem
from cicpe.problems import Problem
from cicpe.scoring import LONGEST, needed, played
from cicpe.training.callbacks import TrainingCallback
from cicpe.training.recipes import candidates


class QueryEstimate(NamedTuple):
    """How many queries a problem may take, before anything is trained."""

    queries: float | None
    """Of an agent that needs no training; None where there is none, or where it was not right often enough."""
    accuracy: float | None
    """How often it was right after all of its queries."""
    episodes: int
    """Simulated tasks."""
    horizon: int
    """The most queries of each."""
    least: float | None
    """That any agent needs, by what an observation tells at most; None where nothing was seen to tell anything."""

    def words(self, at_most: int) -> str:
        """The estimate in a sentence or two.

        Args:
            at_most: How many queries the experiment allows.

        Returns:
            How many measurements to expect, and on what that rests.
        """
        if self.queries is not None:
            return (
                f"Expect about {amount(max(1, round(self.queries)), 'measurement')} "
                f"({self.episodes} simulated campaigns of an untrained agent; {at_most} are allowed)."
            )
        if self.accuracy is not None:
            return (
                f"In {self.episodes} simulated campaigns an untrained agent was right in {self.accuracy:.0%} after "
                f"{amount(self.horizon, 'measurement')}: it may take more. Allow more (at_most), ask less (within), "
                "or train and see."
            )
        least = "more than can be said" if self.least is None else f"at least {max(1, round(self.least))}"
        return f"Expect {least} measurements ({at_most} are allowed); training will say more."


def estimate_queries(problem: Problem, epsilon: float, delta: float, seconds: float, seed: int) -> QueryEstimate:
    """Plays simulated tasks with a belief that needs no training, where there is one for the problem.

    Args:
        problem: The family.
        epsilon: How close is close enough.
        delta: How often it may be missed.
        seconds: How long it may take, about.
        seed: Seeds everything.

    Returns:
        The estimate: rough, since nothing is calibrated.
    """
    bound = diagnose_problem(problem, (epsilon, epsilon), seed).bounds[0].least_queries
    least = bound if math.isfinite(bound) else None
    untrained = next((choice for choice in candidates(problem) if choice.recipe in ("particles", "functions")), None)
    if untrained is None:
        return QueryEstimate(None, None, 0, 0, least)
    config = type(untrained.config).model_validate(
        untrained.config.model_dump() | {"epsilon": (epsilon, epsilon), "horizon": min(problem.horizon, LONGEST)}
    )
    budget = Budget(minutes=seconds / config.fit_share / 60 / 2)
    fitted = config.fit(FitRequest(problem, budget, seed, TrainingCallback()))
    table = played(fitted.belief, problem, (epsilon,), seconds / 2, seed)
    horizon = int(table.length.max())  # below the belief's own where the time was up
    seen = table._replace(loss=table.loss[..., : horizon + 1], confidence=table.confidence[..., : horizon + 1])
    enough = needed(seen, epsilon, problem.horizon, 1 - delta)
    reached = enough.queries if enough.queries <= horizon else None
    return QueryEstimate(reached, enough.accuracy, table.loss.shape[1], horizon, least)
