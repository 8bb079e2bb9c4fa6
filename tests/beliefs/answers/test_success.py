"""Whether an answer succeeds: a loss that is a function of answer and target, and one that needs all that is hidden."""

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Generator, Tensor

from cicpe.beliefs.answers.config import AnswerBeliefConfig
from cicpe.beliefs.answers.grid import WeightedAnswers
from cicpe.beliefs.answers.heads import NormalHead
from cicpe.beliefs.answers.hidden import Nuisance
from cicpe.beliefs.answers.histories import places_of
from cicpe.beliefs.answers.recommendation import recommend
from cicpe.beliefs.answers.success import Success
from cicpe.beliefs.base import TaskShape
from cicpe.problems import Problem, TaskBatch
from cicpe.spaces import Box, Space, Sphere


@dataclass(frozen=True)
class Treatments(Problem):
    """Which of three treatments is best; the loss is by how much another is worse."""

    query_space = Box([0.0], [3.0])
    answer_space = Box([0.0], [2.0])

    def sample(self, n: int, rng: Generator) -> Tensor:
        return torch.rand((n, 3), generator=rng)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        place = query[:, :1].floor().clamp(0, 2).long()
        return task.gather(1, place)[:, 0] + 0.2 * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task.argmax(dim=1, keepdim=True).float()

    def loss(self, task: Tensor, answer: Tensor) -> Tensor:
        return (task.amax(dim=1, keepdim=True) - task.gather(1, answer.round().clamp(0, 2).long()))[:, 0]


@dataclass(frozen=True)
class Clock(Problem):
    """An hour on a dial: late and early are close, and to be late costs twice as much."""

    query_space = Box([0.0], [12.0])
    answer_space = Box([0.0], [12.0])

    def sample(self, n: int, rng: Generator) -> Tensor:
        return torch.rand((n, 2), generator=rng) * torch.tensor([12.0, 1.0])

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return torch.cos(math.pi / 6 * (query[:, 0] - task[:, 0])) + 0.1 * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[:, :1]

    def loss(self, task: Tensor, answer: Tensor) -> Tensor:
        late = (answer - task[:, :1])[:, 0].remainder(12)
        return torch.minimum(2 * late, 12 - late)


def make_rng(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


def agreement(success: Success, problem: Problem, nuisance: Nuisance, epsilon: float) -> float:
    """How often the likelier verdict on a fresh answer is the right one."""
    rng = make_rng(9)
    tasks = TaskBatch.draw(problem, 2000, rng)
    answer = problem.answer_space.sample(len(tasks), rng)
    unit = problem.answer_space.to_unit(answer)
    chance = success(unit[:, None], places_of(tasks, nuisance)[:, None], epsilon)[:, 0, 0]
    return float(((chance > 0.5) == (tasks.loss(answer) <= epsilon)).double().mean())


def test_a_regret_is_known_from_all_hidden_numbers() -> None:
    problem, values = Treatments(), torch.tensor([[-1.0], [0.0], [1.0]])
    nuisance = Nuisance.find(problem, 2000, make_rng())
    assert nuisance is not None
    success = Success.learn(problem, nuisance, values, make_rng(), math.inf, updates=400)
    assert success.numbers == 3
    known = agreement(success, problem, nuisance, 0.2)
    assert known > 0.86
    # What answer and target alone tell is much less: a second best may be close, or far.
    blind = Success.learn(problem, None, values, make_rng(), math.inf, updates=400)
    assert blind.numbers == 0
    assert agreement(blind, problem, nuisance, 0.2) < known - 0.05


def test_a_loss_of_answer_and_target_needs_no_more() -> None:
    problem = Clock()
    nuisance = Nuisance.find(problem, 2000, make_rng())
    assert nuisance is not None
    assert nuisance.size == 1
    success = Success.learn(problem, nuisance, None, make_rng(), math.inf, updates=400)
    assert success.learned
    assert success.numbers == 0
    assert agreement(success, problem, nuisance, 1.0) > 0.97


def test_a_model_of_such_a_loss_is_built_from_its_configuration() -> None:
    problem = Treatments()
    found = {"nuisance": 3, "gives_answer": True, "answer_values": 3, "draws": 64, "learned_success": True}
    config = AnswerBeliefConfig(heads=(NormalHead(),), loss_numbers=3, loss_values=3, **found)  # type: ignore[arg-type]
    written = AnswerBeliefConfig.model_validate_json(config.model_dump_json())
    shape = TaskShape(problem.query_space, problem.answer_space, 1, (), lambda: problem)
    fitted, read = config.build(shape, 10)[1], written.build(shape, 10)[1]
    for parameter in fitted.success.parameters():
        parameter.data = torch.randn(parameter.shape, generator=make_rng())
    fitted.success.floor.fill_(1e-3)
    read.load_state_dict(fitted.state_dict())
    rng = make_rng(1)
    answer, place = torch.rand(2, 3, 1, generator=rng), torch.rand(2, 5, 4, generator=rng)
    assert torch.equal(fitted.success(answer, place, 0.2), read.success(answer, place, 0.2))
    # An older model's configuration says nothing of it, and stays as it was.
    assert "loss_numbers" not in AnswerBeliefConfig().model_dump()


@pytest.mark.parametrize("space", [Box([0.0] * 2, [4.0, 1.0]), Box([0.0] * 2, [4.0, 1.0], norm="max"), Sphere(3)])
def test_a_distance_is_that_of_the_space(space: Space) -> None:
    rng = torch.Generator().manual_seed(0)
    answer, target = space.sample(5, rng), space.sample(7, rng)
    success = Success(space, learned=False)
    hits = success(space.to_unit(answer)[None], space.to_unit(target)[None], 0.9)[0]
    assert 0 < float(hits.mean()) < 1
    torch.testing.assert_close(hits, (space.distance(answer[:, None], target[None]) <= 0.9).float())


@dataclass(frozen=True)
class Recipes(Problem):
    """Two amounts in units of their own, judged by a loss that a user wrote."""

    kind: str = "euclidean"
    query_space = Box([0.0, 100.0], [5.0, 300.0])
    answer_space = Box([0.0, 100.0], [5.0, 300.0])

    def sample(self, n: int, rng: Generator) -> Tensor:
        return torch.rand((n, 3), generator=rng)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return query[:, 0] - task[:, 0]

    def target(self, task: Tensor) -> Tensor:
        return self.answer_space.from_unit(2 * task[:, :2] - 1)

    def loss(self, task: Tensor, answer: Tensor) -> Tensor:
        apart = (answer - self.target(task)).abs() / torch.tensor([5.0, 50.0])
        match self.kind:
            case "sum":
                return apart.sum(dim=1)
            case "angle":  # the first coordinate comes round
                return torch.linalg.vector_norm(torch.minimum(apart, torch.tensor([1.0, 9.0]) - apart), dim=1)
            case "torus":
                return torch.minimum(apart, torch.tensor([1.0, 4.0]) - apart).sum(dim=1)
            case "euclidean":
                return torch.linalg.vector_norm(apart, dim=1)
            case "squared":
                return apart.square().sum(dim=1)
            case "largest":
                return apart.amax(dim=1)
            case "steep":  # the same norm, times what is hidden
                return torch.linalg.vector_norm(apart, dim=1) * (1 + 0.2 * task[:, 2])
            case _:  # close to a norm, but not one
                return torch.linalg.vector_norm(apart, dim=1) ** 1.05


def _learned(kind: str) -> tuple[Recipes, Success]:
    problem, rng = Recipes(kind), Generator().manual_seed(0)
    return problem, Success.learn(problem, None, None, rng, math.inf, updates=20)


@pytest.mark.parametrize("kind", ["sum", "euclidean", "squared", "largest"])
def test_a_loss_that_is_a_norm_is_found_and_used_as_it_is(kind: str) -> None:
    problem, success = _learned(kind)
    assert success.norm == kind
    assert not success.learned
    tasks = TaskBatch.draw(problem, 64, Generator().manual_seed(1))
    space, answers = problem.answer_space, problem.answer_space.sample(64, Generator().manual_seed(2))
    loss = tasks.loss(answers)
    epsilon = float(loss.median())
    unit, places = space.to_unit(answers)[:, None], space.to_unit(tasks.target)[:, None]
    hits = success(unit, places, epsilon)[:, 0, 0]
    clear = (loss - epsilon).abs() > 1e-3 * epsilon
    assert torch.equal(hits[clear], (loss <= epsilon).float()[clear])
    soft = success(unit, places, epsilon, softness=1e-4)[:, 0, 0]
    assert torch.equal(soft[clear].round(), hits[clear])


@pytest.mark.parametrize(("kind", "norm", "wraps"), [("angle", "euclidean", (0,)), ("torus", "sum", (0, 1))])
def test_coordinates_that_wrap_are_found(kind: str, norm: str, wraps: tuple[int, ...]) -> None:
    problem, success = _learned(kind)
    assert (success.norm, success.wraps, success.learned) == (norm, wraps, False)
    tasks = TaskBatch.draw(problem, 64, Generator().manual_seed(1))
    space, answers = problem.answer_space, problem.answer_space.sample(64, Generator().manual_seed(2))
    unit, places = space.to_unit(answers)[:, None], space.to_unit(tasks.target)[:, None]
    loss = success.compared(unit, places).loss_BAN[:, 0, 0]
    torch.testing.assert_close(loss, tasks.loss(answers), rtol=2e-3, atol=1e-3)
    apart = success.apart(unit, places)
    assert float(apart[..., 0].abs().max()) <= 1
    assert not _learned("euclidean")[1].wraps


def test_what_two_ends_of_a_circle_hit_is_recommended_between_them() -> None:
    success = Success(Box([0.0, 0.0], [1.0, 1.0]), learned=False, norm="euclidean", wraps=(0, 1))
    rng = torch.Generator().manual_seed(0)
    # A cloud about a corner, which is one place seen from all four.
    target = 0.1 * torch.randn((1, 4000, 2), generator=rng)
    target = torch.where(target > 0, target - 1, target + 1)
    posterior = WeightedAnswers(target, torch.full((1, 4000), 1 / 4000, dtype=torch.float64))
    ((answer, confidence),) = recommend(success, success.space, posterior, [0.2])
    expected = 1 - math.exp(-0.5 * (0.2 / 0.1) ** 2)
    assert float(confidence) == pytest.approx(expected, abs=0.03)
    assert bool((answer.abs() > 0.93).all())
    assert bool((answer.abs() <= 1).all())


@pytest.mark.parametrize("kind", ["steep", "power"])
def test_a_loss_that_is_nearly_a_norm_is_learned(kind: str) -> None:
    """The negative control."""
    _, success = _learned(kind)
    assert success.norm is None
    assert success.learned


def test_a_norm_comes_back_with_its_weights() -> None:
    _, success = _learned("euclidean")
    empty = Success(success.space, success.learned, norm=success.norm)
    empty.load_state_dict(success.state_dict())
    answer, place = torch.zeros(1, 1, 2), torch.tensor([[[0.1, 0.1]]])
    # A tenth of half a box: 0.25 of 5 and 10 of 50.
    assert empty.compared(answer, place).loss_BAN.item() == pytest.approx(math.hypot(0.05, 0.2), rel=1e-3)
