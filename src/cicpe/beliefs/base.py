"""What a belief is: everything of an agent that does not depend on epsilon and delta.

A belief turns histories into queries, recommendations and confidences, for any epsilon. Its queries do not depend on
epsilon: one recorded episode therefore says what would have happened at all of them, and one calibration serves all.
With a stop rule it is an agent (``cicpe.agents.belief_agent``).

A ``BeliefConfig`` owns all else that depends on the kind: how a belief is fitted, built again from a saved model,
calibrated and described. ``cicpe.beliefs.registry`` finds it by its ``kind``.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, cast, final, get_args, runtime_checkable

import torch
from jaxtyping import Float, Int
from pydantic import Field, field_validator
from torch import Generator, Tensor

from cicpe.beliefs.budget import CALIBRATION_SHARE, Budget
from cicpe.beliefs.predictors import ObservationPredictor, OwnPredictor, Prediction
from cicpe.config import Config, check_range
from cicpe.errors import InvalidInput
from cicpe.plates import LearnsFromPlates
from cicpe.problems import Problem
from cicpe.spaces import Space

EDGE = 1e-6
"""Confidences are kept this far from 0 and 1 where their log-odds are taken."""
Sampling = Literal["ts", "ttps", "uniform"]
"""The paper's rules that read a posterior alone: a plausible answer, a challenger of it, anywhere."""
INTERVAL_DRAWS = 2000
"""Draws of the target whose quantiles are the ends of an interval."""


class StopView(NamedTuple):
    """What a stop rule may look at, for every episode."""

    time: Tensor
    minimum_time: int
    """Queries before a rule that values queries may stop."""
    confidence: Float[Tensor, "*batch"]
    std: Float[Tensor, "*batch answer"]
    stop_value: Float[Tensor, "*batch"]
    continue_value: Float[Tensor, "*batch"]


class Assessment(NamedTuple):
    """What a belief makes of its histories, for E epsilons and C costs of a query."""

    time: Int[Tensor, " batch"]
    query: Float[Tensor, "batch q query"]
    """The next plate."""
    recommendation: Float[Tensor, "epsilon batch answer"]
    confidence: Float[Tensor, "epsilon batch"]
    """Probability that the recommendation is within epsilon."""
    stop_value: Float[Tensor, "epsilon batch"]
    """The same as the Bellman rule takes it."""
    continue_value: Float[Tensor, "epsilon cost batch"]
    """The value of making the query."""
    std: Float[Tensor, "batch answer"]
    """Standard deviation of each coordinate of the target."""

    def view(self, epsilon: int, cost: int | None = None, minimum_time: int = 0) -> StopView:
        """What a stop rule sees at one epsilon (and cost), by their positions.

        Args:
            epsilon: Position of the epsilon.
            cost: Position of the cost of a query; None for a rule that does not value queries.
            minimum_time: Queries before a rule that values queries may stop.

        Returns:
            What the rule may look at, for every episode.
        """
        going = torch.zeros_like(self.confidence[0]) if cost is None else self.continue_value[epsilon, cost]
        return StopView(self.time, minimum_time, self.confidence[epsilon], self.std, self.stop_value[epsilon], going)


def without_caches(owner: object) -> dict[str, Any]:
    """The attributes of an object without those that are cached properties, which are made anew where they are used."""
    kept = {name for name in vars(owner) if not isinstance(getattr(type(owner), name, None), cached_property)}
    return {name: vars(owner)[name] for name in kept}


class Belief(LearnsFromPlates):
    """The part of an agent that does not depend on epsilon and delta."""

    horizon: int
    """The most queries of an episode."""
    most_at_once: int = 4096
    """Episodes that are to be played together at most: their states have to fit in memory."""
    seeks_largest: bool = False
    """Whether the target is the largest value of what is observed, or its place."""

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: not what is cached, which may hold functions that cannot be pickled."""
        return without_caches(self)

    @property
    @abstractmethod
    def query_space(self) -> Space:
        """Where queries lie."""

    @property
    @abstractmethod
    def answer_space(self) -> Space:
        """Where recommendations lie."""

    @property
    def cost_rule(self) -> str | None:
        """The name of the stop rule for which the belief values queries; None where it does not value them."""
        return None

    @property
    def judges_gaps(self) -> bool:
        """Whether epsilon is how far the value at the answer may be below the largest, and not a distance."""
        return False

    def random_queries(self, n: int, rng: Generator) -> Float[Tensor, "n query"]:
        """Queries that do not look at the histories, for episodes that stray from what the belief would ask.

        Args:
            n: How many.
            rng: Draws them.

        Returns:
            Queries all over the space: uniform ones, or some of those that a belief has prepared for.
        """
        return self.query_space.sample(n, rng)

    def prepare(self) -> None:
        """Computes what many episodes will need, where there is such a thing, before anybody times them."""

    def forget(self) -> None:
        """Lets go of what ``prepare`` computed: it takes memory, and is computed again when it is needed."""

    def refuse_costs(self, costs: Sequence[Tensor]) -> None:
        """Refuses costs, in beliefs that do not value queries.

        Args:
            costs: What ``assess`` was given; anything but an empty sequence is refused.
        """
        if costs:
            raise InvalidInput("costs", len(costs), f"left out: {type(self).__name__} does not value queries")

    @abstractmethod
    def begin(self, context: Float[Tensor, "batch context"]) -> Any:
        """The state of a batch of episodes before their first query.

        Args:
            context: What is known of each task beforehand, such as its noise level: batch x context.

        Returns:
            Whatever the belief needs to know of the histories; only it looks inside.
        """

    @abstractmethod
    def assess(
        self,
        state: Any,
        epsilons: Sequence[float],
        rng: Generator,
        query_spread: float = 0.0,
        costs: Sequence[Float[Tensor, " batch"]] = (),
    ) -> Assessment:
        """The next query, and for each epsilon what to recommend.

        Args:
            state: Histories.
            epsilons: How close is close enough.
            rng: Draws what is random of the query.
            query_spread: Spread of the queries, where the kind of belief has one.
            costs: Costs at which going on is to be valued; refused by beliefs that do not value queries.

        Returns:
            Queries, recommendations and confidences, for every epsilon and episode.
        """

    @abstractmethod
    def sample_answers(self, state: Any, n: int, rng: Generator) -> Float[Tensor, "batch draw answer"]:
        """Draws of the target from the posterior of each history.

        Args:
            state: Histories.
            n: Draws per history.
            rng: Draws them.

        Returns:
            Possible targets, batch x draw x answer.
        """

    def quantiles(self, state: Any, levels: Sequence[float], rng: Generator) -> Float[Tensor, "batch answer level"]:
        """Quantiles of each coordinate of the target, of draws from the posterior.

        Args:
            state: Histories.
            levels: Probabilities between 0 and 1.
            rng: Draws.

        Returns:
            One row per coordinate, with a value per level.
        """
        return quantiles_of(self.sample_answers(state, INTERVAL_DRAWS, rng), levels)

    def with_horizon(self, horizon: int) -> "Belief":
        """The same belief with another horizon.

        Args:
            horizon: The most queries of an episode.

        Returns:
            A copy; what was learned is shared.
        """
        return cast(Belief, replace(cast(Any, self), horizon=horizon))  # beliefs are frozen dataclasses

    @abstractmethod
    def tensors(self) -> Mapping[str, Tensor]:
        """Everything that was learned.

        Returns:
            Tensors by name, as ``weights.safetensors`` keeps them.
        """

    def predict(self, state: Any, query: Float[Tensor, "batch query"]) -> Prediction:
        """What the next observation will be, for beliefs that say so of themselves.

        Args:
            state: Histories.
            query: One query per history: batch x query.

        Returns:
            The distribution of the observation at each query.
        """
        raise NotImplementedError(f"{type(self).__name__} predicts by a head that the alarm fits")

    def predictor(self, head: Any = None) -> ObservationPredictor:
        """What the alarm compares observations with.

        Args:
            head: The fitted head that ``prediction_head`` asked for; None where the belief predicts by itself.

        Returns:
            Predicts the next observation from a state of this belief.
        """
        return OwnPredictor(self)

    def prediction_head(self) -> Any:
        """The head that the alarm has to fit before the belief can predict.

        Returns:
            The configuration of that head; None where the belief predicts by itself.
        """
        return None


def quantiles_of(
    draws: Float[Tensor, "batch draw answer"], levels: Sequence[float]
) -> Float[Tensor, "batch answer level"]:
    """Quantiles of each coordinate of some draws.

    Args:
        draws: Of one history each row.
        levels: Probabilities between 0 and 1.

    Returns:
        One row per coordinate, with a value per level.
    """
    at = torch.tensor(levels, dtype=torch.float64)
    return draws.double().quantile(at, dim=1).permute(1, 2, 0).float()


class TaskShape(NamedTuple):
    """What a saved model knows of its problem: enough to build its belief again."""

    query_space: Space
    answer_space: Space
    observation_dim: int
    context_names: tuple[str, ...]
    make_problem: Callable[[], Problem]
    """Makes the problem, for the kinds of belief that simulate; others never call it."""


class CalibrationPlan(NamedTuple):
    """How a belief is calibrated: what an episode of it takes decides how many can be played."""

    max_episodes: int = 32768
    """The most held-out episodes."""
    min_share: float = 1 / 32
    """Share of the episodes that is played whatever the limit in seconds."""
    n_epsilons: int = 9
    """How many epsilons thresholds are chosen for."""
    n_context_knots: int = 5
    """At how many values of each context."""
    chunk: int = 2048
    """Episodes that are played together."""
    query_spreads: tuple[float, ...] = (0.0,)
    """Spreads of queries to choose from."""
    costs: tuple[float, float] | None = None
    """The range of costs that the belief knows; None where it does not value queries."""
    minimum_time: int = 1
    """Queries before a rule that values queries may stop."""
    shortens: bool = False
    """Whether the horizon may be cut to what is needed where the time is short."""
    lengthens: bool = False
    """Whether more queries than in training may be made where those are not enough and more raise the accuracy."""
    fall: float = 0.0
    """By how much the confidence that an episode is asked for on average falls with the number of its queries: in
    log-odds, where there were e times as many."""
    hasty: float | None = None
    """Confidence at which an episode is not played on where the time is short; None to play on to certainty."""
    alarm_episodes: int = 4096
    """Episodes of the prior by which an alarm knows what is odd."""
    alarm_ranked: int = 999
    """Episodes of the prior, per context knot, among which an alarm ranks a history."""
    alarm_knots: int = 5
    """Values of each context at which an alarm is ranked."""
    verify_episodes: int = 400
    """Episodes by which ``cicpe zoo verify`` judges a model."""


FALL = 0.75
"""The same where the posterior is computed (decision 0016)."""
COMPUTED_PLAN = CalibrationPlan(
    n_epsilons=5, fall=FALL, alarm_episodes=256, alarm_ranked=199, alarm_knots=1, verify_episodes=60
)
"""Where the posterior is computed, an episode takes a good part of a second and not a millisecond: fewer of them."""


@runtime_checkable
class FitCallback(Protocol):
    """Follows a fit: the choices made, each iteration and snapshot of training, and how far a stage is."""

    def on_iteration(self, trainer: Any) -> None:
        """After every iteration of a training loop."""

    def on_snapshot(self, snapshot: Any) -> None:
        """When a training loop has measured itself."""

    def on_stage(self, stage: str, share: float) -> None:
        """What is being done, in words, and from 0 to 1 how far that is."""


@final
@dataclass(frozen=True)
class FitRequest:
    """All that a fit is asked for, beside its configuration."""

    problem: Problem
    budget: Budget
    seed: int
    callback: FitCallback
    folder: Path | None = None
    """Where a checkpoint and a log go; None writes nothing."""
    resume: bool = False
    """Go on from the checkpoint in the folder, if there is one."""
    checkpoint_seconds: float = 20.0
    identity: Mapping[str, Any] = field(default_factory=dict)
    """Which run this is: a checkpoint of another is refused."""
    on_start: Callable[[float], None] = lambda progress: None
    """Told how far the fit is when it begins: above 0 where it was resumed."""
    on_checkpoint: Callable[[float, Callable[[], "FittedBelief"]], None] = lambda progress, freeze: None
    """Told how far the fit is after every iteration, with a way to freeze its present state."""
    pause: float | None = None
    """Seconds after which a training loop returns what there is, to be gone on with."""


class OwnStop(NamedTuple):
    """What a belief that has learned its own stop rule stops by."""

    cost: float
    """Of a query: what training ended with, and the one that the belief's values are about."""
    delta: float
    """How often an answer may be wrong: what training found the cost for."""


class FittedBelief(NamedTuple):
    """What a fit gives."""

    belief: Belief
    config: "BeliefConfig"
    """The configuration, with what the fit itself found out."""
    updates: int
    seconds: float
    longer: "Callable[[Budget], FittedBelief] | None" = None
    """Goes on with the fit for a further budget, where its kind can; calibration is paid from that budget too."""
    variants: "Callable[[], Sequence[FittedBelief]]" = tuple
    """Makes the same with other query rules, where its kind has some that are worth comparing."""
    alternatives: "Callable[[], Sequence[FittedBelief]]" = tuple
    """Makes the same with another search for the posterior: for a belief that is not right as often as it says."""


class BeliefConfig(Config, ABC):
    """Everything that depends on the kind of a belief, beside the belief itself."""

    kind: str
    epsilon: tuple[float, float] = (0.1, 0.2)
    """Range of epsilon that the model is fitted and calibrated for."""
    horizon: int = Field(default=40, ge=1, le=10**6)
    """The most queries of an episode; at the start, where it adapts."""

    @field_validator("epsilon")
    @classmethod
    def _epsilon_range(cls, values: tuple[float, float]) -> tuple[float, float]:
        check_range("epsilon", values)
        return values

    @property
    def has_checkpoints(self) -> bool:
        """Whether the fit can be looked at, saved and certified while it goes on."""
        return False

    @property
    def own_stop(self) -> OwnStop | None:
        """What the belief stops by without a calibration; None where training finds no such rule."""
        return None

    @property
    def fit_share(self) -> float:
        """Share of a budget in minutes that the fit takes; the rest is for calibration."""
        return 1 - CALIBRATION_SHARE

    def with_actor(self, actor: str) -> "BeliefConfig":
        """The same with queries that are chosen by one of the paper's rules.

        Args:
            actor: Its name.

        Returns:
            The configuration; a kind that chooses its own queries refuses.
        """
        raise InvalidInput("actor", actor, f"left out with the recipe {self.kind}: it chooses its own queries")

    def renewed(self) -> "BeliefConfig":
        """The same with what a fit of this version would find out and needs no learning, for thresholds chosen anew.

        Returns:
            The configuration; as it is, where earlier versions found out the same.
        """
        return self

    @property
    @abstractmethod
    def query_rule(self) -> str:
        """How queries are chosen, by name."""

    @property
    def search(self) -> str:
        """How the posterior is found, in a word, where the kind has several ways; else nothing."""
        return ""

    @property
    @abstractmethod
    def calibration(self) -> CalibrationPlan:
        """How the belief is calibrated."""

    @abstractmethod
    def fit(self, request: FitRequest) -> FittedBelief:
        """Fits the belief to simulations, within the budget.

        Args:
            request: The problem, the budget, the seed, and who follows the fit.

        Returns:
            The belief, its configuration with what the fit found out, and what the fit took.
        """

    @abstractmethod
    def build(self, shape: TaskShape, horizon: int) -> tuple[Belief, torch.nn.Module]:
        """The belief of a saved model, before its weights are read.

        Args:
            shape: What the saved model knows of its problem.
            horizon: The most queries of an episode.

        Returns:
            The belief, and the module into which the weights have yet to be put.
        """

    @abstractmethod
    def describe(self) -> str:
        """The belief in a few words, for a model's card.

        Returns:
            Half a sentence.
        """

    @classmethod
    def default_for(cls, problem: Problem) -> "BeliefConfig":
        """The configuration that suits a problem, where nothing else is said.

        Args:
            problem: The family to fit; refused where this kind of belief does not apply to it.

        Returns:
            A configuration of this kind.
        """
        return cls.model_validate({"horizon": min(problem.horizon, cls.model_fields["horizon"].default)})

    @classmethod
    def migrate(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Fields as this version has them, from a configuration that an earlier one saved.

        Args:
            data: The fields as they were saved.

        Returns:
            The fields to validate; the same ones where nothing has changed.
        """
        return data


class ComputedBeliefConfig(BeliefConfig, ABC):
    """A kind that computes its posterior from draws, on which it also chooses its queries."""

    @property
    def fit_share(self) -> float:
        return 0.25

    actor: str
    """The kind's own rule for queries, by the kind's name; or one of the paper's (``cicpe.beliefs.sampled``)."""

    @property
    def query_rule(self) -> str:
        return self.actor

    def with_actor(self, actor: str) -> "ComputedBeliefConfig":
        if actor not in self.other_actors:
            allowed = f"one of {', '.join(self.other_actors)} with the recipe {self.kind}, or left out"
            raise InvalidInput("actor", actor, allowed)
        return self.model_copy(update={"actor": actor})

    @property
    def other_actors(self) -> tuple[str, ...]:
        """The paper's rules that can ask this kind of belief."""
        return get_args(Sampling)

    @property
    def aim(self) -> float:
        """The epsilon that queries are chosen for: the middle of the range, so that one calibration holds."""
        return math.sqrt(math.prod(self.epsilon))
