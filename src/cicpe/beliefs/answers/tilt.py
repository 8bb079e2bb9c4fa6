"""What a prior has beyond a Gaussian copula: the ratio of their densities, learned by telling draws of the two apart.

Hidden numbers that lie on a ring, in clusters, or add up to one are far from any copula. A classifier that has to tell
their latent coordinates from draws of the standard normal distribution learns log p(z) - log N(z; 0, I) in its
log-odds. Where it can tell no difference on held-out draws there is none to be taken into account.

Shapes: M draws, L latent coordinates.
"""

import math
import time
from typing import final

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from cicpe.beliefs.answers.first_weights import draw_first_weights

HIDDEN = 48
RATE = 5e-3
BATCH = 1024
UPDATES, FIRST = 800, 150
"""Updates of the classifier, and those after which it is given up if it tells nothing."""
HELD_OUT = 0.2
"""Share of the draws that it is judged on."""
WORTH, CLEAR = 0.01, 4.0
"""Nats per draw that it has to tell, and in how many standard errors."""
REACH, MOST = 4.5, 12.0
"""Latent coordinates and log ratios are cut off here."""


@final
class Tilt(nn.Module):
    """The log ratio of the prior's density to that of its copula, at latent coordinates."""

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.ratio = nn.Sequential(
            nn.Linear(2 * numbers, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, 1)
        )

    def forward(self, latent: Float[Tensor, "*batch L"]) -> Float[Tensor, " *batch"]:
        """The log ratio."""
        inside = latent.clamp(-REACH, REACH)
        value: Tensor = self.ratio(torch.cat([inside, inside.square() - 1], dim=-1))[..., 0]
        return MOST * torch.tanh(value / MOST)

    @classmethod
    def learn(cls, latent_ML: Float[Tensor, "M L"], rng: Generator, seconds: float = math.inf) -> "Tilt | None":
        """The ratio that draws show; None where they are those of the copula, as far as they tell.

        Args:
            latent_ML: Latent coordinates of draws from the prior.
            rng: Draws first weights, batches and what they are told apart from.
            seconds: How long it may be fitted.

        Returns:
            The ratio, or None.
        """
        m, numbers = latent_ML.shape
        if numbers < 2:
            return None
        tilt = cls(numbers)
        draw_first_weights(tilt, rng)
        shuffled = latent_ML[torch.randperm(m, generator=rng)]
        held_out, shown = shuffled[: int(HELD_OUT * m)], shuffled[int(HELD_OUT * m) :]
        return tilt.requires_grad_(False) if tilt._fit(shown, held_out, rng, seconds) else None

    def _fit(self, shown: Tensor, held_out: Tensor, rng: Generator, seconds: float) -> bool:
        """Whether there is something to tell, once it is learned."""
        optimiser, began = torch.optim.Adam(self.parameters(), lr=RATE, weight_decay=1e-4), time.perf_counter()
        for update in range(UPDATES):
            share = max(update / UPDATES, (time.perf_counter() - began) / max(seconds, 1e-3))
            if share >= 1 or (update == FIRST and not self._tells(held_out, rng, CLEAR / 2, WORTH / 4)):
                break
            for group in optimiser.param_groups:
                group["lr"] = RATE * 0.5 * (1 + math.cos(math.pi * share)) + 1e-5
            own = shown[torch.randint(len(shown), (BATCH,), generator=rng)]
            other = torch.randn(own.shape, generator=rng)
            loss = nn.functional.softplus(-self(own)).mean() + nn.functional.softplus(self(other)).mean()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        return self._tells(held_out, rng, CLEAR, WORTH)

    @torch.no_grad()
    def _tells(self, held_out: Tensor, rng: Generator, clear: float, worth: float) -> bool:
        other = torch.randn(held_out.shape, generator=rng)
        gain = math.log(2) - torch.cat([nn.functional.softplus(-self(held_out)), nn.functional.softplus(self(other))])
        mean = float(gain.mean())
        return mean > worth and mean > clear * float(gain.std()) / math.sqrt(len(gain))
