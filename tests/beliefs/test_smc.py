"""The fast arithmetic of the particle agent against the same thing said slowly."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Generator, Tensor

from cicpe import trees
from cicpe.beliefs.lookahead import LAGS, _order, score_queries
from cicpe.beliefs.particles.belief import ParticleBelief, ParticleConfig
from cicpe.beliefs.particles.recommendation import View, recommend
from cicpe.beliefs.particles.target import task_target
from cicpe.beliefs.smc import ParticleCloud, SMCTarget, draw_move, log_likelihoods, portions
from cicpe.problems import Problem, Task, TaskBatch
from cicpe.problems.ackley import Ackley
from cicpe.problems.binary_search import BinarySearch

SMALL = ParticleConfig(particles=128, prior_particles=512, candidates=12, lookahead_particles=64)


def rng(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


def random_cloud(belief: ParticleBelief, batch: int, steps: int, n: int) -> ParticleCloud:
    """Random particles and a random history, of which each episode has settled another part."""
    tasks = TaskBatch.draw(belief.problem, batch, rng(1))
    space = belief.problem.parameter_space
    assert space is not None
    query = torch.stack([belief.problem.query_space.sample(batch, rng(2 + s)) for s in range(steps)], dim=1)
    observation = torch.stack([tasks.observe(query[:, s], rng(50 + s)) for s in range(steps)], dim=1)
    unit = 2 * torch.rand((batch, n, space.dim), generator=rng(3)) - 1
    settled = torch.arange(batch) % (steps + 1)
    begun = belief.begin(tasks.context).cloud
    logs = {name: getattr(begun, name)[:, :n] for name in ("log_prior_BN", "log_settled_BN", "log_pending_BN")}
    return begun._replace(unit_BNP=unit, settled_B=settled, query_BTQ=query, observation_BTY=observation, **logs)


def slow_log_likelihoods(belief: ParticleBelief, cloud: ParticleCloud) -> Tensor:
    """One episode and one step at a time."""
    batch, n, _ = cloud.unit_BNP.shape
    found = torch.zeros(2, batch, n, dtype=torch.float64)
    for b in range(batch):
        task = belief.task(cloud.unit_BNP[b], cloud.context_BC[b].expand(n, -1))
        for s in range(cloud.query_BTQ.shape[1]):
            query, observation = cloud.query_BTQ[b, s].expand(n, -1), cloud.observation_BTY[b, s].expand(n, -1)
            found[int(s >= cloud.settled_B[b]), b] += belief.problem.log_likelihood(task, query, observation)
    return found


@pytest.mark.parametrize("problem", [Ackley(dim=3, noise=(0.025, 0.1)), BinarySearch(dim=2, noise=0.1)])
def test_likelihoods_of_a_history_are_sums_over_its_steps(problem: Problem) -> None:
    belief = ParticleBelief(problem, 20, SMALL)
    cloud = random_cloud(belief, batch=5, steps=4, n=30)
    wanted = slow_log_likelihoods(belief, cloud)
    assert belief.parametrisation.broadcasts == isinstance(problem, Ackley)
    by_rows = task_target(belief.parametrisation, problem.log_likelihood, broadcasts=False)
    for model in (belief.model, by_rows):
        found = log_likelihoods(model, cloud.unit_BNP.permute(2, 0, 1), cloud)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-3)


def test_particles_that_all_episodes_share_are_scored_as_if_each_had_its_own() -> None:
    belief = ParticleBelief(Ackley(dim=2, noise=(0.025, 0.1)), 20, SMALL)
    cloud = random_cloud(belief, batch=5, steps=4, n=30)
    shared = cloud.unit_BNP[:1].permute(2, 0, 1)
    for broadcasts in (True, False):
        model = task_target(belief.parametrisation, belief.problem.log_likelihood, broadcasts)
        found, wanted = (log_likelihoods(model, unit, cloud) for unit in (shared, shared.expand(-1, 5, -1)))
        assert torch.equal(found, wanted)


def test_what_one_step_rules_out_is_ruled_out() -> None:
    belief = ParticleBelief(BinarySearch(dim=1, noise=0.0), 20, SMALL)
    cloud = belief.begin(torch.zeros(2, 1)).cloud._replace(
        unit_BNP=torch.tensor([[[-0.5], [0.5]]]).expand(2, -1, -1),
        settled_B=torch.tensor([0, 1]),
        query_BTQ=torch.zeros(2, 2, 1),
        observation_BTY=torch.ones(2, 2, 1),
    )
    found = log_likelihoods(belief.model, cloud.unit_BNP.permute(2, 0, 1), cloud).sum(dim=0)
    assert bool((found[:, 0] < -1e29).all())  # the target lies above the query, and this particle does not
    assert bool((found[:, 1] > -1e-3).all())


def test_ackley_takes_dimensions_that_broadcast() -> None:
    problem = Ackley(dim=4, noise=(0.025, 0.1))
    task = problem.sample(6, rng())
    parameters, context = problem.parameters(task)[:, None], problem.context(task)[:, None]
    query = problem.query_space.sample(5, rng(1))
    wide = problem.from_parameters(parameters, context)
    wanted = torch.stack([problem.value(task, query[i].expand(6, -1)) for i in range(5)], dim=1)
    torch.testing.assert_close(problem.value(wide, query), wanted)
    y = problem.observe(wide, query, rng(2))
    assert y.shape == (6, 5, 1)
    by_query = [problem.log_likelihood(task, query[i].expand(6, -1), y[:, i]) for i in range(5)]
    found = problem.log_likelihood(wide, query, y)
    torch.testing.assert_close(found, torch.stack(by_query, dim=1), rtol=1e-4, atol=1e-3)


def test_portions_hold_every_episode_once() -> None:
    belief = ParticleBelief(Ackley(dim=2, noise=0.05), 20, SMALL)
    cloud = random_cloud(belief, batch=11, steps=2, n=8)
    for most in (0, 1, 3, 4, 11, 100):
        parts = list(portions(cloud, most))
        joined = trees.concatenate([part for _, part in parts])
        assert all(torch.equal(a, b) for a, b in zip(joined, cloud, strict=True))
        sizes = [len(part.settled_B) for _, part in parts]
        assert max(sizes) <= max(1, most)
        assert [some.start for some, _ in parts] == [sum(sizes[:i]) for i in range(len(sizes))]


def test_observing_leaves_the_state_before_as_it_was() -> None:
    problem = Ackley(dim=2, noise=0.05)
    belief, tasks = ParticleBelief(problem, 20, SMALL), TaskBatch.draw(problem, 3, rng())
    state = belief.begin(tasks.context)
    for t in range(5):
        before = trees.map_leaves(torch.clone, state)
        query = belief.assess(state, (0.2,), rng(t)).query[:, 0]
        after = belief.update(state, query, tasks.observe(query, rng(t)))
        for a, b in zip(trees.leaves(state), trees.leaves(before), strict=True):
            assert torch.equal(torch.as_tensor(a), torch.as_tensor(b))
        state = after


def model_of(prior: Tensor) -> SMCTarget:
    return ParticleBelief(Ackley(dim=2), 20).model._replace(prior=lambda n, rng: prior.expand(n, -1))


def test_shares_of_the_moves() -> None:
    generator, model = rng(), model_of(torch.full((4,), 0.5))
    draws = [draw_move(model, 2000, 0.03, generator) for _ in range(10)]
    assert all(torch.equal(index.sort().values, torch.arange(2000)) for index in (draws[0].one, draws[0].two))
    assert all(draw.prior_PF.shape == (4, int(draw.fresh.sum())) for draw in draws)

    def share(name: str) -> float:
        return float(torch.stack([getattr(draw, name) for draw in draws]).float().bool().float().mean())

    # Of 20,000: four standard errors are at most 0.014.
    assert share("fresh") == pytest.approx(0.03, abs=0.005)
    assert share("jump") == pytest.approx(0.65 * 0.15, abs=0.009)
    assert share("along") == pytest.approx(0.65 * 0.85, abs=0.014)
    assert share("walk") == 1.0
    # All coordinates in half of the moves, else a uniform share of at least a quarter of them.
    assert share("moved_PN") == pytest.approx(0.5 + 0.5 * (0.25 * 0.25 + 0.75 * 0.625), abs=0.014)


@dataclass(frozen=True)
class Skewed(BinarySearch):
    """A loss that is no distance."""

    def loss(self, task: Task, answer: Tensor) -> Tensor:
        return (answer - task.target).clamp_min(0).sum(dim=-1) + 0.5 * (task.target - answer).clamp_min(0).sum(dim=-1)


@pytest.mark.parametrize("problem", [Ackley(dim=2), BinarySearch(dim=2), Skewed(dim=2)])
def test_a_recommendation_holds_the_mass_that_it_says(problem: Problem) -> None:
    belief = ParticleBelief(problem, 20, SMALL)
    space = problem.parameter_space
    assert space is not None
    unit = 0.3 * torch.randn((3, 200, space.dim), generator=rng()).clamp(-3, 3)
    weight = torch.softmax(torch.randn((3, 200), generator=rng(1)).double(), dim=1)
    context = torch.full((3, len(problem.context_names)), 0.1)
    task = belief.task(unit.flatten(0, 1), context.repeat_interleave(200, dim=0))
    view = View(unit, weight, problem.target(task).view(3, 200, -1), context)
    epsilons = (0.4, 0.1, 0.4, 0.2)
    answers, confidences = recommend(problem, view, epsilons, belief.task)
    for epsilon, answer, confidence in zip(epsilons, answers, confidences, strict=True):
        loss = problem.loss(task, answer.repeat_interleave(200, dim=0)).view(3, 200)
        torch.testing.assert_close(confidence, (weight * (loss <= epsilon)).sum(dim=1).float())
        alone = recommend(problem, view, (epsilon,), belief.task)
        assert torch.equal(answer, alone[0][0])
        assert torch.equal(confidence, alone[1][0])
        for i in torch.linspace(0, 199, 32).long():  # what the search starts from holds no more
            start = problem.loss(task, view.target_BNX[:, i].repeat_interleave(200, dim=0)).view(3, 200)
            assert bool((confidence >= (weight * (start <= epsilon)).sum(dim=1) - 1e-6).all())


@pytest.mark.parametrize("entries", [2, 3])
def test_of_observations_with_two_values_the_equal_ones_are_neighbours(entries: int) -> None:
    rng = torch.Generator().manual_seed(4)
    target = 2 * torch.rand(2, 4096, entries, generator=rng) - 1
    query = 2 * torch.rand(2, 5, 1, entries, generator=rng) - 1
    observed = torch.where(target[:, None] >= query, 1.0, -1.0)
    found = score_queries("variance", observed, target, 0.1)
    # Two draws from one box: a sixth of its squared sides, weighted by how many particles it holds.
    boxes = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * entries)
    expected = torch.zeros(2, 5)
    for box in boxes:
        side = torch.where(box > 0, 1 - query[:, :, 0], query[:, :, 0] + 1)
        expected += -(side / 2).prod(dim=-1) * side.square().sum(dim=-1) / 6
    torch.testing.assert_close(found, expected, rtol=0.08, atol=0.0)


def test_equal_observations_stay_in_their_order() -> None:
    line = torch.tensor([[[0.5, -0.0, -1.5, 0.0, 0.5, -1.5, -0.25, 3e38, -3e38]]])
    assert _order(line).flatten().tolist() == [8, 2, 5, 6, 1, 3, 0, 4, 7]
    many = torch.randint(-3, 4, (2, 3, 500), generator=rng()).float() / 2
    assert torch.equal(_order(many), many.sort(dim=-1, stable=True).indices)


@pytest.mark.parametrize("entries", [1, 2])
def test_scores_of_queries_are_those_of_neighbours_found_one_by_one(entries: int) -> None:
    observed = torch.randn((2, 3, 20, entries), generator=rng())
    target = torch.randn((2, 20, 2), generator=rng(1))
    found = score_queries("variance", observed, target, 0.1)
    for b in range(2):
        for k in range(3):
            y, squared = observed[b, k], []
            if entries == 1:
                order = y[:, 0].argsort()
                pairs = [(order[i], order[i + lag]) for lag in LAGS for i in range(20 - lag)]
            else:
                apart = torch.cdist(y, y)
                pairs = [(torch.tensor(i), j) for i in range(20) for j in apart[i].argsort()[1 : 1 + len(LAGS)]]
            squared = [float((target[b, i] - target[b, j]).square().sum()) for i, j in pairs]
            assert float(found[b, k]) == pytest.approx(-sum(squared) / len(squared), rel=1e-4)


def test_the_agent_is_the_same_whether_its_problem_broadcasts_or_not() -> None:
    problem = Ackley(dim=2, noise=0.05)
    tasks = TaskBatch.draw(problem, 4, rng())
    cores = [ParticleBelief(problem, 20, SMALL), ParticleBelief(replace(problem), 20, SMALL)]
    object.__setattr__(cores[1].problem, "broadcasts", False)
    assert [belief.parametrisation.broadcasts for belief in cores] == [True, False]
    states = [belief.begin(tasks.context) for belief in cores]
    for t in range(2):
        looks = [belief.assess(state, (0.2,), rng(t)) for belief, state in zip(cores, states, strict=True)]
        torch.testing.assert_close(looks[0].query, looks[1].query, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(looks[0].confidence, looks[1].confidence, rtol=1e-3, atol=1e-3)
        y = tasks.observe(looks[0].query[:, 0], rng(t))
        states = [belief.update(state, looks[0].query[:, 0], y) for belief, state in zip(cores, states, strict=True)]
