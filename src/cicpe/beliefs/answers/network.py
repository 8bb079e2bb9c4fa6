"""The network of the likelihood p(observation | query, answer, nuisance, context).

It maps a query, a *place* (a candidate answer followed by everything else that is hidden) and the known context to the
parameters of the observation heads. What is hidden scales and shifts the hidden units and the angles of sines and
cosines, so that frequencies, amplitudes, slopes and offsets can be learned quickly.

Shapes: Q query, X answer, D nuisance, V = X + D place, C context, H hidden units, P head parameters, K codes.
"""

import math
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

SOFTNESS = (0.01, 0.05, 0.25)
"""Distances, in unit coordinates, over which a soft sign of the difference of query and candidate turns."""
SLOWEST, FASTEST = 0.7, 12.0
"""Rates of the waves at the start, in radians per unit coordinate."""
SHARED_WAVES = 10
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
        seen = _context_features(context)
        self.context_centre = seen.mean(dim=0)
        self.context_spread = (seen - self.context_centre).square().mean(dim=0).sqrt().clamp_min(1e-3)

    def forward(
        self, query: Float[Tensor, "*#b Q"], place: Float[Tensor, "*#b V"], context: Float[Tensor, "*#b C"]
    ) -> Float[Tensor, "*#b P"]:
        """Head parameters; query and place are in unit coordinates."""
        return self.at(query, self.prepare(place), context)

    def prepare(self, place: Float[Tensor, "*b V"]) -> "PreparedPlaces":
        """All that depends on places alone, for many queries of the same ones."""
        code = torch.cat([place, torch.tanh(place @ self.embed_in + self.embed_bias)], dim=-1)
        return PreparedPlaces(
            place,
            stretch=torch.exp(code @ self.bend),
            turn=code @ self.turn,
            gain=1 + code @ self.gain,
            shift=code @ self.shift,
            middle_shift=code @ self.middle_shift,
            out=code @ self.out_code + self.out_bias,
        )

    def at(
        self, query: Float[Tensor, "*#b Q"], places: "PreparedPlaces", context: Float[Tensor, "*#b C"]
    ) -> Float[Tensor, "*#b P"]:
        """Head parameters of prepared places."""
        shape = _broadcast(query.shape[:-1], places.place.shape[:-1], context.shape[:-1])
        known = ((_context_features(context) - self.context_centre) / self.context_spread).clamp(-10, 10)
        query, place, known = (part.expand(*shape, part.shape[-1]) for part in (query, places.place, known))
        answer = place[..., : self.sizes.answer]
        features = torch.cat(self._static(query, answer, place, known) + self._waves(query, answer, places), dim=-1)
        hidden = nn.functional.linear(features, torch.cat([self.static_in, self.wave_in]).T, self.bias)
        hidden = nn.functional.silu(torch.addcmul(places.shift, hidden, places.gain))
        hidden = hidden + nn.functional.silu(hidden @ self.middle + places.middle_shift)
        return hidden @ self.out + places.out

    def _static(self, query: Tensor, answer: Tensor, place: Tensor, known: Tensor) -> list[Tensor]:
        parts = [query, place, known]
        if self.sizes.comparable:
            apart = query - answer
            size = apart.abs()
            squared = apart.square().mean(dim=-1, keepdim=True)
            norm = (squared + 1e-12).sqrt()
            parts += [apart, size, *(apart / (size + soft) for soft in SOFTNESS)]
            parts += [squared, norm, (norm + 0.02).log(), (query * answer).sum(dim=-1, keepdim=True)]
        return parts

    def _waves(self, query: Tensor, answer: Tensor, places: "PreparedPlaces") -> list[Tensor]:
        own = self.sizes.waves
        line = torch.cat([query, answer], dim=-1) @ self.direction
        angle = line * places.stretch[..., :own] + places.turn
        waves = [angle.sin(), angle.cos()]
        if self.sizes.shared_waves:
            rates = self.shared_rates.exp() * places.stretch[..., own:]
            angles = [apart * rates for apart in (query - answer).split(1, dim=-1)]  # type: ignore[no-untyped-call]
            waves += [_mean([angle.sin() for angle in angles]), _mean([angle.cos() for angle in angles])]
        return waves


class PreparedPlaces(NamedTuple):
    """Places and what the network makes of them before it sees a query."""

    place: Float[Tensor, "*b V"]
    stretch: Tensor
    turn: Tensor
    gain: Tensor
    shift: Tensor
    middle_shift: Tensor
    out: Tensor


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


def _broadcast(*shapes: torch.Size) -> list[int]:
    """The shape that shapes broadcast to; torch's own takes as long as a small network pass."""
    longest = max(len(shape) for shape in shapes)
    padded = [(1,) * (longest - len(shape)) + tuple(shape) for shape in shapes]
    return [next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True)]


def _mean(parts: list[Tensor]) -> Tensor:
    return sum(parts[1:], parts[0]) / len(parts)


def _context_features(context: Tensor) -> Tensor:
    """The context and the logarithm of its size."""
    return torch.cat([context, context.abs().clamp_min(1e-6).log()], dim=-1)
