"""The paper's rules that read a posterior and nothing else: Thompson sampling, top-two sampling, and uniform queries.

Any belief that can draw answers can be asked by them. Nothing is fitted for them; how long their episodes last, and so
the thresholds, is their own (``cicpe.with_actor``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.beliefs.base import Assessment, Belief, Sampling
from cicpe.beliefs.predictors import ObservationPredictor, Prediction
from cicpe.errors import InvalidInput
from cicpe.spaces import Space

DRAWS = 64
"""Answers that are drawn for a query: their mean stands for the posterior's, and some of them are taken."""


def check_rule(rule: Sampling, query_space: Space, answer_space: Space) -> None:
    """Refuses to query plausible answers where queries are something else."""
    if rule != "uniform" and query_space != answer_space:
        why = "ts and ttps query plausible answers, so both spaces must be one"
        raise InvalidInput("actor", rule, f"uniform, or left out: {why}")


def top_two(
    first: Float[Tensor, "batch answer"],
    challenger: Float[Tensor, "batch answer"],
    typical: Float[Tensor, "batch answer"],
    mean: Float[Tensor, "batch answer"],
    space: Space,
    rng: Generator,
) -> Float[Tensor, "batch answer"]:
    """Top-two posterior sampling: half of the time, a challenger of a draw that lies too close to the mean.

    The challenger is taken where it lies farther from the mean. The paper does not say what too close is; here, closer
    than another draw, which needs no scale. The distance is the answer space's own: Euclidean in a box, one minus the
    cosine on the sphere.

    Args:
        first: A draw of the answer per episode.
        challenger: Another.
        typical: A third, whose distance from the mean is the usual one.
        mean: Of the posterior.
        space: Of queries, which is that of answers.
        rng: Decides who is challenged.

    Returns:
        One of the first two per episode.
    """
    near, far, usual = (space.distance(draw, mean) for draw in (first, challenger, typical))
    challenged = (torch.rand(len(first), generator=rng) < 0.5) & (near < usual)
    return torch.where((challenged & (far > near))[:, None], challenger, first)


@final
@dataclass(frozen=True)
class SampledQueries(Belief):
    """Another belief, asked by one of these rules: all that it believes is its own, and the queries are not."""

    belief: Belief
    rule: Sampling

    def __post_init__(self) -> None:
        check_rule(self.rule, self.query_space, self.answer_space)

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

    def with_horizon(self, horizon: int) -> "SampledQueries":
        return replace(self, belief=self.belief.with_horizon(horizon))

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
        assessment = self.belief.assess(state, epsilons, rng, query_spread, costs)
        return assessment._replace(query=self._query(state, len(assessment.query), rng)[:, None])

    def _query(self, state: Any, batch: int, rng: Generator) -> Float[Tensor, "batch query"]:
        if self.rule == "uniform":
            return self.query_space.sample(batch, rng)
        drawn_BNX = self.belief.sample_answers(state, DRAWS, rng)
        # Draws may come in an order, so which of them is taken is left to chance, in each episode.
        chosen_B3 = torch.rand((batch, DRAWS), generator=rng).topk(3, dim=1).indices
        first, challenger, typical = drawn_BNX.gather(
            1, chosen_B3[..., None].expand(-1, -1, drawn_BNX.shape[-1])
        ).unbind(1)
        if self.rule == "ttps":
            mean = self.answer_space.project(drawn_BNX.mean(dim=1))
            first = top_two(first, challenger, typical, mean, self.query_space, rng)
        return self.query_space.project(first)

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
