"""Inference against posteriors in closed form, with the exact likelihood in the network's place."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from cicpe.beliefs.answers.belief import AnswerBelief, QueryConfig
from cicpe.beliefs.answers.cloud import CloudSearch, log_weights
from cicpe.beliefs.answers.config import AnswerBeliefConfig
from cicpe.beliefs.answers.grid import GridSearch, spread_out
from cicpe.beliefs.answers.heads import BinaryHead, Heads
from cicpe.beliefs.answers.model import AnswerModel
from cicpe.beliefs.answers.prior import Prior
from cicpe.beliefs.answers.success import Success
from cicpe.beliefs.base import FitRequest
from cicpe.beliefs.budget import Budget
from cicpe.errors import InvalidInput
from cicpe.problems import make_problem
from cicpe.spaces import Box, Sphere
from cicpe.statistics import effective_size, systematic
from cicpe.training.callbacks import TrainingCallback
from linear_family import NOISE, SIDE, linear_model, posterior


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_a_cloud_follows_the_exact_posterior(dim: int) -> None:
    model = linear_model(dim)
    rng = torch.Generator().manual_seed(3)
    search, answer = CloudSearch(model), torch.randn(dim, generator=rng)
    query = torch.rand((8, dim), generator=rng) * 2 - 1
    observation = query @ answer + NOISE * torch.randn(8, generator=rng)
    state = search.begin(torch.zeros(1, 0))
    for q, y in zip(query, observation, strict=True):
        state = search.observe(state, q[None], y.view(1, 1))
    mean, covariance = posterior(query, observation)
    cloud = search.posterior(state)
    at = cloud.answer_BNX[0].double() * SIDE
    weight = cloud.weight_BN[0]
    spread = covariance.diagonal().sqrt()
    assert bool(((weight @ at - mean).abs() < 0.25 * spread).all())
    std = (weight @ (at - weight @ at).square()).sqrt()
    assert bool(((std / spread - 1).abs() < 0.2).all())


def test_without_new_points_a_cloud_loses_the_posterior() -> None:
    """The negative control: weights on the prior's draws alone are worth next to nothing after eight observations."""
    model = linear_model(5)
    search = replace(CloudSearch(model), enough=0.0)
    rng = torch.Generator().manual_seed(3)
    state = search.begin(torch.zeros(1, 0))
    for _ in range(8):
        query = torch.rand((1, 5), generator=rng) * 2 - 1
        state = search.observe(state, query, query.sum(dim=1, keepdim=True))
    assert effective_size(log_weights(state)[0]) < 20


def test_an_episode_is_the_same_alone_and_among_others() -> None:
    model = linear_model(2)
    belief = AnswerBelief(model, CloudSearch(model), horizon=6, aim=0.5)
    rng = torch.Generator().manual_seed(0)
    query, observation = torch.rand((5, 4, 2), generator=rng), torch.randn((5, 4, 1), generator=rng)
    together, alone = belief.begin(torch.zeros(4, 0)), belief.begin(torch.zeros(1, 0))
    for q, y in zip(query, observation, strict=True):
        together, alone = belief.update(together, q, y), belief.update(alone, q[2:3], y[2:3])
    torch.testing.assert_close(together.latent_BNV[2:3], alone.latent_BNV, rtol=0, atol=1e-6)
    both, one = (belief.assess(state, (0.3,), torch.Generator().manual_seed(9)) for state in (together, alone))
    torch.testing.assert_close(both.query[2:3], one.query, rtol=0, atol=1e-6)
    torch.testing.assert_close(both.confidence[:, 2:3], one.confidence, rtol=0, atol=1e-6)


def test_the_next_query_is_along_what_is_least_known() -> None:
    model = linear_model(2)
    belief = AnswerBelief(model, CloudSearch(model), horizon=20, aim=0.1)
    state = belief.begin(torch.zeros(1, 0))
    for _ in range(8):
        state = belief.update(state, torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5]]))
    query = belief.assess(state, (0.3,), torch.Generator().manual_seed(0)).query[0, 0]
    assert abs(float(query[1])) > 0.7


class Coin(nn.Module):
    """The exact logit of a coin whose bias is the answer in [0, 1]."""

    def forward(self, query: Tensor, place: Tensor, context: Tensor) -> Tensor:
        p = ((place[..., :1] + 1) / 2).clamp(1e-4, 1 - 1e-4)
        return torch.logit(p)

    def prepare(self, place: Tensor) -> Tensor:
        return place

    def at(self, query: Tensor, places: Tensor, context: Tensor) -> Tensor:
        return self.forward(query, places, context)


def test_a_grid_is_the_beta_posterior() -> None:
    spaces = Box([0.0], [1.0]), Box([0.0], [1.0])
    rng = torch.Generator().manual_seed(0)
    prior = Prior.learn(torch.rand((20_000, 1), generator=rng) * 2 - 1, spaces[1], rng)
    model = AnswerModel(spaces, Heads((BinaryHead(low=0.0, high=1.0),)), prior, 0, 0, Success(spaces[1], False), 8)
    model.network = Coin()  # type: ignore[assignment]
    belief = AnswerBelief(model, GridSearch(model, 256), horizon=20, aim=0.1)
    state = belief.begin(torch.zeros(1, 0))
    for toss in (1.0, 1.0, 0.0, 1.0, 1.0, 1.0):
        state = belief.update(state, torch.tensor([[0.5]]), torch.tensor([[toss]]))
    assessment = belief.assess(state, (0.1,), torch.Generator().manual_seed(0))
    exact = torch.distributions.Beta(6.0, 2.0)
    assert float(assessment.std[0, 0]) == pytest.approx(float(exact.stddev), rel=0.02)
    grid = torch.linspace(0, 1, 100_001)[1:-1]
    density = exact.log_prob(grid).exp() * 1e-5
    masses = torch.tensor([float(density[(grid - x).abs() <= 0.1].sum()) for x in torch.linspace(0, 1, 101)])
    assert float(assessment.confidence[0, 0]) == pytest.approx(float(masses.max()), abs=0.01)
    assert float(assessment.recommendation[0, 0, 0]) == pytest.approx(float(masses.argmax()) / 100, abs=0.02)


def test_latent_coordinates_are_normal_and_lead_back_to_the_draws() -> None:
    rng = torch.Generator().manual_seed(0)
    first = torch.rand((20_000, 1), generator=rng) * 2 - 1
    places = torch.cat([first, 0.7 * first + 0.3 * torch.randn((20_000, 1), generator=rng)], dim=1)
    prior = Prior.learn(places, Box([-1.0], [1.0]), rng)
    torch.testing.assert_close(torch.corrcoef(prior.latent_MV.T), torch.eye(2), atol=0.02, rtol=0)
    torch.testing.assert_close(prior.places(prior.latent_MV), places, atol=0.06, rtol=0)
    assert float((prior.places(prior.latent_MV) - places).abs().mean()) < 0.003
    fresh = prior.places(torch.randn((20_000, 2), generator=rng))
    assert float(torch.corrcoef(fresh.T)[0, 1]) == pytest.approx(float(torch.corrcoef(places.T)[0, 1]), abs=0.05)


def test_directions_have_length_one() -> None:
    rng = torch.Generator().manual_seed(0)
    sphere = Sphere(4)
    prior = Prior.learn(sphere.sample(4000, rng), sphere, rng)
    length = torch.linalg.vector_norm(prior.places(torch.randn((100, 4), generator=rng)), dim=1)
    torch.testing.assert_close(length, torch.ones(100))


def test_a_finite_set_of_answers_is_kept_as_it_is() -> None:
    rng = torch.Generator().manual_seed(0)
    answers = torch.randint(5, (4000, 1), generator=rng) / 4.0
    values = Prior.learn(answers, Box([0.0], [1.0]), rng).values()
    assert values is not None
    assert values[0].flatten().tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert float(values[1].sum()) == pytest.approx(1.0)


def test_systematic_draws_are_as_many_as_the_weights_say() -> None:
    weight = torch.tensor([[0.5, 0.25, 0.0, 0.25]], dtype=torch.float64)
    assert torch.bincount(systematic(weight, 100, 0.3)[0], minlength=4).tolist() == [50, 25, 0, 25]


def test_points_that_are_spread_out_have_the_shares_of_what_is_near() -> None:
    points = torch.cat([torch.zeros(300, 1), torch.ones(100, 1)])
    centre, share = spread_out(points + 1e-3 * torch.randn(400, 1, generator=torch.Generator().manual_seed(0)), 2)
    order = centre[:, 0].argsort()
    assert centre[order, 0].tolist() == pytest.approx([0.0, 1.0], abs=0.01)
    assert (share[order] / share.sum()).tolist() == pytest.approx([0.75, 0.25])


def _coin_belief(goal: str) -> AnswerBelief:
    """A bias from tosses, whose queries are drawn by a rule of the paper."""
    space, rng = Box([0.0], [1.0]), torch.Generator().manual_seed(0)
    prior = Prior.learn(torch.rand((20_000, 1), generator=rng) * 2 - 1, space, rng)
    heads = Heads((BinaryHead(low=0.0, high=1.0),))
    model = AnswerModel((space, space), heads, prior, 0, 0, Success(space, False), 8)
    model.network = Coin()  # type: ignore[assignment]
    return AnswerBelief(model, GridSearch(model, 256), 40, 0.1, QueryConfig.model_validate({"goal": goal}))


def _queries(goal: str, tosses: int, n: int = 400) -> Tensor:
    """Queries of many steps after so many tosses, nine in ten of which were heads."""
    belief = _coin_belief(goal)
    state = belief.begin(torch.zeros(1, 0))
    for toss in range(tosses):
        state = belief.update(state, torch.tensor([[0.5]]), torch.tensor([[float(toss % 10 != 0)]]))
    rng = torch.Generator().manual_seed(1)
    return torch.cat([belief.assess(state, (0.1,), rng).query[0, :, 0] for _ in range(n)])


def test_thompson_queries_are_distributed_as_the_posterior() -> None:
    drawn, exact = _queries("ts", 30), torch.distributions.Beta(1.0 + 27, 1.0 + 3)
    assert float(drawn.mean()) == pytest.approx(float(exact.mean), abs=0.02)
    assert float(drawn.std()) == pytest.approx(float(exact.stddev), rel=0.15)


def test_top_two_queries_are_farther_from_the_mean_than_thompson_ones() -> None:
    mean = 28 / 32
    apart = {goal: float((_queries(goal, 30) - mean).abs().mean()) for goal in ("ts", "ttps")}
    assert 1.1 < apart["ttps"] / apart["ts"] < 1.5


def test_uniform_queries_know_nothing_of_the_posterior() -> None:
    drawn = _queries("uniform", 30)
    assert float(drawn.mean()) == pytest.approx(0.5, abs=0.05)
    assert float(drawn.std()) == pytest.approx(12**-0.5, rel=0.1)


def test_uniform_queries_of_two_episodes_are_independent() -> None:
    """Shared ones would let the episodes of a batch succeed and fail together, and intervals would be too narrow."""
    belief = _coin_belief("uniform")
    query = belief.assess(belief.begin(torch.zeros(400, 0)), (0.1,), torch.Generator().manual_seed(1)).query[:, 0, 0]
    assert float(query.std()) == pytest.approx(12**-0.5, rel=0.1)
    assert abs(float(torch.corrcoef(torch.stack([query[:200], query[200:]]))[0, 1])) < 0.25


def test_plausible_answers_are_no_queries_of_another_space() -> None:
    config = AnswerBeliefConfig().with_actor("ts")
    problem = make_problem("gp-max")
    with pytest.raises(InvalidInput, match="both spaces must be one"):
        config.fit(FitRequest(problem, Budget(updates=1), 0, TrainingCallback()))
    with pytest.raises(InvalidInput, match="ts, ttps, uniform"):
        AnswerBeliefConfig().with_actor("td3")
