"""The function that the regression memory holds."""

import numpy as np
import torch
from scipy.stats import kstest

from cicpe.beliefs.network.memories.base import Dims
from cicpe.beliefs.network.memories.regression import RegressionConfig


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
