"""Annealing from the prior against a posterior and an evidence in closed form."""

import pytest
import torch

from cicpe.beliefs.answers.annealing import Annealed, Evidence, annealed
from cicpe.beliefs.answers.cloud import CloudSearch, CloudState
from linear_family import NOISE, SIDE, linear_model, posterior

DIM, STEPS = 4, 6


def episode(seed: int = 3) -> tuple[CloudSearch, Evidence]:
    """Observations of a linear function, and how the prior's draws explain them."""
    search, rng = CloudSearch(linear_model(DIM)), torch.Generator().manual_seed(seed)
    query = torch.rand((STEPS, DIM), generator=rng) * 2 - 1
    encoded = (query @ torch.randn(DIM, generator=rng) + NOISE * torch.randn(STEPS, generator=rng))[:, None]
    state = search.begin(torch.zeros(1, 0))._replace(query_BTQ=query[None], encoded_BTY=encoded[None])
    log_draws = search._log_likelihood(state, search.bank[1])
    return search, Evidence(query, encoded, torch.zeros(0), log_draws)


def state_of(search: CloudSearch, seen: Evidence) -> CloudState:
    """The state of a search before it has looked at what was observed."""
    return search.begin(torch.zeros(1, 0))._replace(
        query_BTQ=seen.query_TQ[None], encoded_BTY=seen.encoded_TY[None], log_prior_draws_BM=seen.log_draws_M[None]
    )


def points(search: CloudSearch, seen: Evidence) -> Annealed:
    return annealed(search.model, search.bank[0], seen, n=1024, rows=2048, seed=5)


def test_points_are_draws_of_the_posterior() -> None:
    search, seen = episode()
    found = points(search, seen)
    mean, covariance = posterior(seen.query_TQ, seen.encoded_TY[:, 0])
    at = search.model.prior.places(found.latent_NV).double() * SIDE
    spread = covariance.diagonal().sqrt()
    assert bool(((at.mean(dim=0) - mean).abs() < 0.25 * spread).all())
    assert bool(((at.std(dim=0) / spread - 1).abs() < 0.2).all())


def test_the_evidence_is_the_probability_of_what_was_observed() -> None:
    search, seen = episode()
    covariance = seen.query_TQ @ seen.query_TQ.T + NOISE**2 * torch.eye(STEPS)
    exact = torch.distributions.MultivariateNormal(torch.zeros(STEPS), covariance).log_prob(seen.encoded_TY[:, 0])
    assert points(search, seen).log_evidence == pytest.approx(float(exact), abs=0.4)


def test_a_cloud_in_the_wrong_place_is_surprised_and_outweighed() -> None:
    search, seen = episode()
    state = state_of(search, seen)
    right = search._annealed(state, seed=5)
    wrong = right._replace(latent_NV=right.latent_NV + 1.0, log_evidence=right.log_evidence - 20)
    assert search._is_surprised(state, wrong, seed=1)
    merged = search._merged(wrong, right)
    assert set(merged.latent_NV[:, 0].tolist()) == set(right.latent_NV[:, 0].tolist())


def test_a_cloud_in_the_right_place_is_surprised_as_often_as_not() -> None:
    """The negative control: what the model itself predicts is explained as well as it expects."""
    surprised = 0
    for seed in range(24):
        search, seen = episode(seed)
        state = state_of(search, seen)
        surprised += search._is_surprised(state, search._annealed(state, seed=5), seed=1)
    assert 4 <= surprised <= 20
