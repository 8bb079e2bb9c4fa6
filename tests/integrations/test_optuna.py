"""The sampler on real models: directions, scales, ranges, names, trials at the same time, storage, pickling."""

import math
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import optuna
import pytest
import torch
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState
from torch import Generator, Tensor

import cicpe
from cicpe import zoo
from cicpe.agents.base import Agent, Proposal
from cicpe.errors import InvalidInput
from cicpe.experiments import template_names
from cicpe.integrations.optuna import CONFIDENCE, RESULT, CicpeSampler, Observations
from cicpe.model.model import Model
from cicpe.sessions.session import Session
from cicpe.spaces import Box

optuna.logging.set_verbosity(optuna.logging.ERROR)

X = FloatDistribution(0.0, 1.0)
XY = {"x": FloatDistribution(10.0, 20.0), "y": FloatDistribution(1e-4, 1e-1, log=True)}
Objective = Callable[[optuna.Trial], float]

load = cache(cicpe.load)


def height_sampler(value_range: Any = (0.0, 1.0), **options: Any) -> CicpeSampler:
    """A model in one dimension that answers with the best value; epsilon is 0.19 of its own units."""
    width = 3.06 if value_range == "as-trained" else value_range[1] - value_range[0]
    return CicpeSampler(load("gp-max-1d"), 0.19 / 3.06 * width, 0.1, value_range=value_range, **options)


def place_sampler(value_range: Any = (0.0, 1.0), search_space: Any = XY, **options: Any) -> CicpeSampler:
    """A model in two dimensions that answers with the best place."""
    return CicpeSampler(load("geochem-2d"), 0.2, 0.1, search_space, value_range=value_range, **options)


def made(sampler: CicpeSampler, direction: str = "maximize", **options: Any) -> optuna.Study:
    return optuna.create_study(direction=direction, sampler=sampler, **options)


def in_line(f: Callable[[float], float]) -> Objective:
    return lambda trial: f(trial.suggest_float("x", 0, 1))


def in_plane(f: Callable[[float, float], float]) -> Objective:
    def objective(trial: optuna.Trial) -> float:
        return f(*unit(trial.suggest_float("x", 10, 20), trial.suggest_float("y", 1e-4, 1e-1, log=True)))

    return objective


def unit(x: float, y: float) -> tuple[float, float]:
    """Both parameters of ``XY`` from 0 to 1."""
    return (x - 10) / 10, (math.log10(y) + 4) / 3


def bowl(x: float) -> float:
    return (x - 0.3) ** 2


# Directions, and the objective's own scale.

LINES: dict[str, tuple[Callable[[float], float], tuple[float, float]]] = {
    "bowl": (bowl, (0.0, 0.49)),
    "wave": (lambda x: 10 + 5 * math.sin(9 * x), (5.0, 15.0)),
    "bump": (lambda x: -3 + math.exp(-0.5 * ((x - 0.7) / 0.12) ** 2), (-3.0, -2.0)),
}
PLANES: dict[str, tuple[Callable[[float, float], float], tuple[float, float], Any, Any]] = {
    "bowl": (lambda x, y: (x - 0.3) ** 2 + (y - 0.6) ** 2, (0.0, 0.85), (0.3, 0.6), (1, 0)),
    "saddle": (lambda x, y: (x - 0.5) ** 2 - (y - 0.5) ** 2 + 0.1 * x + 0.1 * y, (-0.25, 0.4), (0.45, 0), (1, 0.55)),
    "wave": (lambda x, y: 100 * (math.sin(4 * x) + math.cos(3 * y)), (-175.0, 200.0), (1, 1), (math.pi / 8, 0)),
}
"""A function of the unit square, its range, where it is smallest and where it is largest."""


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize("name", LINES)
def test_the_best_value_in_either_direction(name: str, direction: str) -> None:
    f, (low, high) = LINES[name]
    sampler = height_sampler((low, high), noise=0.05 / 3.06 * (high - low))
    study = made(sampler, direction)
    study.optimize(in_line(f), n_trials=40)
    result = study.user_attrs[RESULT]
    assert (result["stopped"], result["reason"]["code"]) == (True, "confident")
    best = low if direction == "minimize" else high
    assert result["recommendation"]["value"] == pytest.approx(best, abs=result["epsilon"])
    inside_low, inside_high = result["credible_region"]["value"]
    assert inside_low < result["recommendation"]["value"] < inside_high
    assert inside_high - inside_low < (high - low) / 2
    assert len(study.trials) < 20


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize("name", PLANES)
def test_the_best_place_in_either_direction(name: str, direction: str) -> None:
    f, value_range, smallest, largest = PLANES[name]
    study = made(place_sampler(value_range), direction)
    study.optimize(in_plane(f), n_trials=60)
    result = study.user_attrs[RESULT]
    assert result["stopped"]
    answer, truth = unit(**result["recommendation"]), smallest if direction == "minimize" else largest
    other = largest if direction == "minimize" else smallest
    assert math.dist(answer, truth) <= result["epsilon"] < math.dist(answer, other)
    for parameter, (low, high) in result["credible_region"].items():
        assert low <= result["recommendation"][parameter] <= high


def test_both_directions_of_one_function_are_the_same_study_turned_over() -> None:
    """Minimising f and maximising -f are one question: the same places, and answers of opposite sign."""
    down, up = made(height_sampler((0, 0.49)), "minimize"), made(height_sampler((-0.49, 0)), "maximize")
    down.optimize(in_line(bowl), n_trials=40)
    up.optimize(in_line(lambda x: -bowl(x)), n_trials=40)
    assert [trial.params for trial in down.trials] == [trial.params for trial in up.trials]
    values = [study.user_attrs[RESULT]["recommendation"]["value"] for study in (down, up)]
    assert values[0] == pytest.approx(-values[1], abs=1e-6)


def test_the_unit_of_the_objective_does_not_matter() -> None:
    """The same function in millimetres and in metres, with the range in the same unit."""
    metres, millimetres = made(height_sampler((0, 0.49)), "minimize"), made(height_sampler((0, 490)), "minimize")
    metres.optimize(in_line(bowl), n_trials=40)
    millimetres.optimize(in_line(lambda x: 1000 * bowl(x)), n_trials=40)
    assert len(metres.trials) == len(millimetres.trials)
    values = [study.user_attrs[RESULT]["recommendation"]["value"] for study in (metres, millimetres)]
    assert values[1] == pytest.approx(1000 * values[0], rel=1e-3)


def test_values_as_trained_are_told_as_they_are_or_turned_over() -> None:
    for direction, sign in (("maximize", 1.0), ("minimize", -1.0)):
        sampler = height_sampler("as-trained")
        study = made(sampler, direction)
        study.optimize(in_line(lambda x: sign * (1.5 - 3 * x)), n_trials=2)  # noqa: B023
        told = [step.observation[0] for step in sampler.session(study).history]
        assert told == pytest.approx([sign * trial.value for trial in study.trials], abs=1e-6)


def test_without_a_scale_it_says_what_to_give() -> None:
    with pytest.raises(InvalidInput, match=r"value_range.*\(low, high\).*'as-trained'.*about -1\.\d to 1\.\d"):
        CicpeSampler(load("gp-max-1d"), 0.2, 0.1)


@pytest.mark.parametrize("value_range", [(1.0, 1.0), (2.0, 1.0), (0.0, math.inf), (0.0,), "raw", 3, (None, 1)])
def test_a_scale_that_is_none(value_range: Any) -> None:
    with pytest.raises(InvalidInput, match="value_range"):
        CicpeSampler(load("gp-max-1d"), 0.2, 0.1, value_range=value_range)


@pytest.mark.parametrize(("field", "options"), [("epsilon", {}), ("noise", {"noise": 7.0})])
def test_a_refusal_is_in_both_units(field: str, options: dict[str, float]) -> None:
    epsilon = 0.5 if field == "epsilon" else 0.03
    with pytest.raises(InvalidInput, match=rf"{field}.*in the model's units.*one unit of the objective") as caught:
        CicpeSampler(load("gp-max-1d"), epsilon, 0.1, value_range=(0.0, 0.49), **options)
    assert caught.value.value == {"epsilon": 0.5, "noise": 7.0}[field]


def test_a_value_far_better_than_the_range_is_refused_and_a_wider_range_takes_it() -> None:
    study = made(height_sampler((0.0, 0.49)), "minimize")
    with pytest.raises(InvalidInput, match=r"0 to 0\.49.*give the sampler a range") as caught:
        study.optimize(in_line(lambda x: -545.0), n_trials=5)
    assert (caught.value.field, caught.value.value) == ("value of trial 0", -545.0)
    assert [trial.value for trial in study.trials] == [-545.0]  # Optuna has it all the same
    study.sampler = height_sampler((-600.0, 1.0))
    study.optimize(in_line(lambda x: -500 + x), n_trials=1)
    assert study.user_attrs[RESULT]["observed"] == 2


def test_a_value_far_worse_than_the_range_is_told_as_its_bad_end_and_counted() -> None:
    sampler = height_sampler((0.0, 0.49))
    study = made(sampler, "minimize")
    study.optimize(in_line(lambda x: 1e300), n_trials=1)
    result = study.user_attrs[RESULT]
    assert (result["clipped"], result["observed"]) == (1, 1)
    assert sampler.session(study).history[0].observation[0] == pytest.approx(Observations.of(load("gp-max-1d")).low)


def test_observations_that_are_no_merits_have_no_direction() -> None:
    names = [f"x{i}" for i in range(6)]
    sampler = CicpeSampler(
        load("binary-search-6d"), 0.2, 0.1, dict.fromkeys(names, FloatDistribution(-1, 1)), value_range="as-trained"
    )
    target = [-0.7, -0.3, -0.1, 0.2, 0.5, 0.8]

    def above(trial: optuna.Trial) -> list[float]:
        return [1.0 if t > trial.suggest_float(name, -1, 1) else -1.0 for name, t in zip(names, target, strict=True)]

    study = optuna.create_study(directions=["maximize"] * 6, sampler=sampler)
    study.optimize(above, n_trials=60)
    result = study.user_attrs[RESULT]
    assert result["stopped"]
    assert math.dist(result["recommendation"].values(), target) <= 0.2
    wrong = optuna.create_study(directions=["minimize"] * 6, sampler=sampler)
    with pytest.raises(InvalidInput, match=r"directions.*no merits"):
        wrong.optimize(above, n_trials=1)
    with pytest.raises(InvalidInput, match=r"value_range.*no merits"):
        CicpeSampler(load("binary-search-6d"), 0.2, 0.1, value_range=(0, 1))


def test_a_value_that_the_model_does_not_know_is_refused() -> None:
    """A hardness of 545 to a model that expects values near 1 does not end the study quietly."""
    study = made(height_sampler("as-trained"), "maximize")
    with pytest.raises(InvalidInput):
        study.optimize(in_line(lambda x: 545.0), n_trials=1)
    assert RESULT not in study.user_attrs


def test_answers_of_yes_and_no_are_checked() -> None:
    names = [f"x{i}" for i in range(6)]
    ranges = dict.fromkeys(names, FloatDistribution(-1, 1))
    sampler = CicpeSampler(load("binary-search-6d"), 0.2, 0.1, ranges, value_range="as-trained")
    study = optuna.create_study(directions=["maximize"] * 6, sampler=sampler)
    with pytest.raises(InvalidInput, match=r"value of trial 0 must be yes or no .* got 7"):
        study.optimize(lambda trial: [7.0 for name in names if trial.suggest_float(name, -1, 1) <= 1], n_trials=1)


class Alarmed(Agent):
    """Stops at once, and its alarm is raised by whatever it sees."""

    horizon = 9

    def begin(self, context: Tensor) -> Any:
        return torch.zeros(len(context), 1)

    def propose(self, state: Any, rng: Generator) -> Proposal:
        middle = torch.full_like(state, 0.5)
        return Proposal(middle[:, None], state[:, 0] > 0, middle, torch.full((len(state),), 0.95), 0.1 * middle)

    def update(self, state: Any, query: Tensor, observation: Tensor) -> Any:
        return state + 1

    def p_value(self, state: Any) -> Tensor | None:
        return torch.full((len(state),), 0.001)


@pytest.mark.parametrize("release", [False, True])
def test_the_alarm_holds_a_study_unless_it_is_released(release: bool) -> None:
    class AlarmedModel:
        fingerprint = "alarmed"

        def session(self, epsilon: float, delta: float, **options: Any) -> Session:
            return Session(Alarmed(), Box([0.0], [1.0]), 1, [], epsilon, delta)

    known = Observations(0.0, 1.0)
    study = made(CicpeSampler(AlarmedModel(), 0.1, 0.1, value_range="as-trained", observations=known, release=release))
    study.optimize(in_line(lambda x: 0.5), n_trials=3)
    result = study.user_attrs[RESULT]
    assert (result["held"], result["stopped"]) == (not release, release)
    assert (len(study.trials), result["left_out"]) == (1 if release else 3, 0)


def test_a_model_that_looks_for_the_smallest() -> None:
    """Said by hand, as for a family of one's own: its observations are turned the other way."""
    sampler = height_sampler((0.0, 1.0), observations=Observations(-1.5, 1.5, "low"))
    study = made(sampler, "maximize")
    study.optimize(in_line(lambda x: 0.75), n_trials=1)
    assert sampler.session(study).history[0].observation[0] == pytest.approx(-0.75)
    with pytest.raises(InvalidInput, match="best"):
        Observations(0.0, 1.0, "middle")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="observations"):
        Observations(1.0, 0.0)


def test_a_family_of_ones_own_needs_its_observations() -> None:
    class Foreign:
        fingerprint = "foreign"

        def session(self, *args: Any, **options: Any) -> Any:
            return load("gp-max-1d").session(*args, **options)

    with pytest.raises(InvalidInput, match=r"Observations\.measured\(problem\).*Foreign"):
        CicpeSampler(Foreign(), 0.2, 0.1, value_range=(0, 1))
    mine = Observations.measured(load("gp-max-1d").problem)
    assert mine == Observations.of(load("gp-max-1d"))
    CicpeSampler(Foreign(), 0.2, 0.1, value_range=(0, 1), observations=mine)


# What it says.


def test_the_attributes_are_set_without_a_callback() -> None:
    study = made(height_sampler((0.0, 0.49)), "minimize")
    study.optimize(in_line(bowl), n_trials=1)
    result = study.user_attrs[RESULT]
    assert (result["stopped"], result["reason"]["code"], result["observed"]) == (False, "unsure", 1)
    assert result["expected_remaining"] > 0
    assert result["in_prior"] in ("yes", "doubtful", "no")
    study.optimize(in_line(bowl), n_trials=40)
    result = study.user_attrs[RESULT]
    assert (result["stopped"], result["truncated"], result["expected_remaining"]) == (True, False, 0.0)
    assert (result["attached"], result["skipped"], result["clipped"], result["left_out"]) == (0, 0, 0, 0)
    assert f"within {result['epsilon']:g}" in result["reason"]["words"]
    confidences = [trial.user_attrs[CONFIDENCE] for trial in study.trials]
    assert all(0 <= confidence <= 1 for confidence in confidences)
    assert confidences[-1] == result["confidence"] == max(confidences)
    assert study.sampler.result(study) == result  # type: ignore[attr-defined]


def test_ask_and_tell_has_no_loop_to_end() -> None:
    study = made(height_sampler((0.0, 0.49)), "minimize")
    for _ in range(40):
        trial = study.ask()
        study.tell(trial, bowl(trial.suggest_float("x", 0, 1)))
        if study.user_attrs[RESULT]["stopped"]:
            break
    assert len(study.trials) < 20


def test_it_goes_on_where_it_is_told_to_and_takes_what_the_model_can() -> None:
    study = made(height_sampler((0.0, 0.49), stop_study=False), "minimize")
    study.optimize(in_line(bowl), n_trials=25)
    horizon = load("gp-max-1d").description.horizon
    result = study.user_attrs[RESULT]
    assert len(study.trials) == 25
    assert (result["observed"], result["left_out"]) == (horizon, 25 - horizon)


# Names and ranges.


@pytest.mark.parametrize(
    ("low", "high", "log"), [(300.0, 900.0, False), (-5.0, -1.0, False), (1e-6, 1e3, True)], ids=str
)
def test_one_model_serves_every_range(low: float, high: float, log: bool) -> None:
    """The same places in the box, and the same answer, whatever the range that is mapped onto it."""

    def share(x: float) -> float:
        return math.log(x / low) / math.log(high / low) if log else (x - low) / (high - low)

    reference = made(height_sampler((0.0, 0.49)), "minimize")
    reference.optimize(in_line(bowl), n_trials=40)
    study = made(height_sampler((0.0, 0.49)), "minimize")
    study.optimize(lambda trial: bowl(share(trial.suggest_float("t", low, high, log=log))), n_trials=40)
    places = [share(trial.params["t"]) for trial in study.trials]
    assert places == pytest.approx([trial.params["x"] for trial in reference.trials], abs=1e-4)


@pytest.mark.parametrize("space", [XY, None], ids=["named", "as suggested"])
def test_a_name_that_it_does_not_know(space: Any) -> None:
    study = made(place_sampler(search_space=space))

    def objective(trial: optuna.Trial) -> float:
        value = in_plane(lambda x, y: x * y)(trial)
        return value + trial.suggest_float("z", 0, 1)

    with pytest.raises(InvalidInput, match=r"x, y.*independent_sampler") as caught:
        study.optimize(objective, n_trials=1)
    assert (caught.value.field, caught.value.value) == ("parameter", "z")
    assert study.trials[0].state == TrialState.FAIL


@pytest.mark.parametrize("space", [{"x": X}, None], ids=["named", "as suggested"])
@pytest.mark.parametrize(
    "suggest",
    [
        lambda trial: trial.suggest_float("x", 0, 2),
        lambda trial: trial.suggest_float("x", 0.25, 0.75),
        lambda trial: trial.suggest_float("x", 0, 1, step=0.1),
        lambda trial: trial.suggest_int("x", 0, 1),
    ],
)
def test_a_range_that_differs(suggest: Callable[[optuna.Trial], float], space: Any) -> None:
    study = made(height_sampler(search_space=space))
    if space is None:
        study.optimize(in_line(bowl), n_trials=1)
    with pytest.raises(InvalidInput, match=r"range of x.*FloatDistribution\(high=1.0, log=False, low=0.0, step=None\)"):
        study.optimize(lambda trial: float(suggest(trial)), n_trials=1)


@pytest.mark.parametrize("space", [XY, None], ids=["named", "as suggested"])
def test_a_parameter_that_is_missing(space: Any) -> None:
    study = made(place_sampler(search_space=space))
    with pytest.raises(InvalidInput, match=r"parameters.*x"):
        study.optimize(lambda trial: trial.suggest_float("x", 10, 20) / 20, n_trials=1)


@pytest.mark.parametrize(
    "space",
    [
        {"x": X},
        XY | {"z": X},
        {"x": X, "y": CategoricalDistribution([1, 2])},
        {"x": X, "y": FloatDistribution(1, 1)},
    ],
)
def test_a_search_space_that_does_not_fit(space: Any) -> None:
    with pytest.raises(InvalidInput, match=r"search_space.*2 ranges of numbers"):
        place_sampler(search_space=space)


def test_queries_on_a_sphere_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"model.*box"):
        CicpeSampler(load("best-arm-5d"), 0.02, 0.1, value_range="as-trained")


def test_an_independent_sampler_takes_what_the_model_does_not_know() -> None:
    study = made(place_sampler(independent_sampler=optuna.samplers.RandomSampler(0)))

    def objective(trial: optuna.Trial) -> float:
        trial.suggest_categorical("kind", ["a", "b"])
        return in_plane(lambda x, y: 1 - (x - 0.3) ** 2 - (y - 0.6) ** 2)(trial)

    study.optimize(objective, n_trials=60)
    assert study.user_attrs[RESULT]["stopped"]
    assert {trial.params["kind"] for trial in study.trials} == {"a", "b"}
    assert math.dist(unit(**study.user_attrs[RESULT]["recommendation"]), (0.3, 0.6)) <= 0.2


def test_whole_numbers_and_steps_are_told_where_they_were_measured() -> None:
    space = {"x": IntDistribution(0, 10), "y": FloatDistribution(0, 1, step=0.25)}
    sampler = place_sampler(search_space=space)
    study = made(sampler)
    study.optimize(
        lambda trial: trial.suggest_int("x", 0, 10) / 20 + trial.suggest_float("y", 0, 1, step=0.25) / 2, n_trials=5
    )
    history = sampler.session(study).history
    assert [step.source for step in history] == ["told"] * len(history)
    for step, trial in zip(history, study.trials, strict=True):
        assert step.query == pytest.approx((trial.params["x"] / 10, trial.params["y"]), abs=1e-6)


# Trials of others, failures, storage, seeds.


def test_trials_of_others_are_attached_and_failed_ones_skipped() -> None:
    sampler = place_sampler()
    study = made(sampler)
    study.enqueue_trial({"x": 12.5, "y": 1e-2})
    study.add_trial(optuna.create_trial(params={"x": 20.0, "y": 1e-4}, distributions=XY, value=0.25))

    def failing(trial: optuna.Trial) -> float:
        value = in_plane(lambda x, y: x * y)(trial)
        return math.nan if trial.number == 3 else value

    study.optimize(failing, n_trials=4)
    result = study.user_attrs[RESULT]
    assert (result["observed"], result["attached"], result["skipped"]) == (4, 2, 1)
    places = [step.query for step in sampler.session(study).history if step.source == "attached"]
    assert places[0] == pytest.approx([0.25, 2 / 3], abs=1e-5)  # in the model's own box
    assert places[1] == pytest.approx([1.0, 0.0], abs=1e-5)


def test_a_first_trial_that_was_enqueued_names_the_parameters() -> None:
    sampler = place_sampler(search_space=None)
    study = made(sampler)
    study.enqueue_trial({"x": 12.5, "y": 1e-2})
    study.optimize(in_plane(lambda x, y: x * y), n_trials=2)
    result = study.user_attrs[RESULT]
    assert (result["observed"], result["attached"], set(result["recommendation"])) == (2, 1, {"x", "y"})


def test_the_same_trials_and_seed_give_the_same_suggestion() -> None:
    studies = [made(place_sampler(seed=seed)) for seed in (3, 3, 4)]
    for study in studies:
        study.optimize(in_plane(lambda x, y: x * y), n_trials=4)
    same, again, other = ([trial.params for trial in study.trials] for study in studies)
    assert same == again != other


def test_a_study_goes_on_from_its_storage(tmp_path: Path) -> None:
    """Another sampler on the same trials suggests the same, and knows the order of parameters that nobody named."""
    url = f"sqlite:///{tmp_path / 'study.db'}"
    first = made(place_sampler(search_space=None), storage=url, study_name="s")
    first.optimize(in_plane(lambda x, y: x * y), n_trials=3)
    sampler = place_sampler(search_space=None)
    second = optuna.load_study(storage=url, study_name="s", sampler=sampler)
    assert sampler.result(second) == first.user_attrs[RESULT]
    assert sampler.session(second).ask().tolist() == place_sampler(search_space=None).session(first).ask().tolist()
    second.optimize(in_plane(lambda x, y: x * y), n_trials=1)
    assert second.user_attrs[RESULT]["attached"] == 0


def test_reseeding_reaches_the_agent() -> None:
    suggested = []
    for reseeded in (False, False, True, True):
        sampler = place_sampler(seed=5, independent_sampler=optuna.samplers.RandomSampler(0))
        if reseeded:
            sampler.reseed_rng()
        suggested.append(tuple(made(sampler).ask(XY).params.values()))
    assert suggested[0] == suggested[1]
    assert len(set(suggested)) == 3


PLAIN = sorted(set(zoo.names()) - set(template_names()))
"""Models whose parameters are numbers without a unit; studies in units are tested with the experiments."""


@pytest.mark.parametrize("name", [name for name in PLAIN if not name.startswith("best-arm")])
def test_a_sampler_with_any_model_can_be_pickled_after_use(name: str) -> None:
    model: Model = load(name)
    dim = model.belief.query_space.dim
    space = {f"x{i}": X for i in range(dim)}
    sampler = CicpeSampler(model, 0.2, 0.1, space, value_range="as-trained", seed=3)
    count = model.description.observation_dim
    study = optuna.create_study(directions=["maximize"] * count, sampler=sampler)
    study.tell(study.ask(space), [1.0] * count)
    study.sampler = pickle.loads(pickle.dumps(sampler))
    again = optuna.create_study(directions=["maximize"] * count, sampler=sampler)
    again.add_trials(study.get_trials())
    assert study.ask(space).params == again.ask(space).params
    assert study.sampler.result(study) == sampler.result(again)  # type: ignore[attr-defined]


# Trials at the same time.


def points(trials: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [tuple(trial.params.values()) for trial in trials]


@pytest.mark.parametrize("told", [0, 3])
def test_pending_trials_have_different_places_that_are_apart(told: int) -> None:
    for sampler, space, objective in (
        (height_sampler(), {"x": X}, in_line(lambda x: 0.5)),
        (place_sampler(), XY, in_plane(lambda x, y: x * y)),
    ):
        study = made(sampler)
        study.optimize(objective, n_trials=told)
        trials = [study.ask(space) for _ in range(6)]
        assert len(set(points(trials))) == 6
        shares = [unit(*point) if space is XY else point for point in points(trials)]
        apart = [math.dist(a, b) for i, a in enumerate(shares) for b in shares[:i]]
        assert min(apart) > 0.04
        for trial in trials:
            study.tell(trial, 0.5)
        assert study.user_attrs[RESULT]["observed"] == told + 6
        assert study.user_attrs[RESULT]["attached"] == 0


def test_whole_numbers_are_given_once_each_while_there_are_any() -> None:
    space = {"x": IntDistribution(1, 8)}
    study = made(height_sampler(search_space=space))
    trials = [study.ask(space) for _ in range(8)]
    assert sorted(trial.params["x"] for trial in trials) == list(range(1, 9))
    assert 1 <= study.ask(space).params["x"] <= 8  # every one is pending: a second time, then


def test_an_enqueued_trial_that_is_running_is_pending_too() -> None:
    space = {"x": X}
    first = made(height_sampler(search_space=space)).ask(space).params
    study = made(height_sampler(search_space=space))
    study.enqueue_trial(first)
    assert study.ask(space).params == first
    assert abs(study.ask(space).params["x"] - first["x"]) > 0.04


def test_two_that_decide_at_the_same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both see nobody and want the same place; both write it down; the other is then seen."""
    together, wish = threading.Barrier(2, timeout=20), CicpeSampler._wish

    def same(self: Any, study: Any, trial: Any, reader: Any, pending: Any, attempt: int) -> list[float]:
        if attempt == 0:
            together.wait()
            return [0.5]
        return wish(self, study, trial, reader, pending, attempt)

    monkeypatch.setattr(CicpeSampler, "_wish", same)
    study = made(height_sampler(search_space={"x": X}))
    found: list[float] = []
    threads = [threading.Thread(target=lambda: found.append(study.ask({"x": X}).params["x"])) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(set(found)) == 2


def test_jobs_in_threads_never_share_a_place() -> None:
    study = made(place_sampler((-1.0, 0.0)))

    def slow(trial: optuna.Trial) -> float:
        value = in_plane(lambda x, y: -((x - 0.3) ** 2) - (y - 0.6) ** 2)(trial)
        time.sleep(0.1)
        return value

    study.optimize(slow, n_trials=60, n_jobs=4)
    assert len(set(points(study.trials))) == len(study.trials) < 40
    result = study.sampler.result(study)  # type: ignore[attr-defined]
    assert result["stopped"]
    assert math.dist(unit(**result["recommendation"]), (0.3, 0.6)) <= 0.2


def test_a_trial_that_ends_while_another_decides_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a whole trial may pass between a look at the others and a decision."""
    study = made(place_sampler((-1.0, 0.0)))
    objective, wish = in_plane(lambda x, y: -((x - 0.3) ** 2) - (y - 0.6) ** 2), CicpeSampler._wish
    study.optimize(objective, n_trials=1)  # which makes the ranges known

    def slow(self: CicpeSampler, *asked: Any) -> Any:
        shares = wish(self, *asked)
        monkeypatch.setattr(CicpeSampler, "_wish", wish)
        study.optimize(objective, n_trials=1)
        return shares

    monkeypatch.setattr(CicpeSampler, "_wish", slow)
    trial = study.ask()
    objective(trial)
    assert len(study.trials) == 3
    assert len(set(points(study.trials))) == 3


ASKING = """
import sys, time, optuna, cicpe
from cicpe.integrations.optuna import CicpeSampler
from optuna.distributions import FloatDistribution
optuna.logging.set_verbosity(optuna.logging.ERROR)
sampler = CicpeSampler(cicpe.load("gp-max-1d"), 0.2, 0.1, value_range="as-trained")
study = optuna.load_study(storage=sys.argv[1], study_name="s", sampler=sampler)
print("ready", flush=True)
sys.stdin.readline()
print([study.ask({"x": FloatDistribution(0, 1)}).params["x"] for _ in range(4)])
"""


@pytest.mark.slow
def test_processes_on_one_storage_never_share_a_place(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    study = optuna.create_study(direction="maximize", storage=url, study_name="s")
    pipe = subprocess.PIPE
    running = [
        subprocess.Popen([sys.executable, "-c", ASKING, url], stdin=pipe, stdout=pipe, text=True) for _ in range(3)
    ]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in running:
        process.communicate(timeout=120)
        assert process.returncode == 0
    assert len(study.trials) == 12
    assert len(set(points(study.trials))) == 12
