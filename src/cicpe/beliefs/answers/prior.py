"""What is known of the answer and of the nuisance before the first query, learned from simulated tasks.

A *place* is an answer in unit coordinates followed by the nuisance on its even scale. Places are functions of
*latent* coordinates that are standard normal under the prior: a Gaussian copula with the marginal quantiles of the
simulated tasks. Where simulated tasks show another dependence, a tilt says how much likelier a place is than under the
copula (``tilt.py``). Directions on a sphere are normalised latent vectors. Where the hidden numbers give the answer,
the latent coordinates are theirs alone, and the answer is the learned function of them.

Shapes: M draws, V coordinates of a place, L latent coordinates, X answer, D nuisance, S knots.
"""

import math
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from cicpe.beliefs.answers.answer_map import AnswerMap
from cicpe.beliefs.answers.tilt import Tilt
from cicpe.beliefs.copula import (
    KNOTS,
    REACH,
    correlated_scores,
    correlation_factor,
    normal_scores,
    quantile_knots,
    values_at_scores,
)
from cicpe.spaces import Space, Sphere

MOST_VALUES = 256
"""Targets with at most this many different values are a finite set of answers."""
CELLS = 64
"""Cells of the histogram of an answer on a line."""


class PriorSizes(NamedTuple):
    """How large the tables of a prior are."""

    draws: int
    answer: int
    nuisance: int
    gives_answer: bool = False
    """Whether the answer is a learned function of the nuisance."""
    values: int = 0
    """Answers that there are, where that function has a finite set of them."""
    scored: bool = True
    """Whether that function reads the numbers' normal scores, too."""
    tilted: bool = False
    """Whether the numbers depend on each other in another way than those of a Gaussian copula."""

    @property
    def latent(self) -> int:
        """How many latent coordinates there are."""
        return self.nuisance + (0 if self.gives_answer else self.answer)


@final
class Prior(nn.Module):
    """Draws of places, and the map from latent coordinates to places."""

    draws_MV: Tensor
    latent_MV: Tensor
    knots_VS: Tensor
    factor_VV: Tensor

    def __init__(self, sizes: PriorSizes, answer_space: Space) -> None:
        super().__init__()
        self.sizes = sizes
        self.sphere = isinstance(answer_space, Sphere) and not sizes.gives_answer
        m, v, latent = sizes.draws, sizes.answer + sizes.nuisance, sizes.latent
        self.register_buffer("draws_MV", torch.zeros(m, v))
        self.register_buffer("latent_MV", torch.zeros(m, latent))
        self.register_buffer("knots_VS", torch.zeros(latent, KNOTS))
        self.register_buffer("factor_VV", torch.eye(latent))
        self.answer_map = None
        if sizes.gives_answer:
            self.answer_map = AnswerMap(sizes.nuisance, answer_space, sizes.values, sizes.scored)
        self.tilt = Tilt(latent) if sizes.tilted else None

    @classmethod
    def learn(
        cls,
        places_MV: Tensor,
        answer_space: Space,
        rng: Generator,
        gives_answer: bool = False,
        seconds: float = math.inf,
        tilts: bool = False,
    ) -> "Prior":
        """The prior of simulated places.

        Args:
            places_MV: Their answers, followed by their nuisance.
            answer_space: Where answers lie.
            rng: Breaks ties, and draws what a function of the nuisance is fitted with.
            gives_answer: Whether the answer is a function of the nuisance.
            seconds: How long that function may be fitted, and the tilt.
            tilts: Whether to look for another dependence than that of a Gaussian copula.

        Returns:
            The prior.
        """
        x = answer_space.dim
        values = _finite_values(places_MV[:, :x]) if gives_answer else None
        sizes = PriorSizes(
            len(places_MV), x, places_MV.shape[1] - x, gives_answer, 0 if values is None else len(values[0])
        )
        prior = cls(sizes, answer_space)
        if gives_answer:
            of_values = None if values is None else values[0]
            prior.answer_map = AnswerMap.learn(
                places_MV[:, x:], places_MV[:, :x], of_values, answer_space, rng, seconds
            )
        columns_MV = places_MV[:, x:] if gives_answer else places_MV
        prior._tabulate(places_MV, columns_MV, x, rng)
        if tilts:
            prior.tilt = Tilt.learn(prior.latent_MV, rng.clone_state(), seconds)
            prior.sizes = sizes._replace(tilted=prior.tilt is not None)
        return prior

    def _tabulate(self, places_MV: Tensor, columns_MV: Tensor, x: int, rng: Generator) -> None:
        """Sets the tables of the copula of some columns."""
        scores = normal_scores(columns_MV, rng)
        if self.sphere:
            radius = torch.linalg.vector_norm(torch.randn((len(scores), x), generator=rng), dim=1, keepdim=True)
            scores[:, :x] = places_MV[:, :x].double() * radius
        correlation = torch.corrcoef(scores.T).reshape(len(scores.T), -1)
        if self.sphere:
            correlation[:x] = correlation[:, :x] = 0
            correlation[:x, :x] = torch.eye(x)
        factor = correlation_factor(correlation, len(scores))
        latent = torch.linalg.solve_triangular(factor, scores.T, upper=False).T
        tables = {
            "draws_MV": places_MV,
            "latent_MV": latent,
            "knots_VS": quantile_knots(columns_MV),
            "factor_VV": factor,
        }
        for name, table in tables.items():
            setattr(self, name, table.float().contiguous())

    @property
    def unexplained(self) -> float:
        """How wrong the learned function of the answer is on held-out tasks; 0 where there is none."""
        x = self.sizes.answer
        if self.answer_map is None:
            return 0.0
        return self.answer_map.unexplained(self.draws_MV[:, x:], self.draws_MV[:, :x])

    def places(self, latent: Float[Tensor, "*batch L"]) -> Float[Tensor, "*batch V"]:
        """The places at latent coordinates: answer and nuisance."""
        score = correlated_scores(latent, self.factor_VV)
        place = values_at_scores(self.knots_VS, score)
        if self.sphere:
            x = self.sizes.answer
            direction = score[..., :x] / torch.linalg.vector_norm(score[..., :x], dim=-1, keepdim=True).clamp_min(1e-9)
            place = torch.cat([direction, place[..., x:]], dim=-1)
        if self.answer_map is not None:
            place = torch.cat([self.answer_map(place), place], dim=-1)
        return place

    def values(self) -> tuple[Float[Tensor, "N X"], Float[Tensor, " N"]] | None:
        """The answers that there are and their shares, where they are a finite set; else None."""
        return _finite_values(self.draws_MV[:, : self.sizes.answer])

    def line(self, n: int) -> tuple[Float[Tensor, "n 1"], Float[Tensor, " n"]]:
        """Answers on a line: ``n`` evenly spaced ones and the prior mass of each."""
        answers = self.draws_MV[:, 0].double()
        low, high = answers.min(), answers.max()
        grid = low + (high - low) * (torch.arange(n).double() + 0.5) / n
        counts = torch.histc(answers, CELLS, float(low), float(high))
        expected = len(answers) / CELLS
        # A histogram that may be even is taken as even: chi-square with CELLS - 1 degrees of freedom.
        if float((counts - expected).square().sum() / expected) < CELLS - 1 + 5 * math.sqrt(2 * (CELLS - 1)):
            counts = torch.full_like(counts, expected)
        padded = nn.functional.pad(counts[None, None], (1, 1), mode="replicate")
        smooth = nn.functional.conv1d(padded, torch.tensor([[[0.25, 0.5, 0.25]]]).double())[0, 0] + 0.02 * expected
        at = ((grid - low) / (high - low) * CELLS - 0.5).clamp(0, CELLS - 1)
        cell = at.long().clamp_max(CELLS - 2)
        density = smooth[cell] + (smooth[cell + 1] - smooth[cell]) * (at - cell)
        return grid[:, None].float(), density / density.sum()

    def dependence(self, place: Float[Tensor, "*batch V"]) -> Float[Tensor, " *batch"]:
        """What the copula adds to the log density of an answer with a nuisance."""
        v = place.shape[-1]
        if bool((self.factor_VV == torch.eye(v)).all()):
            return torch.zeros(place.shape[:-1], dtype=torch.float64)
        flat = place.reshape(-1, v).T.contiguous()
        cell = torch.searchsorted(self.knots_VS, flat).clamp(1, KNOTS - 1)
        score = (-REACH + 2 * REACH * (cell.double() - 0.5) / (KNOTS - 1)).T
        whitened = torch.linalg.solve_triangular(self.factor_VV.double(), score.T, upper=False).T
        value: Tensor = (0.5 * (score.square() - whitened.square()).sum(dim=-1)).reshape(place.shape[:-1])
        return value


def _finite_values(answers_MX: Tensor) -> tuple[Float[Tensor, "N X"], Float[Tensor, " N"]] | None:
    """The different answers and their shares, where they are few."""
    values, counts = answers_MX.unique(dim=0, return_counts=True)  # type: ignore[no-untyped-call]
    return (values, counts / counts.sum()) if len(values) <= min(MOST_VALUES, len(answers_MX) // 8) else None
