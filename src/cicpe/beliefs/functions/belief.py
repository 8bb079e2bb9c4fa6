"""A belief over functions, without training: where is the peak, how high is it, or where does it cross a level?

For problems with one number per observation, few query dimensions, and a target that is the place of the largest value,
that value, or the one place on a line where the function crosses a level. The belief is a mixture of Gaussian processes
that the family's tasks look like (``gp.mixture``). The functions that the history allows are drawn on a lattice, by
Matheron's rule: a draw from the prior, moved by what it gets wrong,

    f + k(lattice, X) (K + noise^2)^-1 (y - f(X) - noise),

with the same prior draws and noise for every episode. Each drawn function has its target (one that does not cross the
level exactly once has none, and does not count); the recommendation is the answer that succeeds on the largest share of
them, and the confidence is that share. The next query is the one whose observation would make them agree most.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple, final

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Generator, Tensor

from cicpe import trees
from cicpe.beliefs.base import Assessment, Belief
from cicpe.beliefs.lookahead import score_queries
from cicpe.beliefs.predictors import Prediction
from cicpe.config import GrownConfig
from cicpe.errors import InvalidInput
from cicpe.gp.exact import GPPosterior, no_observations
from cicpe.gp.matheron import lattice_corners, prior_draws, whitened_error
from cicpe.gp.mixture import GPMixture
from cicpe.spaces import Space
from cicpe.statistics import first_of_best, highest_mass_interval, weighted_std

CHUNK = 16
"""Episodes that are assessed together: with more, their functions leave the processor's cache."""
PAIRS = 16
"""Pairs of an episode and a kind whose covariances with the lattice are held at once."""
AGREED = 0.1
"""Share of the query space within which two peaks count as one, where the loss is no distance."""
TIE = 0.02
"""Confidence that may be given up for a recommendation in the middle of what is plausible."""
LATTICE_SIDES = {1: 128, 2: 32, 3: 12}
"""Points of the lattice along each axis, by the number of query dimensions."""


@final
class FunctionConfig(GrownConfig):
    """What is asked of the functions, and how many are drawn."""

    LATER: ClassVar[frozenset[str]] = frozenset({"level"})

    answer: Literal["place", "height", "crossing"] = "place"
    """The target: where the function is largest, how large it is there, or where it crosses ``level``."""
    level: float = Field(default=0.0, allow_inf_nan=False)
    """The value that is crossed, as an observation without noise."""
    loss: Literal["distance", "gap"] = "distance"
    """Distance to the target, or how far the value at the answer is below the largest."""
    functions: int = Field(default=256, ge=16)
    """Functions drawn at every assessment."""
    groups: int = Field(default=16, ge=1)
    """They are drawn in groups, each of one kind of process."""
    query: Literal["agreement", "thompson", "ucb"] = "agreement"
    """How the next query is chosen."""
    candidates: int = Field(default=64, ge=4)
    """Queries that are compared."""
    seed: int = Field(default=0, ge=0, le=2**31)
    """Seed of the prior's draws."""

    @model_validator(mode="after")
    def _groups(self) -> "FunctionConfig":
        if self.groups > self.functions:
            raise ValueError(f"groups must be at most functions, {self.functions}; got {self.groups}")
        return self


class FunctionState(NamedTuple):
    """Histories, and what they say under every kind of process."""

    context_BC: Float[Tensor, "batch context"]
    place_BTQ: Float[Tensor, "batch step query"]
    value_BT: Float[Tensor, "batch step"]
    corner_BTC: Int[Tensor, "batch step corner"]
    """The lattice points about each query, and their shares of it."""
    corner_share_BTC: Float[Tensor, "batch step corner"]
    posterior_BJ: GPPosterior
    """Of every kind, its own level subtracted: batch x kind."""


class FunctionDraws(NamedTuple):
    """Functions that a history allows."""

    value_BNG: Float[Tensor, "batch function lattice"]
    weight_BN: Float[Tensor, "batch function"]
    point_BN: Int[Tensor, "batch function"]
    """The lattice point at the target's place: the peak, or the last one before the crossing."""
    height_BN: Float[Tensor, "batch function"]
    """The value there."""


@final
@dataclass(frozen=True)
class FunctionBelief(Belief):
    """Believes in functions and queries what would tell most about their peak, or about where they cross a level."""

    queries: Space
    answers: Space
    mixture: GPMixture
    horizon: int
    config: FunctionConfig = field(default_factory=FunctionConfig)
    aim: float = 0.1
    """The epsilon that queries are chosen for."""
    most_at_once: int = 512
    """Episodes: a history of sixty queries takes three quarters of a megabyte."""

    def __post_init__(self) -> None:
        if self.query_space.dim not in LATTICE_SIDES:
            raise InvalidInput("query dimensions", self.query_space.dim, f"one of {', '.join(map(str, LATTICE_SIDES))}")
        if self.config.answer == "crossing" and self.query_space.dim != 1:
            raise InvalidInput("query dimensions", self.query_space.dim, "1 where a crossing is sought")

    @property
    def seeks_largest(self) -> bool:  # type: ignore[override]
        return self.config.answer != "crossing"

    @property
    def judges_gaps(self) -> bool:
        return self.config.loss == "gap"

    @property
    def query_space(self) -> Space:
        return self.queries

    @property
    def answer_space(self) -> Space:
        return self.answers

    # --- the lattice and the prior ----------------------------------------------------------------

    @cached_property
    def lattice_GQ(self) -> Float[Tensor, "lattice query"]:
        """Unit coordinates."""
        line = torch.linspace(-1, 1, LATTICE_SIDES[self.query_space.dim], dtype=torch.float64)
        return torch.cartesian_prod(*[line] * self.query_space.dim).view(-1, self.query_space.dim)

    @cached_property
    def places_GQ(self) -> Float[Tensor, "lattice query"]:
        """The lattice in the query space."""
        return self.query_space.project(self.query_space.from_unit(self.lattice_GQ.float()))

    @cached_property
    def prior_JNG(self) -> Float[Tensor, "kind function lattice"]:
        """Functions from the prior of every kind."""
        rng = torch.Generator().manual_seed(self.config.seed)
        size = len(self.lattice_GQ)
        prior_JNG = torch.empty(self.mixture.kinds, self.config.functions, size)
        for kind in range(self.mixture.kinds):  # one at a time: in three dimensions a covariance takes 24 MB
            covariance = self.mixture.covariance(torch.tensor([kind]), self.lattice_GQ, self.lattice_GQ)[0]
            white = torch.randn((self.config.functions, size), generator=rng, dtype=torch.float64)
            jitter = 1e-6 * covariance.diagonal().mean()
            prior_JNG[kind] = prior_draws(covariance, white, jitter) + self.mixture.level_J[kind]
        return prior_JNG

    @cached_property
    def noise_NT(self) -> Float[Tensor, "function step"]:
        """Standard normal noise of the functions' own observations."""
        rng = torch.Generator().manual_seed(self.config.seed + 1)
        return torch.randn((self.config.functions, self.horizon), generator=rng, dtype=torch.float64)

    # --- the posterior ----------------------------------------------------------------------------

    def begin(self, context: Float[Tensor, "batch context"]) -> FunctionState:
        batch, corners = len(context), 2**self.query_space.dim

        def empty(*shape: int) -> Tensor:
            return torch.zeros((batch, *shape), dtype=torch.float64)

        return FunctionState(
            context_BC=context,
            place_BTQ=empty(0, self.query_space.dim),
            value_BT=empty(0),
            corner_BTC=empty(0, corners).long(),
            corner_share_BTC=empty(0, corners),
            posterior_BJ=no_observations(batch, self.mixture.kinds),
        )

    def update(
        self, state: FunctionState, query: Float[Tensor, "batch query"], observation: Float[Tensor, "batch observation"]
    ) -> FunctionState:
        place_B1Q = self.query_space.to_unit(query).double()[:, None]
        value_B1 = self.mixture.standard(observation)
        cross_BJT, prior_BJ, noise_BJ = self._covariances(state, place_B1Q)
        corner, share = lattice_corners((place_B1Q + 1) / 2, LATTICE_SIDES[self.query_space.dim])
        return FunctionState(
            state.context_BC,
            torch.cat([state.place_BTQ, place_B1Q], dim=1),
            torch.cat([state.value_BT, value_B1], dim=1),
            torch.cat([state.corner_BTC, corner], dim=1),
            torch.cat([state.corner_share_BTC, share], dim=1),
            state.posterior_BJ.append(cross_BJT, prior_BJ, noise_BJ, value_B1 - self.mixture.level_J),
        )

    def _covariances(self, state: FunctionState, place_B1Q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of f at a place with the history, of f there, and of the noise, for every kind."""
        p, place_B11Q = self.mixture, place_B1Q[:, None]
        kind_J = torch.arange(p.kinds)
        cross_BJT1 = p.covariance(kind_J, state.place_BTQ[:, None], place_B11Q)
        prior_BJ11 = p.covariance(kind_J, place_B11Q, place_B11Q)
        return cross_BJT1[..., 0], prior_BJ11[..., 0, 0], p.noise(state.context_BC).square()

    def predict_moments(
        self, state: FunctionState, query: Float[Tensor, "batch query"]
    ) -> tuple[Float[Tensor, "batch 1"], Float[Tensor, "batch 1"]]:
        """The next observation under all kinds together.

        Args:
            state: The histories.
            query: The next query of each.

        Returns:
            Mean and standard deviation of the observation.
        """
        p, posterior_BJ = self.mixture, state.posterior_BJ
        cross_BJT, prior_BJ, noise_BJ = self._covariances(state, self.query_space.to_unit(query).double()[:, None])
        change_BJ1, variance_BJ1 = posterior_BJ.predict(posterior_BJ.whiten(cross_BJT[..., None]), prior_BJ[..., None])
        mean_BJ, variance_BJ = p.level_J + change_BJ1[..., 0], variance_BJ1[..., 0] + noise_BJ
        share_BJ = self.shares(state)
        mean_B1 = (share_BJ * mean_BJ).sum(dim=1, keepdim=True)
        variance_B1 = (share_BJ * (variance_BJ + (mean_BJ - mean_B1).square())).sum(dim=1, keepdim=True)
        return (p.centre + p.spread * mean_B1).float(), (p.spread * variance_B1.sqrt()).float()

    def shares(self, state: FunctionState) -> Float[Tensor, "batch kind"]:
        """How probable each kind is.

        Args:
            state: The histories.

        Returns:
            Probabilities, which sum to one over the kinds.
        """
        return (self.mixture.log_share_J.log_softmax(dim=0) + state.posterior_BJ.log_evidence()).softmax(dim=-1)

    def draw(self, state: FunctionState) -> FunctionDraws:
        """Functions from the posterior, a group of them for every part of the kinds' shares.

        Args:
            state: The histories.

        Returns:
            Functions on the lattice with their weights and their peaks.
        """
        groups, each = self.config.groups, self.config.functions // self.config.groups
        share_BJ = self.shares(state)
        ladder = (torch.arange(groups, dtype=torch.float64) + 0.5) / groups
        kind_BA = torch.searchsorted(share_BJ.cumsum(dim=-1), ladder.repeat(len(share_BJ), 1)).clamp_max(
            share_BJ.shape[-1] - 1
        )
        count_BJ = torch.zeros_like(share_BJ).scatter_add_(1, kind_BA, torch.ones_like(kind_BA, dtype=torch.float64))
        weight_BA = (share_BJ / count_BJ.clamp_min(1)).gather(1, kind_BA)
        weight_BN = (weight_BA / weight_BA.sum(dim=1, keepdim=True)).repeat_interleave(each, dim=1) / each
        number_AE = torch.arange(groups * each).view(groups, each)
        value_BAEG = self.prior_JNG[kind_BA[..., None], number_AE]
        if state.value_BT.shape[1]:
            self._condition(value_BAEG, state, kind_BA, number_AE)
        value_BNG = value_BAEG.flatten(1, 2)
        if self.config.answer == "crossing":
            return self._crossed(value_BNG, weight_BN.float())
        point_BN = torch.from_numpy(value_BNG.numpy().argmax(axis=-1))  # torch's is far slower
        return FunctionDraws(value_BNG, weight_BN.float(), point_BN, value_BNG.gather(2, point_BN[..., None])[..., 0])

    def _crossed(self, value_BNG: Tensor, weight_BN: Tensor) -> FunctionDraws:
        """Functions with the place where each crosses the level; those that do so once count, unless none does."""
        above_BNG = value_BNG.numpy() > float(self._level)
        changes_BNG = above_BNG[..., 1:] != above_BNG[..., :-1]
        once_BN = torch.from_numpy(changes_BNG.sum(axis=-1) == 1)
        crossing_BN = torch.from_numpy(changes_BNG.argmax(axis=-1))
        nearest_BN = (value_BNG - self._level.float()).abs().argmin(dim=-1).clamp_max(value_BNG.shape[-1] - 2)
        point_BN = torch.where(once_BN, crossing_BN, nearest_BN)
        counted_BN = weight_BN * once_BN
        total_B1 = counted_BN.sum(dim=1, keepdim=True)
        weight_BN = torch.where(total_B1 > 0, counted_BN / total_B1.clamp_min(1e-30), weight_BN)
        return FunctionDraws(value_BNG, weight_BN, point_BN, value_BNG.gather(2, point_BN[..., None])[..., 0])

    @property
    def _level(self) -> Float[Tensor, ""]:
        """The level, in the units of the processes."""
        return self.mixture.standard(torch.tensor([[self.config.level]]))[0, 0]

    def _condition(self, value_BAEG: Tensor, state: FunctionState, kind_BA: Tensor, number_AE: Tensor) -> None:
        """Moves draws from the prior, in place, by what they get wrong of the history."""
        (batch, groups, each, size), steps, p = value_BAEG.shape, state.value_BT.shape[1], self.mixture
        near_BAET = state.corner_BTC.view(batch, 1, 1, -1).expand(-1, groups, each, -1)
        seen_BAETC = value_BAEG.gather(3, near_BAET).view(batch, groups, each, steps, -1).double()
        seen_BAET = torch.einsum("baetc,btc->baet", seen_BAETC, state.corner_share_BTC)
        noise_BA11 = p.noise(state.context_BC).gather(1, kind_BA)[..., None, None]
        root_BATT = state.posterior_BJ.at(torch.arange(batch)[:, None], kind_BA).root
        error_BAET = whitened_error(
            root_BATT, state.value_BT[:, None], seen_BAET, noise_BA11 * self.noise_NT[number_AE, :steps]
        )
        # Groups of one kind stand together: what a history says about the lattice is computed once for them.
        pair_P, groups_P = torch.unique_consecutive(
            (torch.arange(batch)[:, None] * p.kinds + kind_BA).flatten(), return_counts=True
        )
        spans = (groups_P * each).tolist()
        value_PNG = torch.split(value_BAEG.view(-1, size), spans)
        error_PNT = torch.split(error_BAET.float().reshape(-1, steps), spans)
        for some in torch.split(torch.arange(len(pair_P)), PAIRS):
            episode, kind = pair_P[some] // p.kinds, pair_P[some] % p.kinds
            cross = p.covariance(kind, state.place_BTQ[episode], self.lattice_GQ)
            rows = state.posterior_BJ.at(episode, kind).whiten(cross).float()
            for i, rows_TG in zip(some.tolist(), rows, strict=True):
                value_PNG[i].addmm_(error_PNT[i], rows_TG)

    # --- what follows from it ---------------------------------------------------------------------

    def assess(
        self,
        state: FunctionState,
        epsilons: Sequence[float],
        rng: Generator,
        query_spread: float = 0.0,
        costs: Sequence[Float[Tensor, " batch"]] = (),
    ) -> Assessment:
        self.refuse_costs(costs)
        batch = len(state.context_BC)
        parts = []
        for some in _chunks(state):
            draws = self.draw(some)
            answers = [self._recommend(draws, epsilon) for epsilon in epsilons]
            recommendation, confidence = (torch.stack(side, dim=1) for side in zip(*answers, strict=True))
            target = self._targets(draws)
            std = weighted_std(draws.weight_BN, target)
            parts.append((self._query(some, draws, target, rng), recommendation, confidence, std))
        query, recommendation, confidence, std = (torch.cat(column) for column in zip(*parts, strict=True))
        time = torch.full((batch,), state.place_BTQ.shape[1])
        none = torch.zeros(len(epsilons), 0, batch)
        return Assessment(time, query[:, None], recommendation.transpose(0, 1), confidence.T, confidence.T, none, std)

    def _targets(self, draws: FunctionDraws) -> Float[Tensor, "batch function answer"]:
        if self.config.answer == "place":
            return self.places_GQ[draws.point_BN]
        if self.config.answer == "crossing":
            next_BN = draws.value_BNG.gather(2, draws.point_BN[..., None] + 1)[..., 0]
            rise_BN = next_BN - draws.height_BN
            share_BN = ((self._level.float() - draws.height_BN) / rise_BN).nan_to_num(0.5).clamp(0, 1)
            low_BN1, high_BN1 = self.places_GQ[draws.point_BN], self.places_GQ[draws.point_BN + 1]
            return low_BN1 + share_BN[..., None] * (high_BN1 - low_BN1)
        p = self.mixture
        return (p.centre + p.spread * draws.height_BN.double()).float()[..., None]

    def _recommend(self, draws: FunctionDraws, epsilon: float) -> tuple[Tensor, Tensor]:
        if self.config.answer != "place":
            middle, confidence = highest_mass_interval(self._targets(draws)[..., 0], draws.weight_BN, epsilon)
            return self.answer_space.project(middle[:, None]), confidence.clamp(0, 1)
        # Among answers that succeed on as many functions, the one that does so with room to spare.
        if self.config.loss == "gap":
            room_BNG = 1 - (draws.height_BN[..., None] - draws.value_BNG) * (self.mixture.spread.float() / epsilon)
            merit_BG = torch.einsum("bng,bn->bg", _merit(room_BNG), draws.weight_BN)
        else:
            peaks_BG = torch.zeros(len(draws.point_BN), len(self.places_GQ))
            merit_BG = peaks_BG.scatter_add_(1, draws.point_BN, draws.weight_BN) @ self._merits(epsilon)
        best_B = merit_BG.argmax(dim=1)
        answer_BX = self.places_GQ[best_B]
        if self.config.loss == "gap":
            success_BN = room_BNG.gather(2, best_B[:, None, None].expand(-1, room_BNG.shape[1], -1))[..., 0] >= 0
        else:
            success_BN = self.answer_space.distance(answer_BX[:, None], self.places_GQ[draws.point_BN]) <= epsilon
        return answer_BX, (draws.weight_BN * success_BN).sum(dim=1).clamp(0, 1)

    def _merits(self, epsilon: float) -> Float[Tensor, "lattice lattice"]:
        """Of an answer, for every place that the peak may have."""
        if epsilon not in self._merits_by_epsilon:
            apart = self.answer_space.distance(self.places_GQ[:, None], self.places_GQ)
            self._merits_by_epsilon[epsilon] = _merit(1 - apart / epsilon)
        return self._merits_by_epsilon[epsilon]

    @cached_property
    def _merits_by_epsilon(self) -> dict[float, Tensor]:
        return {}

    def _query(self, state: FunctionState, draws: FunctionDraws, target_BNX: Tensor, rng: Generator) -> Tensor:
        config = self.config
        batch, functions, size = draws.value_BNG.shape
        if config.query == "thompson":
            chosen = torch.multinomial(draws.weight_BN, 1, generator=rng)
            return self.places_GQ[draws.point_BN.gather(1, chosen)[:, 0]]
        if config.query == "ucb":
            mean = torch.einsum("bng,bn->bg", draws.value_BNG, draws.weight_BN)
            second = torch.einsum("bng,bn->bg", draws.value_BNG.square(), draws.weight_BN)
            return self.places_GQ[first_of_best(mean + 2 * (second - mean.square()).clamp_min(0).sqrt())]
        half = config.candidates // 2
        some = torch.multinomial(draws.weight_BN, half, replacement=True, generator=rng)
        anywhere = torch.randint(size, (batch, config.candidates - half), generator=rng)
        candidate_BK = torch.cat([draws.point_BN.gather(1, some), anywhere], dim=1)
        even = torch.multinomial(draws.weight_BN, functions, replacement=True, generator=rng)
        value_BNK = draws.value_BNG.gather(2, candidate_BK[:, None].expand(-1, functions, -1))
        value_BMK = value_BNK.gather(1, even[..., None].expand(-1, -1, value_BNK.shape[-1]))
        usual = (self.shares(state) * self.mixture.noise(state.context_BC)).sum(dim=-1).float()
        value_BMK = value_BMK + usual[:, None, None] * torch.randn(value_BMK.shape, generator=rng)
        target_BMX = target_BNX.gather(1, even[..., None].expand(-1, -1, target_BNX.shape[-1]))
        score_BK = score_queries("agreement", value_BMK.mT[..., None], target_BMX, self._near_enough)
        best = candidate_BK.gather(1, first_of_best(score_BK)[:, None])[:, 0]
        return self._about(best, rng)

    @property
    def _near_enough(self) -> float:
        """The distance at which two answers agree: epsilon where that is a distance, else a part of the space."""
        if self.config.loss == "distance":
            return self.aim
        corners = self.query_space.from_unit(torch.tensor([[-1.0], [1.0]]).expand(-1, self.query_space.dim))
        return float(AGREED * (corners[1] - corners[0]).norm() / self.query_space.dim**0.5)

    def _about(self, best_B: Tensor, rng: Generator) -> Tensor:
        """A place in the cell of a lattice point: a lattice alone would never show what is narrower than itself."""
        space, cell = self.query_space, 2 / (LATTICE_SIDES[self.query_space.dim] - 1)
        unit = self.lattice_GQ[best_B].float()
        return space.project(space.from_unit(unit + cell * (torch.rand(unit.shape, generator=rng) - 0.5)))

    def predict(self, state: FunctionState, query: Float[Tensor, "batch query"]) -> Prediction:
        mean, std = self.predict_moments(state, query)
        none = torch.zeros(1, dtype=torch.bool)
        return Prediction(none, torch.zeros(1), torch.zeros_like(mean), mean, std.clamp_min(1e-6).log())

    def sample_answers(self, state: FunctionState, n: int, rng: Generator) -> Float[Tensor, "batch draw answer"]:
        return torch.cat([self._sample_answers(some, n, rng) for some in _chunks(state)])

    def _sample_answers(self, state: FunctionState, n: int, rng: Generator) -> Tensor:
        draws = self.draw(state)
        chosen = torch.multinomial(draws.weight_BN, n, replacement=True, generator=rng)
        if self.config.answer == "place":
            # Were it always on the lattice, what is queried there again would tell nothing where there is no noise.
            point_Bn = draws.point_BN.gather(1, chosen)
            return self._about(point_Bn.flatten(), rng).unflatten(0, point_Bn.shape)  # type: ignore[no-untyped-call,no-any-return]
        target = self._targets(draws)
        return target.gather(1, chosen[..., None].expand(-1, -1, target.shape[-1]))

    def tensors(self) -> Mapping[str, Tensor]:
        return self.mixture.state_dict()


def _chunks(state: FunctionState) -> Iterator[FunctionState]:
    """``CHUNK`` episodes at a time."""
    for rows in torch.split(torch.arange(len(state.context_BC)), CHUNK):
        yield trees.select(state, rows)


def _merit(room: Tensor) -> Tensor:
    """Of an answer, by the share of epsilon that is left: success, and a little for room to spare."""
    return torch.where(room >= 0, 1 + TIE * room, 0.0)
