"""Optuna's own sampler cases, studies that end themselves, and Gymnasium's own check of every problem."""

import math
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import optuna
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase
from torch import Generator, Tensor

import cicpe
from cicpe.agents.base import Agent, Proposal
from cicpe.errors import InvalidInput
from cicpe.integrations.gymnasium import CampaignEnv
from cicpe.integrations.optuna import RESULT, CicpeSampler, _share, _value
from cicpe.problems.binary_search import BinarySearch
from cicpe.problems.registry import FAMILIES
from cicpe.sessions.session import Session
from cicpe.spaces import Box

optuna.logging.set_verbosity(optuna.logging.WARNING)


class Counting(NamedTuple):
    """How many observations there were, and the best of them."""

    made: Tensor
    best: Tensor
    where: Tensor


class CountingAgent(Agent):
    """Asks at random, recommends the best place so far, and stops after five observations."""

    horizon = 40

    def __init__(self, space: Box, enough: int) -> None:
        self.space, self.enough = space, enough

    def begin(self, context: Tensor) -> Counting:
        n = len(context)
        return Counting(torch.zeros(n), torch.full((n,), -math.inf), torch.zeros(n, self.space.dim))

    def propose(self, state: Counting, rng: Generator) -> Proposal:
        confidence = state.made / self.enough
        query = self.space.sample(len(state.made), rng)
        return Proposal(query, confidence >= 1, state.where, confidence.clamp(0, 1), torch.ones_like(state.where))

    def observe(self, state: Counting, query: Tensor, observation: Tensor) -> Counting:
        better = observation[:, 0] > state.best
        where = torch.where(better[:, None], query, state.where)
        return Counting(state.made + 1, torch.maximum(state.best, observation[:, 0]), where)


class CountingModel:
    """A model of that agent."""

    fingerprint = "counting"

    def __init__(self, dim: int = 2, enough: int = 30) -> None:
        self.space, self.enough = Box([-1.0] * dim, [3.0] * dim), enough

    def session(self, epsilon: float, delta: float, *, seed: int = 0, stop: str = "confidence", **_: float) -> Session:
        agent = CountingAgent(self.space, self.enough)
        return Session(agent, self.space, 1, [], epsilon, delta, seed, answer_space=self.space)


XY = {"x": FloatDistribution(100.0, 500.0), "y": FloatDistribution(1e-4, 1.0, log=True)}


def make_sampler(space: Any = None, enough: int = 30, seed: int = 0) -> CicpeSampler:
    return CicpeSampler(CountingModel(enough=enough), 0.1, 0.1, space, seed=seed)


@pytest.mark.parametrize("name", ["optuna", "gymnasium"])
def test_a_missing_package_is_named(name: str) -> None:
    code = f"import sys; sys.modules['{name}'] = None; import cicpe.integrations.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert f"pip install 'cicpe[{name}]'" in done.stderr


# Optuna's own cases.


class _Ours:
    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return make_sampler


class TestBasic(_Ours, BasicSamplerTestCase):
    """Any parameters at all."""


class TestRelative(_Ours, RelativeSamplerTestCase):
    """Parameters that are suggested together."""

    def test_sample_relative_categorical(self, sampler: Any) -> None:
        pytest.skip("a model's coordinates are numbers: categories are suggested independently")

    def test_sample_relative_mixed(self, sampler: Any) -> None:
        pytest.skip("a model's coordinates are numbers: categories are suggested independently")


class TestSingleOnly(_Ours, SingleOnlySamplerTestCase):
    """As many objectives as the model observes: one."""


# Ours.


def objective(trial: optuna.Trial) -> float:
    x, y = trial.suggest_float("x", 100, 500), trial.suggest_float("y", 1e-4, 1, log=True)
    return -abs(x - 300) / 200 - abs(math.log(y) - math.log(1e-2))


def test_a_study_ends_itself_and_says_why() -> None:
    sampler = make_sampler(XY, enough=5)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, n_trials=100, callbacks=[sampler.stop_when_confident])
    assert len(study.trials) == 5
    result = study.user_attrs[RESULT]
    assert (result["stopped"], result["truncated"], result["reason"]["code"]) == (True, False, "confident")
    assert (result["attached"], result["skipped"]) == (0, 0)
    assert result["params"] == pytest.approx(study.best_params, rel=1e-4)


def test_a_real_model_finds_the_maximum() -> None:
    model = cicpe.load("gp-max-1d")
    sampler = CicpeSampler(model, 0.2, 0.1, {"celsius": FloatDistribution(300, 900)}, noise=0.05)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    rng = np.random.default_rng(0)

    def anneal(trial: optuna.Trial) -> float:
        place = (trial.suggest_float("celsius", 300, 900) - 300) / 600
        return 1.5 * math.exp(-0.5 * ((place - 0.7) / 0.12) ** 2) - 0.2 + float(rng.normal(0, 0.05))

    study.optimize(anneal, n_trials=100, callbacks=[sampler.stop_when_confident])
    result = study.user_attrs[RESULT]
    assert result["reason"]["code"] == "confident"
    assert result["recommendation"][0] == pytest.approx(1.3, abs=0.2)
    assert len(study.trials) < 20


def test_a_study_ends_at_the_horizon_and_can_still_go_on() -> None:
    sampler = make_sampler(XY, enough=1000)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, n_trials=100, callbacks=[sampler.stop_when_confident])
    assert len(study.trials) == CountingAgent.horizon
    assert study.user_attrs[RESULT]["reason"]["code"] == "horizon"
    study.optimize(objective, n_trials=3)  # by chance from here on
    assert len(study.trials) == CountingAgent.horizon + 3
    assert len(sampler.session(study).history) == CountingAgent.horizon


def test_a_value_beyond_single_precision_is_left_out() -> None:
    sampler = make_sampler(XY)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(lambda trial: 1e300 if trial.number == 1 else objective(trial), n_trials=4)
    assert len(sampler.session(study).history) == 3


def test_the_same_trials_and_seed_give_the_same_suggestion() -> None:
    studies = [optuna.create_study(direction="maximize", sampler=make_sampler(XY, seed=3)) for _ in range(2)]
    for study in studies:
        study.optimize(objective, n_trials=6)
    assert [t.params for t in studies[0].trials] == [t.params for t in studies[1].trials]
    other = optuna.create_study(direction="maximize", sampler=make_sampler(XY, seed=4))
    other.optimize(objective, n_trials=6)
    assert other.trials[0].params != studies[0].trials[0].params


def test_a_study_goes_on_from_its_storage() -> None:
    """A sampler has no state: another one on the same trials suggests the same."""
    storage = optuna.storages.InMemoryStorage()
    first = optuna.create_study(storage=storage, study_name="s", sampler=make_sampler(XY))
    first.optimize(objective, n_trials=3)
    second = optuna.load_study(storage=storage, study_name="s", sampler=make_sampler(XY))
    assert make_sampler(XY).session(second).ask().tolist() == make_sampler(XY).session(first).ask().tolist()
    assert len(make_sampler(XY).session(second).history) == 3


def test_trials_of_others_are_attached_and_failed_ones_skipped() -> None:
    sampler = make_sampler(XY)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.enqueue_trial({"x": 250.0, "y": 0.1})

    def failing(trial: optuna.Trial) -> float:
        value = objective(trial)
        return math.nan if trial.number == 2 else value

    study.optimize(failing, n_trials=4)
    status = sampler.session(study).status()
    assert (len(status.history), status.attached, status.skipped) == (3, 1, 1)
    attached = status.history[0]
    assert attached.query == pytest.approx([0.5, -1 + 4 * 0.75], abs=1e-5)  # in the model's own box
    assert attached.observation == (study.trials[0].value,)


def test_trials_at_the_same_time_are_apart() -> None:
    study = optuna.create_study(sampler=make_sampler(XY))
    places = {study.ask(XY).params["x"] for _ in range(4)}
    assert len(places) == 4


def test_without_a_search_space_the_first_trial_is_random_and_counts() -> None:
    sampler = make_sampler()
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, n_trials=3)
    status = sampler.session(study).status()
    assert (len(status.history), status.attached) == (3, 1)


@pytest.mark.parametrize(
    "space",
    [
        {"x": FloatDistribution(0, 1)},
        XY | {"z": FloatDistribution(0, 1)},
        {"x": XY["x"], "y": CategoricalDistribution([1])},
    ],
)
def test_a_search_space_that_does_not_fit(space: Any) -> None:
    with pytest.raises(InvalidInput, match="search_space"):
        make_sampler(space)


@pytest.mark.parametrize(
    "distribution",
    [
        FloatDistribution(-3, 8),
        FloatDistribution(1e-5, 10, log=True),
        FloatDistribution(0, 1, step=0.25),
        IntDistribution(-4, 4),
        IntDistribution(1, 1000, log=True),
        IntDistribution(0, 9, step=3),
    ],
)
def test_a_value_and_its_share_are_inverse(distribution: Any) -> None:
    for share in np.linspace(0, 1, 21).tolist():
        value = _value(distribution, share)
        assert distribution._contains(value)
        assert _value(distribution, _share(distribution, value)) == pytest.approx(value, rel=1e-9)
    assert (_value(distribution, 0.0), _value(distribution, 1.0)) == pytest.approx(
        (distribution.low, distribution.high)
    )


# Gymnasium.


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - {"geochem"}))
def test_gymnasium_accepts_every_problem(family: str) -> None:
    env = gymnasium.make(f"cicpe/{family}-v0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that an observation has no bounds
        check_env(env.unwrapped, skip_render_check=True)


def test_an_episode_ends_by_a_stop_or_at_the_horizon() -> None:
    env = CampaignEnv("binary-search", epsilon=0.3, cost=0.02, dim=2, noise=0.0)
    seen, info = env.reset(seed=4)
    assert (int(seen["made"]), info) == (0, {})
    low, high = np.full(2, -1.0), np.full(2, 1.0)
    for _ in range(6):  # bisection: without lies, every coordinate is halved each time
        query = (low + high) / 2
        seen, reward, terminated, truncated, _ = env.step({"query": query, "stop": 0, "answer": query})
        assert (reward, terminated, truncated) == (-0.02, False, False)
        low, high = np.where(seen["observation"] > 0, query, low), np.where(seen["observation"] > 0, high, query)
    answer = (low + high) / 2
    *_, reward, terminated, truncated, info = env.step({"query": answer, "stop": 1, "answer": answer})
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
    env.reset(seed=4)
    far = -np.sign(answer) * 1.0
    *_, reward, terminated, _, info = env.step({"query": far, "stop": 1, "answer": far})
    assert (reward, terminated, info["success"]) == (0.0, True, False)
    env.reset()
    for made in range(1, env.horizon + 1):
        *_, truncated, info = env.step({"query": answer, "stop": 0, "answer": answer})
        assert truncated == (made == env.horizon)
    assert "loss" in info


def test_a_seed_decides_the_task() -> None:
    env = CampaignEnv(BinarySearch(dim=3))
    action = {"query": np.zeros(3, np.float32), "stop": 1, "answer": np.zeros(3, np.float32)}
    losses = []
    for seed in (1, 1, 2):
        env.reset(seed=seed)
        losses.append(env.step(action)[4]["loss"])
    assert losses[0] == losses[1] != losses[2]
    with pytest.raises(InvalidInput, match="epsilon"):
        CampaignEnv("binary-search", epsilon=0.0)
