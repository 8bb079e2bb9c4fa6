"""The pieces of ``benchmarks/laboratory.py``: staircases, thresholds, exact Bayes and the rival packages as players."""

import importlib
import math
import sys
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest
import torch
from scipy.stats import truncnorm

from cicpe.episodes.play import never, play
from cicpe.experiments import Experiment
from cicpe.problems import TaskBatch
from commands import REPOSITORY

LINE = """
title = "The slope of a line"
setting = [{ name = "x", range = [1, 2] }]
measurement = { name = "y", noise = 1.0 }
goal = { find = "slope", within = 0.5, sure = 0.9, at_most = 20 }
[model]
kind = "formula"
formula = "slope * x"
[model.parameters]
slope = [0, 10]
"""


@pytest.fixture(scope="module", autouse=True)
def benchmarks() -> Iterator[None]:
    sys.path.insert(0, str(REPOSITORY / "benchmarks"))
    yield
    sys.path.remove(str(REPOSITORY / "benchmarks"))


def rival(name: str) -> ModuleType:
    return importlib.import_module(f"rivals.{name}")


def test_a_threshold_is_the_lowest_that_reaches_the_accuracy() -> None:
    """After t measurements the score is t, and one task in a hundred more is right."""
    tuning = rival("tuning")
    score = torch.arange(101.0).expand(100, -1)
    success = torch.arange(100)[:, None] < torch.arange(101)
    played = tuning.PlayedOn(score.double(), success)
    assert tuning.choose_threshold(played, 0.9) == 90
    measurements, right = played.at(90.0)
    assert (float(measurements.double().mean()), float(right.double().mean())) == (90, 0.9)
    hopeless = tuning.PlayedOn(score.double(), success & (torch.arange(100)[:, None] < 80))
    assert tuning.choose_threshold(hopeless, 0.9) is None


def test_a_threshold_stops_before_a_lower_one_that_is_right_by_chance() -> None:
    tuning = rival("tuning")
    score = torch.tensor([[0.0, 1.0, 2.0]]).expand(10, -1).double()
    success = torch.tensor([[True, False, True]]).expand(10, -1)
    assert tuning.choose_threshold(tuning.PlayedOn(score, success), 0.9) == 2.0


def test_a_tally_keeps_what_the_figures_need() -> None:
    tuning = rival("tuning")
    measurements, success = torch.tensor([3, 3, 5, 9]), torch.tensor([True, False, True, True])
    half, whole = tuning.Tally(), tuning.Tally()
    half.add(measurements[:2], success[:2])
    rest = tuning.Tally(half.to_json())
    rest.add(measurements[2:], success[2:])
    whole.add(measurements, success)
    assert rest.to_json() == whole.to_json()
    figures = rest.figures(9)
    assert (figures["tasks"], figures["accuracy"], figures["measurements"], figures["at_the_limit"]) == (
        4,
        0.75,
        5,
        0.25,
    )
    width = 1.959964 * float(measurements.double().std()) / 2
    assert figures["measurements_ci"] == pytest.approx([5 - width, 5 + width])


@pytest.mark.parametrize(("down", "level"), [(1, 0.5), (3, 0.5 ** (1 / 3))])
def test_a_staircase_settles_at_its_level(down: int, level: float) -> None:
    """P(yes)^down = 1/2, where steps up and down are equally likely."""
    problem = Experiment.read("psychometric-yes-no").problem()
    player = rival("staircase").Staircase(problem, 600, down, first_step=8, last_step=1)
    tasks = TaskBatch.draw(problem, 300, torch.Generator().manual_seed(1))
    *_, end = play(player, tasks, torch.Generator().manual_seed(2), ends=never)
    assert float(end.proposal.reversals.min()) > 20
    inside = ((tasks.target > 0.2) & (tasks.target < 0.8))[:, 0]
    settled = problem.mean(tasks.task, end.proposal.recommendation)[inside]
    assert float(settled.mean()) == pytest.approx(level, abs=0.025)


def test_a_shift_moves_the_answer_and_not_the_settings() -> None:
    problem = Experiment.read("psychometric-2afc").problem()
    staircase = rival("staircase").Staircase
    tasks = TaskBatch.draw(problem, 20, torch.Generator().manual_seed(1))
    ends = []
    for shift in (0.0, -2.0):
        player = staircase(problem, 60, 3, 8, 2, shift=shift)
        *_, end = play(player, tasks, torch.Generator().manual_seed(2), ends=never)
        ends.append(end)
    assert torch.equal(ends[0].state.setting, ends[1].state.setting)
    moved = (ends[1].proposal.recommendation - ends[0].proposal.recommendation) * 40
    assert moved.min() == pytest.approx(-2, abs=1e-4)


def test_exact_bayes_has_the_closed_form_posterior_of_a_line() -> None:
    """A slope with a uniform prior and known normal noise: a normal distribution, cut off at the ends."""
    problem = Experiment.from_toml(LINE).problem()
    epsilon = problem.units.epsilon
    assert epsilon is not None
    player = rival("exact").PointBayes(problem, epsilon, 20)
    tasks = TaskBatch.draw(problem, 40, torch.Generator().manual_seed(3))
    *_, end = play(player, tasks, torch.Generator().manual_seed(4), ends=never, limit=4)
    state = end.state
    x = 1 + state.query_BTQ[..., 0].double()
    readout = problem.units.readout
    assert readout is not None
    y = readout.origin + readout.scale * state.observation_BTY[..., 0].double()
    precision = x.square().sum(dim=1)
    centre, spread = ((x * y).sum(dim=1) / precision).numpy(), (1 / precision.sqrt()).numpy()
    exact = truncnorm((0 - centre) / spread, (10 - centre) / spread, centre, spread)
    answer, std = 10 * end.proposal.recommendation[:, 0].double().numpy(), 10 * end.proposal.std[:, 0].double().numpy()
    assert np.abs(std / exact.std() - 1).max() < 0.08
    assert abs(float((std / exact.std()).mean()) - 1) < 0.02
    within = exact.cdf(answer + 0.5) - exact.cdf(answer - 0.5)
    assert np.abs(within - end.proposal.confidence.double().numpy()).max() < 0.03
    largest = exact.cdf(np.clip(centre, 0.5, 9.5) + 0.5) - exact.cdf(np.clip(centre, 0.5, 9.5) - 0.5)
    assert (largest - within).max() < 0.02


def test_exact_bayes_measures_a_line_where_it_is_steepest() -> None:
    problem = Experiment.from_toml(LINE).problem()
    for utility in ("information", "variance"):
        player = rival("exact").PointBayes(problem, 0.05, 20, utility)
        proposal = player.propose(player.begin(torch.zeros(3, 0)), torch.Generator().manual_seed(0))
        assert float(proposal.query.min()) > 0.9


@pytest.mark.parametrize(("kind", "off"), [("psychometric-2afc", 1e-5), ("psychometric-yes-no", 0.02)])
def test_questplus_is_given_the_experiments_own_curves(kind: str, off: float) -> None:
    """At every point of its grid its probabilities are those of the task with that threshold, width and rates.

    It has no logistic curve: a normal one of the same width stands for it.
    """
    pytest.importorskip("questplus")
    experiment = Experiment.read(kind)
    problem = experiment.problem()
    player = rival("quest").QuestPlusPlayer(problem, experiment, 10)
    grid, package = player.grid, player.package
    likelihood = package.likelihoods.sel(response="yes").transpose("intensity", *grid.domain).values
    chosen = np.flatnonzero(package.prior.values.ravel())[::97]
    steep = list(grid.domain.values())[1]
    width = dict(zip(steep, rival("quest").midpoints(*experiment.model.width, len(steep), log=True), strict=True))
    mesh = [axis.ravel()[chosen] for axis in np.meshgrid(*grid.domain.values(), indexing="ij")]
    values = {
        "threshold": grid.threshold.ravel()[chosen],
        "width": np.array([width[one] for one in mesh[1]])
        / (experiment.setting[0].limits[1] - experiment.setting[0].limits[0]),
        "guess": mesh[2],
        "lapse": mesh[3],
    }
    unknown = problem.form.curve.unknown
    columns = [[one.coordinate(float(value)) for value in values[one.name]] for one in unknown]
    task, setting = torch.tensor(columns).T, torch.linspace(0, 1, len(player.stimuli))
    own = problem.mean(task[:, None], setting[:, None]).numpy()
    theirs = likelihood.reshape(len(player.stimuli), -1)[:, chosen].T
    assert np.abs(own - theirs).max() < off


def test_questplus_narrows_down_the_threshold() -> None:
    pytest.importorskip("questplus")
    experiment = Experiment.read("psychometric-2afc")
    problem = experiment.problem()
    player = rival("quest").QuestPlusPlayer(problem, experiment, 25)
    tasks = TaskBatch.draw(problem, 4, torch.Generator().manual_seed(5))
    steps = list(play(player, tasks, torch.Generator().manual_seed(6), ends=never))
    before, after = steps[0].proposal.std, steps[-1].proposal.std
    assert float(before.min()) == pytest.approx(1 / math.sqrt(12), rel=0.02)
    assert float(after.max()) < 0.5 * float(before.min())
    assert bool((tasks.loss(steps[-1].proposal.recommendation) < 4 * after[:, 0]).all())


def test_draws_of_a_smooth_function_have_its_posterior() -> None:
    """With one length scale and one noise: the mean and the spread of the draws are those of the Gaussian process."""
    problem = Experiment.read("peak-2d").problem()
    player = rival("exact_peak").SmoothPeakBayes(problem, 0.1, 10, side=9, levels=1, draws=4096)
    place, value = torch.tensor([0, 40, 44, 80]), torch.tensor([0.3, 1.2, 0.9, -0.8])
    drawn, _ = player.posterior(place, value, torch.Generator().manual_seed(0))
    kernel, noise = player.covariance_CLL[0].double(), float(player.noise_V[0]) ** 2 + 1e-6
    inside, across = kernel[place][:, place] + noise * torch.eye(4), kernel[:, place]
    mean = across @ torch.linalg.solve(inside, value.double())
    variance = (kernel.diagonal() - (across * torch.linalg.solve(inside, across.T).T).sum(dim=1)).clamp_min(0)
    assert (drawn.mean(dim=0) - mean).abs().max() < 0.06
    assert (drawn.var(dim=0) - variance).abs().max() < 0.08
