"""The Gaussian processes that a family's own functions look like, from simulated tasks."""

import math

import torch
from torch import Generator

from cicpe.gp.mixture import KINDS, FunctionSamples, GPMixture, fit_mixture
from cicpe.problems import Problem, TaskBatch

TASKS, QUERIES = 1024, 32
"""Simulated tasks, and random queries of each."""


def fit_gp_mixture(
    problem: Problem, seed: int = 0, kinds: int = KINDS, updates: int | None = None, seconds: float = math.inf
) -> GPMixture:
    """The mixture of kinds that makes what simulated tasks return most likely.

    Args:
        problem: Draws the tasks.
        seed: Seeds them.
        kinds: How many kinds of process are mixed.
        updates: Gradient steps; the usual number if left out.
        seconds: A limit: the fit then ends with as many steps as there was time for.

    Returns:
        The fitted mixture, whose parameters need no gradient.
    """
    rng = torch.Generator().manual_seed(seed)
    samples = _simulate(problem, rng)
    names = list(problem.context_names)
    level = names.index("noise") if "noise" in names else None
    return fit_mixture(samples, rng, kinds, updates, seconds, noise_context=level)


def _simulate(problem: Problem, rng: Generator) -> FunctionSamples:
    tasks = TaskBatch.draw(problem, TASKS, rng)
    rows = torch.arange(TASKS).repeat_interleave(QUERIES)
    query = problem.query_space.sample(len(rows), rng)
    observed = tasks.select(rows).observe(query, rng)[:, 0].double()
    place = problem.query_space.to_unit(query).double()
    return FunctionSamples(tasks.context, place.view(TASKS, QUERIES, -1), observed.view(TASKS, QUERIES))
