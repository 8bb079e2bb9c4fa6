"""The optimiser of a network, the limit of its gradients, and averages of its weights."""

from collections.abc import Iterable
from typing import Any

import torch

from cicpe.beliefs.network.network import Network


def make_optimiser(network: Network, learning_rate: float, actor_rate: float) -> torch.optim.Adam:
    """Makes Adam over two groups of parameters, each with its ``share`` of the learning rate.

    Args:
        network: What is trained.
        learning_rate: The rate of everything but the learned actor.
        actor_rate: The learned actor's share of it.

    Returns:
        The optimiser; the group of the learned actor is missing where there is none.
    """
    own = network.actor_parameters()
    rest = [p for p in network.parameters() if all(p is not q for q in own)]
    groups: list[dict[str, Any]] = [{"params": rest, "share": 1.0}, {"params": own, "share": actor_rate}]
    groups = [group for group in groups if group["params"]]
    return torch.optim.Adam(groups, lr=learning_rate, betas=(0.9, 0.99), fused=True)


def clip_gradients(parts: Iterable[list[torch.nn.Parameter]], limit: float) -> bool:
    """Limits the norm of the gradient of each part of a network on its own.

    Together, a bad batch of the critic would shorten the step of inference, and the other way round.

    Args:
        parts: Parameters of inference, and of the critic; their gradients are changed in place.
        limit: The largest norm of each.

    Returns:
        Whether all of them are finite.
    """
    norms = [torch.nn.utils.clip_grad_norm_(part, limit) for part in parts]
    return all(bool(norm.isfinite()) for norm in norms)


def follow(slow: Network, fast: Network, rate: float) -> None:
    """Moves one network's parameters towards another's: slow <- (1 - rate) slow + rate fast."""
    with torch.no_grad():
        for target, source in zip(slow.parameters(), fast.parameters(), strict=True):
            target.lerp_(source.to(target), rate)
