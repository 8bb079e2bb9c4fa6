"""What the conformance suite does not see of the lattice memory: what its places see, and how its posterior is read."""

import numpy as np
import pytest
import torch
from torch import Tensor

from cicpe.beliefs.network.memories.attention import AttentionConfig
from cicpe.beliefs.network.memories.base import Dims
from cicpe.beliefs.network.memories.lattice import LatticeConfig, LatticeMemory
from cicpe.beliefs.network.posteriors.lattice import LatticePosterior, LatticePosteriorConfig, Places
from cicpe.errors import InvalidInput
from cicpe.spaces import Box

SQUARE = Box([0.0, 0.0], [1.0, 1.0])
SMALL = LatticeConfig(side=5, hidden=8)


def memory(config: LatticeConfig = SMALL) -> LatticeMemory:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return config.build(Dims(2, 1, 0, 2))


def history(batch: int = 3, steps: int = 7) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(1)
    return torch.rand((batch, steps, 2), generator=rng) * 2 - 1, torch.randn((batch, steps, 1), generator=rng)


def test_places_see_the_kernel_sums_of_the_history() -> None:
    lattice, (query, observation) = memory(), history()
    state = lattice.unroll(torch.zeros(3, 0), query, observation)
    width = lattice.log_width_JQ.detach().exp().numpy()
    apart = query[:, :, None, None, :].numpy() - lattice.places_KQ.numpy()[:, None, :]
    kernel = np.exp(-((apart / width) ** 2).sum(axis=-1) / 2)  # batch x step x place x kernel
    for t in range(8):
        np.testing.assert_allclose(state.mass_BPKJ[:, t].detach(), kernel[:, :t].sum(axis=1), atol=1e-5)
        weighted = kernel[:, :t] * observation[:, :t, :, None].numpy()
        np.testing.assert_allclose(state.sum_BPKJ[:, t].detach(), weighted.sum(axis=1), atol=1e-5)


def test_the_order_of_a_history_matters_only_to_what_was_foretold() -> None:
    lattice, (query, observation) = memory(), history()
    order = torch.tensor([3, 1, 6, 0, 2, 5, 4])
    states = [lattice.unroll(torch.zeros(3, 0), query[:, o], observation[:, o]) for o in (torch.arange(7), order)]
    for name in ("mass_BPKJ", "sum_BPKJ", "tally_BP4"):
        torch.testing.assert_close(getattr(states[0], name)[:, -1], getattr(states[1], name)[:, -1])
    assert not torch.allclose(states[0].error_BPJ[:, -1], states[1].error_BPJ[:, -1])


def test_the_network_is_the_same_at_all_places() -> None:
    """Mirrored histories give mirrored scores, once what depends on where a place is has been taken out."""
    lattice, (query, observation) = memory(), history()
    with torch.no_grad():
        lattice.from_where.weight.zero_()
        lattice.log_width_JQ.copy_(lattice.log_width_JQ[:, :1].expand(-1, 2))
        scores = [
            lattice.features(lattice.unroll(torch.zeros(3, 0), turned, observation)).place_scores
            for turned in (query, query.flip(-1), query + 0.3)
        ]
    assert scores[0] is not None
    assert scores[1] is not None
    square = scores[0].unflatten(-1, (5, 5))
    torch.testing.assert_close(square.mT.flatten(-2), scores[1])
    assert not torch.allclose(scores[0], scores[2])


def posterior(scores: Tensor, log_std: float = -2.0, window: float = 0.2) -> LatticePosterior:
    return LatticePosterior(SQUARE, Places(memory().places_KQ, torch.tensor(log_std), window), scores)


def test_the_density_integrates_to_one() -> None:
    """Over a square that is wide enough to hold what lies outside the answers."""
    scores = torch.randn((1, 25), generator=torch.Generator().manual_seed(3))
    line = torch.linspace(-1.0, 2.0, 301)
    places = torch.cartesian_prod(line, line)
    density = torch.exp(-2 * posterior(scores.expand(len(places), -1)).nll(places))
    assert float(density.sum() * (2 * 0.01) ** 2) == pytest.approx(1.0, abs=1e-3)


def test_draws_have_the_shares_of_the_places_and_the_spread_of_the_posterior() -> None:
    scores = torch.full((20_000, 1, 25), -20.0)
    scores[..., 6], scores[..., 18] = np.log(0.3), np.log(0.7)
    drawn = posterior(scores, log_std=-4.0).sample(torch.Generator().manual_seed(1))[:, 0]
    low = torch.linalg.vector_norm(drawn - 0.25, dim=-1) < 0.1
    assert float(low.float().mean()) == pytest.approx(0.3, abs=0.02)
    torch.testing.assert_close(drawn.std(dim=0), posterior(scores[0], log_std=-4.0).std[0], rtol=0.03, atol=0)
    sharp = posterior(scores, log_std=-4.0).sample(torch.Generator().manual_seed(1), 0.25)[:, 0]
    assert float((torch.linalg.vector_norm(sharp - 0.25, dim=-1) < 0.1).float().mean()) < 0.06
    torch.testing.assert_close(posterior(scores).sample(torch.Generator(), 0.0), posterior(scores).recommendation)


def test_the_recommendation_has_most_of_the_posterior_about_it() -> None:
    """Neither the single likeliest place, where a group of others holds more, nor the mean of two groups."""
    share = torch.full((25,), 1e-9)
    share[0], share[[18, 19, 23, 24]] = 0.3, 0.175
    answer = posterior(share.log()[None], window=0.5).recommendation[0]
    torch.testing.assert_close(answer, torch.tensor([0.875, 0.875]), atol=0.04, rtol=0)


def test_it_says_what_it_cannot_do() -> None:
    with pytest.raises(InvalidInput, match="queries that are answers"):
        SMALL.build(Dims(2, 1, 0, 1))
    with pytest.raises(InvalidInput, match="one number per observation"):
        SMALL.build(Dims(2, 2, 0, 2))
    with pytest.raises(InvalidInput, match="at most 1024 places in 3 dimensions"):
        LatticeConfig(side=12).build(Dims(3, 1, 0, 3))
    other = AttentionConfig(width=8, heads=2).build(Dims(2, 1, 0, 2))
    with pytest.raises(InvalidInput, match="other memories score no places"):
        LatticePosteriorConfig().build(other, SQUARE)
