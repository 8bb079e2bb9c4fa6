"""The lattice memory: every place of a lattice looks at the history through kernels of learned widths.

For y = f(a) + noise with few query dimensions, and a target that is a place. Place x sees, by kernel j,

    n_j(x) = sum_s k_j(x, a_s),    m_j(x) = sum_s k_j(x, a_s) y_s / (n_j(x) + c_j):

how much was observed about it, and what on average. Both are sums over the history, so every prefix costs one more
term, and no system of equations is solved. A small network, the same at all places, makes a score of them, of how well
each kernel has foretold the observations so far, and of what it sees at the other places; the softmax of the scores is
the posterior of the target. What it learns at one place holds at all: it generalises to surfaces that it has not seen.
"""

import math
from typing import Literal, NamedTuple, final

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import silu

from cicpe.beliefs.network.layers import affine, time_features
from cicpe.beliefs.network.memories.base import (
    Dims,
    Memory,
    MemoryConfig,
    MemoryFeatures,
    State,
    gather_prefixes,
)
from cicpe.errors import InvalidInput

MOST_PLACES = 1024
"""Of a lattice: all of them are scored at every prefix."""
SMALLEST_VARIANCE = 1e-2
"""Of a history's observations, on the scale of the family's: flat ones are not blown up."""
REACHES = (0.15, 0.3, 0.4, 0.6)
"""Distances within which the summary tells how much of the posterior lies about its best place, in unit coordinates."""


@final
class LatticeConfig(MemoryConfig):
    """Kernels of learned widths, read at the places of a lattice by a network that is the same at all of them."""

    kind: Literal["lattice"] = "lattice"
    side: int = Field(default=12, ge=2, le=MOST_PLACES)
    """Places along each axis."""
    widths: tuple[float, ...] = Field(default=(0.12, 0.25, 0.5, 1.0), min_length=1)
    """Widths of the kernels before training, in unit coordinates (the query space is 2 wide); in two dimensions there
    are two more, of the second width along one axis and the last along the other."""
    hidden: int = Field(default=24, ge=1)
    """Units of the network at a place."""

    def build(self, dims: Dims) -> "LatticeMemory":
        """The memory that this describes."""
        return LatticeMemory(self, dims)


class LatticeState(NamedTuple):
    """What places have seen at every prefix that is read, and the history itself."""

    mass_BPKJ: Tensor
    """How much was observed about each place, by each kernel."""
    sum_BPKJ: Tensor
    """The same, times what was observed."""
    error_BPJ: Tensor
    """Squares of what each kernel got wrong about every observation before it was made."""
    tally_BP4: Tensor
    """Of the observations: how many, sum, sum of squares, and the largest."""
    place_BTQ: Tensor
    value_BT: Tensor
    context_BC: Tensor
    prefix_BP: Tensor

    def at_prefixes(self, index_BK: Int[Tensor, "batch chosen"]) -> "LatticeState":
        """The state at K prefixes per episode, for reading."""
        mass, total, error, tally = (gather_prefixes(part, index_BK) for part in self[:4])
        return LatticeState(mass, total, error, tally, *self[4:7], gather_prefixes(self.prefix_BP, index_BK))


@final
class LatticeMemory(Memory):
    """Sums of kernels at the places of a lattice, and a network that scores the places."""

    def __init__(self, config: LatticeConfig, dims: Dims) -> None:
        super().__init__()
        _check_sizes(config, dims)
        self.register_buffer("line_S", torch.linspace(-1, 1, config.side))
        self.line_S: Tensor
        self.register_buffer("places_KQ", torch.cartesian_prod(*[self.line_S] * dims.query).view(-1, dims.query))
        self.places_KQ: Tensor
        widths = torch.tensor(config.widths)[:, None].expand(-1, dims.query)
        if dims.query == 2 and len(config.widths) > 1:
            uneven = torch.tensor([config.widths[1], config.widths[-1]])
            widths = torch.cat([widths, uneven[None], uneven.flip(0)[None]])
        kernels, hidden = len(widths), config.hidden
        self.log_width_JQ = nn.Parameter(widths.log())
        self.log_prior_J = nn.Parameter(torch.full((kernels,), -2.0))
        """Log of c_j: how much would have to be observed about a place to be believed by half."""
        known = kernels + 3 + 3 + dims.context
        self.from_place = nn.Linear(2 * kernels, hidden)
        self.from_where = nn.Linear(2 * dims.query, hidden, bias=False)
        self.from_whole = affine(known, hidden)
        self.from_others = nn.Linear(hidden, hidden)
        self.between = nn.Linear(hidden, hidden, bias=False)
        self.score = nn.Linear(hidden, 1)
        self.width = known + hidden + len(REACHES) + 1
        self.width_at = self.width + dims.query + 2 * kernels

    @property
    def scored_places(self) -> Float[Tensor, "place query"] | None:
        return self.places_KQ

    def _kernel(self, a_BNQ: Tensor, b_BMQ: Tensor, trained: bool = True) -> Float[Tensor, "B N M J"]:
        """exp(-|a - b|^2 / 2), each coordinate in units of the kernel's width along it."""
        log_width_JQ = self.log_width_JQ if trained else self.log_width_JQ.detach()
        steepness_JQ = -torch.exp(-2 * log_width_JQ) / 2
        exponent = torch.zeros(())
        by_axis = (part.unbind(dim=-1) for part in (a_BNQ, b_BMQ, steepness_JQ))
        for a_BN, b_BM, steepness_J in zip(*by_axis, strict=True):
            exponent = exponent + (a_BN[:, :, None] - b_BM[:, None]).square()[..., None] * steepness_J
        return exponent.exp()

    def _at_places(self, a_BNQ: Tensor) -> Float[Tensor, "B N K J"]:
        """The kernel with every place of the lattice: a product of one factor per axis."""
        line_1S1 = self.line_S[None, :, None]
        kernel_BNKJ = torch.ones(*a_BNQ.shape[:2], 1, 1)
        for axis, a_BN in enumerate(a_BNQ.unbind(dim=-1)):
            steepness_J = -torch.exp(-2 * self.log_width_JQ[:, axis]) / 2
            factor_BNSJ = torch.exp((a_BN[..., None, None] - line_1S1).square() * steepness_J)
            kernel_BNKJ = (kernel_BNKJ[:, :, :, None] * factor_BNSJ[:, :, None]).flatten(2, 3)
        return kernel_BNKJ

    def _mean(self, mass: Tensor, total: Tensor, trained: bool = True) -> tuple[Tensor, Tensor]:
        """The mean of what was observed, and the share of it that is prior; the kernels are the last axis."""
        prior_J = (self.log_prior_J if trained else self.log_prior_J.detach()).exp()
        left = 1 / (mass + prior_J)
        return total * left, prior_J * left

    # --- the history ------------------------------------------------------------------------------

    def begin(self, context_BC: Tensor) -> LatticeState:
        batch, kernels, places = len(context_BC), len(self.log_prior_J), len(self.places_KQ)

        def empty(*shape: int) -> Tensor:
            return context_BC.new_zeros((batch, *shape))

        nothing, prefix = empty(1, places, kernels), torch.zeros(batch, 1, dtype=torch.long)
        history = empty(0, self.places_KQ.shape[1]), empty(0)
        return LatticeState(nothing, nothing, empty(1, kernels), empty(1, 4), *history, context_BC, prefix)

    def step(self, state: LatticeState, query_BQ: Tensor, observation_BY: Tensor) -> LatticeState:
        place_B1Q, value_B1 = query_BQ[:, None], observation_BY
        mass_B1KJ = self._at_places(place_B1Q)
        foretold_B1J = self._foretold(self._kernel(place_B1Q, state.place_BTQ), state.value_BT)
        first = state.prefix_BP[..., None] == 0
        best = torch.where(first, value_B1[..., None], torch.maximum(state.tally_BP4[..., 3:], value_B1[..., None]))
        sums = state.tally_BP4[..., :3] + _powers(value_B1)
        return LatticeState(
            state.mass_BPKJ + mass_B1KJ,
            state.sum_BPKJ + mass_B1KJ * value_B1[..., None, None],
            state.error_BPJ + (foretold_B1J - value_B1[..., None]).square(),
            torch.cat([sums, best], dim=-1),
            torch.cat([state.place_BTQ, place_B1Q], dim=1),
            torch.cat([state.value_BT, value_B1], dim=1),
            state.context_BC,
            state.prefix_BP + 1,
        )

    def _foretold(self, kernel_BNTJ: Tensor, value_BT: Tensor) -> Float[Tensor, "B N J"]:
        return self._mean(kernel_BNTJ.sum(dim=2), (kernel_BNTJ * value_BT[:, None, :, None]).sum(dim=2))[0]

    def unroll(self, context_BC: Tensor, query_BTQ: Tensor, observation_BTY: Tensor) -> LatticeState:
        first, value_BT = self.begin(context_BC), observation_BTY[..., 0]
        batch, steps = value_BT.shape
        mass_BTKJ = self._at_places(query_BTQ)
        past_TT = torch.ones(steps, steps).tril(-1)
        foretold_BTJ = self._foretold(self._kernel(query_BTQ, query_BTQ) * past_TT[..., None], value_BT)
        error_BTJ = (foretold_BTJ - value_BT[..., None]).square()
        tally_BT4 = torch.cat([_powers(value_BT).cumsum(dim=1), value_BT.cummax(dim=1).values[..., None]], dim=-1)

        def summed(before: Tensor, terms: Tensor) -> Tensor:
            return torch.cat([before, terms.cumsum(dim=1)], dim=1)

        return LatticeState(
            summed(first.mass_BPKJ, mass_BTKJ),
            summed(first.sum_BPKJ, mass_BTKJ * value_BT[..., None, None]),
            summed(first.error_BPJ, error_BTJ),
            torch.cat([first.tally_BP4, tally_BT4], dim=1),
            query_BTQ,
            value_BT,
            context_BC,
            torch.arange(steps + 1).expand(batch, -1),
        )

    # --- what is read of it -----------------------------------------------------------------------

    def features(self, state: State) -> MemoryFeatures:
        scale = _Scale.of(state.tally_BP4)
        mean_BPKJ, unknown_BPKJ = self._mean(state.mass_BPKJ, state.sum_BPKJ)
        seen_BPKF = torch.cat([scale.relative(mean_BPKJ), unknown_BPKJ], dim=-1)
        whole_BPF = self._whole(state, scale)
        where_KF = torch.cat([self.places_KQ, self.places_KQ.square()], dim=-1)
        inner_BPKH = silu(
            self.from_place(seen_BPKF) + self.from_whole(whole_BPF)[:, :, None] + self.from_where(where_KF)
        )
        pooled_BPH = inner_BPKH.mean(dim=2)
        outer_BPKH = silu(self.between(inner_BPKH) + self.from_others(pooled_BPH)[:, :, None])
        score_BPK = self.score(outer_BPKH)[..., 0]
        summary = torch.cat([whole_BPF, pooled_BPH, self._concentration(score_BPK)], dim=-1)
        return MemoryFeatures(summary, place_scores=score_BPK)

    def _whole(self, state: LatticeState, scale: "_Scale") -> Float[Tensor, "B P F"]:
        """What is known of a history as a whole: how well each kernel foretells it, scale, length and context."""
        error_BPJ = (state.error_BPJ + scale.variance) / (state.tally_BP4[..., :1] + 1)
        errors_BPJ = torch.log(error_BPJ / scale.variance) / 2
        context_BPC = state.context_BC[:, None].expand(-1, state.prefix_BP.shape[1], -1)
        own = [scale.mean, scale.best, scale.variance.log() / 4]
        return torch.cat([errors_BPJ, *own, time_features(state.prefix_BP), context_BPC], dim=-1)

    @torch.no_grad()
    def _concentration(self, score_BPK: Tensor) -> Float[Tensor, "B P F"]:
        """How much of the posterior lies about one place, for several distances, and its entropy."""
        share_BPK = score_BPK.softmax(dim=-1)
        apart_KK = torch.cdist(self.places_KQ, self.places_KQ, compute_mode="donot_use_mm_for_euclid_dist")
        most = [(share_BPK @ (apart_KK <= reach).float()).amax(dim=-1) for reach in REACHES]
        sure_BPR = torch.logit(torch.stack(most, dim=-1).clamp(1e-3, 1 - 1e-3)) / 4
        entropy_BP1 = -(share_BPK * share_BPK.clamp_min(1e-9).log()).sum(dim=-1, keepdim=True)
        return torch.cat([sure_BPR, entropy_BP1 / math.log(share_BPK.shape[-1])], dim=-1)

    def features_at(self, state: State, memory_features: MemoryFeatures, query_BPQ: Tensor) -> Tensor:
        # The critic reads what kernels see at a candidate, and does not train them.
        steps_T = torch.arange(state.place_BTQ.shape[1])
        past_BPT = (steps_T < state.prefix_BP[..., None]).float()
        kernel_BPTJ = self._kernel(query_BPQ, state.place_BTQ, trained=False) * past_BPT[..., None]
        total_BPJ = (kernel_BPTJ * state.value_BT[:, None, :, None]).sum(dim=2)
        mean_BPJ, unknown_BPJ = self._mean(kernel_BPTJ.sum(dim=2), total_BPJ, trained=False)
        relative_BPJ = _Scale.of(state.tally_BP4).relative(mean_BPJ[:, :, None])[:, :, 0]
        return torch.cat([memory_features.summary, query_BPQ, relative_BPJ, unknown_BPJ], dim=-1)


class _Scale(NamedTuple):
    """The scale of a history's observations: B P 1."""

    mean: Tensor
    best: Tensor
    variance: Tensor

    @classmethod
    def of(cls, tally_BP4: Tensor) -> "_Scale":
        count, total, squares, best = tally_BP4[..., None].unbind(dim=-2)
        mean = total / count.clamp_min(1)
        variance = (squares / count.clamp_min(1) - mean.square()).clamp_min(0)
        # Of few observations not much is known: they are taken to spread as far as the family's.
        return cls(mean, best, (count * variance + 1) / (count + 1) + SMALLEST_VARIANCE)

    def relative(self, value_BPKJ: Tensor) -> Tensor:
        """Values below the best observation so far, in standard deviations of all of them."""
        return (value_BPKJ - self.best[..., None]) / self.variance.sqrt()[..., None]


def _powers(value_BT: Tensor) -> Float[Tensor, "B T 3"]:
    return torch.stack([torch.ones_like(value_BT), value_BT, value_BT.square()], dim=-1)


def _check_sizes(config: LatticeConfig, dims: Dims) -> None:
    if dims.observation != 1 or dims.query != dims.answer:
        sizes = f"query {dims.query}, answer {dims.answer}, observation {dims.observation}"
        allowed = f"another one: it needs one number per observation, and queries that are answers; here: {sizes}"
        raise InvalidInput("memory", "lattice", allowed)
    if config.side**dims.query > MOST_PLACES:
        allowed = f"a number with at most {MOST_PLACES} places in {dims.query} dimensions"
        raise InvalidInput("side", config.side, allowed)
