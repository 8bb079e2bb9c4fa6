"""How the small networks of this folder begin."""

import math

import torch
from torch import Generator, nn


def draw_first_weights(module: nn.Module, rng: Generator) -> None:
    """Draws the weights of all linear layers, so that their outputs have the variance of their inputs; no biases.

    Args:
        module: Whose layers.
        rng: Draws them.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            layer.weight.data = torch.randn(layer.weight.shape, generator=rng) / math.sqrt(layer.in_features)
            layer.bias.data.zero_()
