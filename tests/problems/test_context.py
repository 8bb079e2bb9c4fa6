"""Contexts of any name: how a family is set to them, and how what was calibrated is looked up between them."""

import itertools
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Generator, Tensor

from cicpe import Box, Problem
from cicpe.errors import InvalidInput
from cicpe.problems.context import ContextGrid, knots_per_context, rank_groups


@dataclass(frozen=True)
class TwoContexts(Problem):
    """A family whose contexts are a dose and a temperature."""

    dose: tuple[float, float] | float = (0.1, 10.0)
    heat: tuple[float, float] | float = (1.0, 4.0)
    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])
    context_names = ("dose", "heat")

    def sample(self, n: int, rng: Generator) -> dict[str, Tensor]:
        def level(limits: tuple[float, float] | float) -> Tensor:
            low, high = limits if isinstance(limits, tuple) else (limits, limits)
            return low * (high / low) ** torch.rand(n, generator=rng)

        return {"x": torch.rand(n, 1, generator=rng), "dose": level(self.dose), "heat": level(self.heat)}

    def observe(self, task: dict[str, Tensor], query: Tensor, rng: Generator) -> Tensor:
        return query - task["x"]

    def target(self, task: dict[str, Tensor]) -> Tensor:
        return task["x"]

    def context(self, task: dict[str, Tensor]) -> Tensor:
        return torch.stack([task["dose"], task["heat"]], dim=1)


def test_a_family_is_set_to_each_point_of_its_grid() -> None:
    problem = TwoContexts()
    grid = problem.context_grid(5)
    assert grid is not None
    assert [len(values) for values in grid.knots] == [3, 3]
    assert grid.knots[0] == pytest.approx((0.1, 1.0, 10.0))
    for point in grid.points:
        place = problem.at_context(point)
        context = place.context(place.sample(8, torch.Generator().manual_seed(0)))
        torch.testing.assert_close(context, torch.tensor(point).expand(8, -1))


def test_a_context_that_cannot_be_set_has_no_grid() -> None:
    class Hidden(TwoContexts):
        context_names = ("dose", "pressure")

    assert Hidden().context_grid(5) is None
    with pytest.raises(InvalidInput, match="pressure"):
        Hidden().with_context(pressure=1.0)


@given(st.floats(-1, 12), st.floats(0, 5))
def test_interpolation_is_exact_for_linear_functions(dose: float, heat: float) -> None:
    grid = ContextGrid(((0.0, 2.0, 10.0), (1.0, 4.0)))
    corners = grid.corners(torch.tensor([[dose, heat]]))
    value = torch.tensor([2 * a - 3 * b for a, b in grid.points], dtype=torch.float64)
    found = float((value[corners.point] * corners.weight).sum())
    inside = min(max(dose, 0.0), 10.0), min(max(heat, 1.0), 4.0)
    # A context on a knot is moved onto it: by at most the slack of a ten-thousandth of the grid.
    assert found == pytest.approx(2 * inside[0] - 3 * inside[1], abs=0.01)
    assert float(corners.weight.sum()) == pytest.approx(1.0)


def test_a_context_on_a_knot_has_that_point_alone() -> None:
    grid = ContextGrid(((0.1, 0.2, 0.4),))
    assert grid.corners(torch.tensor([[0.2], [0.1], [0.4], [9.0]])).point.tolist() == [[1, 1], [0, 0], [2, 2], [2, 2]]
    assert grid.nearest(torch.tensor([[0.21], [0.39]])).tolist() == [1, 2]


def test_no_context_is_one_point() -> None:
    grid = ContextGrid(())
    assert len(grid) == 1
    assert grid.points == ((),)
    assert grid.corners(torch.zeros(3, 0)).point.tolist() == [[0], [0], [0]]


def test_rank_groups_hold_every_episode_once() -> None:
    context = torch.rand(103, 2, generator=torch.Generator().manual_seed(0))
    context[:, 1] = 7.0
    grid, groups = rank_groups(context, 4)
    assert [len(values) for values in grid.knots] == [4, 1]
    assert sorted(torch.cat(groups).tolist()) == list(range(103))
    assert max(map(len, groups)) - min(map(len, groups)) <= 1
    for point, rows in enumerate(groups):
        corners = grid.corners(context[rows])
        assert (corners.point == point).all()  # what is looked up for an episode was chosen on its own group
        assert (corners.weight == 1).all()
        assert grid.nearest(context[rows]).tolist() == [point] * len(rows)
        assert grid.knots[0][point] == float(context[rows, 0].double().median())


def test_a_context_beyond_all_that_were_seen_belongs_to_the_last_group() -> None:
    context = torch.rand(300, 1, generator=torch.Generator().manual_seed(0))
    grid, _ = rank_groups(context, 3)
    assert grid.nearest(torch.tensor([[-5.0], [0.5], [9.0]])).tolist() == [0, 1, 2]


def test_equal_contexts_are_in_one_group() -> None:
    levels = torch.tensor([1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 5.0])[:, None].repeat(50, 1)
    grid, groups = rank_groups(levels, 3)
    assert grid.edges == ((1.5,),)
    for rows, others in itertools.combinations(groups, 2):
        assert not set(levels[rows, 0].tolist()) & set(levels[others, 0].tolist())


def test_contexts_that_depend_on_each_other_have_fewer_groups() -> None:
    first = torch.rand(600, 1, generator=torch.Generator().manual_seed(0))
    grid, groups = rank_groups(torch.cat([first, 3 * first], dim=1), 3)
    assert min(map(len, groups)) >= 600 // len(grid) // 4
    alone, _ = rank_groups(first, 3)
    assert len(alone) == 3


@pytest.mark.parametrize(("contexts", "knots"), [(0, 5), (1, 5), (2, 3), (3, 2)])
def test_several_contexts_share_the_knots(contexts: int, knots: int) -> None:
    assert knots_per_context(5, contexts) == knots
