"""The network of the likelihood p(observation | query, answer, nuisance, context).

It maps a query, a *place* (a candidate answer followed by everything else that is hidden) and the known context to the
parameters of the observation heads. What is hidden scales and shifts the hidden units and the angles of sines and
cosines, so that frequencies, amplitudes, slopes and offsets can be learned quickly.

Shapes: Q query, X answer, D nuisance, V = X + D place, C context, H hidden units, P head parameters, K codes.
"""

import math
from itertools import pairwise
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

SOFTNESS = (0.01, 0.05, 0.25)
"""Distances, in unit coordinates, over which a soft sign of the difference of query and candidate turns."""
SLOWEST, FASTEST = 0.7, 12.0
"""Rates of the waves at the start, in radians per unit coordinate."""
SHARED_WAVES = 4
"""Waves of each coordinate's difference, summed over coordinates."""
FEATURES = 10
"""Functions of the place that are learned."""


class NetworkSizes(NamedTuple):
    """What decides the shapes of the weights."""

    query: int
    answer: int
    nuisance: int
    context: int
    outputs: int
    hidden: int = 64
    waves: int = 12

    @property
    def comparable(self) -> bool:
        """Whether query and answer have as many coordinates, and so may be places in one space."""
        return self.query == self.answer

    @property
    def shared_waves(self) -> int:
        """Waves that all coordinates share."""
        return SHARED_WAVES if self.comparable and self.query > 1 else 0

    @property
    def static(self) -> int:
        """Features that are no waves."""
        compared = self.query * (2 + len(SOFTNESS)) + 4 if self.comparable else 0
        return self.query + self.answer + self.nuisance + 2 * self.context + compared


@final
class LikelihoodNetwork(nn.Module):
    """Head parameters for queries, places and contexts, whose leading dimensions broadcast."""

    context_centre: Tensor
    context_spread: Tensor

    def __init__(self, sizes: NetworkSizes, rng: Generator | None = None) -> None:
        super().__init__()
        self.sizes = sizes
        rng = rng or torch.Generator().manual_seed(0)

        def normal(*shape: int, scale: float = 1.0) -> nn.Parameter:
            return nn.Parameter(scale * torch.randn(shape, generator=rng))

        self.register_buffer("context_centre", torch.zeros(2 * sizes.context))
        self.register_buffer("context_spread", torch.ones(2 * sizes.context))
        hidden, place = sizes.hidden, sizes.answer + sizes.nuisance
        code = place + FEATURES
        self.embed_in, self.embed_bias = normal(place, FEATURES, scale=0.7), normal(FEATURES, scale=0.5)
        # Waves of mixtures of query and place, from slow to fast.
        rates = torch.exp(torch.linspace(math.log(SLOWEST), math.log(FASTEST), sizes.waves))
        direction = torch.randn((sizes.query + sizes.answer, sizes.waves), generator=rng)
        self.direction = nn.Parameter(direction / torch.linalg.vector_norm(direction, dim=0) * rates)
        self.shared_rates = nn.Parameter(torch.linspace(0.0, math.log(14.0), sizes.shared_waves))
        waves = sizes.waves + sizes.shared_waves
        features = sizes.static + 2 * waves
        self.bend, self.turn = normal(code, waves, scale=0.1), normal(code, sizes.waves, scale=0.2)
        self.static_in = normal(sizes.static, hidden, scale=1 / math.sqrt(features))
        self.wave_in = normal(2 * waves, hidden, scale=1 / math.sqrt(features))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.gain, self.shift = normal(code, hidden, scale=0.15), normal(code, hidden, scale=0.3)
        self.middle = normal(hidden, hidden, scale=1 / math.sqrt(hidden))
        self.middle_shift = normal(code, hidden, scale=0.2)
        self.out = normal(hidden, sizes.outputs, scale=0.5 / math.sqrt(hidden))
        self.out_code, self.out_bias = normal(code, sizes.outputs, scale=0.1), nn.Parameter(torch.zeros(sizes.outputs))

    def standardise(self, context: Float[Tensor, "n C"]) -> None:
        """Takes the scale of contexts from simulated ones."""
        self.context_centre, self.context_spread = context_scale(context)

    def forward(
        self, query: Float[Tensor, "*#b Q"], place: Float[Tensor, "*#b V"], context: Float[Tensor, "*#b C"]
    ) -> Float[Tensor, "*#b P"]:
        """Head parameters; query and place are in unit coordinates."""
        return self._at(query, self._prepare(place), context)

    def _prepare(self, place: Float[Tensor, "*b V"]) -> "_PreparedPlaces":
        """All that depends on places alone."""
        sizes, rows = self.sizes, self._rows
        place = _features_first(place)
        answer = place[: sizes.answer]
        learned = torch.tanh(_product(self.embed_in.T, place) + _column(self.embed_bias, place))
        of_code = (self.bend, self.turn, self.gain, self.shift, self.middle_shift, self.out_code)
        parts = _product(torch.cat(of_code, dim=1).T, torch.cat([place, learned]))
        bend, turn, gain, shift, middle_shift, out = parts.split([weight.shape[1] for weight in of_code])  # type: ignore[no-untyped-call]
        stretch, gain = torch.exp(bend), 1 + gain
        linear = self.static_in[rows.place]
        if sizes.comparable:
            own, other = linear.split([sizes.answer, sizes.nuisance])  # type: ignore[no-untyped-call]
            linear = torch.cat([own - self.static_in[rows.apart], other])
        of_place = _product(linear.T, place) + _column(self.bias, place)
        line = _product(self.direction[sizes.query :].T, answer)
        return _PreparedPlaces(
            answer=answer,
            stretch=stretch[: sizes.waves],
            turn=torch.addcmul(turn, line, stretch[: sizes.waves]),
            rates=_column(self.shared_rates.exp(), place) * stretch[sizes.waves :],
            gain=gain,
            shift=torch.addcmul(shift, of_place, gain),
            middle_shift=middle_shift,
            out=out + _column(self.out_bias, place),
        )

    def _at(
        self, query: Float[Tensor, "*#b Q"], places: "_PreparedPlaces", context: Float[Tensor, "*#b C"]
    ) -> Float[Tensor, "*#b P"]:
        """Head parameters of prepared places.

        What the first layer makes of queries, places and contexts by themselves is linear, and is added up for each
        alone; only what depends on a query and a place together is computed for every pair. Features are the first
        index in memory: places are many and features few, and arithmetic on rows of a few numbers is slow.
        """
        rows, rank = self._rows, max(query.ndim, places.answer.ndim, context.ndim)
        places = _PreparedPlaces(*(_ranked(part, rank, 1) for part in places))
        query, context = (_ranked(part, rank, 0) for part in (query, context))
        known = self.known_features(context)
        of_query = self.static_in[rows.query]
        if self.sizes.comparable:
            of_query = of_query + self.static_in[rows.apart]
        alone = _features_first(query @ of_query + known @ self.static_in[rows.known])
        line = _features_first(query @ self.direction[: self.sizes.query])
        query = _features_first(query)
        pairs = torch.cat(self._compared(query, places.answer) + self._waves(query, line, places))
        hidden = _product(torch.cat([self.static_in[rows.pair], self.wave_in]).T, pairs)
        hidden = nn.functional.silu(torch.addcmul(places.shift, hidden + alone, places.gain))
        hidden = hidden + nn.functional.silu(_product(self.middle.T, hidden) + places.middle_shift)
        return (_product(self.out.T, hidden) + places.out).movedim(0, -1)

    def known_features(self, context: Float[Tensor, "*b C"]) -> Float[Tensor, "*b K"]:
        """Contexts as the network takes them."""
        return ((context_features(context) - self.context_centre) / self.context_spread).clamp(-10, 10)

    @property
    def _rows(self) -> "_StaticRows":
        """Where each kind of feature stands among those that are no waves."""
        q, v, c = self.sizes.query, self.sizes.answer + self.sizes.nuisance, 2 * self.sizes.context
        ends = [0, q, q + v, q + v + c, q + v + c + (q if self.sizes.comparable else 0), self.sizes.static]
        return _StaticRows(*(slice(*pair) for pair in pairwise(ends)))

    def _compared(self, query: Tensor, answer: Tensor) -> list[Tensor]:
        """What there is to say of a query beside an answer, where they may be places in one space."""
        if not self.sizes.comparable:
            return []
        apart = query - answer
        size = apart.abs()
        squared = apart.square().mean(dim=0, keepdim=True)
        norm = (squared + 1e-12).sqrt()
        product = (query * answer).sum(dim=0, keepdim=True)
        return [size, *(apart / (size + soft) for soft in SOFTNESS), squared, norm, (norm + 0.02).log(), product]

    def _waves(self, query: Tensor, line: Tensor, places: "_PreparedPlaces") -> list[Tensor]:
        angle = torch.addcmul(places.turn, line, places.stretch)
        waves = [angle.sin(), angle.cos()]
        if self.sizes.shared_waves:
            angles = [apart * places.rates for apart in query - places.answer]
            waves += [_mean([angle.sin() for angle in angles]), _mean([angle.cos() for angle in angles])]
        return waves


class _StaticRows(NamedTuple):
    """Slices of the features that are no waves."""

    query: slice
    place: slice
    known: slice
    apart: slice
    """Query minus answer."""
    pair: slice
    """Those that are not linear in query and answer."""


class _PreparedPlaces(NamedTuple):
    """What the network makes of places before it sees a query; features are the first index."""

    answer: Float[Tensor, "X ..."]
    stretch: Float[Tensor, "wave ..."]
    turn: Float[Tensor, "wave ..."]
    rates: Float[Tensor, "shared_wave ..."]
    gain: Float[Tensor, "H ..."]
    shift: Float[Tensor, "H ..."]
    middle_shift: Float[Tensor, "H ..."]
    out: Float[Tensor, "P ..."]


def _ranked(part: Tensor, rank: int, before: int) -> Tensor:
    """A tensor with as many dimensions as others: those that broadcast come after the first ``before``."""
    return part.reshape(*part.shape[:before], *[1] * (rank - part.ndim), *part.shape[before:])


def _features_first(part: Float[Tensor, "... F"]) -> Float[Tensor, "F ..."]:
    return part.movedim(-1, 0).contiguous()


def _column(part: Float[Tensor, " F"], like: Float[Tensor, "G ..."]) -> Tensor:
    """Numbers per feature, to be added to or multiplied with features of places."""
    return part.reshape(-1, *[1] * (like.ndim - 1))


def _product(weight: Float[Tensor, "H F"], features: Float[Tensor, "F ..."]) -> Float[Tensor, "H ..."]:
    return (weight @ features.flatten(1)).view(-1, *features.shape[1:])


@final
class Codes(nn.Module):
    """Points that stand for a nuisance which cannot be read, and their prior weights given the answer."""

    def __init__(self, codes: int, size: int, answer: int, rng: Generator | None = None) -> None:
        super().__init__()
        rng = rng or torch.Generator().manual_seed(0)
        self.points_KD = nn.Parameter(torch.randn((codes, size), generator=rng))
        self.mix_in = nn.Parameter(0.5 * torch.randn((answer, 16), generator=rng))
        self.mix_bias = nn.Parameter(torch.zeros(16))
        self.mix_out = nn.Parameter(torch.zeros(16, codes))
        self.mix_first = nn.Parameter(torch.zeros(codes))

    def log_share(self, answer: Float[Tensor, "*b X"]) -> Float[Tensor, "*b K"]:
        """Log prior weight of every code, for candidate answers in unit coordinates."""
        hidden = torch.tanh(answer @ self.mix_in + self.mix_bias)
        return torch.log_softmax(hidden @ self.mix_out + self.mix_first, dim=-1)


def _mean(parts: list[Tensor]) -> Tensor:
    return sum(parts[1:], parts[0]) / len(parts)


def context_features(context: Tensor) -> Tensor:
    """The context and the logarithm of its size."""
    return torch.cat([context, context.abs().clamp_min(1e-6).log()], dim=-1)


def context_scale(context: Tensor) -> tuple[Tensor, Tensor]:
    """Centre and spread of the features of contexts."""
    seen = context_features(context)
    centre = seen.mean(dim=0)
    return centre, (seen - centre).square().mean(dim=0).sqrt().clamp_min(1e-3)
