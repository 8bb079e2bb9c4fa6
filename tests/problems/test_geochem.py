"""Surveys, fitted fields and the geochem family: on a synthetic survey, and on the real one where it is there."""

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import RegularGridInterpolator
from scipy.optimize import minimize
from torch import Generator

from cicpe.cli.main import main
from cicpe.data import fetch
from cicpe.data.collection import Collection, Entry, fit_regions, open_collection, read_tensor
from cicpe.data.fields import FitSettings, RandomField, elbo, fit_field, inducing_points
from cicpe.data.places import DataError, geo
from cicpe.data.regions import Region, regions_of, utm_zone
from cicpe.data.sampling import grid_draws, grid_mean, grid_places, grid_twins
from cicpe.data.splits import FOLDS, split, touch
from cicpe.data.survey import Columns, read_survey, read_surveys
from cicpe.data.synthetic import bumps, write_synthetic
from cicpe.errors import InvalidInput
from cicpe.gp.kernels import MATERN_32, Kernel
from cicpe.problems import ProblemSpec, TaskBatch, make_problem, spec_of
from cicpe.problems.geochem import AUGMENTATIONS, Geochem, bilinear
from cicpe.problems.structure import structure_of
from cicpe.testing import check_problem

pytest.importorskip("pyproj", reason="needs the extra geo")

HERE = Path(__file__).resolve().parents[1]
REAL = Path(os.environ.get("CICPE_GEOCHEM") or HERE.parent.parent / "shared" / "data" / "geochem")
needs_real = pytest.mark.skipif(
    not list(REAL.glob("*.csv")), reason="no real survey: set CICPE_GEOCHEM to a folder of its CSV files"
)
QUICK = FitSettings(steps=60, rate=0.05, draws=3)
HEAD = "lat,lon,cu_ppm,quad\n"


def make_rng(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the fields ``copper`` of a synthetic survey of twelve regions."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CICPE_CACHE", str(folder))
        write_synthetic(folder / "survey.csv", samples=40)
        regions = regions_of(read_survey(folder / "survey.csv"), least=40)
        fit_regions(regions, "copper", QUICK)
    return folder


@pytest.fixture(autouse=True)
def here(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CICPE_CACHE", str(cache))


def survey_file(tmp_path: Path, rows: str, head: str = HEAD, encoding: str = "utf-8") -> Path:
    path = tmp_path / "survey.csv"
    path.write_bytes((head + rows).encode(encoding))
    return path


def field_on(seed: int = 0, m: int = 12, noise: float = 0.3) -> RandomField:
    """A field with an arbitrary posterior of its inducing values."""
    rng = make_rng(seed)
    kernel = Kernel(torch.tensor([0.2, 0.5]).double(), torch.tensor(1.3).double(), MATERN_32)
    place = torch.rand((m, 2), generator=rng).double()
    root = torch.eye(m).double() * 0.4 + 0.1 * torch.randn((m, m), generator=rng).double().tril(-1)
    mean = torch.randn(m, generator=rng).double()
    return RandomField(kernel, torch.tensor(noise).double(), place, mean, root, torch.empty(0))


# Reading.


def test_rules_for_values(tmp_path: Path) -> None:
    rows = "40,-90,10,A\n40.1,-90,-4,A\n40.2,-90,<6,A\n40.3,-90,,A\n40.4,-90,NA,A\n40.5,-90,0,A\n40.6,-90,20,\n"
    survey = read_survey(survey_file(tmp_path, rows + "40.7,-90,8,A\n40.8,-90,-9999,A\n"))
    assert survey.value.tolist() == [10, 2, 3, 8]
    assert survey.below_limit.tolist() == [False, True, True, False]
    assert survey.left_out == 5


@pytest.mark.parametrize(
    ("rows", "head", "match"),
    [
        ("40,-90,ten,A\n", HEAD, "line 2: the value 'ten'"),
        ("95,-90,10,A\n", HEAD, "line 2: .* no latitude"),
        ("40,-90,,A\n", HEAD, "no measurement"),
        ("1,2,3,4\n", "a,b,c,d\n", "it has a, b, c, d"),
        ("", "", "it has none"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, rows: str, head: str, match: str) -> None:
    with pytest.raises(DataError, match=match):
        read_survey(survey_file(tmp_path, rows, head))


def test_the_survey_of_the_usgs_and_named_columns(tmp_path: Path) -> None:
    head = "LABNO,LATITUDE,LONGITUDE,QD250NAME,TYPEDESC,CATEGORY,CU_ICP40,ZN\n"
    path = survey_file(tmp_path, "C-1,40.5,-89.5,Pe\u00f1a,stream,NURE,12,7\n", head, "latin-1")
    assert read_survey(path).region == ("Pe\u00f1a",)
    zinc = read_survey(path, Columns("latitude", "longitude", "zn", "category"))
    assert (zinc.region, zinc.value.tolist()) == (("NURE",), [7])


# Regions.


def test_projection_against_known_coordinates() -> None:
    """The CN Tower: zone 17, easting 630084, northing 4833438 (a published worked example)."""
    box = (-79.387139, 43.642567, -79.387139, 43.642567)
    assert utm_zone(box) == (17, False)
    project = geo("pyproj").Proj(proj="utm", zone=17, ellps="WGS84")
    assert project(box[0], box[1]) == pytest.approx((630084, 4833438), abs=1.5)
    # On the central meridian the easting is 500 km, and the equator has northing 0, or 10,000 km from the south.
    assert geo("pyproj").Proj(proj="utm", zone=16, ellps="WGS84")(-87, 0) == pytest.approx((500_000, 0), abs=1e-3)
    assert utm_zone((-180, -1, -180, -1)) == (1, True)
    assert utm_zone((180, 1, 180, 1)) == (60, False)


def test_a_region_is_a_unit_square_of_standard_scores(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [f"{38 + a:.4f},{-90 + 2 * b:.4f},{math.exp(c):.6f},A\n" for a, b, c in rng.uniform(size=(60, 3))]
    latitude, longitude, _, _ = lines[0].split(",")
    lines.append(f"{latitude},{longitude},100,A\n")  # a second sample at the first place
    survey = read_survey(survey_file(tmp_path, "".join(lines)))
    (region,) = regions_of(survey)
    assert (region.samples, len(region.value)) == (61, 60)
    assert region.place.min(axis=0).tolist() == [0, 0]
    assert region.place.max(axis=0).tolist() == [1, 1]
    assert (region.value.mean(), region.value.std()) == pytest.approx((0, 1), abs=1e-12)
    # North is up, east is right, and the way back leads to where the samples were taken.
    back = region.to_geographic(region.place)
    assert np.corrcoef(region.place[:, 0], back[:, 1])[0, 1] > 0.999
    spot = np.abs(back - [survey.latitude[0], survey.longitude[0]]).sum(axis=1)
    assert spot.min() < 1e-6
    both = (math.log(survey.value[0]) + math.log(100)) / 2
    assert region.log_mean + region.log_std * region.value[spot.argmin()] == pytest.approx(both)
    # About 2 degrees by 1 at 38.5 degrees north.
    assert region.size == pytest.approx((174e3, 111e3), rel=0.06)
    # Neither the order of the rows nor the unit of measurement matters.
    shuffled = survey_file(tmp_path, "".join(reversed(lines)))
    (again,) = regions_of(read_survey(shuffled))
    assert again.value == pytest.approx(region.value)


def test_bad_regions_are_refused(tmp_path: Path) -> None:
    line = "".join(f"40,{-90 + i / 100},{i + 1},A\n" for i in range(5))
    with pytest.raises(DataError, match="the largest has 5"):
        regions_of(read_survey(survey_file(tmp_path, line)))
    with pytest.raises(DataError, match="on one line"):
        regions_of(read_survey(survey_file(tmp_path, line)), least=5)
    with pytest.raises(DataError, match="same value everywhere"):
        regions_of(read_survey(survey_file(tmp_path, "40,-90,5,A\n41,-91,5,A\n40,-91,5,A\n")), least=3)
    with pytest.raises(DataError, match="degrees of longitude"):
        regions_of(read_survey(survey_file(tmp_path, "40,-90,5,A\n41,-99,5,A\n40,-91,6,A\n")), least=3)
    with pytest.raises(InvalidInput, match="Nowhere"):
        regions_of(read_survey(survey_file(tmp_path, line)), only=["Nowhere"])


def test_a_missing_package_names_the_extra() -> None:
    with pytest.raises(InvalidInput, match=r"cicpe\[geo\]"):
        geo("no_such_package")


# Fits.


def test_the_bound_is_that_of_gpytorch() -> None:
    gpytorch = pytest.importorskip("gpytorch")
    field, rng = field_on(), make_rng(1)
    place, value = torch.rand((30, 2), generator=rng).double(), torch.randn(30, generator=rng).double()

    class Model(gpytorch.models.ApproximateGP):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            law = gpytorch.variational.CholeskyVariationalDistribution(len(field.mean))
            super().__init__(gpytorch.variational.VariationalStrategy(self, field.inducing, law))
            self.prior_mean = gpytorch.means.ZeroMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=2))

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.prior_mean(x), self.kernel(x))

    model, likelihood = Model().double(), gpytorch.likelihoods.GaussianLikelihood().double()
    model.kernel.base_kernel.lengthscale = field.kernel.lengthscale
    model.kernel.outputscale, likelihood.noise = field.kernel.amplitude**2, field.noise**2
    law = model.variational_strategy._variational_distribution
    law.variational_mean.data, law.chol_variational_covar.data = field.mean.clone(), field.root.clone()
    model.variational_strategy.variational_params_initialized.fill_(1)
    model.train()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, len(value))(model(place), value)
    assert float(elbo(field, place, value)) == pytest.approx(bound.item(), abs=1e-4)
    model.eval()
    with torch.no_grad():
        theirs = model(place)
    mean, variance = field.posterior(place)
    assert mean.numpy() == pytest.approx(theirs.mean.numpy(), abs=1e-3)
    assert variance.numpy() == pytest.approx(theirs.variance.numpy(), abs=1e-3)


def synthetic_region(noise: float, n: int = 100) -> tuple[Region, np.random.Generator]:
    rng = np.random.default_rng(3)
    place = rng.uniform(size=(n, 2))
    truth = bumps(place, np.random.default_rng(7))
    value = truth + noise * rng.normal(size=n)
    empty: Any = (0.0, 0.0)
    return Region("A", place, value, n, 0, (0, 0, 1, 1), empty, empty, 0.0, 1.0), rng


def test_a_fit_recovers_a_smooth_function_and_its_noise() -> None:
    region, _ = synthetic_region(noise=0.2)
    field = fit_field(region, FitSettings(steps=400, rate=0.03))
    grid = grid_places(40)
    truth = bumps(grid.numpy(), np.random.default_rng(7))
    mean, variance = field.posterior(grid)
    assert np.sqrt(np.mean((mean.numpy() - truth) ** 2)) < 0.25 * truth.std()
    assert 0.14 < field.noise < 0.26
    # The posterior says how far off it is: squared errors in units of its variance are about 1.
    assert 0.2 < np.mean((mean.numpy() - truth) ** 2 / variance.numpy()) < 2.5
    assert field.elbo[-1] > field.elbo[0] + 0.5
    assert grid_mean(field, 40).flatten().numpy() == pytest.approx(mean.numpy(), abs=1e-5)


def test_with_an_inducing_point_at_every_place_the_fit_is_the_exact_process() -> None:
    """At the optimum of q, bound and posterior mean are those of Gaussian process regression."""
    region, _ = synthetic_region(noise=0.5, n=40)
    field = fit_field(region, FitSettings(steps=1000, rate=0.02))
    place, value = torch.from_numpy(region.place), torch.from_numpy(region.value)
    covariance = field.kernel.covariance(place, place) + field.noise**2 * torch.eye(40).double()
    law = torch.distributions.MultivariateNormal(torch.zeros(40).double(), covariance)
    assert float(field.elbo[-1]) == pytest.approx(float(law.log_prob(value)) / 40, abs=2e-3)
    exact = field.kernel.covariance(grid_places(20), place) @ torch.linalg.solve(covariance, value)
    assert grid_mean(field, 20).flatten().numpy() == pytest.approx(exact.numpy(), abs=0.02)


def test_inducing_points_are_the_places_or_their_clusters() -> None:
    place = torch.rand((30, 2), generator=make_rng()).double()
    assert torch.equal(inducing_points(place, 30, seed=0), place)
    few = inducing_points(place, 8, seed=0)
    assert few.shape == (8, 2)
    assert torch.equal(few, inducing_points(place, 8, seed=0))
    assert torch.cdist(place, few).amin(dim=1).mean() < 0.6 * torch.cdist(place, place[:8]).amin(dim=1).mean()


def test_draws_have_the_mean_and_the_covariance_of_the_posterior(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cicpe.data.sampling.FEATURES", 128)  # both are exact for any number of features
    field, side, count = field_on(), 12, 3000
    draws = grid_draws(field, side, count, make_rng(5)).flatten(1).double()
    mean, variance = field.posterior(grid_places(side))
    error = (draws.mean(dim=0) - mean) / (variance / count).sqrt()
    assert error.abs().max() < 4.5  # of 144 standard normals
    ratio = draws.var(dim=0) / variance
    assert (ratio - 1).abs().max() < 5 * math.sqrt(2 / count)
    # Between places, too: K_xy - a_x^T a_y + a_x^T T T^T a_y.
    one, two = grid_places(side)[40:41], grid_places(side)[54:55]
    a, b = field.weights(one), field.weights(two)
    covariance = float(field.kernel.covariance(one, two) - a.T @ b + a.T @ field.root @ field.root.T @ b)
    found = float(torch.cov(draws[:, [40, 54]].T)[0, 1])
    scale = math.sqrt(float(variance[40] * variance[54]))
    assert found == pytest.approx(covariance, abs=5 * scale / math.sqrt(count))


def test_twins_are_posterior_means_of_surveys_of_the_prior() -> None:
    """Their covariance, before values are made standard scores, is K_xX (K + s^2)^-1 K_Xx."""
    field, place = field_on(noise=0.5), torch.rand((60, 2), generator=make_rng(2)).double()
    side, count = 6, 3000
    twins = grid_twins(field, place, side, count, make_rng(3)).flatten(1).double()
    covariance = field.kernel.covariance(place, place) + field.noise**2 * torch.eye(60).double()
    across = field.kernel.covariance(grid_places(side), place)
    expected = (across @ torch.linalg.solve(covariance, across.T)).diagonal()
    total = float(covariance.diagonal().mean())
    # Standard scores take away the mean of a survey, so twins vary less than this, but not by much.
    ratio = twins.var(dim=0) * total / expected
    assert ratio.min() > 0.4
    assert ratio.max() < 1.6
    assert twins.mean(dim=0).abs().max() < 0.1


# Collections.


def test_a_collection_survives_the_disk_and_is_not_fitted_twice(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collection = open_collection("copper")
    entry = collection.entries[0]
    assert (entry.name, entry.samples, entry.places, entry.below_limit) == ("Q00", 40, 39, 1)
    assert read_tensor(collection.folder, entry, "mean").shape == (200, 200)
    assert read_tensor(collection.folder, entry, "draws").shape == (3, 200, 200)
    assert read_tensor(collection.folder, entry, "elbo").shape == (60,)
    regions = regions_of(read_survey(cache / "survey.csv"), least=40)
    monkeypatch.setattr("cicpe.data.collection.fit_field", lambda *_: pytest.fail("fitted again"))
    seen: list[Entry] = []
    again = fit_regions(regions, "again", QUICK, on_region=seen.append)
    assert (again.entries, again.digest) == (collection.entries, collection.digest)
    assert tuple(seen) == again.entries
    with pytest.raises(pytest.fail.Exception, match="fitted again"):
        fit_regions(regions, "other", FitSettings(steps=61, rate=0.05, draws=3))
    assert fit_regions(regions[1:], "fewer", QUICK).digest != collection.digest


def test_a_fit_is_repeatable(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_collection("copper")
    monkeypatch.setenv("CICPE_CACHE", str(tmp_path))
    regions = regions_of(read_survey(cache / "survey.csv"), only=["Q03"])
    second = fit_regions(regions, "copper", QUICK)
    old = next(entry for entry in first.entries if entry.name == "Q03")
    for name in ("mean", "draws", "twins"):
        one, two = read_tensor(first.folder, old, name), read_tensor(second.folder, second.entries[0], name)
        assert torch.allclose(one, two, atol=1e-5)


def test_missing_and_damaged_fields_say_what_to_do(cache: Path, tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(DataError, match=r"'zinc' .*there are: .*copper.*cicpe data fit FILE --name zinc"):
        make_problem("geochem", fields="zinc").sample(2, make_rng())
    with pytest.raises(DataError, match="other data or settings"):
        make_problem("geochem", fields="copper@0123456789ab").sample(2, make_rng())
    monkeypatch.setenv("CICPE_CACHE", str(tmp_path))
    (tmp_path / "fields").mkdir()
    (tmp_path / "fields" / "copper.json").write_text("{")
    with pytest.raises(DataError, match="damaged"):
        open_collection("copper")
    (tmp_path / "fields" / "copper.json").unlink()
    regions = regions_of(read_survey(cache / "survey.csv"), only=["Q03"])
    collection = fit_regions(regions, "copper", FitSettings(steps=1, draws=1))
    path = tmp_path / "fields" / f"{collection.entries[0].key}.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DataError, match="cannot be read"):
        make_problem("geochem", regions="all").sample(2, make_rng())


@pytest.mark.slow
def test_processes_fit_the_same_fields(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = open_collection("copper")
    monkeypatch.setenv("CICPE_CACHE", str(tmp_path))
    regions = regions_of(read_survey(cache / "survey.csv"), only=["Q00", "Q01", "Q02"])
    together = fit_regions(regions, "copper", QUICK, jobs=2)
    for one, other in zip(alone.entries[:3], together.entries, strict=True):
        assert (one.name, one.key) == (other.name, other.key)
        first, second = (read_tensor(c.folder, e, "mean") for c, e in ((alone, one), (together, other)))
        assert torch.allclose(first, second, atol=1e-5)


# Splits.


def check_splits(collection: Collection) -> None:
    boxes = collection.boxes
    held_out: list[str] = []
    for number in range(FOLDS):
        parts = split(boxes, number)
        assert sorted([*parts.train, *parts.held_out, *parts.buffer]) == sorted(boxes)
        for test in parts.held_out:
            assert not any(touch(boxes[test], boxes[train]) for train in parts.train)
            assert not any(boxes[test] == boxes[train] for train in parts.train)
        held_out += parts.held_out
    assert sorted(held_out) == sorted(boxes)


def test_splits_are_disjoint_and_apart_and_cover_everything() -> None:
    collection = open_collection("copper")
    check_splits(collection)
    boxes = collection.boxes
    assert split(dict(reversed(boxes.items())), 2) == split(boxes, 2)  # the order does not matter
    assert touch((0, 0, 2, 1), (2.1, 1.1, 4, 2))  # corner to corner
    assert not touch((0, 0, 2, 1), (2.1, 1.5, 4, 2))
    for number, names in ((5, 12), (-1, 12), (0, 4)):
        with pytest.raises(InvalidInput, match="split"):
            split(dict(list(boxes.items())[:names]), number)


# The family.


@given(st.integers(0, 2**31), st.integers(2, 30))
def test_bilinear_lookup_is_that_of_scipy(seed: int, side: int) -> None:
    rng = make_rng(seed)
    grids = torch.randn((3, side, side), generator=rng)
    which = torch.randint(3, (20,), generator=rng)
    place = torch.rand((20, 2), generator=rng)
    place[:4] = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    axis = np.linspace(0, 1, side)
    expected = [
        RegularGridInterpolator((axis, axis), grids[g].numpy())(p)[0] for g, p in zip(which, place, strict=True)
    ]
    assert bilinear(grids, which, place).numpy() == pytest.approx(np.array(expected), abs=2e-5)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"noise": 0.1, "scored_by": "value"},
        {"noise": "fitted"},
        {"noise": (0.01, 0.1), "regions": "held-out", "draws": 0.0, "twins": 0.0, "augment": ()},
        {"regions": ("Q01", "Q05"), "split": 3, "augment": ("crops",), "scored_by": "value"},
    ],
    ids=str,
)
def test_geochem_conforms(options: dict[str, Any]) -> None:
    problem = make_problem("geochem", **options)
    check_problem(problem)
    spec = spec_of(problem)
    again = ProblemSpec(**json.loads(json.dumps({"name": spec.name, "options": dict(spec.options)}))).make()
    assert again == problem
    assert spec.options["fields"] == f"copper@{open_collection('copper').digest}"


@pytest.mark.parametrize("augment", [(), *[(name,) for name in AUGMENTATIONS], AUGMENTATIONS], ids=str)
@pytest.mark.parametrize("scored_by", ["distance", "value"])
def test_the_target_is_the_best_place_of_the_varied_field(augment: tuple[str, ...], scored_by: str) -> None:
    problem = Geochem(augment=augment, scored_by=scored_by)
    n, each = 40, 4000
    tasks = TaskBatch.draw(problem, n, make_rng())
    top = problem.value(tasks.task, tasks.target)
    assert top.numpy() == pytest.approx(tasks.task.height.numpy(), abs=1e-4)
    query = torch.rand((n, each, 2), generator=make_rng(1))
    near = (tasks.target[:, None] + 0.02 * torch.randn((n, each, 2), generator=make_rng(2))).clamp(0, 1)
    for places in (query, near):
        rows = torch.arange(n).repeat_interleave(each)
        many = tasks.select(rows)
        value = problem.value(many.task, places.flatten(0, 1)).view(n, each)
        assert (value <= top[:, None] + 1e-4).all()
        assert (value.amax(dim=1) > top - 0.5).all()  # the target's value is reached: it is in the window
    gap = tasks.loss(query[:, 0])
    expected = (
        (query[:, 0] - tasks.target).norm(dim=1)
        if scored_by == "distance"
        else top - problem.value(tasks.task, query[:, 0])
    )
    assert gap.numpy() == pytest.approx(expected.numpy(), abs=1e-4)


def test_without_variation_a_task_is_the_posterior_mean_of_its_region() -> None:
    problem = Geochem().as_surveyed("all")
    task = problem.sample(200, make_rng())
    assert set(problem.region(task).tolist()) == set(range(12))
    for row in range(12):
        entry = problem.entries[problem.region(task)[row]]
        mean = read_tensor(problem.collection.folder, entry, "mean")
        best = torch.tensor(np.unravel_index(int(mean.argmax()), mean.shape)) / 199
        assert problem.target(task)[row].numpy() == pytest.approx(best.numpy(), abs=1e-6)
        node = torch.tensor([[17 / 199, 140 / 199]])
        assert float(problem.value(problem_row(task, row), node)) == pytest.approx(float(mean[17, 140]), abs=1e-4)


def problem_row(task: Any, row: int) -> Any:
    return type(task)(*(leaf[row : row + 1] for leaf in task))


def test_all_eight_ways_to_lay_a_square_occur_and_each_switch_does_its_own() -> None:
    def ways(*augment: str) -> set[tuple[bool, ...]]:
        task = Geochem(augment=augment).sample(400, make_rng())
        return {(*flip, swap) for flip, swap in zip(task.flip.tolist(), task.swap.tolist(), strict=True)}

    assert ways() == {(False, False, False)}
    assert ways("flips") == {(False, False, False), (True, False, False)}
    assert len(ways("rotations")) == 4
    assert len(ways("flips", "rotations")) == 8
    plain, full = Geochem(augment=()).sample(400, make_rng()), Geochem().sample(400, make_rng())
    assert plain.side.unique().tolist() == [1]
    assert plain.factor.unique().tolist() == [1]
    assert full.side.min() < 0.55
    assert ((full.corner >= 0) & (full.corner + full.side[:, None] <= 1 + 1e-6)).all()
    assert 1 / 1.5 <= full.factor.min() < 0.75
    assert 1.3 < full.factor.max() <= 1.5


def test_shares_of_simulated_fields() -> None:
    problem = Geochem(draws=0.2, twins=0.5)
    member = problem.sample(4000, make_rng()).grid % 7
    shares = [float((member == 0).float().mean()), float(((member > 0) & (member < 4)).float().mean())]
    assert shares == pytest.approx([0.3, 0.2], abs=0.03)
    assert len(Geochem(draws=0.0, twins=0.0).bank.grids) == len(Geochem().entries)


def test_noise_is_as_asked() -> None:
    problem = Geochem(noise="fitted", augment=("rescaling",))
    task = problem.sample(300, make_rng())
    fitted = torch.tensor([entry.noise for entry in problem.entries])[problem.region(task)]
    assert task.noise.numpy() == pytest.approx((fitted * task.factor).numpy())
    assert problem.default_context() is None
    assert Geochem().default_context() == (0.0,)
    quiet = problem.with_context(noise=0.0)
    task = quiet.sample(50, make_rng())
    place = torch.rand((50, 2), generator=make_rng())
    assert torch.equal(quiet.observe(task, place, make_rng(1)), quiet.observe(task, place, make_rng(2)))


def test_groups_and_regions() -> None:
    problem = Geochem(regions="all")
    assert [entry.name for entry in problem.entries] == [f"Q{i:02d}" for i in range(12)]
    short = problem.entries[0]._replace(lengthscale=(0.5, 0.0999))
    assert (short.resolvable, short._replace(lengthscale=(0.1, 0.3)).resolvable) == (False, True)
    train, held_out = Geochem(split=1), Geochem(split=1).as_surveyed()
    assert not {e.name for e in train.entries} & {e.name for e in held_out.entries}
    assert (held_out.augment, held_out.draws, held_out.twins) == ((), 0, 0)
    assert all(entry.resolvable for entry in Geochem(group="resolvable").entries)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"regions": "some"}, "regions"),
        ({"regions": ("Q01", "Atlantis")}, "Atlantis"),
        ({"regions": ()}, "regions"),
        ({"fields": -1}, "fields must be the name"),
        ({"fields": "../copper"}, "name must be letters"),
        ({"fields": "/etc/passwd@0123456789ab"}, "name must be letters"),
        ({"split": 5}, "split"),
        ({"group": "easy"}, "group"),
        ({"augment": ("shears",)}, "augment"),
        ({"augment": "flips"}, "augment"),
        ({"draws": 0.7, "twins": 0.5}, "draws, twins"),
        ({"draws": math.nan}, "draws, twins"),
        ({"noise": "loud"}, "noise"),
        ({"noise": -1.0}, "noise"),
        ({"scored_by": "luck"}, "scored_by"),
    ],
    ids=str,
)
def test_bad_options_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        make_problem("geochem", **options).sample(2, make_rng())


def test_a_model_can_be_described_where_the_fields_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spaces, context and options are known without the fields: a session needs no more."""
    pinned = Geochem().fields
    monkeypatch.setenv("CICPE_CACHE", str(tmp_path))
    problem = make_problem("geochem", fields=pinned)
    assert (problem.query_space.dim, problem.observation_dim, spec_of(problem).options["fields"]) == (2, 1, pinned)


def test_baselines_see_a_function_to_maximise() -> None:
    facts = structure_of(Geochem(draws=0.0, twins=0.0, augment=()))
    assert facts.target_is_best
    assert not facts.linear


def test_sampling_and_observing_take_milliseconds() -> None:
    problem, rng = Geochem(), make_rng()
    query = torch.rand((4096, 2), generator=rng)
    problem.observe(problem.sample(4096, rng), query, rng)

    def once() -> float:
        start = time.perf_counter()
        problem.observe(problem.sample(4096, rng), query, rng)
        return time.perf_counter() - start

    assert min(once() for _ in range(10)) < 0.05


# The command line.


def test_data_commands(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    survey = str(cache / "survey.csv")
    assert main(["data", "show", survey, "--least", "40", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["samples"], len(shown["regions"]), shown["regions"][0]["below_limit"]) == (480, 12, 1)
    assert main(["data", "show", survey, "--least", "40"]) == 0
    assert "Q11" in capsys.readouterr().out
    assert main(["data", "fields", "--json"]) == 0
    assert {row["split"] for row in json.loads(capsys.readouterr().out)["regions"]} == set(range(FOLDS))
    monkeypatch.setenv("CICPE_CACHE", str(tmp_path))
    assert main(["data", "fields"]) == 2
    assert "cicpe data fit" in capsys.readouterr().err
    assert main(["data", "fit", survey, "--region", "Q02", "--steps", "2"]) == 0
    assert "Q02" in capsys.readouterr().out
    assert main(["data", "show", survey, "--columns", "a,b"]) == 2
    assert main(["data", "show"]) == 2


def test_a_fetched_file_is_checked(tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    import hashlib
    import zipfile

    table = HEAD.encode() + b"40,-90,3,A\n"
    monkeypatch.setenv("CICPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fetch, "BYTES", len(table))
    archive = tmp_path / "geochem.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("geochem.csv", table)
    assert read_surveys([archive]).value.tolist() == [3]
    assert main(["data", "fetch", "--from", str(archive)]) == 2
    assert "its sha256 is" in capsys.readouterr().err
    monkeypatch.setattr(fetch, "SHA256", hashlib.sha256(table).hexdigest())
    monkeypatch.setattr(fetch, "URL", "file:///nowhere/geochem.zip")
    assert main(["data", "fetch"]) == 2
    assert "cannot be reached" in capsys.readouterr().err
    assert not fetch.survey_path().exists()
    assert main(["data", "fetch", "--from", str(archive)]) == 0
    assert main(["data", "fetch"]) == 0  # it is here: nothing to download
    assert fetch.survey_path().read_bytes() == table
    fetch.survey_path().write_bytes(table[:-1])
    assert main(["data", "fetch"]) == 2


# The real survey.


@needs_real
def test_the_real_survey_is_what_its_readme_says() -> None:
    survey = read_surveys([REAL])
    regions = {region.name: region for region in regions_of(survey)}
    assert (len(survey), len(regions), survey.left_out) == (3746, 35, 0)
    assert (regions["Aurora"].samples, len(regions["Aurora"].value)) == (300, 233)
    assert int(survey.below_limit.sum()) == 10
    assert not any("_" in name for name in regions)


@needs_real
def test_real_splits() -> None:
    boxes = {region.name: region.box for region in regions_of(read_surveys([REAL]))}
    entries = tuple(Entry(name, "", 0, 0, 0, box, (1, 1), 0, 0, 0, 0) for name, box in boxes.items())
    check_splits(Collection("real", Path(), entries))
    for number in range(FOLDS):
        parts = split(boxes, number)
        assert (len(parts.held_out), len(parts.train) >= 15) == (7, True)


@needs_real
@pytest.mark.slow
def test_a_real_region_is_fitted_as_exact_regression_would() -> None:
    (denver,) = regions_of(read_surveys([REAL]), only=["Denver"])
    field = fit_field(denver, FitSettings())
    place, value = torch.from_numpy(denver.place), torch.from_numpy(denver.value)

    def exact(logs: Any) -> float:
        east, north, signal, noise = torch.from_numpy(np.exp(logs))
        covariance = Kernel(torch.stack([east, north]), signal, MATERN_32).covariance(place, place)
        covariance += noise**2 * torch.eye(len(place)).double()
        law = torch.distributions.MultivariateNormal(torch.zeros_like(value), covariance)
        return -float(law.log_prob(value))

    best = np.exp(minimize(exact, np.log([0.5, 0.5, 0.8, 0.8]), method="L-BFGS-B").x)
    found = [*field.kernel.lengthscale.tolist(), float(field.kernel.amplitude), float(field.noise)]
    assert found == pytest.approx(best, rel=0.02)


# The zoo's agent on other fields than those that it learned from.

SURVEYED = ["--option", "regions=all", "--option", "draws=0", "--option", "twins=0", "--option", "augment=[]"]
OTHERS = ["--option", "fields=copper", *SURVEYED]


@pytest.mark.slow
def test_a_report_has_maps_of_the_fields_that_are_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["report", "geochem-2d", "--out", str(tmp_path), "--episodes", "2", *OTHERS, "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["options"]["regions"], found["options"]["fields"]) == ("all", "copper")
    assert "Hidden fields and the queries made of them" in (tmp_path / "index.html").read_text()
    assert (tmp_path / "examples.png").read_bytes().startswith(b"\x89PNG")


def test_a_model_that_is_named_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "geochem", *OTHERS, "--epsilon", "0.2", "--episodes", "2", "--methods", "cicpe", "--json"]
    assert main([*words, "--model", "geochem-2d"]) == 0
    assert [row["method"] for row in json.loads(capsys.readouterr().out)["rows"]] == ["geochem-2d"]
    assert main(words) == 2
    assert "needs a model of the zoo" in capsys.readouterr().err


def test_fields_that_are_not_here_are_said_to_be_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """These are of another survey than the zoo's; and then there are none at all."""
    words = ["report", "geochem-2d", "--out", str(tmp_path / "page"), "--episodes", "2"]
    assert main(words) == 2
    assert "made from other data" in capsys.readouterr().err
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CICPE_CACHE", str(tmp_path))
        assert main(words) == 2
    assert "Make them from a survey: cicpe data fit" in capsys.readouterr().err
    assert not (tmp_path / "page").exists()
