"""Experiments that might happen: a few draws from what an experiment file says, in its units."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cicpe import trees
from cicpe.experiments.parametric import ParametricExperiment
from cicpe.experiments.smooth import SmoothExperiment
from cicpe.streams import stream

Array = npt.NDArray[np.float64]
DRAWS = 8
ALONG = 64
"""Points of a curve."""
SIDE = 25
"""Points of a map along each setting."""
READINGS = 12
"""Measurements that are drawn on every curve."""


class DrawnExperiment(NamedTuple):
    """One experiment that might happen, in units."""

    truth: Array
    """The mean on the grid: along one setting, or over the first two (rows are the second)."""
    read_at: Array
    """Where measurements were made, ``reading x setting``."""
    readings: Array
    """What was read."""
    answer: Array
    """What is sought."""


class PriorPredictive(NamedTuple):
    """Some experiments that might happen, on one grid."""

    grid: tuple[Array, ...]
    """The values of the first setting, and of the second where there are two or more."""
    draws: tuple[DrawnExperiment, ...]


def prior_predictive(
    problem: SmoothExperiment | ParametricExperiment, draws: int = DRAWS, seed: int = 0
) -> PriorPredictive:
    """Draws experiments.

    Args:
        problem: An experiment's.
        draws: How many.
        seed: Seeds them.

    Returns:
        In units. Settings beyond the second are held at their middle.
    """
    rng, units, space = stream(seed, "prior-predictive"), problem.units, problem.query_space
    tasks: Any = problem.sample(draws, rng)
    shown = units.settings[:2]
    count = ALONG if len(units.settings) == 1 else SIDE
    lines = [torch.linspace(0, setting.extent, count) for setting in shown]
    middle = [torch.full((1,), setting.extent / 2) for setting in units.settings[2:]]
    # The second setting varies slowest, so that a map's rows are its values.
    lattice = torch.cartesian_prod(*[*middle[::-1], *lines[::-1]]).view(-1, space.dim).flip(1)
    target = problem.target(tasks)
    experiments = []
    for i in range(draws):
        row = trees.select(tasks, torch.tensor([i]))
        truth = _means(problem, row, lattice).view([len(line) for line in lines[::-1]])
        query = space.sample(READINGS, rng)
        many = trees.select(tasks, torch.full((READINGS,), i))
        experiments.append(
            DrawnExperiment(
                truth.double().numpy(),
                np.array([units.query_values(point) for point in query.tolist()]),
                _readings(problem, problem.observe(many, query, rng)[:, 0]),
                np.array(units.answer_values(target[i].tolist())),
            )
        )
    grid = tuple(
        np.array([setting.value(at) for at in line.tolist()]) for setting, line in zip(shown, lines, strict=True)
    )
    return PriorPredictive(grid, tuple(experiments))


def _means(problem: SmoothExperiment | ParametricExperiment, row: Any, places: Tensor) -> Tensor:
    many: Any = trees.select(row, torch.zeros(len(places), dtype=torch.long))
    return problem.mean_in_units(many, places)


def _readings(problem: SmoothExperiment | ParametricExperiment, seen: Tensor) -> Array:
    readout = problem.units.readout
    assert readout is not None
    share = readout.of or 1
    values: Array = (readout.origin + readout.scale * seen.double()).numpy() / share
    return values
