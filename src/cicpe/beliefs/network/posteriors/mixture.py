"""A mixture of diagonal Gaussians over the target: a posterior that can say "here or there"."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Generator, Tensor, nn

from cicpe.beliefs.network.layers import LOG_STD, mlp
from cicpe.beliefs.network.memories.base import Memory, MemoryFeatures
from cicpe.beliefs.network.posteriors.gaussian import Posterior
from cicpe.config import Config
from cicpe.spaces import Space, Sphere

ASCENT_STEPS = 2
"""Mean-shift steps from the best candidate to the recommendation."""


@final
@dataclass(frozen=True)
class MixturePosterior(Posterior):
    """sum_k w_k N(m_k, diag s_k^2), in unit coordinates (on a sphere: the m_k on it, the density around it).

    Recommendations and samples carry no gradient. The losses that pull them towards the target (the
    anchor) would pull whichever mode was chosen towards the others, and make one blurred mode of two;
    the likelihood alone moves each component towards the targets that it is responsible for.
    """

    space: Space
    logits: Float[Tensor, "*batch component"]
    mean_unit: Float[Tensor, "*batch component answer"]
    log_std_unit: Float[Tensor, "*batch component answer"]
    window: float

    @cached_property
    def recommendation(self) -> Float[Tensor, "*batch answer"]:
        """The answer x with the largest E exp(-|x - x*|^2 / 2 window^2): success, with a soft edge.

        That expectation is the mixture's own density after a blur by ``window``. So neither a sliver of
        mass with a high density wins, nor a heavy component that is spread thin; and where all components
        lie within the window, the answer is about their mean. The start is the best of the component means
        and the overall mean; mean-shift steps, which never lose, go on from there.
        """
        with torch.no_grad():
            blurred = torch.logaddexp(2 * self.log_std_unit, torch.tensor(2 * math.log(self.window))) / 2
            overall = (self.logits.softmax(dim=-1)[..., None] * self.mean_unit).sum(dim=-2, keepdim=True)
            candidates = self._inside(torch.cat([overall, self.mean_unit], dim=-2))
            best = self._log_joint(candidates, blurred).logsumexp(dim=-1).argmax(dim=-1)
            unit = candidates.take_along_dim(best[..., None, None], dim=-2)
            for _ in range(ASCENT_STEPS):
                near = self._log_joint(unit, blurred).softmax(dim=-1)
                pull = near.transpose(-1, -2) * torch.exp(-2 * blurred)
                unit = self._inside((pull * self.mean_unit).sum(dim=-2, keepdim=True) / pull.sum(dim=-2, keepdim=True))
            return self.space.project(self.space.from_unit(unit[..., 0, :]))

    @property
    def std(self) -> Float[Tensor, "*batch answer"]:
        weights = self.logits.softmax(dim=-1)[..., None]
        mean = (weights * self.mean_unit).sum(dim=-2, keepdim=True)
        second = torch.exp(2 * self.log_std_unit) + (self.mean_unit - mean).square()
        return (weights * second).sum(dim=-2).sqrt() * self.space.unit_scale

    def nll(self, target: Float[Tensor, "*#batch answer"]) -> Float[Tensor, "*batch"]:
        """The joint negative log density, divided by the number of coordinates."""
        joint = self._log_joint(self.space.to_unit(target)[..., None, :], self.log_std_unit)
        return -joint[..., 0, :].logsumexp(dim=-1) / target.shape[-1]

    def sample(self, rng: Generator, scale: Tensor | float = 1.0) -> Float[Tensor, "*batch answer"]:
        """One draw: a component by its weight, and ``scale`` times its spread; the recommendation for scale 0."""
        with torch.no_grad():
            weights = self.logits.softmax(dim=-1)
            chosen = torch.multinomial(weights.flatten(0, -2), 1, generator=rng).view(*weights.shape[:-1], 1, 1)
            mean = self.mean_unit.take_along_dim(chosen, dim=-2)[..., 0, :]
            std = self.log_std_unit.take_along_dim(chosen, dim=-2)[..., 0, :].exp()
            unit = mean + scale * std * torch.randn(mean.shape, generator=rng, dtype=mean.dtype)
            draw = self.space.project(self.space.from_unit(unit))
            return torch.where(torch.as_tensor(scale) > 0, draw, self.recommendation)

    def _log_joint(
        self, unit: Float[Tensor, "*#batch point answer"], log_std: Float[Tensor, "*#batch component answer"]
    ) -> Float[Tensor, "*batch point component"]:
        """log w_k + log N(point; m_k, s_k^2)."""
        z = (unit[..., None, :] - self.mean_unit[..., None, :, :]) * torch.exp(-log_std)[..., None, :, :]
        normaliser = (log_std + math.log(2 * math.pi) / 2).sum(dim=-1)
        return (self.logits.log_softmax(dim=-1) - normaliser)[..., None, :] - z.square().sum(dim=-1) / 2

    def _inside(self, unit: Tensor) -> Tensor:
        return self.space.to_unit(self.space.project(self.space.from_unit(unit)))


@final
class MixtureConfig(Config):
    """A mixture of diagonal Gaussians over the target, for posteriors with several modes."""

    kind: Literal["mixture"] = "mixture"
    components: int = Field(default=8, ge=1, le=1000)
    """Gaussians in the mixture."""
    hidden: int = Field(default=64, ge=1)
    """Hidden units between the memory and the components."""
    window: float = Field(default=0.1, gt=0)
    """How close counts as success when the recommendation is chosen: about epsilon / 2 in unit coordinates."""

    def build(self, memory: Memory, space: Space) -> "MixtureHead":
        """The head that this describes."""
        return MixtureHead(self, memory, space)


@final
class MixtureHead(nn.Module):
    """Weights from the summary; means and spreads from it too, or per coordinate where the memory gives axes.

    Components start from places spread over the space: alike, they would stay alike. Where the memory has
    an estimate of its own, the first component starts from that instead.
    """

    places_KX: Tensor

    def __init__(self, config: MixtureConfig, memory: Memory, space: Space) -> None:
        super().__init__()
        self.space, self.window = space, config.window
        self.weights = mlp([memory.width, config.hidden, config.components], last_gain=0.1)
        shared = memory.axis_width is not None
        width = memory.width if memory.axis_width is None else memory.axis_width
        self.sizes = (2, config.components, 1 if shared else space.dim)
        self.moments = mlp([width, config.hidden, math.prod(self.sizes)], last_gain=0.1)
        # The first Sobol point is the corner; without it, the first is the middle.
        sobol = torch.quasirandom.SobolEngine(self.sizes[2]).draw(config.components + 1)[1:]  # type: ignore[no-untyped-call]
        self.register_buffer("places_KX", 4 * sobol - 2)

    def forward(self, memory_features: MemoryFeatures) -> MixturePosterior:
        """The posterior at every prefix that was read."""
        if memory_features.axes is not None:
            moments = self.moments(memory_features.axes).unflatten(-1, self.sizes)  # B P X 2 K 1
            raw, log_std = moments.squeeze(-1).movedim(2, -1).unbind(dim=2)
        else:
            raw, log_std = self.moments(memory_features.summary).unflatten(-1, self.sizes).unbind(dim=2)
        mean, log_std = torch.tanh(raw + self.places_KX), log_std - 1.0
        if memory_features.point_estimate is not None:
            log_spread = (
                torch.full_like(memory_features.point_estimate, -1.0)
                if memory_features.log_spread is None
                else memory_features.log_spread
            )
            anchored = memory_features.point_estimate + log_spread.exp() * raw[:, :, 0]
            mean = torch.cat([anchored[:, :, None], mean[:, :, 1:]], dim=2)
            widened = log_spread + 1.0 + log_std[:, :, 0]
            log_std = torch.cat([widened[:, :, None], log_std[:, :, 1:]], dim=2)
        if isinstance(self.space, Sphere):
            mean = self.space.project(mean + 1e-6)
        return MixturePosterior(
            self.space, self.weights(memory_features.summary), mean, log_std.clamp(*LOG_STD), self.window
        )
