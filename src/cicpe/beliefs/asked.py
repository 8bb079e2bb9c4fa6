"""A belief that is asked by another rule than its own: all that it believes stays, and its queries are replaced."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.beliefs.base import Assessment, Belief
from cicpe.beliefs.predictors import ObservationPredictor, Prediction
from cicpe.spaces import Space


@dataclass(frozen=True)
class AskedBelief(Belief):
    """Another belief, asked by a rule of this class's subclasses."""

    belief: Belief

    @abstractmethod
    def _query(
        self, state: Any, assessment: Assessment, rng: Generator, query_spread: float
    ) -> Float[Tensor, "batch query"]:
        """The next query of every episode, by what the belief makes of it at ``_epsilons``."""

    @property
    def _epsilons(self) -> tuple[float, ...]:
        """Epsilons at which the rule wants to know what the belief makes of its histories."""
        return ()

    @property
    def horizon(self) -> int:  # type: ignore[override]
        return self.belief.horizon

    @property
    def most_at_once(self) -> int:  # type: ignore[override]
        return self.belief.most_at_once

    @property
    def seeks_largest(self) -> bool:  # type: ignore[override]
        return self.belief.seeks_largest

    @property
    def judges_gaps(self) -> bool:
        return self.belief.judges_gaps

    @property
    def query_space(self) -> Space:
        return self.belief.query_space

    @property
    def answer_space(self) -> Space:
        return self.belief.answer_space

    def with_horizon(self, horizon: int) -> "AskedBelief":
        return replace(self, belief=self.belief.with_horizon(horizon))

    def prepare(self) -> None:
        self.belief.prepare()

    def forget(self) -> None:
        self.belief.forget()

    def begin(self, context: Float[Tensor, "batch context"]) -> Any:
        return self.belief.begin(context)

    def update(
        self, state: Any, query: Float[Tensor, "batch query"], observation: Float[Tensor, "batch observation"]
    ) -> Any:
        return self.belief.update(state, query, observation)

    def assess(
        self,
        state: Any,
        epsilons: Sequence[float],
        rng: Generator,
        query_spread: float = 0.0,
        costs: Sequence[Float[Tensor, " batch"]] = (),
    ) -> Assessment:
        own = self._epsilons
        whole = self.belief.assess(state, (*own, *epsilons), rng, query_spread, costs)
        query = self._query(state, whole, rng, query_spread)
        n = len(own)
        return whole._replace(
            query=query[:, None],
            recommendation=whole.recommendation[n:],
            confidence=whole.confidence[n:],
            stop_value=whole.stop_value[n:],
            continue_value=whole.continue_value[n:],
        )

    def sample_answers(self, state: Any, n: int, rng: Generator) -> Float[Tensor, "batch draw answer"]:
        return self.belief.sample_answers(state, n, rng)

    def quantiles(self, state: Any, levels: Sequence[float], rng: Generator) -> Float[Tensor, "batch answer level"]:
        return self.belief.quantiles(state, levels, rng)

    def tensors(self) -> Mapping[str, Tensor]:
        return self.belief.tensors()

    def predict(self, state: Any, query: Float[Tensor, "batch query"]) -> Prediction:
        return self.belief.predict(state, query)

    def predictor(self, head: Any = None) -> ObservationPredictor:
        return self.belief.predictor(head)

    def prediction_head(self) -> Any:
        return self.belief.prediction_head()
