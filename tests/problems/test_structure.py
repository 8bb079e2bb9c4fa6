"""What is seen of a problem by asking it, and the recipe that this leads to."""

from dataclasses import dataclass
from typing import Literal

import pytest
import torch
from torch import Generator, Tensor

import cicpe
from cicpe.beliefs.functions.config import FunctionBeliefConfig
from cicpe.problems import Problem
from cicpe.problems.ackley import Ackley
from cicpe.problems.best_arm import BestArm
from cicpe.problems.binary_search import BinarySearch
from cicpe.problems.gp_argmax import GPArgmax
from cicpe.problems.gp_max import GPMax
from cicpe.problems.structure import structure_of
from cicpe.spaces import Box, Interval
from cicpe.training.recipes import choose
from functions_by_hand import LEVEL, Smooth

Scored = Literal["distance", "gap", "twice the gap", "square of the gap"]
SQUARE = Box([0.0] * 2, [1.0] * 2)


@dataclass(frozen=True)
class Bumps(Problem):
    """One bump of a known width somewhere in a square."""

    noise: float = 0.05
    scored: Scored = "distance"
    dim: int = 2
    horizon = 30

    def __post_init__(self) -> None:
        object.__setattr__(self, "query_space", Box([0.0] * self.dim, [1.0] * self.dim))
        object.__setattr__(self, "answer_space", self.query_space)

    def sample(self, n: int, rng: Generator) -> Tensor:
        return self.query_space.sample(n, rng)

    def value(self, task: Tensor, query: Tensor) -> Tensor:
        return torch.exp(-8 * (query - task).square().sum(dim=-1))

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return self.value(task, query) + self.noise * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task

    @property
    def has_distance_loss(self) -> bool:
        return self.scored == "distance"

    def loss(self, task: Tensor, answer: Tensor) -> Tensor:
        gap = 1 - self.value(task, answer)
        if self.scored == "distance":
            return super().loss(task, answer)
        return {"gap": gap, "twice the gap": 2 * gap, "square of the gap": 0.1 * gap.square()}[self.scored]


@dataclass(frozen=True)
class Heights(Problem):
    """The height of a bump on a level of its own; or a multiple of it."""

    times: float = 1.0
    level: float = 3.0
    """The mean level."""
    spread: float = 1.0
    """Of the levels of tasks."""
    query_space = SQUARE
    answer_space = Interval(-100.0, 100.0)

    def sample(self, n: int, rng: Generator) -> Tensor:
        level = self.level + self.spread * torch.randn((n, 1), generator=rng)
        return torch.cat([SQUARE.sample(n, rng), level], dim=1)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        bump = torch.exp(-8 * (query - task[:, :2]).square().sum(dim=-1))
        return task[:, 2] + bump + 0.05 * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return self.times * (task[:, 2] + 1)


@pytest.mark.parametrize("dim", [5, 15])
@pytest.mark.parametrize("noise", [0.01, 0.3])
def test_a_linear_family_is_seen_through_noise(dim: int, noise: float) -> None:
    assert structure_of(BestArm(dim, noise)).linear


@pytest.mark.parametrize("problem", [Ackley(2), Ackley(5), GPMax(1), GPMax(2), GPArgmax(), Bumps()], ids=repr)
def test_a_curved_family_is_not_linear(problem: Problem) -> None:
    assert not structure_of(problem).linear


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("dim", [1, 2])
def test_the_height_of_a_peak_is_seen(dim: int, noise: float) -> None:
    assert structure_of(GPMax(dim, noise)).target_is_height


def test_a_number_that_goes_with_the_height_is_not_it() -> None:
    assert structure_of(Heights(1.0)).target_is_height
    other = structure_of(Heights(2.0))
    assert other.target_is_best
    assert not other.target_is_height


def test_twice_the_height_is_not_it_either_where_heights_lie_about_zero() -> None:
    assert structure_of(Heights(1.0, level=-1.0, spread=3.0)).target_is_height
    assert not structure_of(Heights(2.0, level=-1.0, spread=3.0)).target_is_height


def test_a_gap_is_told_from_other_losses() -> None:
    seen = {scored: structure_of(Bumps(scored=scored)) for scored in Scored.__args__}  # type: ignore[attr-defined]
    assert {scored for scored, facts in seen.items() if facts.loss_is_gap} == {"gap"}
    assert all(facts.target_is_best for facts in seen.values())
    assert not structure_of(Heights()).loss_is_gap


@pytest.mark.parametrize(
    ("problem", "recipe"),
    [
        (Bumps(), "functions"),
        (Bumps(scored="gap"), "functions"),
        (Bumps(scored="twice the gap"), "fast"),
        (Bumps(dim=3), "functions"),
        (Heights(), "functions"),
        (GPMax(2), "functions"),
        (GPMax(1), "fast"),
        (Ackley(2), "particles"),
        (BestArm(5), "fast"),
        (BestArm(15, noise=0.3), "fast"),
        (BinarySearch(2), "fast"),
    ],
    ids=repr,
)
def test_the_recipe_follows_from_what_is_seen(problem: Problem, recipe: str) -> None:
    choice = choose(None, problem)
    assert choice.recipe == recipe
    assert choice.config.kind == ("networks" if recipe == "fast" else recipe)
    assert choice.reasons


def test_a_level_that_is_crossed_is_seen() -> None:
    level = structure_of(Smooth(asks="crossing", length=0.6)).crossed_level
    assert level is not None
    assert abs(level - LEVEL) < 0.02
    config = choose("functions", Smooth(asks="crossing", length=0.6)).config
    assert isinstance(config, FunctionBeliefConfig)
    assert (config.functions.answer, config.functions.level) == ("crossing", level)


@pytest.mark.parametrize("problem", [Smooth(), Bumps(), Ackley(1), Ackley(3), BestArm(5), BinarySearch(1)], ids=repr)
def test_a_largest_or_smallest_value_is_no_level(problem: Problem) -> None:
    """Ackley's functions all have the same least value, which is not crossed."""
    assert structure_of(problem).crossed_level is None


def test_functions_are_asked_what_the_problem_asks() -> None:
    for problem, answer, loss in (
        (Bumps(), "place", "distance"),
        (Bumps(scored="gap"), "place", "gap"),
        (GPMax(1), "height", "distance"),
    ):
        config = choose("functions", problem).config
        assert isinstance(config, FunctionBeliefConfig)
        assert (config.functions.answer, config.functions.loss) == (answer, loss)
        assert config.horizon <= problem.horizon


@pytest.mark.parametrize(
    "problem", [BinarySearch(2), BestArm(3), Heights(2.0), Bumps(scored="twice the gap")], ids=repr
)
def test_functions_are_refused_where_they_do_not_know_the_answer(problem: Problem) -> None:
    with pytest.raises(cicpe.InvalidInput, match="place of the largest value, that value"):
        choose("functions", problem)


def test_functions_choose_their_own_queries_or_draw_them() -> None:
    with pytest.raises(cicpe.InvalidInput, match="actor must be one of ts, ttps, uniform with the recipe functions"):
        choose("functions", Bumps(), "td3")
    assert choose("functions", Bumps(), "ts").config.query_rule == "ts"
    assert choose(None, Bumps(), "ts").recipe == "fast"
