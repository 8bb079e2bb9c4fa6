"""``benchmarks/gp_reading_agents.py``: the other reading of the GP maximum, and the table of our agents on it."""

import importlib
import math
from types import ModuleType
from typing import Any

import pytest
import torch

from cicpe.problems.gp_max import GPMax
from cicpe.testing import check_problem
from commands import REPOSITORY


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    return importlib.import_module("gp_reading_agents")


def test_the_other_reading_differs_in_its_length_scales_alone(agents: ModuleType) -> None:
    reading = agents.LogUniformLengths()
    check_problem(reading)
    ours, usual = (problem.sample(4000, torch.Generator().manual_seed(0)) for problem in (reading, GPMax()))
    middle = math.sqrt(0.05 * 0.2)
    assert abs(float((ours.lengthscale < middle).float().mean()) - 0.5) < 0.03
    # Negative control: of uniform length scales, a third lie below.
    assert float((usual.lengthscale < middle).float().mean()) < 0.37
    assert 0.05 <= float(ours.lengthscale.min()) < float(ours.lengthscale.max()) <= 0.2
    # The values follow them: shorter ones cross zero more often.
    crossings = (ours.values[:, 1:].sign() != ours.values[:, :-1].sign()).float().sum(dim=1)
    short = ours.lengthscale < middle
    assert float(crossings[short].mean()) > 1.3 * float(crossings[~short].mean())
    assert torch.allclose(reading.target(ours)[:, 0], ours.values.amax(dim=1))


def test_the_table_has_a_line_per_agent_and_reading(agents: ModuleType) -> None:
    module = importlib.import_module("gp_reading")

    def row(on: str, epsilon: float, noise: float, stop: str) -> dict[str, Any]:
        figures = {"accuracy": 0.91, "accuracy_ci": [0.9, 0.92], "mean_queries": 7.0, "mean_queries_ci": [6.9, 7.1]}
        about = {"agent": "td3", "on": on, "epsilon": epsilon, "noise": noise, "stop": stop, "episodes": 2000}
        return about | figures | {"delta": 0.1}

    cells = [(epsilon, noise) for epsilon, noise, _ in module.CELLS]
    rows = [
        row(on, *cell, stop) for on, stop in ((agents.TEXT, "calibrated"), (agents.ANEW, "never")) for cell in cells
    ]
    lines = list(module.agents_table(rows))
    assert lines[-2].startswith("| td3 | the text | 0.910 / 7.0 |")
    assert lines[-1].count("0.910 / 7.0 *") == 4
    assert "13.7" in lines[-3]
