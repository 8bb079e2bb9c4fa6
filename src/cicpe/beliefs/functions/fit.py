"""Fits a mixture of Gaussian processes to what the tasks of a family return."""

import math
import time
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.gp.mixture import KINDS, GPMixture
from cicpe.problems import Problem, TaskBatch

TASKS, QUERIES = 1024, 32
"""Simulated tasks, and random queries of each."""
STEPS, BATCH, RATE = 250, 32, 0.03
"""Gradient steps of the fit, tasks in each, and their size."""


class _Pilot(NamedTuple):
    """What simulated tasks return at random queries."""

    context_NC: Float[Tensor, "task context"]
    place_NTQ: Float[Tensor, "task step query"]
    """In unit coordinates."""
    observed_NT: Float[Tensor, "task step"]


def _simulate(problem: Problem, rng: Generator) -> _Pilot:
    tasks = TaskBatch.draw(problem, TASKS, rng)
    rows = torch.arange(TASKS).repeat_interleave(QUERIES)
    query = problem.query_space.sample(len(rows), rng)
    observed = tasks.select(rows).observe(query, rng)[:, 0].double()
    place = problem.query_space.to_unit(query).double()
    return _Pilot(tasks.context, place.view(TASKS, QUERIES, -1), observed.view(TASKS, QUERIES))


def _first_guess(problem: Problem, pilot: _Pilot, kinds: int) -> GPMixture:
    mixture = GPMixture(kinds, pilot.place_NTQ.shape[-1], pilot.context_NC.shape[-1])
    mixture.centre, mixture.spread = pilot.observed_NT.mean(), pilot.observed_NT.std().clamp_min(1e-9)
    if "noise" in problem.context_names:
        # The known level is the noise: kinds are not needed to tell its values apart.
        with torch.no_grad():
            mixture.noise_by_context_JC.zero_()
            mixture.noise_by_context_JC[:, list(problem.context_names).index("noise")] = 1.0
            mixture.log_noise_J.fill_(-float(mixture.spread.log()))
    return mixture


def fit_gp_mixture(
    problem: Problem, seed: int = 0, kinds: int = KINDS, updates: int | None = None, seconds: float = math.inf
) -> GPMixture:
    """The mixture of kinds that makes what simulated tasks return most likely.

    Args:
        problem: Draws the tasks.
        seed: Seeds them.
        kinds: How many kinds of process are mixed.
        updates: Gradient steps; ``STEPS`` if left out.
        seconds: A limit: the fit then ends with as many steps as there was time for.

    Returns:
        The fitted mixture, whose parameters need no gradient.
    """
    rng = torch.Generator().manual_seed(seed)
    pilot = _simulate(problem, rng)
    mixture = _first_guess(problem, pilot, kinds)
    value_NT = mixture.standard(pilot.observed_NT)
    optimiser = torch.optim.Adam(mixture.parameters(), lr=RATE, betas=(0.9, 0.98))
    steps, began = updates or STEPS, time.perf_counter()
    for step in range(steps):
        done = max(step / steps, (time.perf_counter() - began) / seconds)
        if done >= 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = RATE * (0.05 + 0.95 * math.cos(math.pi / 2 * done) ** 2)
        some = torch.randint(TASKS, (BATCH,), generator=rng)
        joint = mixture.log_evidence(pilot.context_NC[some], pilot.place_NTQ[some], value_NT[some])
        joint = joint + mixture.log_share_J.log_softmax(dim=0)
        loss = -joint.logsumexp(dim=-1).mean() / QUERIES + 1e-3 * mixture.log_scale_JQ.square().mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return mixture.requires_grad_(False)
