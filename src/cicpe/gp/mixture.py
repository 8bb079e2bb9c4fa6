"""Gaussian processes that a family's own functions look like: a mixture of kinds, fitted to simulated tasks.

Where an observation is a function of the query plus noise, and there are few query dimensions, a Gaussian process is a
belief in closed form. Which one? Tasks differ in how fast, how far and in which direction their functions vary, so
there are several *kinds*, each with its own length scales, amplitude, level and noise, and with a share of the tasks.
All of that is fitted by maximising the likelihood of what simulated tasks return at random queries.
"""

import math
import time
from typing import NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

from cicpe.gp.exact import condition
from cicpe.gp.kernels import MATERN_32, MATERN_52, SQUARED_EXPONENTIAL, correlation, scaled_distance
from cicpe.statistics import sobol_points

KINDS = 24
STEPS, BATCH, RATE = 250, 32, 0.03
"""Gradient steps of the fit, functions in each, and their size."""
FLOOR = 1e-3
"""Standard deviation of noise, in units of the observations' own, that is always there: no kernel is exact."""
SMOOTHNESS = (MATERN_32, MATERN_52, SQUARED_EXPONENTIAL)
"""Of the kernels, kind by kind in turn."""
SHORTEST, LONGEST = 0.05, 2.0
"""Length scales that the fit starts from, in unit coordinates: the query space is 2 wide."""


@final
class GPMixture(nn.Module):
    """J kinds of Gaussian process over Q query dimensions in unit coordinates, for standardised observations."""

    def __init__(self, kinds: int, dim: int, contexts: int) -> None:
        super().__init__()

        def numbers(*shape: int, value: float = 0.0) -> nn.Parameter:
            return nn.Parameter(torch.full(shape, value, dtype=torch.float64))

        start = sobol_points(kinds, dim, seed=0)
        self.log_share_J = numbers(kinds)
        self.log_scale_JQ = nn.Parameter(math.log(SHORTEST) + math.log(LONGEST / SHORTEST) * start)
        self.log_amplitude_J = numbers(kinds)
        self.level_J = numbers(kinds)
        self.log_wander_J = numbers(kinds, value=-1.0)
        """Standard deviation of a task's own level about ``level``."""
        self.log_noise_J = numbers(kinds, value=-2.5)
        self.noise_by_context_JC = numbers(kinds, contexts, value=0.3)
        """How the log of the noise grows with the log of each (positive) context."""
        self.register_buffer("centre", torch.zeros((), dtype=torch.float64))
        self.register_buffer("spread", torch.ones((), dtype=torch.float64))
        self.centre: Tensor
        self.spread: Tensor
        """Observations are standardised by these two."""

    @property
    def kinds(self) -> int:
        """How many kinds there are."""
        return len(self.log_share_J)

    def covariance(
        self, kind: Int[Tensor, " kind"], a: Float[Tensor, "*a n query"], b: Float[Tensor, "*b m query"]
    ) -> Float[Tensor, "*batch kind n m"]:
        """The covariance of the functions at every pair of places, for some of the kinds.

        Args:
            kind: Their numbers.
            a: Places, ``*batch x n x query``, where the last batch dimension has one entry per kind or one for all.
            b: Other places, likewise.

        Returns:
            ``*batch x kind x n x m``.
        """
        distance = scaled_distance(a, b, self.log_scale_JQ[kind].exp())
        covariance = torch.empty_like(distance)
        for first, smoothness in enumerate(SMOOTHNESS):
            some = (kind % len(SMOOTHNESS) == first).nonzero()[:, 0]
            if len(some):
                covariance[..., some, :, :] = correlation(distance[..., some, :, :], smoothness)
        amplitude, wander = (
            log[kind].exp().square()[:, None, None] for log in (self.log_amplitude_J, self.log_wander_J)
        )
        return covariance * amplitude + wander

    def noise(self, context_BC: Float[Tensor, "b context"]) -> Float[Tensor, "b kind"]:
        """The standard deviation of the noise in each context.

        Args:
            context_BC: Known numbers, positive.

        Returns:
            For every episode and kind.
        """
        log_context = context_BC.double().clamp_min(1e-4).log()
        return (self.log_noise_J + log_context @ self.noise_by_context_JC.T).exp() + FLOOR

    def standard(self, observation: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """Observations as the processes see them: centred, and in units of their spread."""
        return (observation.double() - self.centre) / self.spread

    def log_evidence(
        self,
        context_BC: Float[Tensor, "b context"],
        place_BTQ: Float[Tensor, "b step query"],
        value_BT: Float[Tensor, "b step"],
    ) -> Float[Tensor, "b kind"]:
        """The log density of standardised observations under each kind.

        Args:
            context_BC: Known numbers of every episode.
            place_BTQ: Queries in unit coordinates.
            value_BT: What they returned, standardised.

        Returns:
            For every episode and kind.
        """
        place_B1TQ = place_BTQ[:, None]
        covariance_BJTT = self.covariance(torch.arange(self.kinds), place_B1TQ, place_B1TQ)
        error_BJT = value_BT[:, None] - self.level_J[:, None]
        return condition(covariance_BJTT, self.noise(context_BC).square(), error_BJT).log_evidence()


class FunctionSamples(NamedTuple):
    """What functions of a family return at some places."""

    context_NC: Float[Tensor, "function context"]
    place_NTQ: Float[Tensor, "function step query"]
    """In unit coordinates."""
    observed_NT: Float[Tensor, "function step"]


def _first_guess(samples: FunctionSamples, kinds: int, noise_context: int | None) -> GPMixture:
    mixture = GPMixture(kinds, samples.place_NTQ.shape[-1], samples.context_NC.shape[-1])
    mixture.centre, mixture.spread = samples.observed_NT.mean(), samples.observed_NT.std().clamp_min(1e-9)
    if noise_context is not None:
        # The known level is the noise: kinds are not needed to tell its values apart.
        with torch.no_grad():
            mixture.noise_by_context_JC.zero_()
            mixture.noise_by_context_JC[:, noise_context] = 1.0
            mixture.log_noise_J.fill_(-float(mixture.spread.log()))
    return mixture


def fit_mixture(
    samples: FunctionSamples,
    rng: Generator,
    kinds: int = KINDS,
    updates: int | None = None,
    seconds: float = math.inf,
    noise_context: int | None = None,
) -> GPMixture:
    """The mixture of kinds that makes some samples most likely.

    Args:
        samples: Of many functions.
        rng: Draws the functions of each gradient step.
        kinds: How many kinds of process are mixed.
        updates: Gradient steps; ``STEPS`` if left out.
        seconds: A limit: the fit then ends with as many steps as there was time for.
        noise_context: Which context is the known standard deviation of the noise, if any is.

    Returns:
        The fitted mixture, whose parameters need no gradient.
    """
    mixture = _first_guess(samples, kinds, noise_context)
    value_NT = mixture.standard(samples.observed_NT)
    functions, queries = value_NT.shape
    optimiser = torch.optim.Adam(mixture.parameters(), lr=RATE, betas=(0.9, 0.98))
    steps, began = updates or STEPS, time.perf_counter()
    for step in range(steps):
        done = max(step / steps, (time.perf_counter() - began) / seconds)
        if done >= 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = RATE * (0.05 + 0.95 * math.cos(math.pi / 2 * done) ** 2)
        some = torch.randint(functions, (BATCH,), generator=rng)
        joint = mixture.log_evidence(samples.context_NC[some], samples.place_NTQ[some], value_NT[some])
        joint = joint + mixture.log_share_J.log_softmax(dim=0)
        loss = -joint.logsumexp(dim=-1).mean() / queries + 1e-3 * mixture.log_scale_JQ.square().mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return mixture.requires_grad_(False)
