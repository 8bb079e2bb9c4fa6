"""Gaussian processes that a family's own functions look like: a mixture of kinds, fitted to simulated tasks.

Where an observation is a function of the query plus noise, and there are few query dimensions, a Gaussian process is a
belief in closed form. Which one? Tasks differ in how fast, how far and in which direction their functions vary, so
there are several *kinds*, each with its own length scales, amplitude, level and noise, and with a share of the tasks.
All of that is fitted by maximising the likelihood of what simulated tasks return at random queries.
"""

import math
import time
from typing import final

import torch
from jaxtyping import Float, Int
from scipy.stats import qmc
from torch import Tensor, nn

from cicpe.problems import Problem, TaskBatch

KINDS = 24
TASKS, QUERIES = 1024, 32
"""Simulated tasks, and random queries of each."""
STEPS, BATCH, RATE = 250, 32, 0.03
"""Gradient steps of the fit, tasks in each, and their size."""
FLOOR = 1e-3
"""Standard deviation of noise, in units of the observations' own, that is always there: no kernel is exact."""
SMOOTHNESS = (1.5, 2.5, math.inf)
"""Of the Matern kernels, kind by kind in turn; infinite is the squared exponential."""
SHORTEST, LONGEST = 0.05, 2.0
"""Length scales that the fit starts from, in unit coordinates: the query space is 2 wide."""


@final
class GPMixture(nn.Module):
    """J kinds of Gaussian process over Q query dimensions in unit coordinates, for standardised observations."""

    def __init__(self, kinds: int, dim: int, contexts: int) -> None:
        super().__init__()

        def numbers(*shape: int, value: float = 0.0) -> nn.Parameter:
            return nn.Parameter(torch.full(shape, value, dtype=torch.float64))

        start = torch.as_tensor(qmc.Sobol(dim, rng=0).random_base2(max(0, kinds - 1).bit_length())[:kinds])
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
        """How many there are."""
        return len(self.log_share_J)

    def covariance(
        self, one: Float[Tensor, "*b n q"], two: Float[Tensor, "*b m q"], only: int | None = None
    ) -> Float[Tensor, "*b n m"]:
        """Of the functions at two sets of places, for every kind (or for one)."""
        kinds = range(self.kinds) if only is None else range(only, only + 1)
        some = slice(kinds.start, kinds.stop)
        square = (one[..., :, None, :] - two[..., None, :, :]).square()
        scaled = torch.einsum("...nmq,jq->...jnm", square, torch.exp(-2 * self.log_scale_JQ[some]))
        apart = (scaled + 1e-12).sqrt()  # a root has no slope at zero
        shapes = [SMOOTHNESS[kind % len(SMOOTHNESS)] for kind in kinds]
        parts = [_correlation(apart[..., i, :, :], shape) for i, shape in enumerate(shapes)]
        amplitude, wander = (
            log[some].exp().square()[:, None, None] for log in (self.log_amplitude_J, self.log_wander_J)
        )
        cover = torch.stack(parts, dim=-3) * amplitude + wander
        return cover if only is None else cover[..., 0, :, :]

    def covariance_of(
        self, kind_P: Int[Tensor, " p"], one_PNQ: Float[Tensor, "p n q"], two_MQ: Float[Tensor, "m q"]
    ) -> Float[Tensor, "p n m"]:
        """Of the functions at places of their own and at common ones, for one kind each."""
        scale_P1Q = self.log_scale_JQ.exp()[kind_P, None]
        apart_PNM = torch.cdist(one_PNQ / scale_P1Q, two_MQ / scale_P1Q, compute_mode="donot_use_mm_for_euclid_dist")
        for first, shape in enumerate(SMOOTHNESS):
            some = kind_P % len(SMOOTHNESS) == first
            if bool(some.any()):
                apart_PNM[some] = _correlation(apart_PNM[some], shape)
        amplitude_P, wander_P = (log[kind_P].exp().square() for log in (self.log_amplitude_J, self.log_wander_J))
        return apart_PNM.mul_(amplitude_P[:, None, None]).add_(wander_P[:, None, None])

    def noise(self, context_BC: Float[Tensor, "b context"]) -> Float[Tensor, "b kind"]:
        """Standard deviation of the noise in each context."""
        log_context = context_BC.double().clamp_min(1e-4).log()
        return (self.log_noise_J + log_context @ self.noise_by_context_JC.T).exp() + FLOOR

    def standard(self, observation: Tensor) -> Tensor:
        """Observations as the processes see them."""
        return (observation.double() - self.centre) / self.spread

    def log_evidence(self, context_BC: Tensor, place_BTQ: Tensor, value_BT: Tensor) -> Float[Tensor, "b kind"]:
        """Log density of standardised observations."""
        steps = place_BTQ.shape[1]
        noise_BJTT = torch.diag_embed(self.noise(context_BC).square()[..., None].expand(-1, -1, steps))
        root = torch.linalg.cholesky(self.covariance(place_BTQ, place_BTQ) + noise_BJTT)
        left = (value_BT[:, None] - self.level_J[:, None])[..., None]
        white = torch.linalg.solve_triangular(root, left, upper=False)[..., 0]
        log_root = root.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
        density: Tensor = -0.5 * white.square().sum(dim=-1) - log_root - 0.5 * steps * math.log(2 * math.pi)
        return density


def _correlation(apart: Tensor, smoothness: float) -> Tensor:
    if smoothness == 1.5:
        far = math.sqrt(3) * apart
        return (1 + far) * torch.exp(-far)
    if smoothness == 2.5:
        far = math.sqrt(5) * apart
        return (1 + far + far.square() / 3) * torch.exp(-far)
    return torch.exp(-apart.square() / 2)


def fit_gp_mixture(
    problem: Problem, seed: int = 0, kinds: int = KINDS, updates: int | None = None, seconds: float = math.inf
) -> GPMixture:
    """The mixture of kinds that makes what simulated tasks return most likely.

    Args:
        problem: Draws the tasks.
        seed: Seeds them.
        kinds: How many kinds of process are mixed.
        updates: Gradient steps, ``STEPS`` where not said.
        seconds: A limit: the fit then ends with as many steps as there was time for.
    """
    rng = torch.Generator().manual_seed(seed)
    tasks = TaskBatch.draw(problem, TASKS, rng)
    rows = torch.arange(TASKS).repeat_interleave(QUERIES)
    many = tasks.select(rows)
    query = problem.query_space.sample(len(rows), rng)
    observed = many.observe(query, rng)[:, 0].double().view(TASKS, QUERIES)
    place = problem.query_space.to_unit(query).double().view(TASKS, QUERIES, -1)
    mixture = GPMixture(kinds, place.shape[-1], tasks.context.shape[-1])
    mixture.centre, mixture.spread = observed.mean(), observed.std().clamp_min(1e-9)
    if "noise" in problem.context_names:
        # The known level is the noise: kinds are not needed to tell its values apart.
        with torch.no_grad():
            mixture.noise_by_context_JC.zero_()
            mixture.noise_by_context_JC[:, list(problem.context_names).index("noise")] = 1.0
            mixture.log_noise_J.fill_(-float(mixture.spread.log()))
    value = mixture.standard(observed)
    optimiser = torch.optim.Adam(mixture.parameters(), lr=RATE, betas=(0.9, 0.98))
    steps, began = updates or STEPS, time.perf_counter()
    for step in range(steps):
        done = max(step / steps, (time.perf_counter() - began) / seconds)
        if done >= 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = RATE * (0.05 + 0.95 * math.cos(math.pi / 2 * done) ** 2)
        some = torch.randint(TASKS, (BATCH,), generator=rng)
        joint = mixture.log_evidence(tasks.context[some], place[some], value[some])
        joint = joint + mixture.log_share_J.log_softmax(dim=0)
        loss = -joint.logsumexp(dim=-1).mean() / QUERIES + 1e-3 * mixture.log_scale_JQ.square().mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return mixture.requires_grad_(False)
