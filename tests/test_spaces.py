import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cicpe.errors import InvalidInput
from cicpe.spaces import Box, Interval, Space, Sphere, space_from_json

property_test = settings(deadline=None, derandomize=True, max_examples=60)

bounds = st.floats(-1e3, 1e3, allow_nan=False, width=32)
widths = st.floats(2**-6, 1e3, allow_nan=False, width=32)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    sides = draw(st.lists(st.tuples(bounds, widths), min_size=1, max_size=5))
    return Box([low for low, _ in sides], [low + width for low, width in sides])


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    low, width = draw(bounds), draw(widths)
    return Interval(low, low + width)


spaces = st.one_of(boxes(), intervals(), st.builds(Sphere, st.integers(2, 6)))
seeds = st.integers(0, 2**32)


def make_rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def anywhere(space: Space, seed: int, n: int = 16) -> Tensor:
    """Points of the same dimension, many of them outside."""
    return 2e3 * torch.randn((n, space.dim), generator=make_rng(seed))


def rounding(space: Space) -> Tensor:
    """A few units in the last place of the space's largest coordinate."""
    return 8e-7 * space.from_unit(torch.tensor([[-1.0], [1.0]]).expand(2, space.dim)).abs().amax(0).clamp_min(1)


@property_test
@given(spaces, seeds)
def test_project_is_idempotent(space: Space, seed: int) -> None:
    inside = space.project(anywhere(space, seed))
    assert (space.project(inside) - inside).abs().max() <= 2e-7 * inside.abs().max()


@property_test
@given(spaces, seeds)
def test_samples_are_inside(space: Space, seed: int) -> None:
    points = space.sample(32, make_rng(seed))
    assert points.shape == (32, space.dim)
    assert points.dtype == torch.float32
    assert ((space.project(points) - points).abs() <= rounding(space)).all()


@property_test
@given(spaces, seeds)
def test_samples_are_determined_by_the_generator(space: Space, seed: int) -> None:
    assert torch.equal(space.sample(8, make_rng(seed)), space.sample(8, make_rng(seed)))
    assert not torch.equal(space.sample(8, make_rng(seed)), space.sample(8, make_rng(seed + 1)))


@property_test
@given(spaces, seeds)
def test_unit_coordinates_round_trip(space: Space, seed: int) -> None:
    points = space.sample(32, make_rng(seed))
    unit = space.to_unit(points)
    assert unit.abs().max() <= 1 + float((rounding(space) / space.unit_scale).max())
    assert ((space.from_unit(unit) - points).abs() <= rounding(space)).all()


@property_test
@given(spaces, seeds)
def test_unit_scale_is_the_length_of_one_unit(space: Space, seed: int) -> None:
    unit = torch.rand((8, space.dim), generator=make_rng(seed))
    step = space.from_unit(unit + 1) - space.from_unit(unit)
    assert ((step - space.unit_scale).abs() <= 4 * rounding(space)).all()


@property_test
@given(spaces)
def test_json_round_trip(space: Space) -> None:
    again = space_from_json(json.loads(json.dumps(space.to_json())))
    assert again == space
    assert hash(again) == hash(space)


@property_test
@given(spaces, seeds)
def test_distance_is_zero_to_oneself_symmetric_and_non_negative(space: Space, seed: int) -> None:
    a, b = space.sample(64, make_rng(seed)).chunk(2)
    assert space.distance(a, a).abs().max() <= 1e-7
    assert torch.equal(space.distance(a, b), space.distance(b, a))
    assert (space.distance(a, b) > 0).all()


@property_test
@given(spaces, seeds)
def test_every_operation_takes_extra_batch_dimensions(space: Space, seed: int) -> None:
    points = space.sample(12, make_rng(seed))
    cube = points.view(3, 4, space.dim)
    assert torch.equal(space.project(cube).view(12, -1), space.project(points))
    assert torch.equal(space.to_unit(cube).view(12, -1), space.to_unit(points))
    assert torch.equal(space.from_unit(cube).view(12, -1), space.from_unit(points))
    assert space.distance(cube, cube[:1]).shape == (3, 4)


@pytest.mark.parametrize("space", [Box([0.0, -2.0], [1.0, 5.0]), Interval(-1.0, 3.0), Sphere(3)])
def test_double_precision_stays_double(space: Space) -> None:
    points = space.sample(4, make_rng()).double()
    for result in (
        space.project(points),
        space.to_unit(points),
        space.from_unit(points),
        space.distance(points, points),
    ):
        assert result.dtype == torch.float64


@pytest.mark.parametrize("space", [Box([0.0, -2.0], [1.0, 5.0]), Interval(-1.0, 3.0), Sphere(3)])
def test_project_passes_nan_on(space: Space) -> None:
    points = torch.full((2, space.dim), math.nan)
    assert space.project(points).isnan().all()


def test_a_box_projects_coordinate_by_coordinate() -> None:
    box = Box([0.0, -1.0], [1.0, 1.0])
    assert box.project(torch.tensor([[2.0, 0.5], [-3.0, -7.0]])).tolist() == [[1.0, 0.5], [0.0, -1.0]]
    assert box.distance(torch.tensor([0.0, 0.0]), torch.tensor([3.0, 4.0])).item() == pytest.approx(5.0)
    assert box.to_unit(torch.tensor([0.0, 1.0])).tolist() == [-1.0, 1.0]


def test_box_samples_are_uniform() -> None:
    points = Box([-1.0, 10.0], [1.0, 30.0]).sample(20_000, make_rng())
    unit = Box([-1.0, 10.0], [1.0, 30.0]).to_unit(points)
    # Moments of U[-1, 1]: mean 0 with standard error 0.577 / sqrt(n), second moment 1/3 with 0.298 / sqrt(n).
    assert unit.mean(0).abs().max() < 4 * 0.577 / math.sqrt(20_000)
    assert (unit.square().mean(0) - 1 / 3).abs().max() < 4 * 0.298 / math.sqrt(20_000)


@pytest.mark.parametrize("dim", [2, 3, 7])
def test_sphere_samples_are_uniform(dim: int) -> None:
    points = Sphere(dim).sample(20_000, make_rng())
    covariance = points.T @ points / len(points)
    assert points.mean(0).abs().max() < 5 / math.sqrt(20_000 * dim)
    assert (covariance - torch.eye(dim) / dim).abs().max() < 5 / math.sqrt(20_000)


def test_sphere_distance_is_one_minus_the_cosine() -> None:
    sphere = Sphere(4)
    a, b = (torch.randn((50, 4), generator=make_rng(seed), dtype=torch.float64) for seed in (1, 2))
    cosine = torch.nn.functional.cosine_similarity(a, b)
    assert torch.allclose(sphere.distance(a, b), 1 - cosine)


def test_sphere_distance_keeps_its_digits_when_small() -> None:
    angle = 1e-4
    a, b = torch.tensor([1.0, 0.0]), torch.tensor([math.cos(angle), math.sin(angle)])
    assert Sphere(2).distance(a, b).item() == pytest.approx(angle**2 / 2, rel=1e-3)


def test_sphere_projects_the_origin_to_a_pole() -> None:
    assert Sphere(3).project(torch.zeros(2, 3)).tolist() == [[1.0, 0.0, 0.0]] * 2


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ([], []),
        ([0.0], [1.0, 2.0]),
        ([1.0], [1.0]),
        ([2.0], [1.0]),
        ([0.0, 0.0], [1.0, -1.0]),
        ([math.nan], [1.0]),
        ([0.0], [math.inf]),
        ([-1e300], [1e300]),
        ([-3e38], [3e38]),
        ([1.0], [1.0 + 1e-9]),
        (0.0, 1.0),
        (["a"], ["b"]),
        (None, None),
    ],
)
def test_bad_bounds_of_a_box_are_refused(low: object, high: object) -> None:
    with pytest.raises(InvalidInput, match="low, high") as caught:
        Box(low, high)  # type: ignore[arg-type]
    assert caught.value.value == (low, high)


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, 1.0), (math.nan, 1.0), (0.0, math.inf), ("a", "b")])
def test_bad_bounds_of_an_interval_are_refused(low: object, high: object) -> None:
    with pytest.raises(InvalidInput, match="low, high"):
        Interval(low, high)  # type: ignore[arg-type]


def test_an_interval_of_whole_numbers_is_one_of_reals() -> None:
    assert Interval(0, 10).to_json() == {"kind": "interval", "low": 0.0, "high": 10.0}
    assert Interval(0, 10).sample(2, make_rng()).dtype == torch.float32


@pytest.mark.parametrize("dim", [1, 0, -3, 2.0, "3", None])
def test_bad_dimensions_of_a_sphere_are_refused(dim: object) -> None:
    with pytest.raises(InvalidInput, match="at least 2"):
        Sphere(dim)  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [{}, {"kind": "torus"}, {"kind": "box", "low": [0.0]}, {"kind": "sphere"}])
def test_json_that_is_no_space_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="kind box, interval or sphere"):
        space_from_json(data)
