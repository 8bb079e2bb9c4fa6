"""The paper's rules that read a posterior and nothing else: Thompson sampling, top-two sampling, and uniform queries.

Any belief that can draw answers can be asked by them. Nothing is fitted for them; how long their episodes last, and so
the thresholds, is their own (``cicpe.with_actor``).
"""

from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.beliefs.asked import AskedBelief
from cicpe.beliefs.base import Assessment, Sampling
from cicpe.errors import InvalidInput
from cicpe.spaces import Space

DRAWS = 64
"""Answers that are drawn for a query: their mean stands for the posterior's, and some of them are taken."""


def check_rule(rule: str, query_space: Space, answer_space: Space) -> None:
    """Refuses to query plausible answers where queries are something else."""
    if rule != "uniform" and query_space != answer_space:
        why = f"{rule} queries plausible answers, so both spaces must be one"
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
class SampledQueries(AskedBelief):
    """Another belief, asked by one of these rules."""

    rule: Sampling

    def __post_init__(self) -> None:
        check_rule(self.rule, self.query_space, self.answer_space)

    def _query(
        self, state: Any, assessment: Assessment, rng: Generator, query_spread: float
    ) -> Float[Tensor, "batch query"]:
        batch = len(assessment.query)
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
