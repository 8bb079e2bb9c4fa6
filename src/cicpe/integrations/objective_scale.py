"""How an objective's values become the observations that a model was trained on.

A model knows one kind of observation: for ``gp-max-1d``, values of functions that lie between about -2 and 2. An
objective has its own unit and its own direction. The map between the two is affine and is fixed by two pairs of
numbers: the values between which the objective lies over its whole search space, and those between which a typical
task of the model lies. The better end of the one is the better end of the other, so a minimised objective is turned
over.
"""

import math
from dataclasses import dataclass
from typing import Literal, final

import torch

from cicpe.baselines.base import orientation
from cicpe.beliefs.base import Belief
from cicpe.errors import InvalidInput
from cicpe.model.model import Model
from cicpe.problems import Problem, TaskBatch
from cicpe.problems.registry import FAMILIES
from cicpe.sessions.campaign import SessionModel
from cicpe.units import Readout

TASKS, QUERIES = 128, 256
"""Size of the pilot that measures between which values a typical task lies: tasks, and random queries per task."""
PREDICTED = 512
"""Random queries whose prior predictions say the same for a belief over functions."""
SLACK = 0.5
"""How far beyond its stated range a value may lie, as a share of the width of that range."""

ValueRange = tuple[float, float] | Literal["as-trained"]
HOW_TO_SAY = (
    "(low, high), the values between which your objective lies over the whole search space, or 'as-trained' where its "
    "values are already of the kind that the model was trained on"
)


@final
@dataclass(frozen=True)
class Observations:
    """What the observations of a model's tasks are.

    Args:
        low: About the smallest value within a typical task.
        high: About the largest one.
        best: Which end the model looks for; None where its observations are no merits (answers of yes or no, say), so
            that no direction of a study makes sense of them.
    """

    low: float
    high: float
    best: Literal["high", "low"] | None = "high"

    def __post_init__(self) -> None:
        _check_range("observations", (self.low, self.high))
        if self.best not in ("high", "low", None):
            raise InvalidInput("best", self.best, "'high', 'low' or None")

    @classmethod
    def measured(cls, problem: Problem, seed: int = 0) -> "Observations":
        """Looks at a few tasks of a problem: the mean over tasks of the smallest and of the largest observation.

        Args:
            problem: The family.
            seed: Seeds its tasks.

        Returns:
            What was found.
        """
        rng = torch.Generator().manual_seed(seed)
        tasks = TaskBatch.draw(problem, TASKS, rng)
        many = tasks.select(torch.arange(TASKS).repeat_interleave(QUERIES))
        value = many.observe(problem.query_space.sample(len(many), rng), rng)[:, 0].view(TASKS, QUERIES)
        if problem.query_space == problem.answer_space:  # random queries may all miss a narrow peak
            value = torch.cat([value, tasks.observe(tasks.target, rng)[:, :1]], dim=1)
        sign = orientation(problem)
        best: Literal["high", "low"] | None = None if sign is None else ("high" if sign > 0 else "low")
        return cls(float(value.amin(dim=1).mean()), float(value.amax(dim=1).mean()), best)

    @classmethod
    def of(cls, model: SessionModel) -> "Observations":
        """What can be said of a model without running code that does not belong to this library.

        Args:
            model: A model of a family of this library.

        Returns:
            What is known.
        """
        if isinstance(model, Model):
            if model.description.units.readout is not None:
                return cls._in_units(model.description.units.readout)
            if model.belief.seeks_largest:
                return cls._predicted(model.belief, model.description.default_context or model.description.context_high)
            if model.description.problem in FAMILIES:
                return cls.measured(model.problem)
        name = model.description.problem if isinstance(model, Model) else type(model).__name__
        raise InvalidInput(
            "observations",
            None,
            f"Observations.measured(problem) or Observations(low, high): the family {name} is not of this library",
        )

    @classmethod
    def _in_units(cls, readout: Readout) -> "Observations":
        """Of an experiment: what is typical, in its unit. A peak is the highest value, a trough the lowest."""
        if readout.kind != "number":
            return cls(readout.low, readout.high, None)
        low, high = (readout.origin + side * 2 * abs(readout.scale) for side in (-1, 1))
        return cls(low, high, "low" if readout.scale < 0 else "high")

    @classmethod
    def _predicted(cls, belief: Belief, context: tuple[float, ...]) -> "Observations":
        """Two standard deviations about the prior's mean; such a belief looks for the largest."""
        query = belief.query_space.sample(PREDICTED, torch.Generator().manual_seed(0))
        foreseen = belief.predict(belief.begin(torch.tensor([context]).expand(PREDICTED, -1)), query)
        middle, reach = float(foreseen.mean.mean()), 2 * float(foreseen.log_std.exp().mean())
        return cls(middle - reach, middle + reach, "high")


@final
@dataclass(frozen=True)
class ObjectiveScale:
    """The affine map between the values of one study's objective and a model's observations.

    Args:
        value_range: The values between which the objective lies, or ``as-trained``.
        observations: The model's own.
        minimise: Whether smaller values are better ones.
    """

    value_range: ValueRange
    observations: Observations
    minimise: bool

    @property
    def worst(self) -> float:
        """The bad end of the objective's values."""
        return self._ends[0]

    @property
    def best(self) -> float:
        """The good end of them."""
        return self._ends[1]

    @property
    def _ends(self) -> tuple[float, float]:
        if self.value_range != "as-trained":
            low, high = self.value_range
            return (high, low) if self.minimise else (low, high)
        worst, best = self._model_ends
        same_way = self.minimise == (self.observations.best == "low")
        return (worst, best) if same_way else (-worst, -best)

    @property
    def _model_ends(self) -> tuple[float, float]:
        low, high = self.observations.low, self.observations.high
        return (high, low) if self.observations.best == "low" else (low, high)

    def to_model(self, value: float) -> float:
        """An objective's value as the model observes it."""
        worst, best = self._model_ends
        return worst + (value - self.worst) / (self.best - self.worst) * (best - worst)

    def from_model(self, observation: float) -> float:
        """The inverse of ``to_model``."""
        worst, best = self._model_ends
        return self.worst + (observation - worst) / (best - worst) * (self.best - self.worst)

    def observe(self, field: str, value: float) -> tuple[float, bool]:
        """What the model observes, and whether the value was so bad that it was clipped to the bad end.

        A value that is much better than the range is refused: the range is wrong then, and an agent that takes it for
        the best that there can be would be sure of nonsense.
        """
        share = (value - self.worst) / (self.best - self.worst)
        if not share <= 1 + SLACK:
            low, high = sorted((self.worst, self.best))
            allowed = (
                f"at most {SLACK:.0%} of the range's width better than value_range, which says {low:g} to {high:g}: "
                "give the sampler a range that holds what the objective can return"
            )
            raise InvalidInput(field, value, allowed)
        clipped = share < -SLACK
        return self.to_model(self.worst if clipped else value), clipped


def units_per_value(value_range: ValueRange, observations: Observations) -> float:
    """How many of the model's units one unit of the objective is, whatever the direction."""
    if value_range == "as-trained":
        return 1.0
    low, high = value_range
    return (observations.high - observations.low) / (high - low)


def answers_with_a_height(model: SessionModel) -> bool:
    """Whether a model answers with a value of its observations, where they are merits, and not with a place."""
    if not isinstance(model, Model):
        return False
    belief = model.belief
    return belief.query_space != belief.answer_space and belief.answer_space.dim == 1


def epsilon_is_a_value(model: SessionModel) -> bool:
    """Whether a model's epsilon is a difference of observations: of heights, or of the value at a place from the best.

    Elsewhere it is a distance between places, in the model's own box.
    """
    if answers_with_a_height(model):
        return True
    return isinstance(model, Model) and model.belief.judges_gaps


def checked_range(value_range: object, observations: Observations) -> ValueRange:
    """A value range that can be used, or an error that says what to give."""
    if value_range is None:
        typical = f"about {observations.low:.2g} to {observations.high:.2g}"
        raise InvalidInput("value_range", None, f"{HOW_TO_SAY} ({typical})")
    if value_range == "as-trained":
        return "as-trained"
    if observations.best is None:
        raise InvalidInput("value_range", value_range, "'as-trained': the observations of this model are no merits")
    return _check_range("value_range", value_range)


def _check_range(field: str, value: object) -> tuple[float, float]:
    try:
        low, high = map(float, value)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        raise InvalidInput(field, value, HOW_TO_SAY) from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InvalidInput(field, value, "two finite numbers (low, high) with low < high")
    return low, high
