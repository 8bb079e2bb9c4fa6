"""Small parts of networks."""

import torch

from cicpe.beliefs.network.layers import affine
from cicpe.beliefs.network.prediction_head import PredictionConfig, PredictionHead


def test_an_affine_map_of_nothing_is_zero_and_torch_does_not_warn() -> None:
    """Warnings are errors here; ``alarm --save`` printed one for every family without a context."""
    assert affine(0, 2)(torch.zeros(3, 0)).tolist() == [[0.0, 0.0]] * 3
    PredictionHead(PredictionConfig(features=3, context=0, entries=1, per_axis=False, corrects=False))


def test_one_of_something_is_torchs_own() -> None:
    made, own = (torch.manual_seed(0) and build(2, 1) for build in (affine, torch.nn.Linear))
    assert torch.equal(made.weight, own.weight)
