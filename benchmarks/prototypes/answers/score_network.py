"""The network of the answer-conditioned likelihood p(y | query, candidate answer, code, context).

It maps a query, a candidate answer and the known context, together with a code that stands for everything
hidden that the answer does not say, to the parameters of the observation heads. A code scales and shifts the
hidden units and the angles of sines and cosines, so that frequencies, amplitudes and offsets can be nuisances.

Shapes: B episodes, N candidates, K codes, D code size, Q query, X answer, C context, H hidden, P head parameters.
"""

import math
from typing import final

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

SOFTNESS = (0.01, 0.05, 0.25)
"""Distances, in unit coordinates, at which a soft sign of the difference of query and candidate turns."""


@final
class ScoreNetwork(nn.Module):
    """Head parameters for (query, candidate, context, code), and the prior weight of each code."""

    context_centre: Tensor
    context_spread: Tensor

    def __init__(
        self,
        query_dim: int,
        answer_dim: int,
        context: Float[Tensor, "n C"],
        outputs: int,
        rng: Generator,
        codes: int = 32,
        hidden: int = 64,
        code_size: int = 6,
        waves: int = 12,
        points: Float[Tensor, "K D"] | None = None,
        shares: Float[Tensor, " K"] | None = None,
    ) -> None:
        super().__init__()
        self.comparable = query_dim == answer_dim
        codes = codes if points is None else len(points)
        self.codes, self.waves = codes, waves
        context_dim = context.shape[1]
        seen = _context_features(context)
        self.register_buffer("context_centre", seen.mean(dim=0))
        spread = (seen - self.context_centre).square().mean(dim=0).sqrt()
        self.register_buffer("context_spread", spread.clamp_min(1e-3))
        static = query_dim + answer_dim + 2 * context_dim
        if self.comparable:
            static += query_dim * (2 + len(SOFTNESS)) + 4

        def normal(*shape: int, scale: float = 1.0) -> nn.Parameter:
            return nn.Parameter(scale * torch.randn(shape, generator=rng))

        self.given = points is not None
        if points is None:
            self.points = normal(codes, code_size)
        else:
            # The nuisance is read, not discovered: codes are points of it, and functions of them are learned.
            self.register_buffer("points", points)
            shares = torch.ones(len(points)) if shares is None else shares
            self.register_buffer("log_share", (shares / shares.sum()).clamp_min(1e-6).log())
            self.embed_in = normal(points.shape[1], code_size + 4, scale=0.7)
            self.embed_bias = normal(code_size + 4, scale=0.5)
            code_size = points.shape[1] + code_size + 4
        self.mix_in = normal(answer_dim + 2 * context_dim, 16, scale=0.5)
        self.mix_bias = nn.Parameter(torch.zeros(16))
        self.mix_out = nn.Parameter(torch.zeros(16, codes))
        self.mix_first = nn.Parameter(torch.zeros(codes))
        # Waves of mixtures of query and candidate, from slow to fast.
        rates = torch.exp(torch.linspace(math.log(0.7), math.log(12.0), waves))
        direction = torch.randn((query_dim + answer_dim, waves), generator=rng)
        direction = direction / torch.linalg.vector_norm(direction, dim=0)
        self.direction = nn.Parameter(direction * rates)
        features = static + 2 * waves
        self.shared_waves = min(waves, 10) if self.comparable and query_dim > 1 else 0
        if self.shared_waves:
            self.shared_rates = nn.Parameter(torch.linspace(math.log(1.0), math.log(14.0), self.shared_waves))
            features += 2 * self.shared_waves
        bent = waves + self.shared_waves
        self.bend = normal(code_size, bent, scale=0.15)
        self.turn = normal(code_size, waves, scale=0.3)
        self.static_in = normal(static, hidden, scale=1 / math.sqrt(features))
        self.wave_in = normal(features - static, hidden, scale=1 / math.sqrt(features))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.gain = normal(code_size, hidden, scale=0.2)
        self.shift = normal(code_size, hidden, scale=0.4)
        self.middle = normal(hidden, hidden, scale=1 / math.sqrt(hidden))
        self.middle_shift = normal(code_size, hidden, scale=0.2)
        self.out = normal(hidden, outputs, scale=0.5 / math.sqrt(hidden))
        self.out_code = normal(code_size, outputs, scale=0.2)
        self.out_bias = nn.Parameter(torch.zeros(outputs))

    def embed(self, code: Float[Tensor, "*batch D"]) -> Tensor:
        """A code as the layers take it: itself, and functions of it where it was given."""
        if not self.given:
            return code
        return torch.cat([code, torch.tanh(code @ self.embed_in + self.embed_bias)], dim=-1)

    def context_features(self, context: Float[Tensor, "*batch C"]) -> Tensor:
        """The context and its logarithm, standardised."""
        return ((_context_features(context) - self.context_centre) / self.context_spread).clamp(-10, 10)

    def log_mix(self, answer: Float[Tensor, "*batch X"], context: Float[Tensor, "*batch C"]) -> Tensor:
        """Log prior weight of every code, for a candidate answer (in unit coordinates) and a context."""
        if self.given:
            return self.log_share.expand(*torch.broadcast_shapes(answer.shape[:-1], context.shape[:-1]), -1)
        known = self.context_features(context)
        shape = torch.broadcast_shapes(answer.shape[:-1], known.shape[:-1])
        seen = torch.cat([part.expand(*shape, part.shape[-1]) for part in (answer, known)], dim=-1)
        hidden = torch.tanh(seen @ self.mix_in + self.mix_bias)
        return torch.log_softmax(hidden @ self.mix_out + self.mix_first, dim=-1)

    def _static(self, query: Tensor, answer: Tensor, context: Tensor) -> Tensor:
        parts = [query, answer, self.context_features(context)]
        if self.comparable:
            apart = query - answer
            size = apart.abs()
            squared = apart.square().mean(dim=-1, keepdim=True)
            norm = (squared + 1e-12).sqrt()
            parts += [apart, size, *(apart / (size + soft) for soft in SOFTNESS)]
            parts += [squared, norm, (norm + 0.02).log(), (query * answer).sum(dim=-1, keepdim=True)]
        return torch.cat(parts, dim=-1)

    def forward(
        self,
        query: Float[Tensor, "*batch Q"],
        answer: Float[Tensor, "*batch X"],
        context: Float[Tensor, "*batch C"],
        code: Float[Tensor, "*batch D"] | None = None,
    ) -> Tensor:
        """Head parameters: *batch x K x P for all codes, or *batch x P for one code each.

        Query and answer are in unit coordinates; the leading dimensions broadcast.
        """
        shape = torch.broadcast_shapes(query.shape[:-1], answer.shape[:-1], context.shape[:-1])
        query, answer, context = (part.expand(*shape, part.shape[-1]) for part in (query, answer, context))
        static = self._static(query, answer, context) @ self.static_in + self.bias
        line = torch.cat([query, answer], dim=-1) @ self.direction
        apart = query - answer if self.shared_waves else None
        if code is None:
            code = self.embed(self.points)
            static, line = static[..., None, :], line[..., None, :]
            apart = None if apart is None else apart[..., None, :]
        else:
            code = self.embed(code)
        stretch = torch.exp(code @ self.bend)
        angle = line * stretch[..., : self.waves] + code @ self.turn
        waves = [angle.sin(), angle.cos()]
        if apart is not None:
            rates = self.shared_rates.exp() * stretch[..., self.waves :]
            angles = apart[..., None] * rates[..., None, :]
            waves += [angles.sin().mean(dim=-2), angles.cos().mean(dim=-2)]
        hidden = static + torch.cat(waves, dim=-1) @ self.wave_in
        hidden = nn.functional.silu(hidden * (1 + code @ self.gain) + code @ self.shift)
        hidden = hidden + nn.functional.silu(hidden @ self.middle + code @ self.middle_shift)
        return hidden @ self.out + code @ self.out_code + self.out_bias


def _context_features(context: Tensor) -> Tensor:
    return torch.cat([context, context.abs().clamp_min(1e-6).log()], dim=-1)
