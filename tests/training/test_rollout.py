"""Training episodes: where they end, and what is padding."""

import pytest
import torch

from cicpe.beliefs.network.critic import Goal
from cicpe.beliefs.network.network import Network
from cicpe.beliefs.network.query_rules import make_actor
from cicpe.problems import TaskBatch
from cicpe.problems.binary_search import BinarySearch
from cicpe.training.paper import BellmanTest
from cicpe.training.rollout import Behaviour, Trajectories, collect, draw_behaviour
from small_runs import make_rng

PROBLEM = BinarySearch(dim=2)
N, HORIZON = 60, 6


def shifted(network: Network, stop: float) -> Network:
    """The same network, whose stop head says about ``stop`` (a logit), and whose continuation head says 0.5."""
    for heads, level in ((network.critic.stop, stop), (network.critic.go, 0.5)):
        for head in heads:
            head[-1].bias.fill_(level)  # type: ignore[operator, union-attr, index]
    return network


def play(
    network: Network, seed: int = 0, minimum_time: int | None = None, random: float = 0.0, n: int = N
) -> Trajectories:
    tasks = TaskBatch.draw(PROBLEM, n, make_rng(seed))
    behaviour = Behaviour(torch.ones(n), torch.arange(n) < random * n, 0.0)
    goal = Goal(torch.full((n,), 0.2), torch.full((n,), 0.01))
    test = None if minimum_time is None else BellmanTest(network, goal, minimum_time)
    actor = make_actor("ts", PROBLEM.query_space, PROBLEM.answer_space)
    return collect(network, actor, tasks, HORIZON, behaviour, make_rng(seed + 1), test)


def check_shapes(trajectories: Trajectories, n: int = N) -> None:
    assert trajectories.query.shape == trajectories.observation.shape == (n, HORIZON, 2)
    assert trajectories.query.isfinite().all()
    torch.testing.assert_close(PROBLEM.query_space.project(trajectories.query), trajectories.query)


def test_without_a_stop_test_every_episode_runs_to_the_horizon(network: Network) -> None:
    trajectories = play(shifted(network, 50.0))
    check_shapes(trajectories)
    assert (trajectories.length == HORIZON).all()
    assert not trajectories.stopped.any()
    assert trajectories.own.all()


@pytest.mark.parametrize("minimum_time", [0, 1, 3])
def test_an_eager_stop_head_ends_episodes_at_the_minimum_time(network: Network, minimum_time: int) -> None:
    # With 0, every episode stops before its first query: there is nothing but padding, and it is well formed.
    trajectories = play(shifted(network, 50.0), minimum_time=minimum_time)
    check_shapes(trajectories)
    assert (trajectories.length == minimum_time).all()
    assert trajectories.stopped.all()


def test_a_reluctant_stop_head_never_ends_them(network: Network) -> None:
    trajectories = play(shifted(network, -50.0), minimum_time=0)
    check_shapes(trajectories)
    assert (trajectories.length == HORIZON).all()
    assert not trajectories.stopped.any()


def test_random_episodes_are_marked_and_uniform(network: Network) -> None:
    trajectories = play(shifted(network, -50.0), random=0.5)
    assert trajectories.own.tolist() == [False] * (N // 2) + [True] * (N // 2)
    loose, own = trajectories.query[: N // 2], trajectories.query[N // 2 :]
    # Uniform on [-1, 1] has a standard deviation of 0.577; an untrained posterior about 0.37.
    assert float(loose.std()) > 0.5 > float(own.std())


def test_a_rollout_is_a_function_of_its_seeds(network: Network) -> None:
    one, again, other = play(network, 3), play(network, 3), play(network, 4)
    assert torch.equal(one.query, again.query)
    assert torch.equal(one.observation, again.observation)
    assert not torch.equal(one.query, other.query)


def test_a_behaviour_is_drawn_from_its_shares() -> None:
    behaviour = draw_behaviour(4000, (0.0, 0.0, 1.0), 0.25, 0.1, make_rng())
    assert set(behaviour.query_spread.tolist()) == {0.0, 1.0}
    assert float(behaviour.query_spread.mean()) == pytest.approx(1 / 3, abs=0.04)
    assert float(behaviour.random_episode.float().mean()) == pytest.approx(0.25, abs=0.04)
    assert behaviour.random_queries == 0.1
