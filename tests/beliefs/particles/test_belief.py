"""The particle agent against posteriors that are known in closed form or on a grid."""

import math
import warnings
from dataclasses import dataclass

import pytest
import torch
from torch import Generator, Tensor

from cicpe.beliefs.particle_filter import DegenerateParticles, FilterState
from cicpe.beliefs.particles.belief import ParticleBelief, ParticleConfig
from cicpe.beliefs.particles.likelihood import fit_likelihood
from cicpe.beliefs.smc import reflect, resample, weights
from cicpe.errors import InvalidInput
from cicpe.evaluation.evaluate import evaluate_agent
from cicpe.problems import Problem, TaskBatch
from cicpe.problems.ackley import Ackley
from cicpe.problems.best_arm import BestArm
from cicpe.problems.binary_search import BinarySearch
from cicpe.spaces import Box
from cicpe.statistics import effective_size, tempering_step
from cicpe.testing.agents import check_agent
from stopping import NEVER, stopping_at

SMALL = ParticleConfig(particles=256, prior_particles=1024, candidates=12, lookahead_particles=64)


@dataclass(frozen=True)
class Plane(Problem):
    """y = <theta, a> + noise with theta standard normal: the posterior is normal, in closed form."""

    noise: float = 0.1
    said: float = 0.1
    """The noise that the likelihood believes in."""
    query_space = Box([-1.0] * 2, [1.0] * 2)
    answer_space = Box([-5.0] * 2, [5.0] * 2)
    parameter_space = Box([-5.0] * 2, [5.0] * 2)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return torch.randn((n, 2), generator=rng).clamp(-5, 5)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return (task * query).sum(dim=-1) + self.noise * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task

    def parameters(self, task: Tensor) -> Tensor:
        return task

    def from_parameters(self, parameters: Tensor, context: Tensor) -> Tensor:
        return parameters

    def log_prior(self, parameters: Tensor) -> Tensor:
        return -0.5 * parameters.square().sum(dim=-1)

    def log_likelihood(self, task: Tensor, query: Tensor, observation: Tensor) -> Tensor:
        error = (observation[:, 0] - (task * query).sum(dim=-1)) / self.said
        return -0.5 * error.square() - math.log(self.said)

    def posterior(self, query: Tensor, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and covariance of each episode."""
        precision = torch.eye(2) + query.mT @ query / self.noise**2
        covariance = torch.linalg.inv(precision)
        return (covariance @ query.mT @ observation / self.noise**2)[..., 0], covariance


def rng(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


def after_random_queries(belief: ParticleBelief, tasks: TaskBatch, steps: int, seed: int = 0) -> FilterState:
    state = belief.begin(tasks.context)
    for t in range(steps):
        query = belief.problem.query_space.sample(len(tasks), rng(seed + t))
        state = belief.update(state, query, tasks.observe(query, rng(1000 + seed + t)))
    return state


def moments(belief: ParticleBelief, state: FilterState) -> tuple[Tensor, Tensor]:
    assert belief.problem.parameter_space is not None
    theta = belief.problem.parameter_space.from_unit(state.cloud.unit_BNP)
    weight = weights(state.cloud)[..., None]
    mean = (weight * theta).sum(dim=1)
    centred = theta - mean[:, None]
    return mean, torch.einsum("bni,bnj->bij", weight * centred, centred)


@pytest.mark.parametrize("steps", [1, 2, 3, 8])
def test_the_posterior_of_a_linear_gaussian_model_is_the_closed_form(steps: int) -> None:
    problem = Plane()
    belief = ParticleBelief(problem, 20, ParticleConfig(particles=2048, moves=10))
    tasks = TaskBatch.draw(problem, 8, rng())
    state = after_random_queries(belief, tasks, steps)
    mean, covariance = problem.posterior(state.cloud.query_BTQ, state.cloud.observation_BTY)
    found_mean, found = moments(belief, state)
    std = covariance.diagonal(dim1=-2, dim2=-1).sqrt()
    # In posterior standard deviations; 512 effective particles would give 0.044.
    error = (found_mean - mean) / std
    assert float(error.abs().max()) < 0.25
    assert float(error.square().mean().sqrt()) < 0.09
    ratio = found.diagonal(dim1=-2, dim2=-1).sqrt() / std
    assert float((ratio - 1).abs().max()) < 0.2
    assert abs(float(ratio.mean()) - 1) < 0.04


def test_binary_search_has_the_posterior_of_a_grid() -> None:
    problem = BinarySearch(dim=1, noise=0.1)
    belief = ParticleBelief(problem, 20, ParticleConfig(particles=2048, prior_particles=4096, moves=10))
    state = after_random_queries(belief, TaskBatch.draw(problem, 10, rng(1)), 7)
    cells = 4000
    grid = (torch.arange(cells) + 0.5) / cells * 2 - 1
    cloud = state.cloud
    log = torch.zeros(10, cells)
    for s in range(7):
        agree = (grid >= cloud.query_BTQ[:, s]) == (cloud.observation_BTY[:, s] > 0)
        log += torch.where(agree, math.log(0.9), math.log(0.1))
    exact = torch.softmax(log, dim=1).cumsum(dim=1)
    weight = weights(cloud)
    at = torch.tensor([-0.8, -0.4, 0.0, 0.4, 0.8])
    found = torch.einsum("bn,bnk->bk", weight, (cloud.unit_BNP <= at).double())
    wanted = exact[:, ((at + 1) / 2 * cells).long() - 1]
    assert float((found - wanted).abs().max()) < 0.06
    assert float((found - wanted).abs().mean()) < 0.015


def reliability(
    problem: Problem, config: ParticleConfig, steps: int, epsilon: float, n: int = 300
) -> tuple[float, ...]:
    """Mean confidence and accuracy after ``steps`` queries, over all episodes and over the more confident half."""
    agent = stopping_at(ParticleBelief(problem, steps, config, aim=epsilon), NEVER, epsilon)
    outcome = evaluate_agent(agent, problem, epsilon, 300, seed=5).outcomes
    success = (outcome.loss <= epsilon).float()
    high = outcome.confidence >= outcome.confidence.median()
    return tuple(float(x.mean()) for x in (outcome.confidence, success, outcome.confidence[high], success[high]))


def test_confidence_is_calibrated_on_prior_episodes() -> None:
    confidence, accuracy, above, right = reliability(Plane(), SMALL, 3, 0.2)
    assert 0.3 < confidence < 0.97
    # Four standard errors of 300 episodes, and the optimism of a maximum over candidates.
    assert abs(confidence - accuracy) < 0.11
    assert abs(above - right) < 0.12


def test_a_likelihood_with_the_wrong_noise_is_seen_to_be_miscalibrated() -> None:
    confidence, accuracy, *_ = reliability(Plane(noise=0.4, said=0.1), SMALL, 3, 0.2)
    assert confidence - accuracy > 0.2


def test_particles_of_ackley_are_healthy_and_find_the_target() -> None:
    problem = Ackley(dim=2, noise=0.05)
    agent = stopping_at(ParticleBelief(problem, 15, SMALL), 0.9, 0.2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = evaluate_agent(agent, problem, 0.2, 40, seed=3)
    assert result.accuracy > 0.75
    assert result.mean_queries < 8


def test_a_degenerate_likelihood_warns() -> None:
    problem = Plane(noise=0.0, said=1e-12)
    config = ParticleConfig(particles=64, prior_particles=64, moves=1, powers=2)
    belief = ParticleBelief(problem, 20, config)
    with pytest.warns(DegenerateParticles, match="degenerate"):
        after_random_queries(belief, TaskBatch.draw(problem, 3, rng()), 4)


def test_observations_that_no_task_explains_warn() -> None:
    problem = BinarySearch(dim=1, noise=0.0)
    belief = ParticleBelief(problem, 20, ParticleConfig(particles=64, prior_particles=64))
    state = belief.begin(torch.zeros(1, 1))
    state = belief.update(state, torch.tensor([[0.5]]), torch.tensor([[1.0]]))
    with pytest.warns(DegenerateParticles, match="in 1 no particle"):
        belief.update(state, torch.tensor([[-0.5]]), torch.tensor([[-1.0]]))


@pytest.mark.parametrize("rule", ["agreement", "entropy", "variance", "disagreement", "thompson", "greedy"])
def test_every_query_rule_keeps_the_promises_of_an_agent(rule: str) -> None:
    config = SMALL.model_copy(update={"query": rule, "particles": 128, "prior_particles": 256})
    for problem in (BinarySearch(dim=2, noise=0.1), Plane()):
        check_agent(stopping_at(ParticleBelief(problem, 4, config), NEVER, 0.2), problem, n=4)


def test_refusals() -> None:
    with pytest.raises(InvalidInput, match="parameter_space"):
        ParticleBelief(BestArm(), 5)  # its tasks are directions, which no copula has
    agent = stopping_at(ParticleBelief(Plane(), 5, SMALL), 0.01, 0.1, rule="bellman")
    with pytest.raises(InvalidInput, match="does not value queries"):
        agent.propose(agent.begin(torch.zeros(1, 0)), rng())


def test_parts_of_the_sampler() -> None:
    even, one = torch.zeros(1, 100), torch.full((1, 100), -1e6)
    one[0, 7] = 0.0
    assert float(effective_size(even)) == pytest.approx(100)
    assert float(effective_size(one)) == pytest.approx(1)
    assert bool((resample(one, 50, rng()) == 7).all())
    counts = torch.bincount(resample(torch.tensor([[0.5, 0.3, 0.2]]).log(), 100, rng())[0])
    assert torch.equal(counts, torch.tensor([50, 30, 20]))
    sharp = 30 * torch.randn((4, 500), generator=rng())
    power = tempering_step(sharp, torch.ones(4), 250)
    assert bool((effective_size(sharp * power[:, None]) >= 249).all())
    assert bool((power < 0.2).all())
    precise = 1e5 * sharp
    tiny = tempering_step(precise, torch.ones(4), 250)
    assert bool(((effective_size(precise * tiny[:, None]) - 250).abs() < 5).all())
    assert bool((tempering_step(even.expand(4, -1), torch.ones(4), 50) == 1).all())
    inside = reflect(torch.tensor([-3.5, -1.5, -1.0, 0.3, 1.0, 1.2, 3.1]))
    torch.testing.assert_close(inside, torch.tensor([0.5, -0.5, -1.0, 0.3, 1.0, 0.8, -0.9]))


def test_a_learned_likelihood_agrees_with_the_exact_one() -> None:
    problem = Ackley(dim=1, noise=0.1)
    learned = fit_likelihood(problem, updates=500, batch=1024)
    task = problem.sample(2000, rng(4))
    query = problem.query_space.sample(2000, rng(5))
    y = problem.observe(task, query, rng(6))
    gap = problem.log_likelihood(task, query, y).mean() - learned(task, query, y).mean()
    assert float(gap) < 0.5  # nats; knowing nothing but the spread of y loses more than one


def test_a_learned_likelihood_of_flips() -> None:
    problem = BinarySearch(dim=1, noise=0.1)
    learned = fit_likelihood(problem, updates=300, batch=512)
    task, query = problem.sample(1000, rng(4)), problem.query_space.sample(1000, rng(5))
    y = problem.observe(task, query, rng(6))
    gap = problem.log_likelihood(task, query, y).mean() - learned(task, query, y).mean()
    assert float(gap) < 0.15
