"""Baselines for the largest value, by hand."""

import pytest
import torch

from cicpe.baselines.base import History
from cicpe.baselines.max_value import UniformBins, UniformTop
from cicpe.problems.gp_max import GPMax


def test_max_value_baselines_by_hand() -> None:
    value = torch.tensor([1.0, 5.0, 2.0, 3.0, 1.0, 6.0, 0.0]).view(1, -1, 1)
    history = History(torch.zeros(1, 1), torch.rand(1, 7, 1), value)
    rng = torch.Generator().manual_seed(0)
    # ceil(sqrt(7)) = 3 bins in turn: averages of (1, 3, 0), (5, 1) and (2, 6).
    assert UniformBins(GPMax(), 7).propose(history, rng).recommendation.item() == pytest.approx(4.0)
    assert UniformTop(GPMax(), 7).propose(history, rng).recommendation.item() == pytest.approx(5.0)
    many = History(torch.zeros(1, 1), torch.rand(1, 40, 1), torch.arange(40.0).view(1, -1, 1) / 10)
    assert UniformTop(GPMax(), 40).propose(many, rng).recommendation.item() == pytest.approx(3.85)
    third = UniformBins(GPMax(), 7).propose(History(history[0], history[1][:, :2], value[:, :2]), rng).query[:, 0]
    assert 2 / 3 <= third.item() <= 1
