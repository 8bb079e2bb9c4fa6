"""Mixtures of Gaussian processes against the textbook."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cicpe.gp.mixture import FLOOR
from functions_by_hand import RBF, Truth, histories, mixture_of, only, truths


@settings(max_examples=25, deadline=None)
@given(data=st.data(), dim=st.integers(1, 3))
def test_the_evidence_is_the_density_of_the_stated_kernel(data: st.DataObject, dim: int) -> None:
    kinds, (place, value) = data.draw(truths(dim)), data.draw(histories(dim))
    found = mixture_of(kinds).log_evidence(torch.zeros(1, 0), torch.tensor(place)[None], torch.tensor(value)[None])
    expected = [truth.log_density(place, value) for truth in kinds]
    np.testing.assert_allclose(found[0].numpy(), expected, rtol=1e-6, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), dim=st.integers(1, 3))
def test_covariances_are_symmetric_and_positive(data: st.DataObject, dim: int) -> None:
    kinds, (place, _) = data.draw(truths(dim)), data.draw(histories(dim))
    places = torch.tensor(place)
    found = mixture_of(kinds).covariance(torch.arange(3), places, places)
    torch.testing.assert_close(found, found.mT, rtol=0, atol=1e-12)
    least = torch.linalg.eigvalsh(found + FLOOR**2 * torch.eye(len(place), dtype=torch.float64))[:, 0]
    assert bool((least > 0).all())
    variance = torch.tensor([truth.amplitude**2 + truth.wander**2 for truth in kinds], dtype=torch.float64)
    torch.testing.assert_close(found.diagonal(dim1=-2, dim2=-1), variance[:, None].expand(-1, len(place)))


def test_a_known_noise_level_is_the_noise() -> None:
    mixture = only(Truth(RBF, noise=1 + FLOOR), contexts=1)
    level = torch.tensor([[0.05], [0.4]])
    torch.testing.assert_close(mixture.noise(level), (level.double() + FLOOR).expand(-1, 3))
