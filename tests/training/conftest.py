"""Fixtures that the suites of training share."""

from collections.abc import Iterator

import pytest
import torch

from cicpe.beliefs.network.memories.recurrent import RecurrentConfig
from cicpe.beliefs.network.network import Network, NetworkConfig
from cicpe.problems.binary_search import BinarySearch
from cicpe.training.config import TrainingConfig
from cicpe.training.loop import build_network
from small_runs import make_rng


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Sums are the same in every process only if they are made in the same order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def network() -> Network:
    """An untrained network for binary search in two dimensions."""
    config = TrainingConfig(network=NetworkConfig(memory=RecurrentConfig(hidden=12)))
    return build_network(BinarySearch(dim=2), config, make_rng()).eval().requires_grad_(False)
