"""``benchmarks/battery``: every family's true likelihood, which its reference uses, is that of its simulator."""

import importlib
import math
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from commands import REPOSITORY

TASKS, TELLING, ERRORS = 40_000, 0.8, 5.0
"""Tasks; how much an observation is to tell of a task and another one near it, in nats; standard errors from chance."""
FEW_VALUES = 64


@pytest.fixture
def families(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks" / "battery"))
    return importlib.import_module("families")


def neighbours(task: Tensor, known: tuple[int, ...], near: float) -> Tensor:
    """Tasks on the way to other ones, with the same context and the same discrete numbers."""
    keep = torch.tensor([i in known or len(task[:, i].unique()) <= FEW_VALUES for i in range(task.shape[1])])
    return torch.where(keep, task, task + near * (task.roll(1, dims=0) - task))


def likelihood_ratio(family: Any) -> tuple[float, float]:
    """The mean, in observations of some tasks, of how likely they are in others near them; and its standard error.

    sum_y p(y | task) p(y | other) / p(y | task) = 1, whatever the two are, if p is the simulator's.
    """
    rng = torch.Generator().manual_seed(0)
    task = family.sample(TASKS, rng)
    query = family.query_space.sample(TASKS, rng)
    seen = family.observe(task, query, rng).reshape(TASKS, -1)
    near, own = 1.0, family.log_p(task, query, seen)
    while (gain := family.log_p(neighbours(task, family.known, near), query, seen) - own).square().mean() > TELLING**2:
        near /= 2
    ratio = gain.double().exp()
    return float(ratio.mean()), float(ratio.std()) / math.sqrt(TASKS)


def test_the_likelihoods_of_references_are_those_of_the_simulators(families: ModuleType) -> None:
    cases = families.cases()
    assert len(cases) >= 16
    twins = {name: case.reference for name, case in cases.items() if isinstance(case.reference, families.Family)}
    off = {
        name: (mean, error)
        for name, (mean, error) in ((name, likelihood_ratio(twin)) for name, twin in twins.items())
        if not abs(mean - 1) <= ERRORS * error
    }
    assert off == {}


def test_a_likelihood_with_another_noise_is_noticed(families: ModuleType) -> None:
    lines = importlib.import_module("families.lines")

    class TooDoubtful(lines.Ramp):  # type: ignore[misc, name-defined]
        def log_p(self, task: Tensor, query: Tensor, y: Tensor) -> Tensor:
            return 0.5 * super().log_p(task, query, y)

    mean, error = likelihood_ratio(TooDoubtful())
    assert abs(mean - 1) > ERRORS * error


def test_no_family_shows_its_likelihood_to_the_library(families: ModuleType) -> None:
    assert not [
        name for name, case in families.cases().items() if case.problem.has_likelihood and name != "best-arm-8d"
    ]


def test_agents_play_the_families_that_their_references_know(families: ModuleType) -> None:
    """Where the reference knows a twin, the targets of the two have the same distribution."""
    for case in families.cases().values():
        twin = case.reference
        if not isinstance(twin, families.Family) or twin is case.problem:
            continue
        n, rng = 2000, torch.Generator().manual_seed(0)
        played, known = (problem.target(problem.sample(n, rng))[:, 0].sort().values for problem in (case.problem, twin))
        places = torch.cat([played, known])
        apart = torch.searchsorted(played, places, right=True) - torch.searchsorted(known, places, right=True)
        assert float(apart.abs().max()) / n < 2.2 / math.sqrt(n / 2)  # Kolmogorov and Smirnov, one in ten thousand
