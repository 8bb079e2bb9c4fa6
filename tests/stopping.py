"""Agents that stop where a test says."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cicpe.agents.belief_agent import BeliefAgent
from cicpe.agents.stop_rules import STOP_RULES
from cicpe.beliefs.base import Belief

NEVER = 2.0
"""No confidence reaches it."""


def constant(level: float) -> Callable[[Tensor], Tensor]:
    """The same threshold in every context."""
    return lambda context: torch.full((len(context),), level)


def stopping_at(
    belief: Belief, level: float | Callable[[Tensor], Tensor], epsilon: float, rule: str = "confidence", **fields: Any
) -> BeliefAgent:
    """A belief that stops at a threshold of a rule."""
    threshold = constant(level) if isinstance(level, float) else level
    return BeliefAgent(belief, STOP_RULES[rule], threshold, epsilon, fields.pop("stop_epsilon", epsilon), **fields)
