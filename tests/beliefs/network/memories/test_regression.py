"""The function that the regression memory holds."""

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from torch import Tensor

from cicpe import trees
from cicpe.beliefs.network.memories.base import Dims
from cicpe.beliefs.network.memories.regression import RegressionConfig, RegressionMemory, RegressionState


def played(n: int, steps: int) -> tuple[RegressionMemory, RegressionState]:
    """Some histories of random queries, step by step."""
    rng = torch.Generator().manual_seed(3)
    memory = RegressionConfig(basis=12, probes=9, estimate="maximum").build(Dims(1, 1, 0, 1))
    state = memory.begin(torch.zeros(n, 0))
    for _ in range(steps):
        state = memory.step(state, 2 * torch.rand(n, 1, generator=rng) - 1, torch.randn(n, 1, generator=rng))
    return memory, state


@torch.no_grad()
def test_pieces_of_a_batch_are_read_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, state = played(40, 5)
    places = torch.linspace(-1, 1, 6)[None, :, None].expand(40, -1, -1)

    def everything() -> list[Tensor]:
        return [torch.as_tensor(leaf) for leaf in trees.leaves((memory.features(state), memory.predict(state, places)))]

    whole = everything()
    monkeypatch.setattr(trees, "PIECE_BYTES", 20_000)
    for before, after in zip(whole, everything(), strict=True):
        assert torch.allclose(before, after, rtol=1e-6, atol=1e-7)


@torch.no_grad()
def test_what_the_rows_explain_at_the_probes_is_kept_step_by_step() -> None:
    memory, state = played(8, 6)
    kept = state.explained_BPJK
    assert kept is not None
    along_BTJK = torch.einsum("btjf,kjf->btjk", state.rows_BTJF, memory._features(memory.probes_KQ))
    assert torch.allclose(kept[:, 0], along_BTJK.square().sum(dim=1), rtol=1e-12)
    assert not torch.allclose(kept[:, 0], along_BTJK[:, :-1].square().sum(dim=1), rtol=1e-3)


def test_drawn_functions_have_the_law_of_the_posterior() -> None:
    n, dims = 4000, Dims(1, 1, 0, 1)
    memory = RegressionConfig(length_scales=(0.4,), basis=20, probes=7).build(dims)
    with torch.no_grad():
        state = memory.begin(torch.zeros(n, 0))
        for query, observation in [(-0.5, 1.0), (0.6, -0.7), (0.0, 0.2)]:
            state = memory.step(state, torch.full((n, 1), query), torch.full((n, 1), observation))
        memory_features = memory.features(state)
        drawn = memory.sample_probes(state, torch.Generator().manual_seed(0))
    assert memory_features.function_mean is not None
    assert memory_features.function_std is not None
    z = ((drawn - memory_features.function_mean[:, 0]) / memory_features.function_std[:, 0]).numpy()
    p = [kstest(column, "norm").pvalue for column in z.T]
    assert min(p) > 1e-3 / len(p)
    # Negative control: a spread that is a tenth too wide is seen. And draws are smooth, not noise at every probe.
    assert kstest(1.1 * z[:, 3], "norm").pvalue < 1e-3
    assert np.corrcoef(z[:, 0], z[:, 1])[0, 1] > 0.3
