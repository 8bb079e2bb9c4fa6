"""The general belief as a model: learned from simulations, calibrated, written, read, and gone on with."""

import math
import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

import cicpe
from cicpe.beliefs.answers.belief import LEAST_DOUBT, AnswerBelief
from cicpe.beliefs.answers.config import EVEN_QUERIES, FEWEST_QUERIES, AnswerBeliefConfig
from cicpe.beliefs.answers.grid import MOST_TABLE, GridSearch
from cicpe.beliefs.answers.histories import HistoryPool
from cicpe.beliefs.answers.learn import Family, LearningSizes, Limit
from cicpe.beliefs.answers.particles import ParticleSearch
from cicpe.beliefs.base import FitRequest, FittedBelief
from cicpe.beliefs.budget import Budget
from cicpe.errors import InvalidInput
from cicpe.problems import Problem, TaskBatch
from cicpe.spaces import Box
from cicpe.testing import check_agent
from cicpe.training.callbacks import TrainingCallback


@dataclass(frozen=True)
class Dose(Problem):
    """The dose at which half respond, with a hidden steepness."""

    query_space = Box([0.0], [4.0])
    answer_space = Box([0.0], [4.0])
    default_epsilon = (0.4, 0.8)
    horizon = 40

    def sample(self, n: int, rng: Generator) -> Tensor:
        return torch.rand((n, 2), generator=rng) * torch.tensor([4.0, 4.0]) + torch.tensor([0.0, 2.0])

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        p = torch.sigmoid(task[:, 1] * (query[:, 0] - task[:, 0]))
        return (torch.rand(len(query), generator=rng) < p).float()

    def target(self, task: Tensor) -> Tensor:
        return task[:, :1]


@dataclass(frozen=True)
class Source(Problem):
    """Where a source is in a plane, from its loudness in known noise; how strong it is, is hidden."""

    noise: float | tuple[float, float] = (0.1, 0.3)
    query_space = Box([-1.0, -1.0], [1.0, 1.0])
    answer_space = Box([-1.0, -1.0], [1.0, 1.0])
    context_names = ("noise",)
    default_epsilon = (0.2, 0.4)
    horizon = 20

    def sample(self, n: int, rng: Generator) -> Tensor:
        low, high = self.noise if isinstance(self.noise, tuple) else (self.noise, self.noise)
        place = torch.rand((n, 2), generator=rng) * 2 - 1
        rest = torch.rand((n, 2), generator=rng)
        return torch.cat([place, 0.5 + rest[:, :1], low + (high - low) * rest[:, 1:]], dim=1)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        squared = (query - task[:, :2]).square().sum(dim=1)
        return (task[:, 2] / (0.1 + squared)).log() + task[:, 3] * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[:, :2]

    def context(self, task: Tensor) -> Tensor:
        return task[:, 3:]


def fitted(problem: Problem, updates: int, **fields: Any) -> FittedBelief:
    config = AnswerBeliefConfig(epsilon=problem.default_epsilon, horizon=problem.horizon, **fields)
    return config.fit(FitRequest(problem, Budget(updates=updates), 0, TrainingCallback()))


@pytest.fixture(scope="module")
def dose() -> cicpe.Model:
    return cicpe.train(Dose(), recipe="answers", updates=300, calibration_episodes=500)


@pytest.fixture(scope="module")
def source() -> FittedBelief:
    """By particles, which a race compares with even points."""
    fit = fitted(Source(), 250, points=256)
    assert isinstance(fit.config, AnswerBeliefConfig)
    assert fit.config.on_grid
    (by_particles,) = fit.alternatives()
    return by_particles


def test_the_likelihood_is_learned(dose: cicpe.Model) -> None:
    """Held-out log-loss is near the least possible, which the true likelihood has."""
    assert isinstance(dose.belief, AnswerBelief)
    problem, rng = Dose(), torch.Generator().manual_seed(5)
    family = Family.look(problem, LearningSizes(), 0, None)
    histories = HistoryPool(problem, 8, rng, family.nuisance).batch(2000)
    model = dose.belief.model
    encoded = model.heads.encode(histories.observation_BTY)
    loss = float(model.history_loss(histories.query_BTQ, encoded, histories.place_BV, histories.context_BC).mean())
    query = problem.query_space.from_unit(histories.query_BTQ)[..., 0]
    answer = problem.answer_space.from_unit(histories.place_BV[:, :1])
    steepness = 4 + 2 * histories.place_BV[:, 1:] / math.sqrt(3)
    logit, seen = steepness * (query - answer), histories.observation_BTY[..., 0]
    least = float(torch.nn.functional.binary_cross_entropy_with_logits(logit, seen))
    assert least - 0.005 < loss < least + 0.02


def test_random_queries_on_a_line_are_those_of_the_table(dose: cicpe.Model, source: FittedBelief) -> None:
    """Others take a pass of the network for every pair of the grid: an alarm for a yes/no family took half an hour."""
    assert isinstance(dose.belief, AnswerBelief)
    assert isinstance(source.belief, AnswerBelief)
    unit = dose.belief.query_space.to_unit(dose.belief.random_queries(500, torch.Generator().manual_seed(0)))
    even = dose.belief._even.points_AQ
    assert float((unit - even.T).abs().min(dim=1).values.max()) < 1e-5
    assert len(unit.unique()) > 0.9 * len(even)  # type: ignore[no-untyped-call]
    plane = source.belief.random_queries(50, torch.Generator().manual_seed(0))
    assert torch.equal(plane, source.belief.query_space.sample(50, torch.Generator().manual_seed(0)))


def test_a_table_of_queries_is_made_once_for_all_horizons_and_stays_here(dose: cicpe.Model) -> None:
    belief = dose.belief
    assert isinstance(belief, AnswerBelief)
    assert isinstance(belief.search, GridSearch)
    shorter = belief.with_horizon(3)
    assert isinstance(shorter, AnswerBelief)
    rng = torch.Generator().manual_seed(0)
    state = shorter.begin(torch.zeros(64, 0))
    shorter.update(state, shorter.random_queries(64, rng), torch.ones(64, 1))
    assert belief.search.tables.keys() == {len(belief._even)}
    sent = pickle.loads(pickle.dumps(belief))
    assert "tables" not in vars(sent.search)
    assert len(pickle.dumps(belief)) < 4e6
    sent.prepare()  # before anybody looks at the clock
    assert sent.search.tables.keys() == belief.search.tables.keys()


def test_particles_hold_their_confidence_to_the_step_before(source: FittedBelief, dose: cicpe.Model) -> None:
    """Doubt is the geometric mean of two steps, for particles alone; what is recommended and asked stays as it was."""
    belief, rng = source.belief, torch.Generator().manual_seed(0)
    assert isinstance(belief, AnswerBelief)
    assert isinstance(dose.belief, AnswerBelief)
    assert (belief.steady, dose.belief.steady) == (True, False)
    assert [fit.config.search for fit in source.variants()] == ["particles"]
    assert not source.alternatives()
    tasks = TaskBatch.draw(Source(), 4, rng)
    state, raw, shown = belief.begin(tasks.context), [], []
    for _ in range(4):
        as_it_is = replace(belief, steady=False).assess(state, (0.3, 0.6), rng)
        held = belief.assess(state, (0.3, 0.6), rng)
        assert torch.equal(as_it_is.query, held.query)
        assert torch.equal(as_it_is.recommendation, held.recommendation)
        raw.append(as_it_is.confidence)
        shown.append(held.confidence)
        query = belief.random_queries(4, rng)
        state = belief.update(state, query, tasks.observe(query, rng))
    for before, now, held in zip(raw, raw[1:], shown[1:], strict=False):
        doubt = ((1 - before).clamp_min(LEAST_DOUBT) * (1 - now).clamp_min(LEAST_DOUBT)).sqrt()
        assert torch.allclose(held, 1 - doubt, atol=1e-6)
    assert any(not torch.allclose(now, held, atol=1e-2) for now, held in zip(raw, shown, strict=True))


def test_what_was_found_is_in_the_configuration(dose: cicpe.Model, source: FittedBelief) -> None:
    line, plane = dose.description.training, source.config
    assert isinstance(line, AnswerBeliefConfig)
    assert isinstance(plane, AnswerBeliefConfig)
    assert (line.on_grid, line.nuisance, [head.kind for head in line.heads]) == (True, 1, ["binary"])
    assert (plane.on_grid, plane.nuisance, plane.fixed_context) == (False, 1, None)
    assert isinstance(dose.belief.search, GridSearch)  # type: ignore[attr-defined]
    assert isinstance(source.belief.search, ParticleSearch)  # type: ignore[attr-defined]


def test_it_keeps_its_word(dose: cicpe.Model) -> None:
    result = cicpe.evaluate(dose, epsilon=0.8, delta=0.1, episodes=600, seed=9)
    assert result.accuracy_ci[1] >= 0.9
    assert abs(result.confidence - result.accuracy) < 0.06
    assert result.mean_queries < 14


def test_a_saved_model_decides_alike(dose: cicpe.Model, tmp_path: Path) -> None:
    again = cicpe.Model.load(dose.save(tmp_path / "dose"))
    proposals = []
    for model in (dose, again):
        session = model.session(0.8, 0.1, seed=4)
        for answer in (1.0, 0.0, 1.0):
            proposals.append(session.ask().tolist())
            session.tell(answer)
        proposals.append(session.recommendation.tolist())
    assert proposals[:4] == proposals[4:]


@pytest.mark.parametrize("kind", ["grid", "particles"])
def test_the_promises_of_an_agent(kind: str, dose: cicpe.Model, source: FittedBelief) -> None:
    if kind == "grid":
        return check_agent(dose.agent(0.8, 0.1), Dose(), n=6)
    model = cicpe.Model(source.belief, dose.description, dose.calibration)
    return check_agent(model.unstopped(0.8), Source(), n=4)


def test_a_known_context_makes_answers_surer_where_noise_is_low(source: FittedBelief) -> None:
    """The same observations are worth more in less noise."""
    belief, rng = source.belief, torch.Generator().manual_seed(0)
    state = belief.begin(torch.tensor([[0.1], [0.3]]))
    task = torch.tensor([[0.4, -0.2, 1.0, 0.0]]).expand(2, -1)
    for _ in range(5):
        query = torch.rand((1, 2), generator=rng).expand(2, -1) * 2 - 1
        state = belief.update(state, query, Source().observe(task, query, rng)[:, None])
    std = belief.assess(state, (0.3,), torch.Generator().manual_seed(0)).std
    assert float(std[0].norm()) < 0.8 * float(std[1].norm())


def test_predictions_have_the_spread_of_what_comes(source: FittedBelief) -> None:
    belief, problem = source.belief, Source(noise=0.2)
    rng = torch.Generator().manual_seed(1)
    task = problem.sample(40, rng)
    query = problem.query_space.sample(40, rng)
    prediction = belief.predict(belief.begin(problem.context(task)), query)
    z = (problem.observe(task, query, rng)[:, None] - prediction.mean) * torch.exp(-prediction.log_std)
    assert 0.6 < float(z.std()) < 1.5


def test_a_fit_is_gone_on_with(dose: cicpe.Model) -> None:
    first = fitted(Dose(), 30)
    assert first.longer is not None
    before = {name: tensor.clone() for name, tensor in first.belief.tensors().items()}
    longer = first.longer(Budget(updates=20))
    assert longer.updates == 50
    assert any(not torch.equal(longer.belief.tensors()[name], tensor) for name, tensor in before.items())
    assert all(torch.equal(first.belief.tensors()[name], tensor) for name, tensor in before.items())


def test_updates_make_a_run_reproducible() -> None:
    one, two = (fitted(Source(), 12, points=128).belief.tensors() for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_tasks_that_cannot_be_read_need_an_answer_on_a_line() -> None:
    @dataclass(frozen=True)
    class Fields(Source):
        def sample(self, n: int, rng: Generator) -> Any:
            return {"numbers": Source.sample(self, n, rng), "field": torch.randn((n, 40), generator=rng)}

        def observe(self, task: Any, query: Tensor, rng: Generator) -> Tensor:
            return Source.observe(self, task["numbers"], query, rng)

        def target(self, task: Any) -> Tensor:
            return Source.target(self, task["numbers"])

        def context(self, task: Any) -> Tensor:
            return Source.context(self, task["numbers"])

    with pytest.raises(InvalidInput, match="more than numbers, or too many"):
        fitted(Fields(), 5)


def test_a_slow_simulator_is_shown_again() -> None:
    pool = HistoryPool(Dose(), 4, torch.Generator().manual_seed(0))
    pool.batch(32)
    pool.seconds, simulated = 1e6, pool.simulated
    again = pool.batch(100)
    assert pool.simulated == simulated
    assert len(again.place_BV) == 100


def test_a_limit_in_updates_has_parts() -> None:
    limit = Limit(updates=10)
    limit.done = 4
    assert limit.rest().updates == 6
    assert limit.part(0.2).updates == 2
    assert limit.progress == pytest.approx(0.4)


def test_thresholds_chosen_anew_are_for_the_confidence_of_this_version() -> None:
    """A model of an earlier version shows its old confidence until it is calibrated again; its weights stay."""
    model = cicpe.load("ackley-3d-simulator")
    about = model.description
    earlier = about.model_copy(update={"horizon": 2, "training": about.training.model_copy(update={"steady": False})})
    old = replace(model, belief=replace(model.belief, horizon=2, steady=False), description=earlier)
    now = cicpe.recalibrate(old, episodes=3)
    assert isinstance(now.belief, AnswerBelief)
    assert now.belief.steady
    assert now.belief.horizon == 2
    assert now.description.training == earlier.training.renewed() != earlier.training
    assert now.calibration.episodes == 3
    kept = model.belief.tensors()
    assert all(torch.equal(value, kept[name]) for name, value in now.belief.tensors().items())


def test_a_grid_is_as_this_version_would_fit_it(dose: cicpe.Model) -> None:
    assert dose.description.training.renewed() == dose.description.training


@dataclass(frozen=True)
class Distance(Source):
    """A distance, of which a part of the readings may be anything."""

    strays: float = 0.15
    noise: float | tuple[float, float] = 0.1

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        apart = (query - task[:, :2]).square().sum(dim=1).sqrt() + 0.1 * torch.randn(len(query), generator=rng)
        anything = 3 * torch.rand(len(query), generator=rng)
        return torch.where(torch.rand(len(query), generator=rng) < self.strays, anything, apart)


@pytest.mark.parametrize("strays", [0.0, 0.15])
def test_queries_are_compared_by_gaussians_only_where_little_is_lost(strays: float) -> None:
    fit = fitted(Distance(strays=strays), 900)
    belief = fit.belief
    assert isinstance(belief, AnswerBelief)
    lost = belief.model.lost_as_gaussians(belief.fixed_context)
    assert belief._is_plain == (strays == 0)
    assert lost > 0.1 if strays else lost < 0.02


@dataclass(frozen=True)
class CountedPeak(Source):
    """Counts about a place in a plane, with a hidden height and width: four hidden numbers, nine parameters each."""

    noise: float | tuple[float, float] = 0.1

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        squared = (query - task[:, :2]).square().sum(dim=1)
        return torch.poisson(20 * task[:, 2] * torch.exp(-squared / (0.1 + 0.1 * task[:, 2])), generator=rng)

    def sample(self, n: int, rng: Generator) -> Tensor:
        task = Source.sample(self, n, rng)
        return torch.cat([task, torch.rand((n, 1), generator=rng)], dim=1)

    def context(self, task: Tensor) -> Tensor:
        return task[:, 3:4]

    def target(self, task: Tensor) -> Tensor:
        return task[:, :2]


def test_many_parameters_take_fewer_queries_and_not_the_table() -> None:
    belief = fitted(CountedPeak(), 1).belief
    assert isinstance(belief, AnswerBelief)
    assert isinstance(belief.search, GridSearch)
    numbers = len(belief.search.places_GV) * belief.model.heads.parameters
    assert EVEN_QUERIES * numbers > MOST_TABLE  # all queries would not fit
    assert FEWEST_QUERIES <= belief.even_queries <= MOST_TABLE // numbers
