"""Inference against posteriors in closed form, with the exact likelihood in the network's place."""

import itertools

import pytest
import torch
from torch import Tensor, nn

from cicpe.beliefs.answers.belief import AnswerBelief, QueryConfig
from cicpe.beliefs.answers.config import COARSEST, AnswerBeliefConfig
from cicpe.beliefs.answers.grid import (
    LEAST_LIKELIHOOD,
    LEAST_WEIGHT,
    MOST_TABLE,
    GridSearch,
    ListedTable,
    QueryTable,
    spread_out,
)
from cicpe.beliefs.answers.heads import BinaryHead, CategoricalHead, LogisticMixtureHead
from cicpe.beliefs.answers.joint_heads import Heads
from cicpe.beliefs.answers.model import AnswerModel
from cicpe.beliefs.answers.particles import ParticleSearch
from cicpe.beliefs.answers.prior import Prior
from cicpe.beliefs.answers.queries import listed_uncertainty
from cicpe.beliefs.answers.success import Success
from cicpe.beliefs.base import FitRequest
from cicpe.beliefs.budget import Budget
from cicpe.errors import InvalidInput
from cicpe.problems import make_problem
from cicpe.spaces import Box, Sphere
from cicpe.statistics import systematic
from cicpe.training.callbacks import TrainingCallback
from linear_family import NOISE, SIDE, linear_model, posterior, use_network


def test_an_episode_is_the_same_alone_and_among_others() -> None:
    model = linear_model(2)
    belief = AnswerBelief(model, ParticleSearch(model, 0.5), horizon=6, aim=0.5)
    rng = torch.Generator().manual_seed(0)
    query, observation = torch.rand((5, 4, 2), generator=rng), torch.randn((5, 4, 1), generator=rng)
    together, alone = belief.begin(torch.zeros(4, 0)), belief.begin(torch.zeros(1, 0))
    for q, y in zip(query, observation, strict=True):
        together, alone = belief.update(together, q, y), belief.update(alone, q[2:3], y[2:3])
    clouds = (state.followed.cloud.unit_BNP for state in (together, alone))
    torch.testing.assert_close(next(clouds)[2:3], next(clouds), rtol=0, atol=1e-6)
    both, one = (belief.assess(state, (0.3,), torch.Generator().manual_seed(9)) for state in (together, alone))
    torch.testing.assert_close(both.query[2:3], one.query, rtol=0, atol=1e-6)
    torch.testing.assert_close(both.confidence[:, 2:3], one.confidence, rtol=0, atol=1e-6)


def test_the_next_query_is_along_what_is_least_known() -> None:
    model = linear_model(2)
    belief = AnswerBelief(model, ParticleSearch(model, 0.1), horizon=20, aim=0.1)
    state = belief.begin(torch.zeros(1, 0))
    for _ in range(8):
        state = belief.update(state, torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5]]))
    query = belief.assess(state, (0.3,), torch.Generator().manual_seed(0)).query[0, 0]
    assert abs(float(query[1])) > 0.7


class Coin(nn.Module):
    """The exact logit of a coin whose bias is the answer in [0, 1]."""

    def forward(self, query: Tensor, place: Tensor, context: Tensor) -> Tensor:
        p = ((place[..., :1] + 1) / 2).clamp(1e-4, 1 - 1e-4)
        return torch.logit(p) + 0 * query


def test_a_grid_is_the_beta_posterior() -> None:
    model = coin_search().model
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


def _coin_belief() -> AnswerBelief:
    """A bias from tosses."""
    space, rng = Box([0.0], [1.0]), torch.Generator().manual_seed(0)
    prior = Prior.learn(torch.rand((20_000, 1), generator=rng) * 2 - 1, space, rng)
    heads = Heads((BinaryHead(low=0.0, high=1.0),))
    model = AnswerModel((space, space), heads, prior, 0, 0, Success(space, False), 8)
    use_network(model, Coin())
    return AnswerBelief(model, GridSearch(model, 256), 40, 0.1)


def test_answers_are_drawn_from_the_posterior() -> None:
    """What the paper's rules query (``cicpe.beliefs.sampled``), after 30 tosses, nine in ten of which were heads."""
    belief = _coin_belief()
    state = belief.begin(torch.zeros(1, 0))
    for toss in range(30):
        state = belief.update(state, torch.tensor([[0.5]]), torch.tensor([[float(toss % 10 != 0)]]))
    rng = torch.Generator().manual_seed(1)
    drawn = torch.cat([belief.sample_answers(state, 64, rng)[0, :1, 0] for _ in range(400)])
    exact = torch.distributions.Beta(1.0 + 27, 1.0 + 3)
    assert float(drawn.mean()) == pytest.approx(float(exact.mean), abs=0.02)
    assert float(drawn.std()) == pytest.approx(float(exact.stddev), rel=0.15)


def test_plausible_answers_are_no_queries_of_another_space() -> None:
    config = AnswerBeliefConfig().with_actor("ts")
    problem = make_problem("gp-max")
    with pytest.raises(InvalidInput, match="both spaces must be one"):
        config.fit(FitRequest(problem, Budget(updates=1), 0, TrainingCallback()))
    with pytest.raises(InvalidInput, match="ts, ttps, uniform"):
        AnswerBeliefConfig().with_actor("search")


def test_somebody_has_to_choose_the_queries() -> None:
    config = AnswerBeliefConfig.model_validate({"queries": {"goal": "none"}})
    with pytest.raises(InvalidInput, match=r"queries.goal must be information, agreement, success.*got 'none'"):
        config.fit(FitRequest(make_problem("gp-max"), Budget(updates=1), 0, TrainingCallback()))


def even_belief(dim: int) -> AnswerBelief:
    model = linear_model(dim)
    nothing = torch.zeros(0)
    return AnswerBelief(model, GridSearch(model, 128), horizon=20, aim=0.5, fixed_context=nothing, even_queries=64)


@pytest.mark.parametrize("dim", [2, 3])
def test_even_points_of_several_coordinates_have_the_exact_posterior(dim: int) -> None:
    belief = even_belief(dim)
    rng = torch.Generator().manual_seed(3)
    query = torch.rand((4, dim), generator=rng) * 2 - 1
    observation = query @ torch.randn(dim, generator=rng) + NOISE * torch.randn(4, generator=rng)
    state = belief.begin(torch.zeros(1, 0))
    for q, y in zip(query, observation, strict=True):
        state = belief.update(state, q[None], y.view(1, 1))
    mean, covariance = posterior(query, observation)
    points = belief.search.posterior(state)
    at, weight = points.answer_BNX[0].double() * SIDE, points.weight_BN[0]
    spread = covariance.diagonal().sqrt()
    assert float(1 / weight.square().sum()) > 10  # points that carry the weight
    assert bool(((weight @ at - mean).abs() < 0.3 * spread).all())
    assessment = belief.assess(state, (0.3, 1.0), torch.Generator().manual_seed(0))
    assert bool(((assessment.recommendation[1, 0].double() - mean).abs() < spread).all())
    draws = torch.distributions.MultivariateNormal(mean, covariance).sample((20_000,))
    for e, epsilon in enumerate((0.3, 1.0)):
        inside = (torch.linalg.vector_norm(draws - mean, dim=-1) <= epsilon).double().mean()
        assert float(assessment.confidence[e, 0]) == pytest.approx(float(inside), abs=0.12)


def test_a_table_of_queries_decides_as_the_network_itself_does() -> None:
    belief, rng = even_belief(2), torch.Generator().manual_seed(1)
    query = belief.random_queries(20, rng)
    assert bool((torch.cdist(belief.query_space.to_unit(query), belief._even.points_AQ).amin(dim=1) < 1e-6).all())
    observation = torch.randn((20, 1), generator=rng)
    many = belief.update(belief.begin(torch.zeros(20, 0)), query, observation)
    assert belief._table(make=False) is not None
    alone = even_belief(2)
    one = alone.update(alone.begin(torch.zeros(1, 0)), query[7:8], observation[7:8])
    assert alone._table(make=False) is None
    torch.testing.assert_close(many.weight_BG[7:8], one.weight_BG, rtol=1e-4, atol=1e-9)
    both, single = (b.assess(s, (0.5,), torch.Generator().manual_seed(2)) for b, s in ((belief, many), (alone, one)))
    torch.testing.assert_close(both.query[7], single.query[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(both.confidence[:, 7], single.confidence[:, 0], rtol=0, atol=1e-4)


def test_a_table_that_was_forgotten_is_computed_again() -> None:
    belief = even_belief(2)
    state = belief.begin(torch.zeros(3, 0))
    belief.prepare()
    before = belief.assess(state, (0.5,), torch.Generator().manual_seed(0))
    longer = belief.with_horizon(belief.horizon + 1)
    longer.forget()
    assert belief._table(make=False) is None  # beliefs that differ in their horizon share it
    belief.prepare()
    after = belief.assess(state, (0.5,), torch.Generator().manual_seed(0))
    assert torch.equal(after.query, before.query)
    assert torch.equal(after.confidence, before.confidence)


@pytest.mark.parametrize("group", [0, 1, 3])
def test_the_queries_that_are_compared_first_are_spread_over_the_space(group: int) -> None:
    belief = even_belief(2)
    some = belief._even.points_AQ[belief._even.groups_SW[group]]
    assert len(some) == 16
    assert len({(x > 0, y > 0) for x, y in some.tolist()}) == 4
    # Every fourth point of the sequence, as on a line, would not be.
    assert len({(x > 0, y > 0) for x, y in belief._even.points_AQ[::4].tolist()}) < 4
    assert bool((belief._even.near_AK[:, 0] == torch.arange(64)).all())


@pytest.mark.parametrize(("dim", "even"), [(1, 128), (1, 130), (2, 64), (2, 67)])
def test_every_even_query_has_its_place_in_a_group(dim: int, even: int) -> None:
    config = QueryConfig(even=even)
    grid = GridSearch(linear_model(dim), 128)
    belief = AnswerBelief(linear_model(dim), grid, 6, 0.5, config, torch.zeros(0), even if dim > 1 else 0)
    group, place = belief._even.places_2A
    assert belief._even.groups_SW[group, place].tolist() == list(range(even))


def test_a_few_coordinates_are_inferred_on_even_points_and_more_by_particles() -> None:
    config = AnswerBeliefConfig()
    assert [config._suits_a_grid(linear_model(dim), 5) for dim in (1, 2, 3, 5)] == [True, True, True, False]
    assert not config._suits_a_grid(linear_model(2), 0)


def test_pairs_that_no_longer_matter_are_not_asked_for() -> None:
    model = linear_model(1)
    search, rng = GridSearch(model, 128), torch.Generator().manual_seed(2)
    asked = []
    network = model.network

    class Counting(nn.Module):
        def forward(self, query: Tensor, place: Tensor, context: Tensor) -> Tensor:
            asked.append(len(place))
            value: Tensor = network(query, place, context)
            return value

    use_network(model, Counting())
    few = torch.rand((3, 128), generator=rng)
    few[0, :120] = few[2, 3:] = 1e-20  # of the second episode, all matter
    query, context = torch.tensor([[0.3], [-0.7], [1.0]]), torch.zeros(3, 0)
    seen = torch.tensor([[0.4], [-1.0], [0.1]])
    together = search.likelihood_at(query, seen, context, few)
    assert asked == [8, 128, 3]
    every = search.likelihood(search.settled_parameters(query, context), seen, few)
    matters = few > 1e-9
    torch.testing.assert_close(together[matters], every[matters])
    assert bool((together[~matters] == LEAST_LIKELIHOOD).all())


def test_a_line_has_the_candidates_that_are_looked_at_in_time_where_no_table_is_kept() -> None:
    model = linear_model(1)
    config = AnswerBeliefConfig(on_grid=True, epsilon=(0.05, 0.1))
    assert config._affordable_candidates(model) == 800
    wide = model.prior.draws_MV[:, :1] + torch.linspace(0, 1, len(model.prior.draws_MV))[:, None]
    nuisance = torch.cat([model.prior.draws_MV, wide, -wide], dim=1)
    rng = torch.Generator().manual_seed(0)
    model.prior = Prior.learn(nuisance, model.answer_space, rng)
    assert config._affordable_candidates(model) == 128
    fixed = config.model_copy(update={"fixed_context": ()})
    assert 512 <= fixed._affordable_candidates(model) <= 800


def test_what_a_table_leaves_is_what_the_network_leaves() -> None:
    """The lookahead reads draws first of a table and queries first of the network."""
    rng = torch.Generator().manual_seed(3)
    probability = torch.rand((2, 5, 7, 3), generator=rng)
    probability = probability / probability.sum(dim=-1, keepdim=True)
    kernel = torch.rand((2, 5, 5), generator=rng)
    for goal in ("information", "agreement", "success"):
        got = listed_uncertainty(probability, kernel, goal)
        for b, a in itertools.product(range(2), range(7)):
            expected = 0.0
            for j in range(3):
                joint = probability[b, :, a, j]
                weight = joint / joint.sum()
                smooth = weight @ kernel[b]
                left = {
                    "information": -(weight * smooth.log()).sum(),
                    "agreement": 1 - (weight * smooth).sum(),
                    "success": 1 - smooth.max(),
                }
                expected += float(joint.sum() / 5 * left[goal])
            assert float(got[b, a]) == pytest.approx(expected, rel=1e-4)


def test_a_query_follows_from_the_history_alone() -> None:
    """Were it drawn for every block of episodes, the successes within a block would not be independent."""
    line = AnswerBelief(linear_model(1), GridSearch(linear_model(1), 128), horizon=6, aim=0.5)
    plane = AnswerBelief(linear_model(2), ParticleSearch(linear_model(2), 0.5), horizon=6, aim=0.5)
    for belief in (line, plane):
        state = belief.begin(torch.zeros(3, 0))
        queries = [belief.assess(state, (0.3,), torch.Generator().manual_seed(seed)).query for seed in range(4)]
        assert all(torch.equal(query, queries[0]) for query in queries)
        assert torch.equal(queries[0][0], queries[0][2])


def test_no_episodes_are_assessed_too() -> None:
    """A player may select none: those that are under way, say, where all have ended."""
    belief = AnswerBelief(linear_model(1), GridSearch(linear_model(1), 128), horizon=6, aim=0.5)
    assessment = belief.assess(belief.begin(torch.zeros(0, 0)), (0.3,), torch.Generator().manual_seed(0))
    assert assessment.query.shape == (0, 1, 1)
    assert assessment.confidence.shape == (1, 0)


def coin_search() -> GridSearch:
    """A grid for the bias of a coin."""
    spaces, rng = (Box([0.0], [1.0]), Box([0.0], [1.0])), torch.Generator().manual_seed(0)
    prior = Prior.learn(torch.rand((20_000, 1), generator=rng) * 2 - 1, spaces[1], rng)
    model = AnswerModel(spaces, Heads((BinaryHead(low=0.0, high=1.0),)), prior, 0, 0, Success(spaces[1], False), 8)
    use_network(model, Coin())
    return GridSearch(model, 128)


class Step(nn.Module):
    """Whether a query lies above the answer, without noise."""

    def forward(self, query: Tensor, place: Tensor, context: Tensor) -> Tensor:
        above, _ = torch.broadcast_tensors(torch.where(query > place, 12.0, -12.0), context.sum() * 0)
        return above


def step_belief(even: int, epsilon: float) -> AnswerBelief:
    space, rng = Box([0.0], [1.0]), torch.Generator().manual_seed(0)
    prior = Prior.learn(torch.rand((20_000, 1), generator=rng) * 2 - 1, space, rng)
    model = AnswerModel((space, space), Heads((BinaryHead(low=0.0, high=1.0),)), prior, 0, 0, Success(space, False), 8)
    use_network(model, Step())
    config = QueryConfig(even=even, stride=even // 32)
    return AnswerBelief(model, GridSearch(model, 1024), 20, epsilon, config, torch.zeros(0))


def right_after(belief: AnswerBelief, queries: int, epsilon: float) -> float:
    """The share of answers that are found within epsilon."""
    target, rng = torch.rand((64, 1), generator=torch.Generator().manual_seed(4)), torch.Generator().manual_seed(5)
    state = belief.begin(torch.zeros(64, 0))
    for _ in range(queries):
        query = belief.assess(state, (epsilon,), rng).query[:, 0]
        state = belief.update(state, query, (query > target).float())
    found = belief.assess(state, (epsilon,), rng).recommendation[0]
    return float(((found - target).abs() <= epsilon).float().mean())


@pytest.mark.parametrize(("even", "epsilon", "queries"), [(128, 0.01, 7), (512, 0.002, 9)])
def test_a_bisection_without_noise_takes_as_many_queries_as_it_has_to(
    even: int, epsilon: float, queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert right_after(step_belief(even, epsilon), queries, epsilon) >= 0.97
    # What is left open soon lies between the queries that are compared first.
    monkeypatch.setattr("cicpe.beliefs.answers.belief.LEAST_GAIN", -1.0)
    assert right_after(step_belief(even, epsilon), queries, epsilon) < 0.8


def test_a_line_has_queries_and_candidates_as_fine_as_epsilon_asks() -> None:
    model, width = step_belief(128, 0.1).model, 1.0
    usual = AnswerBeliefConfig(on_grid=True, epsilon=(width / 50, width), fixed_context=())
    assert usual._fine_queries(model) == usual.queries
    fine = usual.model_copy(update={"epsilon": (width / 1500, width)})
    fine = fine.model_copy(update={"line_points": fine._affordable_candidates(model)})
    assert fine.line_points >= 1500
    queries = fine._fine_queries(model)
    assert queries.even >= 1500
    assert queries.even // queries.stride == usual.queries.even // usual.queries.stride
    assert fine._fine_queries(linear_model(1)) == usual.queries  # there, answers are no queries


def test_nothing_is_ruled_out_for_ever() -> None:
    search = coin_search()
    state = search.begin(torch.zeros(1, 0))
    for likelihood in [torch.linspace(0, 1, 128)[None].clamp_min(LEAST_LIKELIHOOD)] * 60:
        state = search.observe(state, likelihood)
    assert float(state.weight_BG[0, 0]) == pytest.approx(LEAST_WEIGHT)
    assert float(state.weight_BG.sum()) == pytest.approx(1, abs=1e-5)
    for likelihood in [torch.linspace(1, 0, 128)[None].clamp_min(LEAST_LIKELIHOOD)] * 80:
        state = search.observe(state, likelihood)
    assert int(state.weight_BG[0].argmax()) < 64


def test_weights_stay_normal_numbers() -> None:
    # Arithmetic below the smallest normal number takes a hundred times as long.
    assert torch.finfo(torch.float32).tiny < LEAST_WEIGHT * LEAST_LIKELIHOOD


def test_a_table_of_listed_outcomes_has_their_probabilities() -> None:
    search = coin_search()
    groups = torch.tensor([[0, 2], [1, 1]])
    table = search.tabulate(torch.zeros(3, 1), torch.zeros(0), groups, plain=False)
    assert isinstance(table, ListedTable)
    bias = (search.candidates_NX[:, 0] + 1) / 2
    torch.testing.assert_close(table.likelihood_AJG[2, 1], bias, rtol=1e-3, atol=2e-4)
    torch.testing.assert_close(table.likelihood_AJG.sum(dim=1), torch.ones(3, 128), rtol=0, atol=1e-5)
    for group, queries in enumerate(groups):
        torch.testing.assert_close(table.outlook_SGWP[group], table.likelihood_AJG[queries].permute(2, 0, 1))


def test_outcomes_are_counted_in_the_order_in_which_they_are_listed() -> None:
    heads = Heads((BinaryHead(low=0.0, high=1.0), CategoricalHead(values=(1.0, 2.0, 4.0))))
    assert heads.listed is not None
    assert heads.listed_place(heads.listed).tolist() == list(range(6))


def test_negligible_pairs_of_a_table_keep_their_weight_and_others_have_their_likelihood() -> None:
    belief, rng = even_belief(2), torch.Generator().manual_seed(1)
    search = belief.search
    assert isinstance(search, GridSearch)
    table = search.tabulate(belief._even.points_AQ, torch.zeros(0), belief._even.groups_SW, plain=False)
    assert isinstance(table, QueryTable)
    state = search.begin(torch.zeros(2, 0))
    weight = state.weight_BG.clone()
    weight[:, 100:] = LEAST_WEIGHT
    place, seen = torch.tensor([3, 8]), torch.randn((2, 1), generator=rng)
    state = state._replace(weight_BG=weight / weight.sum(dim=1, keepdim=True))
    every = search.observe(state, search.likelihood(table.settled_APG[place], seen, state.weight_BG)).weight_BG
    some = search.observe_by_table(state, table.settled_APG, place, seen).weight_BG
    torch.testing.assert_close(some[:, :100], every[:, :100], rtol=1e-4, atol=1e-9)
    for weights in (some, every):
        torch.testing.assert_close(weights[:, 100:], state.weight_BG[:, 100:])
    assert float((every[:, :100] - state.weight_BG[:, :100]).abs().max()) > 1e-3


@pytest.mark.parametrize(("entries", "fits"), [(1, False), (3, False), (1, True)])
def test_candidates_on_a_line_leave_room_for_a_table_of_queries(entries: int, fits: bool) -> None:
    spaces, rng = (Box([0.0], [10.0]), Box([0.0], [10.0])), torch.Generator().manual_seed(0)
    prior = Prior.learn(torch.rand((4096, 3), generator=rng) * 2 - 1, spaces[1], rng)
    heads = Heads((LogisticMixtureHead(whole=True),) * entries)
    model = AnswerModel(spaces, heads, prior, 0, 0, Success(spaces[1], False), 8)
    config = AnswerBeliefConfig(epsilon=(0.2, 0.4) if fits else (0.02, 0.4), on_grid=True, fixed_context=())
    points, wanted = config._affordable_candidates(model), config._wanted_candidates(model)
    pairs = points * len(GridSearch(model, points).nuisance[0])
    assert points == wanted if fits else points < wanted
    assert pairs * config.queries.even * heads.parameters <= MOST_TABLE or points == COARSEST
