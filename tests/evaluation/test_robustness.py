"""Shifted priors: the tasks that they give, the profiles that are found, and bounds beside what is measured."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import beta as beta_law
from scipy.stats import kstest

from cicpe import zoo
from cicpe.errors import InvalidInput
from cicpe.evaluation.robustness import GRID, RobustnessCell, measure_training_prior, robustness
from cicpe.problems import Problem
from cicpe.problems.ackley import Ackley
from cicpe.problems.best_arm import BestArm
from cicpe.problems.beta_prior import ByParameters, ByRank, prior_shift
from cicpe.problems.binary_search import BinarySearch
from cicpe.problems.gp_max import LENGTHSCALE, GPMax
from commands import Run
from profile_agents import ProfileAgent, Revealed, RevealedWithParameters, constant

ALPHA = 1e-3


def make_rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# --- tasks from another prior -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "kind", "coordinates"),
    [
        (BinarySearch(6), ByParameters, 6),
        (Ackley(3), ByParameters, 3),  # its decay and its frequency do not move the target
        (BestArm(5), ByRank, 1),
        (GPMax(), ByRank, 1),
        (RevealedWithParameters(2), ByParameters, 2),
        (Revealed(2), ByRank, 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Problem) else str(value),
)
def test_what_is_shifted(problem: Problem, kind: type, coordinates: int) -> None:
    shift = prior_shift(problem, None, make_rng())
    assert isinstance(shift, kind)
    assert shift.coordinates == coordinates
    tasks = shift.draw(3.0, 0.5, 400, make_rng(1))
    assert len(tasks.tasks) == 400
    assert tasks.unit.shape == (400, coordinates)
    assert torch.equal(torch.as_tensor(problem.target(tasks.tasks.task)).reshape(400, -1), tasks.tasks.target)


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (1, 1), (0.5, 7), (5, 3)])
def test_by_parameters_every_target_coordinate_is_beta_and_the_rest_is_not(a: float, b: float) -> None:
    hidden = prior_shift(Ackley(3), None, make_rng()).draw(a, b, 3000, make_rng(2)).tasks
    unit = (hidden.target.double().numpy() + 1) / 2
    for column in range(3):
        assert kstest(unit[:, column], beta_law(a, b).cdf).pvalue > ALPHA
    frequency = (hidden.task.frequency.double().numpy() - math.pi) / (3 * math.pi)
    assert kstest(frequency, "uniform").pvalue > ALPHA
    if (a, b) != (1, 1):
        assert kstest(unit[:, 0], "uniform").pvalue < 1e-6  # the negative control


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (1, 1), (0.5, 7), (5, 3)])
def test_by_rank_a_field_follows_beta_in_its_own_uniform_range(a: float, b: float) -> None:
    tasks = prior_shift(GPMax(), "lengthscale", make_rng()).draw(a, b, 2000, make_rng(3))
    low, high = LENGTHSCALE
    unit = (tasks.tasks.task.lengthscale.double().numpy() - low) / (high - low)
    # The pool's own sampling error comes on top: it has 8,192 tasks.
    assert kstest(unit, beta_law(a, b).cdf).statistic < 0.06
    assert 0 < tasks.distinct <= 2000
    assert abs(tasks.unit[:, 0].numpy() - unit).max() < 0.05


def test_by_rank_the_tasks_of_the_training_prior_are_the_priors_own() -> None:
    problem = BestArm(5)
    hidden = prior_shift(problem, None, make_rng()).draw(1.0, 1.0, 3000, make_rng(4)).tasks
    assert torch.allclose(hidden.target.norm(dim=-1), torch.ones(3000), atol=1e-5)
    assert abs(float(hidden.target.mean())) < 0.02
    shifted = prior_shift(problem, None, make_rng()).draw(7.0, 0.5, 3000, make_rng(4)).tasks
    assert float(shifted.target.mean()) > 0.2  # along the diagonal


def test_an_unknown_field_is_refused_with_those_that_exist() -> None:
    with pytest.raises(InvalidInput, match=r"shift must be .*lengthscale.*; got 'colour'"):
        prior_shift(GPMax(), "colour", make_rng())


# --- profiles ---------------------------------------------------------------------------------------


def weak_at_the_low_end(place: torch.Tensor) -> torch.Tensor:
    return torch.where(place[:, 0] < 0.2, 0.5, 0.99)


def slow_at_the_low_end(place: torch.Tensor) -> torch.Tensor:
    return torch.where(place[:, 0] < 0.2, 6.0, 2.0)


AGENT = ProfileAgent(weak_at_the_low_end, slow_at_the_low_end)


@pytest.mark.parametrize("problem", [Revealed(), RevealedWithParameters()], ids=["rank", "parameters"])
def test_profiles_and_their_variances_are_found(problem: Problem) -> None:
    shift = prior_shift(problem, None, make_rng())
    found = measure_training_prior(AGENT, shift, 0.2, 8000, seed=1)
    assert found.accuracy == pytest.approx(0.2 * 0.5 + 0.8 * 0.99, abs=0.02)
    assert found.mean_queries == pytest.approx(2.8, abs=0.1)
    # Upper limits: above the truth, and not far above.
    variance = 0.2 * 0.8 * 0.49**2
    assert variance < found.success_variance < variance + 0.01
    assert 2.56 - 0.02 < found.queries_variance < 2.56 + 0.2
    rows = found.profile()
    assert [row.success for row in rows] == pytest.approx([0.5] * 2 + [0.99] * 8, abs=0.04)
    assert [row.queries for row in rows] == pytest.approx([6] * 2 + [2] * 8, abs=0.2)


def test_luck_is_not_taken_for_a_profile() -> None:
    """An agent with the same success everywhere: the variance over tasks is zero, though outcomes vary."""
    shift = prior_shift(Revealed(), None, make_rng())
    found = measure_training_prior(ProfileAgent(constant(0.8)), shift, 0.2, 8000, seed=1)
    assert found.success_variance < 0.01
    assert found.success[:, 0].var() > 0.15


# --- the grid ---------------------------------------------------------------------------------------


def truth(cell: RobustnessCell) -> tuple[float, float]:
    """Accuracy and mean queries of ``AGENT`` under the prior of a cell, where one coordinate is shifted."""
    weak = float(beta_law(cell.alpha, cell.beta).cdf(0.2))
    return 0.5 * weak + 0.99 * (1 - weak), 6 * weak + 2 * (1 - weak)


@pytest.mark.parametrize("problem", [Revealed(), RevealedWithParameters()], ids=["rank", "parameters"])
def test_every_cell_is_measured_right_and_bounded(problem: Problem) -> None:
    found = robustness(AGENT, problem, 0.2, 0.15, episodes=1000, seed=3)
    assert [(cell.alpha, cell.beta) for cell in found.cells] == [(a, b) for a in GRID for b in GRID]
    for cell in found.cells:
        accuracy, queries = truth(cell)
        assert cell.accuracy == pytest.approx(accuracy, abs=0.06)
        assert cell.mean_queries == pytest.approx(queries, abs=0.35)
        for name, bound in (cell.accuracy_bounds | cell.promised_bounds).items():
            assert bound is None or bound <= accuracy + 1e-3, (cell.alpha, cell.beta, name)
        for name, bound in cell.queries_bounds.items():
            assert bound is None or bound >= queries - 1e-2, (cell.alpha, cell.beta, name)
        assert (cell.accuracy_bounds["density_ratio"] is None) == (min(cell.alpha, cell.beta) < 1)


def test_good_sets_see_what_distances_cannot() -> None:
    """Far from the training prior, on good ground: total variation says little, the profile says nearly all."""
    cell = robustness(AGENT, Revealed(), 0.2, 0.15, episodes=1000, grid=(7.0,)).cells[0]
    assert cell.accuracy > 0.96
    assert cell.accuracy_bounds["total_variation"] < 0.5  # type: ignore[operator]
    assert cell.accuracy_bounds["good_set"] > 0.8  # type: ignore[operator]
    assert cell.queries_bounds["fast_set"] < 3  # type: ignore[operator]


def test_several_coordinates() -> None:
    """A weak corner of a cube; in one cell the priors hardly overlap and every bound still holds."""
    agent = ProfileAgent(lambda place: torch.where(place.amin(dim=-1) < 0.1, 0.7, 0.99), dim=4)
    found = robustness(agent, RevealedWithParameters(4), 0.2, 0.2, episodes=500, grid=(0.5, 1.0, 7.0))
    assert found.coordinates == 4
    for cell in found.cells:
        weak = 1 - float(beta_law(cell.alpha, cell.beta).sf(0.1)) ** 4
        accuracy = 0.7 * weak + 0.99 * (1 - weak)
        assert cell.accuracy == pytest.approx(accuracy, abs=0.08)
        for name, bound in cell.accuracy_bounds.items():
            assert bound is None or bound <= accuracy + 0.005, (cell.alpha, cell.beta, name)


def test_the_training_prior_bounds_itself() -> None:
    cell = robustness(AGENT, Revealed(), 0.2, 0.15, episodes=1000, grid=(1.0,)).cells[0]
    for bound in cell.accuracy_bounds.values():
        assert bound == pytest.approx(0.88, abs=0.03)
    assert cell.promised_bounds == dict.fromkeys(cell.promised_bounds, pytest.approx(0.85))


def test_the_wrong_agents_profile_gives_bounds_that_fail() -> None:
    """The negative control: bounds from an agent that is good everywhere, set beside one that is not."""
    weak = robustness(AGENT, Revealed(), 0.2, 0.15, episodes=1000, grid=(1.0, 7.0))
    good = robustness(ProfileAgent(constant(0.99)), Revealed(), 0.2, 0.15, episodes=1000, grid=(1.0, 7.0))
    broken = [
        bound > measured.accuracy_ci[1]
        for promised, measured in zip(good.cells, weak.cells, strict=True)
        for bound in promised.accuracy_bounds.values()
        if bound is not None
    ]
    assert any(broken)


def test_the_same_seed_gives_the_same_grid() -> None:
    first, second = (robustness(AGENT, Revealed(), 0.2, 0.15, 100, seed=5, grid=(0.5, 3.0)) for _ in range(2))
    assert first.cells == second.cells
    assert np.array_equal(first.training.success, second.training.success)
    with pytest.raises(InvalidInput, match="episodes"):
        robustness(AGENT, Revealed(), 0.2, 0.15, episodes=1)


# --- the command ------------------------------------------------------------------------------------

ASK = ("--epsilon", 0.2, "--delta", 0.1)


@pytest.fixture
def run(run: Run) -> Run:
    """``cicpe robustness``."""
    return lambda *words: run("robustness", *words)


def test_the_command_gives_the_grid_as_json(run: Run) -> None:
    code, out, err = run("binary-search-6d", *ASK, "--noise", 0.05, "--episodes", 50, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["problem"], found["noise"], found["coordinates"]) == ("binary-search", 0.05, 6)
    assert found["shifted"] == "6 coordinates of the target"
    assert len(found["cells"]) == 25
    for cell in found["cells"]:
        assert cell["accuracy_ci"][0] <= cell["accuracy"] <= cell["accuracy_ci"][1]
        assert cell["episodes"] == cell["distinct"] == 50
        assert set(cell["accuracy_bounds"]) == {*cell["promised_bounds"], "good_set"}
    assert len(found["training_prior"]["profile"]) == 10


def test_the_command_for_people_and_a_named_shift(run: Run) -> None:
    code, out, err = run("gp-max-1d", *ASK, "--episodes", 20, "--shift", "lengthscale")
    assert (code, err) == (0, "")
    for words in ("rank of the lengthscale", "beta 0.5", "best lower bound", "best upper bound"):
        assert words in out


def test_the_command_refuses(run: Run, tmp_path: Path) -> None:
    shutil.copytree(zoo.folder("binary-search-6d"), tmp_path / "m")
    for options, word in (
        (["--episodes", 1], "episodes must be"),
        (["--shift", "colour"], "shift must be"),
        (["--noise", 0.4], "noise must be"),
        (["--stop", "never"], "stop must be"),
    ):
        code, out, err = run(tmp_path / "m", *ASK, *options)
        assert (code, out) == (2, "")
        assert word in err.splitlines()[-1]
