"""Small parts that every network shares."""

from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

LOG_STD = (-7.0, 1.0)
"""Bounds of the log standard deviation in unit coordinates."""


def affine(inputs: int, outputs: int) -> nn.Linear:
    """An affine map, which may have no inputs: torch warns of weights that are not there."""
    if inputs:
        return nn.Linear(inputs, outputs)
    layer = nn.Linear(1, outputs)
    layer.in_features, layer.weight = 0, nn.Parameter(torch.empty(outputs, 0))
    nn.init.zeros_(layer.bias)
    return layer


def mlp(sizes: list[int], last_gain: float = 1.0) -> nn.Sequential:
    """A multilayer perceptron with SiLU between its layers; ``last_gain`` scales the last weights."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.SiLU()]
    last = layers[-2]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight.mul_(last_gain)
        last.bias.zero_()
    return nn.Sequential(*layers[:-1])


def with_context(context_BC: Tensor, *parts_BT: Tensor) -> Tensor:
    """Joins per-step inputs with the context repeated at every step."""
    context_BTC = context_BC[:, None].expand(-1, parts_BT[0].shape[1], -1)
    return torch.cat([*parts_BT, context_BTC], dim=-1)


def time_features(prefix_BP: Tensor) -> Float[Tensor, "*batch 3"]:
    """A smooth code of how many observations a prefix has."""
    t = prefix_BP.float()
    return torch.stack([torch.log1p(t) / 3, t / 50, 1 / (1 + t)], dim=-1)
