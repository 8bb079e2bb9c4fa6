"""What a network makes of a few prefixes per trajectory, unrolling each about as far as is needed."""

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import pad

from cicpe import trees
from cicpe.beliefs.network.network import Network, NetworkOutput, NetworkState
from cicpe.training.rollout import Trajectories

GROUPS = 4
"""Into how many groups of like length a batch is split: with more, each is too small to be quick."""


def read_prefixes(network: Network, batch: Trajectories, chosen: Int[Tensor, "batch chosen"]) -> NetworkOutput:
    """Reads a network at chosen prefixes. A group of trajectories is unrolled no further than the longest of its own.

    Prefixes are far from equally long, and one that runs to the horizon would otherwise have all others padded to it.

    Args:
        network: What reads.
        batch: The trajectories.
        chosen: Prefixes per trajectory, by their number of observations.

    Returns:
        What the network makes of each of them, in the order of the batch.
    """
    order = chosen.amax(dim=1).argsort(stable=True)
    states = []
    for rows in order.chunk(GROUPS):
        longest = max(1, int(chosen[rows].max()))
        query, observation = batch.query[rows, :longest], batch.observation[rows, :longest]
        state = network.unroll(batch.tasks.context[rows], query, observation)
        states.append(state.at_prefixes(chosen[rows]))
    joined: NetworkState = trees.map_leaves(_joined, *states)
    return network.believe(trees.select(joined, order.argsort()))


def _joined(*parts: Tensor) -> Tensor:
    """One tensor of several with as many rows each; along other axes, such as that of time, the shorter are padded.

    No prefix is read from what comes after it, so what the padding holds does not matter.
    """
    most = [max(sizes) for sizes in zip(*(part.shape[1:] for part in parts), strict=True)]
    return torch.cat([_filled(part, most) for part in parts])


def _filled(part: Tensor, sizes: list[int]) -> Tensor:
    """The same tensor with zeros at the end of its axes, from the second on, up to some sizes."""
    missing = [size - own for size, own in zip(sizes, part.shape[1:], strict=True)]
    # Axes are named from the last to the first, each by what is put before and after it.
    return pad(part, [width for many in reversed(missing) for width in (0, many)])
