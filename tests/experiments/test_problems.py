"""The problems of experiments: what they promise, and that their curves are the ones that the files say."""

import math
import pickle

import numpy as np
import pytest
import torch
from scipy import stats

from cicpe.experiments import Experiment, template_names, template_path
from cicpe.experiments.parametric import ParametricExperiment
from cicpe.experiments.predictive import prior_predictive
from cicpe.experiments.scales import settable_query
from cicpe.experiments.smooth import SmoothExperiment
from cicpe.problems import Problem, make_problem, spec_of
from cicpe.testing import check_problem


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", template_names())
def test_every_template_is_a_problem(name: str) -> None:
    problem = make_problem(name)
    check_problem(problem, n=16)
    assert problem.units.epsilon == problem.default_epsilon[0]
    assert problem.units.delta == pytest.approx(0.1)
    again = spec_of(problem)
    assert again.is_registered
    assert again.make().query_space == problem.query_space, "it is made again from data alone"


@pytest.mark.parametrize("name", ["peak-1d", "michaelis-menten", "dose-toxicity"])
def test_problems_can_be_sent_to_other_processes(name: str) -> None:
    problem = make_problem(name)
    sent = pickle.loads(pickle.dumps(problem))
    query = problem.query_space.sample(4, rng(1))
    seen = [one.observe(one.sample(4, rng()), query, rng(2)) for one in (problem, sent)]
    assert torch.equal(*seen)


def parametric(name: str) -> ParametricExperiment:
    problem = make_problem(name)
    assert isinstance(problem, ParametricExperiment)
    return problem


def smooth(text: str) -> SmoothExperiment:
    problem = Experiment.from_toml(text).problem()
    assert isinstance(problem, SmoothExperiment)
    return problem


def test_a_formula_is_the_mean_in_units() -> None:
    problem = parametric("michaelis-menten")
    task, query = problem.sample(100, rng()), problem.query_space.sample(100, rng(1))
    units, values = problem.units, problem.form.values(task)
    substrate = np.array([units.query_values(one)[0] for one in query.tolist()])
    vmax, km = values["vmax"].numpy(), values["km"].numpy()
    assert np.allclose(problem.mean_in_units(task, query).numpy(), vmax * substrate / (km + substrate), rtol=1e-4)
    answers = np.array([units.answer_values(one)[0] for one in problem.target(task).tolist()])
    assert np.allclose(answers, km, rtol=1e-4)


def test_a_threshold_is_where_the_curve_is_at_its_level() -> None:
    for name, level in [("psychometric-2afc", 0.75), ("psychometric-yes-no", 0.5), ("dose-toxicity", 0.3)]:
        problem = parametric(name)
        task = problem.sample(200, rng())
        assert torch.allclose(problem.mean(task, problem.target(task)), torch.tensor(level), atol=1e-4), name


def test_the_width_is_from_a_tenth_to_nine_tenths() -> None:
    text = template_path("psychometric-yes-no").read_text(encoding="utf-8")
    text = text.replace("guess = [0.005, 0.1]", "guess = 0").replace("lapse = [0.005, 0.05]", "lapse = 0")
    for shape in ("logistic", "probit", "weibull"):
        problem = Experiment.from_toml(text.replace("logistic", shape).replace("[5, 25]", "8")).problem()
        assert isinstance(problem, ParametricExperiment)
        task = torch.full((1, 1), 0.5)
        places = torch.linspace(0, 1, 8001)[:, None]
        share = problem.mean(task.expand(8001, -1), places)
        low, high = (float(places[(share - level).abs().argmin(), 0]) for level in (0.1, 0.9))
        assert (high - low) * 80 == pytest.approx(8, abs=0.05), shape


@pytest.mark.parametrize("name", ["michaelis-menten", "psychometric-2afc", "dose-toxicity"])
def test_the_likelihood_is_that_of_what_is_observed(name: str) -> None:
    problem = parametric(name)
    task = problem.sample(1, rng()).expand(20000, -1)
    query = settable_query(problem.units.settings, torch.full((20000, 1), 0.6))
    seen = problem.observe(task, query, rng(1))
    found = problem.log_likelihood(task, query, seen)
    mean = float(problem.mean(task[:1], query[:1]))
    if name == "michaelis-menten":
        expected = stats.norm(mean, float(problem.noise(task[:1])[0])).logpdf(seen[:, 0].double())
    else:
        expected = stats.binom(3 if name == "dose-toxicity" else 1, mean).logpmf(seen[:, 0].double())
    assert np.allclose(found.double().numpy(), expected, atol=2e-3)
    if name != "michaelis-menten":
        assert float(seen.mean()) == pytest.approx(mean * (3 if name == "dose-toxicity" else 1), abs=0.03)


def test_counts_without_an_end_are_poisson() -> None:
    text = template_path("half-life").read_text(encoding="utf-8")
    text = text.replace('kind = "number"\nnoise = [0.2, 1]', 'kind = "count"').replace('unit = "kBq"\nkind', "kind")
    problem = Experiment.from_toml(text).problem()
    assert isinstance(problem, ParametricExperiment)
    task = problem.sample(1, rng()).expand(20000, -1)
    query = settable_query(problem.units.settings, torch.full((20000, 1), 0.1))
    seen = problem.observe(task, query, rng(1))
    mean = float(problem.mean(task[:1], query[:1]))
    assert float(seen.mean()) == pytest.approx(mean, rel=0.03)
    found = problem.log_likelihood(task, query, seen).double().numpy()
    assert np.allclose(found, stats.poisson(mean).logpmf(seen[:, 0].double()), atol=1e-3)


PEAK = template_path("peak-1d").read_text(encoding="utf-8")


def test_the_peak_is_the_highest_place() -> None:
    for text in (PEAK, template_path("peak-2d").read_text(encoding="utf-8")):
        problem = smooth(text)
        task = problem.sample(64, rng())
        best = problem.value(task, task.target)
        for seed in range(40):
            assert bool((problem.value(task, problem.query_space.sample(64, rng(seed))) <= best + 1e-3).all())


def test_trough_and_depth_are_the_same_upside_down() -> None:
    peak, trough = smooth(PEAK), smooth(PEAK.replace('"peak"', '"trough"'))
    task = trough.sample(32, rng())
    place = [trough.units.query_values(one) for one in task.target.tolist()]
    assert place == [peak.units.query_values(one) for one in peak.sample(32, rng()).target.tolist()]
    low = trough.mean_in_units(task, task.target)
    anywhere = trough.mean_in_units(task, trough.query_space.sample(32, rng(1)))
    assert bool((low <= anywhere + 0.1).all())
    depth = smooth(PEAK.replace('"peak"', '"depth"'))
    shown = [depth.units.answer_values(one)[0] for one in depth.sample(32, rng()).target.tolist()]
    assert shown == pytest.approx(low.tolist(), abs=0.05)


def test_a_crossing_is_where_the_level_is() -> None:
    problem = smooth(template_path("crossing").read_text(encoding="utf-8"))
    task = problem.sample(64, rng())
    assert problem.mean_in_units(task, task.target).tolist() == pytest.approx([100.0] * 64, abs=0.1)


def test_smooth_functions_have_the_spread_and_the_lengths_that_were_said() -> None:
    problem = smooth(PEAK.replace('bumps = "few"', "lengths = { x = 20 }"))
    task = problem.sample(4000, rng())
    zero, apart = torch.zeros(4000, 1), torch.full((4000, 1), 0.2)
    here, there = problem.mean_in_units(task, zero), problem.mean_in_units(task, apart)
    assert float(here.mean()) == pytest.approx(50, abs=2)
    assert float(here.std()) == pytest.approx(25, rel=0.05), "typical spans four standard deviations"
    correlation = float(torch.corrcoef(torch.stack([here, there]))[0, 1])
    assert correlation == pytest.approx(math.exp(-0.5), abs=0.04), "a length scale apart"


def test_one_tolerance_serves_settings_of_all_kinds() -> None:
    problem = make_problem("peak-2d")
    units, epsilon = problem.units, problem.default_epsilon[0]
    target = torch.tensor([[0.4, 0.5]])
    temperature, minutes = units.answer_values(target[0].tolist())
    for off_temperature, factor, inside in [
        (69, 1.34, True),
        (71, 1.0, False),
        (0, 1.36, False),
        (-69, 1 / 1.34, True),
    ]:
        answer = torch.tensor([units.answer_coordinates((temperature + off_temperature, minutes * factor))])
        assert (float(problem.answer_space.distance(answer, target)) <= epsilon) == inside


@pytest.mark.parametrize("name", ["peak-2d", "dose-toxicity", "delay-discounting", "half-life"])
def test_simulated_measurements_are_made_where_the_instrument_can_be_set(name: str) -> None:
    """As a session will: what is simulated at a query is what is simulated at its settable neighbour."""
    problem = make_problem(name)
    query = problem.query_space.sample(500, rng())
    found = settable_query(problem.units.settings, query)
    for one, asked in zip(found.tolist(), query.tolist(), strict=True):
        expected = problem.units.query_coordinates(problem.units.settable(asked))
        assert one == pytest.approx(expected, abs=2e-5)
    assert bool((found != query).any())
    task = problem.sample(500, rng(1))
    assert torch.equal(problem.observe(task, query, rng(2)), problem.observe(task, found, rng(2)))


def test_draws_are_in_units() -> None:
    for name in ("peak-2d", "source-2d", "psychometric-2afc", "dose-toxicity"):
        problem = make_problem(name)
        assert isinstance(problem, SmoothExperiment | ParametricExperiment)
        drawn = prior_predictive(problem)
        assert len(drawn.draws) == 8
        for values, one in zip(drawn.grid, problem.units.settings, strict=False):
            assert values[0] == pytest.approx(one.low)
            assert values[-1] == pytest.approx(one.high)
        for draw in drawn.draws:
            assert draw.truth.shape == tuple(len(values) for values in drawn.grid[::-1])
            assert np.isfinite(draw.truth).all()


def test_a_map_has_the_second_setting_upwards() -> None:
    problem = parametric("source-2d")
    drawn = prior_predictive(problem, draws=1)
    row, column = np.unravel_index(drawn.draws[0].truth.argmax(), drawn.draws[0].truth.shape)
    east, north = drawn.draws[0].answer
    assert drawn.grid[0][column] == pytest.approx(east, abs=5)
    assert drawn.grid[1][row] == pytest.approx(north, abs=5)


def test_equal_shapes_are_equal_problems() -> None:
    """What is measured in the user's range is mapped: other units and ranges are the same tasks to a model."""

    def other(text: str) -> Problem:
        return Experiment.from_toml(text).problem()

    celsius = PEAK
    kelvin = PEAK.replace("[0, 100]", "[200, 1200]", 1).replace("within = 5", "within = 50")
    one, two = other(celsius), other(kelvin)
    assert one.query_space == two.query_space
    assert one.default_epsilon == two.default_epsilon
    task, same = one.sample(8, rng()), two.sample(8, rng())
    query = one.query_space.sample(8, rng(1))
    assert torch.equal(one.observe(task, query, rng(2)), two.observe(same, query, rng(2)))
