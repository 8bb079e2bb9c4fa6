"""The frozen network is the trained one, asked in another way."""

import pytest
import torch

from cicpe.beliefs.answers.frozen import PAIRS, FrozenNetwork
from cicpe.beliefs.answers.network import LikelihoodNetwork, NetworkSizes

SHAPES = {
    "a line": NetworkSizes(1, 1, 2, 0, 1, 32),
    "places in one space": NetworkSizes(3, 3, 2, 1, 2, 32),
    "queries that are no answers": NetworkSizes(2, 1, 1, 1, 9, 32),
}


def network_of(sizes: NetworkSizes) -> LikelihoodNetwork:
    rng = torch.Generator().manual_seed(3)
    network = LikelihoodNetwork(sizes, rng)
    network.standardise(torch.rand((64, sizes.context), generator=rng))
    return network


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("queries", [1, 5, 2 * PAIRS // 300])
def test_it_gives_the_head_parameters_of_the_network(shape: str, queries: int) -> None:
    sizes, rng = SHAPES[shape], torch.Generator().manual_seed(4)
    network = network_of(sizes)
    query = torch.rand((queries, sizes.query), generator=rng) * 2 - 1
    place = torch.rand((300, sizes.answer + sizes.nuisance), generator=rng) * 2 - 1
    context = torch.rand(sizes.context, generator=rng)
    with torch.no_grad():
        expected = network(query[:, None], place[None], context[None, None])
    frozen = FrozenNetwork(network)
    given = frozen(query, frozen.prepare(place), frozen.known(context[None])[0])
    assert given.shape == (queries, 300, sizes.outputs)
    torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-4)


def test_what_is_known_of_an_episode_does_not_depend_on_the_others() -> None:
    network, rng = network_of(SHAPES["places in one space"]), torch.Generator().manual_seed(6)
    frozen, context = FrozenNetwork(network), torch.rand((33, 1), generator=rng)
    together = frozen.known(context)
    alone = torch.cat([frozen.known(row[None]) for row in context])
    assert torch.equal(together, alone)
    assert len(together.unique(dim=0)) == 33


def test_weights_that_change_later_are_not_seen() -> None:
    network, rng = network_of(SHAPES["a line"]), torch.Generator().manual_seed(5)
    frozen, place = FrozenNetwork(network), torch.rand((8, 3), generator=rng)
    known = frozen.known(torch.zeros(1, 0))[0]
    before = frozen(torch.zeros(1, 1), frozen.prepare(place), known)
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(2)
    after = frozen(torch.zeros(1, 1), frozen.prepare(place), known)
    torch.testing.assert_close(before, after)
