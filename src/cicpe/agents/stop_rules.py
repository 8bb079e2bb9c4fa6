"""Stop rules: when an agent has seen enough.

A rule is a value in ``STOP_RULES``: it says which thresholds there are, from the safest down, and which episodes end
at one of them. Calibration chooses the threshold, but for a rule whose threshold training itself has found.
Calibration, deployment, certificates and the command line know rules by their names only, so a new one is written here
and added to the registry.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, final, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int, Real
from torch import Tensor

from cicpe.beliefs.base import EDGE, StopView
from cicpe.errors import InvalidInput
from cicpe.statistics import log_grid

Threshold = Callable[[Float[Tensor, "batch context"]], Float[Tensor, " batch"]]
"""A calibrated threshold for each episode's context."""
N_COSTS = 9
"""How many costs a rule that values queries is tried at."""
REFERENCE_TIME = 9
"""Queries after which a threshold that falls with their number is what it says."""


@runtime_checkable
class RecordedEpisodes(Protocol):
    """Episodes that were played past every stop; ``cicpe.episodes.table.EpisodeTable`` is one."""

    @property
    def confidence(self) -> Float[Tensor, "epsilon episode prefix"]:
        """At every prefix."""

    @property
    def stops(self) -> Mapping[str, Bool[Tensor, "epsilon threshold episode prefix"]]:
        """Where rules that value queries would stop, by their names."""

    def view(self, epsilon: int) -> StopView:
        """What a rule that does not value queries sees at every prefix."""


class StopRule(ABC):
    """Ends episodes by what is believed of them, at a threshold that calibration chooses."""

    name: str
    uses_cost: bool = False
    """Whether a threshold is the cost of a query, at which the belief has to value going on."""
    for_each: bool = False
    """Whether every episode that stops is to be as sure as is promised, and not their average alone."""
    calibrated: bool = True
    """Whether calibration chooses its threshold; else it is the cost that a model was trained at."""

    @abstractmethod
    def thresholds(self, costs: tuple[float, float] | None) -> Float[Tensor, " threshold"]:
        """The thresholds to choose from, from the safest down.

        Args:
            costs: The range of costs that the belief knows; None where it does not value queries.

        Returns:
            A vector of thresholds; calibration tries them in this order.
        """

    @abstractmethod
    def would_stop(self, view: StopView, threshold: Tensor) -> Bool[Tensor, "*batch"]:
        """Which episodes end now.

        Args:
            view: What is believed of each episode.
            threshold: One for all episodes, or one per episode.

        Returns:
            True for each episode that ends.
        """

    @abstractmethod
    def safer(self, thresholds: Float[Tensor, "batch corner"]) -> Float[Tensor, " batch"]:
        """The safest of several thresholds, for each episode.

        Args:
            thresholds: Those of the neighbouring points of the calibration's grid: batch x corner.

        Returns:
            One threshold per episode.
        """

    def falling(self, fall: float) -> "StopRule":
        """The same rule with a confidence that falls with the number of queries, where it asks for one on average.

        Args:
            fall: By how much, in log-odds, where there were e times as many queries.

        Returns:
            Another rule; this one where it asks for something else.
        """
        return self

    def asked(self, threshold: Float[Tensor, "*batch"], time: Real[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """What a threshold asks for after so many queries; always the same, unless the rule says otherwise.

        Args:
            threshold: As calibration chose it.
            time: Queries so far.

        Returns:
            One number per threshold.
        """
        return threshold

    def stop_times(
        self, table: RecordedEpisodes, epsilon: int, thresholds: Float[Tensor, " threshold"]
    ) -> list[Int[Tensor, " episode"]]:
        """When each recorded episode would have stopped, for every threshold; at its last prefix where never.

        Args:
            table: Episodes that were played past every stop.
            epsilon: Which of the table's epsilons, by its position.
            thresholds: As ``thresholds`` gives them.

        Returns:
            Per threshold, the number of observations after which each episode stops.
        """
        if self.uses_cost:
            return [first_true(table.stops[self.name][epsilon, k]) for k in range(len(thresholds))]
        return [first_true(self.would_stop(table.view(epsilon), threshold)) for threshold in thresholds]


@dataclass(frozen=True)
class ConfidenceRule(StopRule):
    """Stop once the predicted probability of success is as high as is asked; the promise is kept on average.

    An average is kept with the fewest queries where the next query is worth the same in every episode that stops. A
    posterior narrows as 1 / sqrt(n), so that the n-th query adds in proportion to 1 / n: an episode that has had many
    is a task that teaches slowly, and what it would still gain is dear. So what is asked falls with the number of
    queries n, in log-odds: that of the threshold, less ``fall`` * log((1 + n) / (1 + ``REFERENCE_TIME``)).
    """

    name: str = "confidence"
    fall: float = 0.0

    def falling(self, fall: float) -> "StopRule":
        return self if self.for_each else replace(self, fall=fall)

    def thresholds(self, costs: tuple[float, float] | None) -> Float[Tensor, " threshold"]:
        safest = 8.0 if self.fall == 0 else 10.5
        return torch.sigmoid(torch.linspace(safest, -1.0, round((safest + 1.0) / 0.025) + 1))

    def asked(self, threshold: Float[Tensor, "*batch"], time: Real[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        if self.fall == 0:
            return threshold
        return torch.sigmoid(torch.logit(threshold, eps=EDGE) - self.fall * self._growth(time))

    def would_stop(self, view: StopView, threshold: Tensor) -> Bool[Tensor, "*batch"]:
        if self.fall == 0:
            return view.confidence >= threshold
        return self._score(view.confidence, view.time) >= torch.logit(threshold, eps=EDGE)

    def safer(self, thresholds: Float[Tensor, "batch corner"]) -> Float[Tensor, " batch"]:
        return thresholds.amax(dim=-1)

    def stop_times(
        self, table: RecordedEpisodes, epsilon: int, thresholds: Float[Tensor, " threshold"]
    ) -> list[Int[Tensor, " episode"]]:
        if self.fall == 0:
            return first_passages(table.confidence[epsilon], thresholds)
        view = table.view(epsilon)
        return first_passages(self._score(view.confidence, view.time), torch.logit(thresholds, eps=EDGE))

    def _score(self, confidence: Float[Tensor, "*batch"], time: Real[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """What is compared with the log-odds of the threshold."""
        return torch.logit(confidence, eps=EDGE) + self.fall * self._growth(time)

    @staticmethod
    def _growth(time: Real[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """The logarithm of how many times as many queries there were as at the reference."""
        return torch.log1p(time.float()) - math.log1p(REFERENCE_TIME)


@final
@dataclass(frozen=True)
class EachRule(ConfidenceRule):
    """Stop only where this episode's own calibrated confidence is at least 1 - delta.

    The confidence rule keeps its promise on average over episodes: some may stop at 0.3 because others stop at 0.99.
    """

    name: str = "each"
    for_each: bool = True


@final
@dataclass(frozen=True)
class BellmanRule(StopRule):
    """Stop once Q(h, stop) >= Q(h, a), both by the twin minimum, at the cost that is the threshold.

    At a high cost the Bellman optimum is to give up at once; the minimum time keeps that from happening before the
    history can say anything.
    """

    name: str = "bellman"
    uses_cost: bool = True
    calibrated: bool = True

    def thresholds(self, costs: tuple[float, float] | None) -> Float[Tensor, " threshold"]:
        if costs is None:
            raise InvalidInput("stop", self.name, "a rule that this belief supports: it does not value queries")
        return torch.tensor(log_grid(*costs, N_COSTS))

    def would_stop(self, view: StopView, threshold: Tensor) -> Bool[Tensor, "*batch"]:
        return (view.stop_value >= view.continue_value) & (view.time >= view.minimum_time)

    def safer(self, thresholds: Float[Tensor, "batch corner"]) -> Float[Tensor, " batch"]:
        return thresholds.amin(dim=-1)


STOP_RULES: dict[str, StopRule] = {
    rule.name: rule
    for rule in (
        ConfidenceRule(),
        EachRule(),
        BellmanRule(),
        BellmanRule("shaped"),
        BellmanRule("own", calibrated=False),
    )
}
"""By name. ``shaped`` is the Bellman rule of a critic that values a query by what it gains over stopping now; ``own``
is the Bellman rule at the cost that training ended with, as the paper deploys it."""


ALIASES = {"average": "confidence"}
"""Other names of rules."""


def stop_rule(name: str) -> StopRule:
    """The rule of that name, refused where there is none."""
    name = ALIASES.get(name, name)
    if name not in STOP_RULES:
        raise InvalidInput("stop", name, f"one of {', '.join(STOP_RULES)}")
    return STOP_RULES[name]


def rules_for(cost_rule: str | None) -> list[StopRule]:
    """The rules that a belief is calibrated for: all that do not value queries, and the one for which it values them.

    Args:
        cost_rule: The belief's ``cost_rule``.

    Returns:
        The rules, in the order of the registry.
    """
    calibrated = [rule for rule in STOP_RULES.values() if rule.calibrated]
    return [rule for rule in calibrated if not rule.uses_cost or rule.name == cost_rule]


def first_true(hit: Bool[Tensor, "episode prefix"]) -> Int[Tensor, " episode"]:
    """The first prefix at which a row is true; the last prefix where none is."""
    return torch.where(hit.any(dim=1), hit.int().argmax(dim=1), hit.shape[1] - 1)


def first_passages(
    score: Float[Tensor, "episode prefix"], thresholds: Float[Tensor, " threshold"]
) -> list[Int[Tensor, " episode"]]:
    """For every threshold, the first prefix at which a row reaches it; the last prefix where none does."""
    # The running maximum makes one binary search do for each episode.
    highest = score.cummax(dim=1).values.contiguous()
    first = torch.searchsorted(highest, thresholds.expand(len(score), -1).contiguous())
    return list(first.clamp_max(score.shape[1] - 1).T)
