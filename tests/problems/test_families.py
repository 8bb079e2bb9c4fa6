"""The families against analytic oracles, the adapter, the checks of TaskBatch, and the conformance suite itself."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from scipy.interpolate import RegularGridInterpolator
from torch import Generator, Tensor
from torch.distributions import Bernoulli, Normal

from cicpe.errors import InvalidInput, ProblemError
from cicpe.problems import FAMILIES, Problem, ProblemSpec, TaskBatch, make_problem, spec_of
from cicpe.problems.ackley import Ackley
from cicpe.problems.base import Task
from cicpe.problems.best_arm import BestArm
from cicpe.problems.binary_search import BinarySearch
from cicpe.problems.gp_max import GRID, GPMax, sample_paths
from cicpe.problems.per_task import PerTaskProblem
from cicpe.spaces import Box, Interval, Sphere
from cicpe.testing import check_problem

ALL = [
    *[("binary-search", dim) for dim in (1, 2, 6, 9)],
    *[("best-arm", dim) for dim in (2, 5)],
    *[("ackley", dim) for dim in (1, 3, 7)],
    *[("gp-max", dim) for dim in (1, 2)],
]


SIMULATED = [name for name in FAMILIES if name != "geochem"]
"""Families that need no data; geochem has tests of its own."""
SIZED = [name for name in SIMULATED if name != "gp-argmax"]
"""Families that come in several dimensions."""


def make_rng(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


def use(problem: Problem, query: Tensor) -> None:
    """All that an episode asks of a problem."""
    tasks = TaskBatch.draw(problem, len(query), make_rng())
    tasks.observe(query, make_rng())
    tasks.loss(torch.zeros(len(query), 2))


# Every family


@pytest.mark.parametrize(("name", "dim"), ALL)
def test_family_conforms(name: str, dim: int) -> None:
    check_problem(make_problem(name, dim=dim))


@pytest.mark.parametrize("name", SIMULATED)
def test_family_conforms_without_noise(name: str) -> None:
    check_problem(make_problem(name, noise=0.0), seed=1)


@pytest.mark.parametrize("name", SIMULATED)
def test_family_survives_json(name: str) -> None:
    problem = make_problem(name, noise=(0.01, 0.02))
    spec = spec_of(problem)
    data = json.loads(json.dumps({"name": spec.name, "options": dict(spec.options)}))
    assert spec.name == name
    assert ProblemSpec(**data).make() == problem


@pytest.mark.parametrize("name", SIZED)
def test_family_has_the_defaults_of_the_paper(name: str) -> None:
    expected = {
        "binary-search": (6, (0.025, 0.1)),
        "best-arm": (5, (0.00125, 0.01)),
        "ackley": (3, (0.025, 0.1)),
        "gp-max": (1, (0.0375, 0.1)),
    }
    problem: Any = make_problem(name)
    assert (problem.dim, problem.noise) == expected[name]
    assert problem.default_context() == (problem.noise[1],)


@pytest.mark.parametrize("name", SIMULATED)
def test_noise_is_log_uniform_in_its_range_and_told_to_the_agent(name: str) -> None:
    problem = make_problem(name, noise=(0.001, 0.1))
    context = TaskBatch.draw(problem, 2000, make_rng()).context
    share = (torch.log10(context) + 3) / 2
    assert share.min() >= 0
    assert share.max() <= 1
    # U[0, 1]: the mean has standard error 0.289 / sqrt(n).
    assert abs(share.mean() - 0.5) < 4 * 0.289 / math.sqrt(2000)


@pytest.mark.parametrize("name", SIZED)
def test_with_noise_changes_the_noise_only(name: str) -> None:
    problem: Any = make_problem(name, dim=2)
    other: Any = problem.with_context(noise=0.05)
    assert (other.dim, other.noise) == (2, (0.05, 0.05))
    assert TaskBatch.draw(other, 3, make_rng()).context == pytest.approx(torch.full((3, 1), 0.05))


@pytest.mark.parametrize("name", SIMULATED)
@pytest.mark.parametrize("noise", [-0.1, math.nan, math.inf, (0.2, 0.1)])
def test_bad_noise_is_refused(name: str, noise: Any) -> None:
    with pytest.raises(InvalidInput, match="noise"):
        make_problem(name, noise=noise)


@pytest.mark.parametrize(
    ("name", "dim"),
    [("binary-search", 0), ("best-arm", 1), ("ackley", 0), ("ackley", 21), ("gp-max", 0), ("gp-max", 3)],
)
def test_bad_dimension_is_refused(name: str, dim: int) -> None:
    with pytest.raises(InvalidInput, match=f"dim must be .*; got {dim}"):
        make_problem(name, dim=dim)


@pytest.mark.parametrize(("name", "dim"), [("best-arm", 4), ("ackley", 3), ("gp-max", 1), ("gp-max", 2)])
def test_gaussian_observations_and_their_likelihood(name: str, dim: int) -> None:
    problem: Any = make_problem(name, dim=dim)
    n = 1000
    task = problem.sample(n, make_rng())
    query = problem.query_space.sample(n, make_rng(1))
    seen = problem.observe(task, query, make_rng(2))
    mean = problem.value(task, query)
    assert seen.shape == (n, 1)
    normal: Any = Normal(mean.double(), task.noise.double())
    oracle = normal.log_prob(seen[:, 0].double())
    assert torch.allclose(problem.log_likelihood(task, query, seen).double(), oracle, atol=2e-3)
    residual = (seen[:, 0] - mean) / task.noise
    assert abs(residual.mean()) < 4 / math.sqrt(n)
    assert abs(residual.square().mean() - 1) < 4 * math.sqrt(2 / n)


# Binary search


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.3])
def test_binary_search_flips_as_often_as_it_says(noise: float) -> None:
    problem = BinarySearch(dim=3, noise=noise)
    task = problem.sample(20_000, make_rng())
    query = problem.query_space.sample(20_000, make_rng(1))
    seen = problem.observe(task, query, make_rng(2))
    assert set(seen.flatten().tolist()) == {-1.0, 1.0}
    flipped = (seen != torch.sign(task.target - query)).float()
    error = math.sqrt(noise * (1 - noise) / 20_000)
    assert (flipped.mean(0) - noise).abs().max() <= 4.5 * error
    # Coordinates flip independently of each other.
    assert abs((flipped[:, 0] * flipped[:, 1]).mean() - noise**2) <= 4.5 * noise / math.sqrt(20_000)


def test_binary_search_likelihood_is_bernoulli() -> None:
    problem = BinarySearch(dim=4)
    task = problem.sample(200, make_rng())
    query = problem.query_space.sample(200, make_rng(1))
    seen = problem.observe(task, query, make_rng(2))
    up = torch.where(task.target > query, 1 - task.noise[:, None], task.noise[:, None])
    bernoulli: Any = Bernoulli(up)
    oracle = bernoulli.log_prob((seen > 0).float()).sum(-1)
    assert torch.allclose(problem.log_likelihood(task, query, seen), oracle, atol=1e-5)


# Best arm


def test_best_arm_is_linear_in_the_query() -> None:
    problem = BestArm(dim=5, noise=0.0)
    task = problem.sample(100, make_rng())
    a, b = problem.query_space.sample(200, make_rng(1)).chunk(2)
    seen = [problem.observe(task, query, make_rng()) for query in (a, b, 2 * a - 3 * b)]
    assert torch.allclose(seen[2], 2 * seen[0] - 3 * seen[1], atol=1e-5)


def test_best_arm_shows_one_coordinate_along_an_axis_and_is_largest_at_its_target() -> None:
    problem = BestArm(dim=3, noise=0.0)
    task = problem.sample(50, make_rng())
    along = torch.tensor([0.0, 1.0, 0.0]).expand(50, 3)
    assert torch.allclose(problem.observe(task, along, make_rng())[:, 0], task.target[:, 1])
    assert torch.allclose(problem.value(task, task.target), torch.ones(50), atol=1e-6)
    assert (problem.value(task, problem.query_space.sample(50, make_rng(3))) <= 1).all()


def test_best_arm_loss_is_one_minus_the_cosine() -> None:
    problem = BestArm(dim=3)
    tasks = TaskBatch.draw(problem, 20, make_rng())
    answer = 7 * problem.answer_space.sample(20, make_rng(1))  # an answer's length does not matter
    cosine = torch.nn.functional.cosine_similarity(answer, tasks.target)
    assert torch.allclose(tasks.loss(answer), 1 - cosine, atol=1e-6)
    assert torch.allclose(tasks.loss(-tasks.target), torch.full((20,), 2.0))


# Ackley


def ackley_oracle(place: np.ndarray, best: np.ndarray, b: float, c: float) -> float:
    """The paper's formula, number by number."""
    d = len(place)
    offset = [float(x) - float(y) for x, y in zip(place, best, strict=True)]
    bowl = 10 * math.exp(-b * math.sqrt(sum(u * u for u in offset) / d))
    ripple = math.exp(sum(math.cos(c * u) for u in offset) / d)
    height = 10 + math.e - bowl - ripple
    return 1 - 2 * height / (math.pi - 0.21 * d + 9.68 * b + 0.04 * c)


@pytest.mark.parametrize("dim", [1, 3, 6])
def test_ackley_against_the_formula(dim: int) -> None:
    problem = Ackley(dim=dim, noise=0.0)
    task = problem.sample(100, make_rng())
    query = problem.query_space.sample(100, make_rng(1))
    oracle = [
        ackley_oracle(query[i].numpy(), task.target[i].numpy(), float(task.decay[i]), float(task.frequency[i]))
        for i in range(100)
    ]
    assert problem.observe(task, query, make_rng())[:, 0].numpy() == pytest.approx(oracle, abs=2e-5)


@pytest.mark.parametrize("dim", [1, 3, 6])
def test_ackley_is_one_at_its_target_and_less_elsewhere(dim: int) -> None:
    problem = Ackley(dim=dim, noise=0.0)
    task = problem.sample(200, make_rng())
    assert (problem.observe(task, task.target, make_rng()) == 1).all()
    assert (problem.value(task, problem.query_space.sample(200, make_rng(1))) < 1).all()


def test_ackley_prior() -> None:
    task = Ackley().sample(5000, make_rng())
    for values, low, high in ((task.decay, 0.1, 0.5), (task.frequency, math.pi, 4 * math.pi), (task.target, -1, 1)):
        share = (values - low) / (high - low)
        assert share.min() >= -1e-6
        assert share.max() <= 1 + 1e-6
        assert (share.mean(0) - 0.5).abs().max() < 4 * 0.289 / math.sqrt(5000)
    assert Ackley().context_names == ("noise",)  # the shape stays hidden


# GP max


def z_scores(products: Tensor, kernel: Tensor) -> Tensor:
    """How many standard errors the mean of f(x) f(x') is from that of k(x, x'), for each column."""
    gap = products - kernel
    return gap.mean(0) / gap.std(0) * math.sqrt(len(gap))


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("scales", [(0.05, 0.1), (0.1, 0.2)])
def test_gp_paths_have_the_rbf_covariance(dim: int, scales: tuple[float, float]) -> None:
    n = 3000 if dim == 1 else 1000
    low, high = scales
    lengthscale = low + (high - low) * torch.rand(n, generator=make_rng())
    paths = sample_paths(lengthscale, dim, make_rng(5))
    side = GRID[dim]
    assert paths.shape == (n, *[side] * dim)
    # Lags of 0, 0.05, 0.1, 0.2, 0.5 and 1: along the axis, and for d = 2 along each axis and the diagonal.
    steps = [round(lag * (side - 1)) for lag in (0, 0.05, 0.1, 0.2, 0.5, 1)]
    directions = [(1,)] if dim == 1 else [(1, 0), (0, 1), (1, 1)]
    products, squares = [], []
    for direction in directions:
        for step in steps:
            here: tuple[Any, ...] = (slice(None), *[0] * dim)
            there: tuple[Any, ...] = (slice(None), *[step * axis for axis in direction])
            products.append(paths[here] * paths[there])
            squares.append(sum((step * axis / (side - 1)) ** 2 for axis in direction))
    squared_lag = torch.tensor(squares)
    kernel = torch.exp(-squared_lag / (2 * lengthscale[:, None] ** 2))
    assert z_scores(torch.stack(products, 1), kernel).abs().max() < 4.2  # 18 two-sided tests at alpha 1e-3 in all
    wrong = torch.exp(-squared_lag / (2 * (1.5 * lengthscale[:, None]) ** 2))
    assert z_scores(torch.stack(products, 1), wrong).abs().max() > 5  # the test can tell a wrong kernel


@pytest.mark.parametrize("dim", [1, 2])
def test_gp_paths_are_stationary_with_mean_zero_and_variance_one(dim: int) -> None:
    n = 1000
    paths = sample_paths(torch.full((n,), 0.1), dim, make_rng()).flatten(1)[:, :: 61 if dim == 1 else 455]
    assert (paths.mean(0) * math.sqrt(n)).abs().max() < 4.2
    assert ((paths.square().mean(0) - 1) * math.sqrt(n / 2)).abs().max() < 4.5


def test_gp_paths_are_smooth() -> None:
    """Rounding in the embedding would show as white noise; the second difference of an RBF path is tiny."""
    paths = sample_paths(torch.full((200,), 0.2), 1, make_rng()).double()
    second = paths[:, 2:] - 2 * paths[:, 1:-1] + paths[:, :-2]
    # Var f'' = 3 / l^4, so the difference has standard deviation sqrt(3) (h / l)^2.
    expected = math.sqrt(3) / (0.2 * 511) ** 2
    assert second.std() == pytest.approx(expected, rel=0.2)


def test_gp_prior_of_the_length_scale() -> None:
    share = (GPMax().sample(2000, make_rng()).lengthscale - 0.05) / 0.15
    assert share.min() >= -1e-6
    assert share.max() <= 1 + 1e-6
    assert abs(share.mean() - 0.5) < 4 * 0.289 / math.sqrt(2000)


@pytest.mark.parametrize("dim", [1, 2])
def test_gp_values_are_interpolated(dim: int) -> None:
    problem = GPMax(dim=dim, noise=0.0)
    task = problem.sample(20, make_rng())
    axis = np.linspace(0, 1, GRID[dim])
    corners = torch.cat([torch.zeros(1, dim), torch.ones(1, dim), torch.eye(dim)])
    query = torch.cat([corners, problem.query_space.sample(20 - len(corners), make_rng(1))])
    oracle = [
        RegularGridInterpolator([axis] * dim, task.values[i].double().numpy())(query[i].double().numpy())[0]
        for i in range(20)
    ]
    assert problem.observe(task, query, make_rng())[:, 0].numpy() == pytest.approx(oracle, abs=1e-4)


@pytest.mark.parametrize("dim", [1, 2])
def test_gp_target_is_the_largest_value(dim: int) -> None:
    problem = GPMax(dim=dim, noise=0.0)
    tasks = TaskBatch.draw(problem, 200, make_rng())
    places = problem.query_space.sample(200, make_rng(1))
    assert (problem.value(tasks.task, places) <= tasks.target[:, 0] + 1e-5).all()
    best = tasks.task.values.flatten(1).argmax(1)
    side = GRID[dim]
    at = torch.stack(torch.unravel_index(best, [side] * dim), -1) / (side - 1)
    assert torch.allclose(problem.value(tasks.task, at).clamp(-5, 5), tasks.target[:, 0], atol=1e-3)
    assert torch.allclose(tasks.loss(tasks.target + 0.25), torch.full((200,), 0.25), atol=1e-5)


def test_gp_target_is_clipped_into_the_answer_space() -> None:
    problem = GPMax()
    task = problem.sample(2, make_rng())
    high = task._replace(values=task.values * 0 + torch.tensor([[9.0], [-9.0]]))
    assert problem.target(high).tolist() == [[5.0], [-5.0]]


# HiddenTasks


class Line(Problem):
    """A small correct problem that the tests below break, one method at a time."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0, 0.0], [1.0, 1.0])
    context_names: Sequence[str] = ("scale",)

    def sample(self, n: int, rng: Generator) -> Task:
        return {"target": torch.rand((n, 2), generator=rng), "scale": 0.5 + torch.rand(n, generator=rng)}

    def observe(self, task: Task, query: Tensor, rng: Generator) -> Any:
        mean = task["target"].sum(-1) * task["scale"] + query[:, 0]
        return mean + 0.1 * torch.randn(len(query), generator=rng)

    def target(self, task: Task) -> Any:
        return task["target"]

    def loss(self, task: Task, answer: Tensor) -> Any:
        return (answer - task["target"]).abs().amax(-1)

    def context(self, task: Task) -> Any:
        return task["scale"][:, None]

    def log_likelihood(self, task: Task, query: Tensor, observation: Tensor) -> Any:
        mean = task["target"].sum(-1) * task["scale"] + query[:, 0]
        normal: Any = Normal(mean, 0.1)
        return normal.log_prob(observation[:, 0])


def test_hidden_tasks_take_many_answers_a_task() -> None:
    for problem in (Line(), BinarySearch(dim=2)):
        tasks = TaskBatch.draw(problem, 5, make_rng())
        answers = torch.rand((5, 3, 4, 2), generator=make_rng(1))
        loss = tasks.loss(answers)
        assert loss.shape == (5, 3, 4)
        assert torch.allclose(loss[:, 1, 2], tasks.loss(answers[:, 1, 2]))


def test_hidden_tasks_may_be_none_at_all() -> None:
    for problem in (Line(), BinarySearch(dim=2)):
        nobody = TaskBatch.draw(problem, 4, make_rng()).select(torch.zeros(4, dtype=torch.bool))
        assert len(nobody) == 0
        assert nobody.loss(torch.zeros(0, 2)).shape == (0,)
        assert nobody.loss(torch.zeros(0, 3, 2)).shape == (0, 3)


def test_hidden_tasks_select_keeps_task_context_and_target_together() -> None:
    tasks = TaskBatch.draw(Line(), 6, make_rng())
    some = tasks.select(torch.tensor([4, 1]))
    assert torch.equal(some.target, some.task["target"])
    assert torch.equal(some.context[:, 0], some.task["scale"])
    assert torch.equal(some.target, tasks.target[[4, 1]])


def test_hidden_tasks_read_numpy_and_double_precision() -> None:
    class Loose(Line):
        def context(self, task: Task) -> Any:
            return task["scale"][:, None].double().numpy()

        def target(self, task: Task) -> Any:
            return task["target"].tolist()

    tasks = TaskBatch.draw(Loose(), 3, make_rng())
    assert tasks.context.dtype == tasks.target.dtype == torch.float32


def test_observation_dim_is_found_by_looking() -> None:
    assert Line().observation_dim == 1
    assert BinarySearch(dim=4).observation_dim == 4


# Broken problems. Each changes one thing of Line.


class NoSpace(Line):
    query_space = None  # type: ignore[assignment]


class NameForNames(Line):
    context_names = "scale"


class ZeroHorizon(Line):
    horizon = 0


class ShortSample(Line):
    def sample(self, n: int, rng: Generator) -> Task:
        return {"target": torch.rand((n, 2), generator=rng), "scale": torch.rand(1, generator=rng)}


class FloatInSample(Line):
    def sample(self, n: int, rng: Generator) -> Task:
        return super().sample(n, rng) | {"gain": 2.0}


class GlobalSample(Line):
    def sample(self, n: int, rng: Generator) -> Task:
        return super().sample(n, rng) | {"extra": torch.rand(n)}


class ConstantSample(Line):
    def sample(self, n: int, rng: Generator) -> Task:
        return super().sample(n, make_rng(3))


class GlobalObserve(Line):
    def observe(self, task: Task, query: Tensor, rng: Generator) -> Any:
        return super().observe(task, query, rng) + 0.01 * torch.randn(len(query))


class TaskChangingObserve(Line):
    def observe(self, task: Task, query: Tensor, rng: Generator) -> Any:
        seen = super().observe(task, query, rng)
        task["scale"] += 1e-3
        return seen


class QueryChangingObserve(Line):
    def observe(self, task: Task, query: Tensor, rng: Generator) -> Any:
        seen = super().observe(task, query, rng)
        query *= 2
        return seen


class NanObserve(Line):
    def observe(self, task: Task, query: Tensor, rng: Generator) -> Any:
        return super().observe(task, query, rng) + 0 / query[:, 0]  # only on the edge


class ScalarObserve(Line):
    def observe(self, task: Task, query: Tensor, rng: Generator) -> Any:
        return super().observe(task, query, rng).mean()


class NoReturnObserve(Line):
    def observe(self, task: Task, query: Tensor, rng: Generator) -> Any:
        super().observe(task, query, rng)


class RaisingObserve(Line):
    def observe(self, task: Task, query: Tensor, rng: Generator) -> Any:
        raise KeyError("dose")


class WideningObserve(Line):
    def observe(self, task: Task, query: Tensor, rng: Generator) -> Any:
        seen = super().observe(task, query, rng)
        return seen[:, None].repeat(1, 2) if (query == 0).any() else seen

    log_likelihood = Problem.log_likelihood


class NarrowTarget(Line):
    def target(self, task: Task) -> Any:
        return task["target"][:, 0]


class OutsideTarget(Line):
    answer_space = Box([0.0, 0.0], [1.0, 0.5])


class NanTarget(Line):
    def target(self, task: Task) -> Any:
        return task["target"] / 0 * 0


class OffsetLoss(Line):
    def loss(self, task: Task, answer: Tensor) -> Any:
        return super().loss(task, answer) + 0.2


class NegativeLoss(Line):
    def loss(self, task: Task, answer: Tensor) -> Any:
        return (answer - task["target"]).sum(-1)


class NanLoss(Line):
    def loss(self, task: Task, answer: Tensor) -> Any:
        return super().loss(task, answer) / (answer != task["target"]).all(-1)


class WideLoss(Line):
    def loss(self, task: Task, answer: Tensor) -> Any:
        return (answer - task["target"]).abs()


class MixingLoss(Line):
    def loss(self, task: Task, answer: Tensor) -> Any:
        loss = super().loss(task, answer)
        return loss * (1 + loss.mean())


class UnnamedContext(Line):
    context_names = ()


class FlatContext(Line):
    def context(self, task: Task) -> Any:
        return task["scale"]


class NanContext(Line):
    def context(self, task: Task) -> Any:
        return torch.log(task["scale"] - 0.75)[:, None]


class LongDefaultContext(Line):
    def default_context(self) -> tuple[float, ...]:
        return (1.0, 2.0)


class UnsummedLikelihood(Line):
    def log_likelihood(self, task: Task, query: Tensor, observation: Tensor) -> Any:
        return super().log_likelihood(task, query, observation)[:, None]


class NanLikelihood(Line):
    def log_likelihood(self, task: Task, query: Tensor, observation: Tensor) -> Any:
        return super().log_likelihood(task, query, observation) * math.nan


class UpsideDownLikelihood(Line):
    def log_likelihood(self, task: Task, query: Tensor, observation: Tensor) -> Any:
        return -super().log_likelihood(task, query, observation)


class ConstantLikelihood(Line):
    def log_likelihood(self, task: Task, query: Tensor, observation: Tensor) -> Any:
        return torch.zeros(len(query))


BROKEN: list[tuple[type[Problem], str]] = [
    (NoSpace, "query_space: found None; expected a cicpe space"),
    (NameForNames, "context_names: found 'scale'; expected a tuple of names"),
    (ZeroHorizon, "horizon: found 0; expected a whole number of at least 1"),
    (ShortSample, "sample(64, rng): found first dimensions [1, 64]; expected first dimension 64 everywhere"),
    (FloatInSample, "dicts and dataclasses, not float; expected a batch of tasks"),
    (GlobalSample, "sample: found other tasks from the same seed; expected the same tasks"),
    (ConstantSample, "sample: found the same tasks from two seeds; expected different tasks"),
    (GlobalObserve, "observe: found other observations from the same seed; expected the same observations"),
    (TaskChangingObserve, "observe: found that it changed the task; expected a task that stays as it was"),
    (QueryChangingObserve, "observe: found that it changed the query; expected a query that stays as it was"),
    (NanObserve, "at query [0.0]; expected finite numbers on the whole query space"),
    (ScalarObserve, "observe: found shape (); expected shape (64,) or (64, observation)"),
    (NoReturnObserve, "observe: found None; expected a tensor of numbers. Is a return missing?"),
    (RaisingObserve, "observe: found KeyError: 'dose'; expected no exception"),
    (WideningObserve, "observe: found shape (64, 2); expected shape (64, 1)"),
    (NarrowTarget, "target: found shape (64, 1); expected shape (64, 2)"),
    (OutsideTarget, "expected a point of Box(low=(0.0, 0.0), high=(1.0, 0.5)). Widen the answer space"),
    (NanTarget, "target: found [nan, nan] for task 0; expected a point of Box"),
    (OffsetLoss, "expected 0 (at most 0.0001). loss and target must agree"),
    (NegativeLoss, "expected a finite number of at least 0"),
    (NanLoss, "loss: found nan for answer"),
    (WideLoss, "loss: found shape (64, 2); expected shape (64,)"),
    (MixingLoss, "loss: found another loss when every task is repeated"),
    (UnnamedContext, "context: found shape (64, 1); expected shape (64, 0)"),
    (FlatContext, "context: found shape (64,); expected shape (64, 1)"),
    (NanContext, "context: found [nan] for task"),
    (LongDefaultContext, "default_context: found (1.0, 2.0); expected None or 1 numbers"),
    (UnsummedLikelihood, "log_likelihood: found shape (1024, 1); expected shape (1024,)"),
    (NanLikelihood, "log_likelihood: found nan or infinity"),
    (UpsideDownLikelihood, "expected more for the true tasks. Check the sign"),
    (ConstantLikelihood, "expected more for the true tasks. Check the sign"),
]


def test_the_suite_passes_what_the_broken_problems_break() -> None:
    check_problem(Line())


@pytest.mark.parametrize(("broken", "message"), BROKEN, ids=[cls.__name__ for cls, _ in BROKEN])
def test_the_suite_finds_the_one_thing_that_is_broken(broken: type[Problem], message: str) -> None:
    with pytest.raises(ProblemError, match=re.escape(message)) as caught:
        check_problem(broken())
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{broken.__name__} failed 1 check:"
    assert lines[1].startswith(f"- {broken.__name__}.")


def test_the_suite_lists_everything_that_is_broken() -> None:
    class Worse(OffsetLoss, NanObserve, FlatContext, NarrowTarget):
        pass

    class Worst(NanObserve, FlatContext, OffsetLoss, UpsideDownLikelihood):
        pass

    for cls, count in ((Worse, 3), (Worst, 4)):
        with pytest.raises(ProblemError) as caught:
            check_problem(cls())
        assert len(str(caught.value).splitlines()) == 1 + count


def test_the_suite_keeps_the_traceback_of_the_users_own_exception() -> None:
    with pytest.raises(ProblemError) as caught:
        check_problem(RaisingObserve())
    assert isinstance(caught.value.__cause__, KeyError)


def test_the_suite_needs_two_tasks() -> None:
    with pytest.raises(InvalidInput, match=r"n must be .*; got 1"):
        check_problem(Line(), n=1)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (ShortSample, "sample(8, rng) must return tensors whose first dimension is 8; found [1, 8]"),
        (FloatInSample, "sample returned an unusable batch"),
        (NarrowTarget, "target returned shape (8, 1); expected (8, 2)"),
        (NanTarget, "target returned [nan, nan] for task 0; every value must be finite"),
        (FlatContext, "context returned shape (8,); expected (8, 1)"),
        (ScalarObserve, "observe returned shape (); expected (8, 1)"),
        (NanObserve, "observe returned [nan] for task 2 at query [0.0]; every value must be finite"),
        (NoReturnObserve, "observe returned None; expected a tensor"),
        (WideLoss, "loss returned shape (8, 2); expected (8,)"),
    ],
)
def test_hidden_tasks_refuse_what_is_broken(broken: type[Problem], message: str) -> None:
    query = torch.full((8, 1), 0.3)
    query[2] = 0.0
    with pytest.raises(ProblemError, match=re.escape(message)):
        use(broken(), query)


# One task at a time


@dataclass
class Peak:
    """A user's own task: any Python object."""

    place: np.ndarray
    height: float


class FindPeak(PerTaskProblem):
    """In plain NumPy."""

    query_space = Box([0.0, 0.0], [1.0, 1.0])
    answer_space = Box([0.0, 0.0], [1.0, 1.0])

    def sample_one(self, rng: np.random.Generator) -> Any:
        return Peak(rng.uniform(0, 1, size=2), rng.uniform(1, 2))

    def observe_one(self, task: Any, query: np.ndarray, rng: np.random.Generator) -> Any:
        return task.height - np.linalg.norm(query - task.place) + 0.1 * rng.normal()

    def target_one(self, task: Any) -> Any:
        return task.place


class FindHeight(FindPeak):
    """With its own loss, a context, two numbers an observation and a bare number as target."""

    answer_space = Interval(0.0, 4.0)  # type: ignore[assignment]
    context_names = ("half", "double")

    def observe_one(self, task: Any, query: np.ndarray, rng: np.random.Generator) -> Any:
        return [rng.normal(), float(query[0] > task.place[0])]

    def target_one(self, task: Any) -> Any:
        return task.height

    def loss_one(self, task: Any, answer: np.ndarray) -> Any:
        return (answer[0] - task.height) ** 2

    def context_one(self, task: Any) -> Any:
        return (task.height / 2, task.height * 2)


def test_per_task_problems_conform() -> None:
    check_problem(FindPeak())
    check_problem(FindHeight())


def test_per_task_shapes_and_values() -> None:
    tasks = TaskBatch.draw(FindHeight(), 5, make_rng())
    assert tasks.task.shape == (5,)
    height = torch.tensor([task.height for task in tasks.task], dtype=torch.float32)
    assert torch.allclose(tasks.target[:, 0], height)
    assert torch.allclose(tasks.context, torch.stack([height / 2, height * 2], 1))
    assert tasks.observe(torch.rand(5, 2), make_rng()).shape == (5, 2)
    answers = torch.rand((5, 3, 1), generator=make_rng(1))
    assert torch.allclose(tasks.loss(answers), (answers[..., 0] - height[:, None]) ** 2, atol=1e-5)
    assert FindHeight().observation_dim == 2


def test_per_task_loss_defaults_to_the_distance_of_the_answer_space() -> None:
    problem = FindPeak()
    assert problem.has_distance_loss
    assert not FindHeight().has_distance_loss
    tasks = TaskBatch.draw(problem, 5, make_rng())
    answers = torch.rand((5, 2), generator=make_rng(1))
    distance = (answers - tasks.target).norm(dim=-1)
    assert torch.allclose(tasks.loss(answers), distance)
    assert torch.allclose(problem.loss(tasks.task, answers), distance)
    one_by_one = [problem.loss_one(task, row.double().numpy()) for task, row in zip(tasks.task, answers, strict=True)]
    assert one_by_one == pytest.approx(distance.tolist(), abs=1e-6)


def test_per_task_randomness_comes_from_the_generator_and_moves_on() -> None:
    problem = FindPeak()
    first, again = (problem.target(problem.sample(3, make_rng(4))) for _ in range(2))
    assert torch.equal(first, again)
    rng = make_rng(4)
    one, two = problem.target(problem.sample(3, rng)), problem.target(problem.sample(3, rng))
    assert not torch.equal(one, two)
    task, query, rng = problem.sample(3, rng), torch.rand(3, 2), make_rng(5)
    assert not torch.equal(problem.observe(task, query, rng), problem.observe(task, query, rng))


def test_per_task_code_cannot_change_the_query() -> None:
    class Greedy(FindPeak):
        def observe_one(self, task: Any, query: np.ndarray, rng: np.random.Generator) -> Any:
            query[:] = 9
            return 0.0

    query = torch.zeros(2, 2)
    problem = Greedy()
    problem.observe(problem.sample(2, make_rng()), query, make_rng())
    assert query.abs().max() == 0


def test_the_suite_finds_a_change_inside_a_per_task_object() -> None:
    class Wearing(FindPeak):
        def observe_one(self, task: Any, query: np.ndarray, rng: np.random.Generator) -> Any:
            task.height -= 0.01
            return task.height

    with pytest.raises(ProblemError, match="found that it changed the task"):
        check_problem(Wearing())


def test_per_task_tasks_may_be_tensors_lists_or_none() -> None:
    for value in ([1.0, 2.0], np.zeros(3), None, "text", {"a": 1}):

        class Fixed(FindPeak):
            def sample_one(self, rng: np.random.Generator, value: Any = value) -> Any:
                return value

        task = Fixed().sample(3, make_rng())
        assert task.shape == (3,)
        assert task[2] is value


@pytest.mark.parametrize(
    ("method", "value", "message"),
    [
        ("target_one", 0.5, "target_one returned 0.5 for task 0; expected 2 numbers (a point of the answer space)"),
        ("target_one", [[0.1, 0.2]], "target_one returned [[0.1, 0.2]] for task 0; expected 2 numbers"),
        ("target_one", None, "target_one returned None for task 0; expected 2 numbers"),
        ("target_one", "here", "target_one returned 'here' for task 0; expected 2 numbers"),
        ("observe_one", [[1.0]], "observe_one returned [[1.0]] for task 0; expected numbers (as many for every task)"),
        ("observe_one", "loud", "observe_one returned 'loud' for task 0; expected numbers"),
        ("observe_one", math.nan, "observe returned [nan] for task 0 at query"),
        ("context_one", [1.0], "context_one returned [1.0] for task 0; expected 0 numbers (context_names is empty)"),
        ("loss_one", [1.0, 2.0], "loss_one returned [1.0, 2.0] for task 0; expected 1 number (the loss of one answer)"),
    ],
)
def test_per_task_nonsense_is_refused_by_name(method: str, value: Any, message: str) -> None:
    broken = type("Broken", (FindPeak,), {method: lambda self, *arguments: value})()
    with pytest.raises(ProblemError, match=re.escape(message)):
        use(broken, torch.zeros(3, 2))


def test_per_task_observations_of_different_lengths_are_refused() -> None:
    class Ragged(FindPeak):
        def observe_one(self, task: Any, query: np.ndarray, rng: np.random.Generator) -> Any:
            return [0.0] * (1 + int(query[0]))

    problem = Ragged()
    task = problem.sample(3, make_rng())
    with pytest.raises(ProblemError, match=r"returned \[0.0, 0.0\] for task 2; expected 1 number"):
        problem.observe(task, torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]]), make_rng())


def test_per_task_context_that_was_forgotten_is_named() -> None:
    class Forgetful(FindPeak):
        context_names = ("noise",)

    with pytest.raises(ProblemError, match=re.escape("context_one returned () for task 0; expected 1 number (noise)")):
        TaskBatch.draw(Forgetful(), 2, make_rng())


def test_sphere_answers_work_one_at_a_time() -> None:
    class FindDirection(FindPeak):
        answer_space = Sphere(2)  # type: ignore[assignment]

        def target_one(self, task: Any) -> Any:
            return task.place / np.linalg.norm(task.place)

    check_problem(FindDirection())
