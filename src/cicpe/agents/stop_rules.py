"""Stop rules: when an agent has seen enough."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from jaxtyping import Bool, Float
from torch import Tensor

from cicpe.beliefs.base import StopView

Threshold = Callable[[Float[Tensor, "batch context"]], Float[Tensor, " batch"]]
"""A calibrated threshold (confidence or cost) for each episode's context."""


class StopRule(ABC):
    """Decides from the critic's values; ``threshold`` gives kappa (confidence) or c (bellman) per episode."""

    threshold: Threshold
    needs_continue_value: bool

    @abstractmethod
    def decide(self, view: StopView, threshold: Float[Tensor, " batch"]) -> Bool[Tensor, " batch"]:
        """Which episodes end now."""


@final
@dataclass(frozen=True)
class ConfidenceStop(StopRule):
    """Stop once the predicted success probability reaches kappa."""

    threshold: Threshold
    needs_continue_value: bool = False

    def decide(self, view: StopView, threshold: Float[Tensor, " batch"]) -> Bool[Tensor, " batch"]:
        return view.confidence >= threshold


@final
@dataclass(frozen=True)
class BellmanStop(StopRule):
    """Stop once Q(h, stop) >= Q(h, a), both by the twin minimum, at cost c and after ``minimum_time`` queries.

    At a high cost the Bellman optimum is to give up at once; the gate keeps that from happening before
    the history can say anything.
    """

    threshold: Threshold
    minimum_time: int = 1
    needs_continue_value: bool = True

    def decide(self, view: StopView, threshold: Float[Tensor, " batch"]) -> Bool[Tensor, " batch"]:
        return (view.stop_value >= view.continue_value) & (view.time >= self.minimum_time)
