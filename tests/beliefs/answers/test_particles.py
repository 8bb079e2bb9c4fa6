"""A particle filter under a learned likelihood, against a posterior and an evidence in closed form."""

import pytest
import torch
from torch import Tensor

from cicpe.beliefs.answers.particles import ParticleSearch, latent_of, likelihood_target
from cicpe.beliefs.particle_filter import FilterSizes, FilterState, ParticleFilter
from cicpe.beliefs.smc import ParticleCloud
from cicpe.statistics import effective_size
from linear_family import NOISE, SIDE, linear_model, posterior

DIM, STEPS = 4, 6
SIZES = FilterSizes(1024, 4096)


def observed(dim: int = DIM, steps: int = STEPS, seed: int = 3) -> tuple[Tensor, Tensor]:
    """Queries, and noisy values of one linear function there."""
    rng = torch.Generator().manual_seed(seed)
    query = torch.rand((steps, dim), generator=rng) * 2 - 1
    return query, query @ torch.randn(dim, generator=rng) + NOISE * torch.randn(steps, generator=rng)


def followed(sizes: FilterSizes, query: Tensor, value: Tensor, checks: bool) -> tuple[ParticleFilter, FilterState]:
    """A filter, and what it knows after some observations."""

    def may_decide(cloud: object) -> Tensor:
        return torch.tensor([checks])

    particles = ParticleFilter(likelihood_target(linear_model(query.shape[1])), sizes, may_decide)
    state = particles.begin(torch.zeros(1, 0), query.shape[1], 1)
    for q, y in zip(query, value, strict=True):
        state = particles.update(state, q[None], y.view(1, 1))
    return particles, state


def test_a_long_history_is_taken_in_anew_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    query, value = observed(1, 40)
    annealed: list[int] = []

    def merged(first: ParticleCloud, second: ParticleCloud, seed: int) -> ParticleCloud:
        annealed.append(second.query_BTQ.shape[1])
        return first

    monkeypatch.setattr("cicpe.beliefs.particle_filter.merge", merged)
    followed(FilterSizes(64, 256), query, value, checks=True)
    assert [steps for steps in annealed if steps < 16] == list(range(3, 16))  # none of them is missed while it is short
    late = [steps for steps in annealed if steps >= 16]
    assert late == [16, 18, 20, 22, 24, 27, 30, 32, 36, 40]


def answers(state: FilterState) -> Tensor:
    """The particles, in coordinates of the answer's box."""
    return linear_model(DIM).prior.places(latent_of(state.cloud.unit_BNP[0])).double() * SIDE


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_particles_follow_the_exact_posterior(dim: int) -> None:
    query, value = observed(dim, 8)
    search = ParticleSearch(linear_model(dim), aim=0.3, particles=1024)
    state = search.begin(torch.zeros(1, 0))
    for q, y in zip(query, value, strict=True):
        state = search.observe(state, q[None], y.view(1, 1))
    mean, covariance = posterior(query, value)
    found = search.posterior(state)
    at, weight, spread = found.answer_BNX[0].double() * SIDE, found.weight_BN[0], covariance.diagonal().sqrt()
    assert bool(((weight @ at - mean).abs() < 0.25 * spread).all())
    std = (weight @ (at - weight @ at).square()).sqrt()
    assert bool(((std / spread - 1).abs() < 0.2).all())


def test_without_moves_the_posterior_is_lost() -> None:
    """The negative control: weights on the prior's draws alone are worth next to nothing after eight observations."""
    _, state = followed(SIZES._replace(prior_steps=100), *observed(5, 8), checks=False)
    assert effective_size(state.cloud.log_pending_BN)[0] < 20


@pytest.mark.parametrize("checks", [False, True])
def test_the_evidence_is_the_probability_of_what_was_observed(checks: bool) -> None:
    query, value = observed()
    covariance = query @ query.T + NOISE**2 * torch.eye(STEPS)
    exact = torch.distributions.MultivariateNormal(torch.zeros(STEPS), covariance).log_prob(value)
    _, state = followed(SIZES, query, value, checks)
    assert float(state.cloud.log_evidence_B[0]) == pytest.approx(float(exact), abs=0.4)


@pytest.mark.parametrize("checks", [False, True])
def test_a_cloud_in_the_wrong_place_is_outweighed_by_a_second_one(checks: bool) -> None:
    query, value = observed()
    particles, state = followed(SIZES, query[:-1], value[:-1], checks)
    cloud = state.cloud
    away = (cloud.unit_BNP + 0.9).clamp(-0.99, 0.99)
    wrong = particles.target.log_likelihood(
        away.permute(2, 0, 1), cloud.context_BC, cloud.query_BTQ, cloud.observation_BTY
    ).sum(dim=1)
    lost = cloud._replace(unit_BNP=away, log_settled_BN=wrong.double(), log_evidence_B=cloud.log_evidence_B - 30)
    # Without moves of its own it stays where it is; only a second cloud can tell.
    stuck = ParticleFilter(particles.target, SIZES._replace(ess_threshold=1e-4), particles.may_decide)
    after = stuck.update(state._replace(cloud=lost), query[-1:], value[-1:, None])
    mean, covariance = posterior(query, value)
    apart = (answers(after).mean(dim=0) - mean).abs() / covariance.diagonal().sqrt()
    assert (float(apart.max()) < 1) == checks
