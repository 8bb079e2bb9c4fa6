"""Gymnasium's own check of every problem, what ends an episode, and actions that are none."""

import copy
import math
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from cicpe.errors import InvalidInput, SessionError
from cicpe.integrations.gymnasium import CampaignEnv
from cicpe.problems.binary_search import BinarySearch
from cicpe.problems.registry import FAMILIES


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - {"geochem"}))  # whose fields are not in the repository
def test_gymnasium_accepts_every_problem(family: str) -> None:
    env = gymnasium.make(f"cicpe/{family}-v0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*Box observation space (minimum|maximum) value is -?infinity.*")
        warnings.filterwarnings("ignore", message=".*we recommend using a symmetric and normalized space.*")
        check_env(env.unwrapped, skip_render_check=True)


@pytest.mark.parametrize("family", ["binary-search", "best-arm", "gp-max"])
def test_every_sample_of_the_action_space_is_an_action(family: str) -> None:
    env = gymnasium.make(f"cicpe/{family}-v0")
    env.action_space.seed(0)
    for _ in range(20):
        env.reset(seed=1)
        env.step(env.action_space.sample())


def play(env: CampaignEnv, stop_at: int) -> tuple[int, bool, bool, dict[str, Any]]:
    """Queries made, terminated, truncated and info of an episode that wants to stop after so many queries."""
    env.reset(seed=3)
    nothing = np.zeros(2, np.float32)
    for made in range(100):
        stop = int(made == stop_at)
        seen, _, terminated, truncated, info = env.step({"query": nothing, "stop": stop, "answer": nothing})
        if terminated or truncated:
            return int(seen["made"]), terminated, truncated, info
        assert info == {}
    raise AssertionError("the episode does not end")


def test_terminated_is_stopped_and_truncated_is_the_horizon() -> None:
    env = CampaignEnv("binary-search", dim=2)
    assert play(env, 0)[:3] == (0, True, False)
    assert play(env, 5)[:3] == (5, True, False)
    made, terminated, truncated, info = play(env, 1000)
    assert (made, terminated, truncated) == (env.horizon, False, True)
    assert set(info) == {"loss", "success"}


def test_an_episode_is_worth_its_answer_less_its_queries() -> None:
    env = CampaignEnv("binary-search", epsilon=0.3, cost=0.02, dim=2, noise=0.0)
    seen, info = env.reset(seed=4)
    assert (int(seen["made"]), info) == (0, {})
    low, high = np.full(2, -1.0), np.full(2, 1.0)
    for _ in range(6):  # bisection: without lies, every coordinate is halved each time
        query = (low + high) / 2
        seen, reward, *_ = env.step({"query": query, "stop": 0, "answer": query})
        assert reward == -0.02
        low, high = np.where(seen["observation"] > 0, query, low), np.where(seen["observation"] > 0, high, query)
    answer = (low + high) / 2
    *_, reward, _, _, info = env.step({"query": answer, "stop": 1, "answer": answer})
    assert (reward, info["success"]) == (1.0, True)
    env.reset(seed=4)
    far = -np.sign(answer) * 1.0
    *_, reward, _, _, info = env.step({"query": far, "stop": 1, "answer": far})
    assert (reward, info["success"]) == (0.0, False)


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


GOOD = {"query": [0.25, -0.5], "stop": 0, "answer": [0.0, 0.0]}
BAD: list[tuple[str, Any]] = [
    ("query", [0.0]),
    ("query", [0.0, 0.0, 0.0]),
    ("query", [[0.0, 0.0]]),
    ("query", [0.0, [1.0]]),
    ("query", 0.5),
    ("query", [math.nan, 0.0]),
    ("query", [0.0, math.inf]),
    ("query", [0.0, 1.01]),
    ("query", [-1.01, 0.0]),
    ("query", ["0", "0"]),
    ("query", [True, False]),
    ("query", [1j, 0]),
    ("query", None),
    ("answer", [0.0]),
    ("answer", [2.0, 0.0]),
    ("answer", [math.nan, 0.0]),
    ("answer", None),
    ("stop", 2),
    ("stop", -1),
    ("stop", 0.5),
    ("stop", math.nan),
    ("stop", "no"),
    ("stop", None),
    ("stop", [0, 1]),
]


@pytest.mark.parametrize(("part", "value"), BAD, ids=str)
def test_an_action_outside_the_space_is_refused_by_name_and_changes_nothing(part: str, value: Any) -> None:
    env, other = CampaignEnv("binary-search", dim=2), CampaignEnv("binary-search", dim=2)
    env.reset(seed=7)
    other.reset(seed=7)
    with pytest.raises(InvalidInput, match=part) as caught:
        env.step(GOOD | {part: value})
    assert caught.value.field == part
    after, expected = env.step(GOOD)[0], other.step(GOOD)[0]
    assert {name: one.tolist() for name, one in after.items()} == {name: one.tolist() for name, one in expected.items()}


@pytest.mark.parametrize(
    "action", [None, [0.0, 0.0], {}, {"query": [0.0, 0.0]}, {**GOOD, "quory": 1}, np.zeros(5)], ids=str
)
def test_an_action_that_is_no_dictionary_of_the_three(action: Any) -> None:
    env = CampaignEnv("binary-search", dim=2)
    env.reset(seed=7)
    with pytest.raises(InvalidInput, match=r"dictionary of .*stop"):
        env.step(action)


@pytest.mark.parametrize(
    "query", [[0.25, -1], np.array([1.0, -1.0]), np.array([1, 0]), torch.tensor([0.5, 0.5]), (0.1, 0.2)], ids=str
)
@pytest.mark.parametrize("stop", [0, 1, True, np.int64(1), np.bool_(False), np.array(1)], ids=repr)
def test_numbers_of_any_kind_are_taken(query: Any, stop: Any) -> None:
    env = CampaignEnv("binary-search", dim=2)
    env.reset(seed=7)
    *_, terminated, truncated, _ = env.step({"query": query, "stop": stop, "answer": query})
    assert (terminated, truncated) == (bool(stop), False)


def test_a_step_outside_an_episode_is_refused() -> None:
    env = CampaignEnv("binary-search", dim=2)
    with pytest.raises(SessionError, match="reset"):
        env.step(GOOD)
    env.reset(seed=0)
    env.step(GOOD | {"stop": 1})
    with pytest.raises(SessionError, match="reset"):
        env.step(copy.deepcopy(GOOD))
    env.reset()
    env.step(GOOD)
