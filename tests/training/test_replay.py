"""The replay: which rollouts it keeps, what a sample holds, and that a checkpoint gives it back."""

import torch

from cicpe.beliefs.network.network import Network
from cicpe.beliefs.network.query_rules import make_actor
from cicpe.problems import TaskBatch
from cicpe.problems.binary_search import BinarySearch
from cicpe.training.replay import Replay, join, select_rows
from cicpe.training.rollout import Behaviour, Trajectories, collect
from small_runs import make_rng

PROBLEM = BinarySearch(dim=2)
N, HORIZON = 60, 6


def play(network: Network, seed: int = 0, n: int = N) -> Trajectories:
    tasks = TaskBatch.draw(PROBLEM, n, make_rng(seed))
    behaviour = Behaviour(torch.ones(n), torch.zeros(n, dtype=torch.bool), 0.0)
    actor = make_actor("ts", PROBLEM.query_space, PROBLEM.answer_space)
    return collect(network, actor, tasks, HORIZON, behaviour, make_rng(seed + 1))


def test_the_replay_keeps_the_last_rollouts(network: Network) -> None:
    replay = Replay(2)
    rollouts = [play(network, seed) for seed in range(3)]
    for seed, rollout in enumerate(rollouts):
        replay.add(seed, rollout)
    assert [stored.seed for stored in replay] == [1, 2]


def test_rollouts_that_are_all_uniform_are_kept_apart(network: Network) -> None:
    def filled(replay: Replay) -> Replay:
        for seed in range(6):
            rollout = play(network, seed, n=4)
            # The first three are uniform, but for one episode of the third.
            own = torch.tensor([seed >= 3, False, False, seed >= 2])
            replay.add(seed, rollout._replace(own=own))
        return replay

    replay = filled(Replay(2, uniform=1))
    assert [stored.seed for stored in replay] == [1, 4, 5]
    assert len(replay) == 12
    drawn = replay.sample(100, make_rng())
    assert 0.15 < float((~drawn.own).float().mean()) < 1
    # They come back from a checkpoint in their place; without room for them, they go with the others.
    again = Replay(2, uniform=1)
    again.restore(PROBLEM, replay.tensors())
    assert [stored.seed for stored in again] == [1, 4, 5]
    assert [stored.seed for stored in filled(Replay(2))] == [4, 5]
    # A new horizon empties both.
    short = play(network, 9, n=4)
    replay.add(9, short._replace(query=short.query[:, :3], observation=short.observation[:, :3]))
    assert [stored.seed for stored in replay] == [9]


def test_a_sample_has_whole_trajectories_of_every_rollout(network: Network) -> None:
    replay = Replay(4)
    rollouts = [play(network, seed, n=40) for seed in range(3)]
    for seed, rollout in enumerate(rollouts):
        replay.add(seed, rollout)
    drawn = replay.sample(200, make_rng())
    assert len(drawn.tasks) == 200
    everything = join(rollouts)
    origin = [int((everything.query == row).all(dim=(1, 2)).nonzero()[0, 0]) for row in drawn.query]
    again = select_rows(everything, torch.tensor(origin))
    for name in ("query", "observation", "length", "stopped", "own"):
        assert torch.equal(getattr(drawn, name), getattr(again, name))
    assert torch.equal(drawn.tasks.target, again.tasks.target)
    assert torch.equal(drawn.tasks.context, again.tasks.context)
    assert len({index // 40 for index in origin}) == 3


def test_a_new_horizon_empties_the_replay(network: Network) -> None:
    replay, rollout = Replay(4), play(network)
    replay.add(0, rollout)
    replay.add(1, rollout._replace(query=rollout.query[:, :3], observation=rollout.observation[:, :3]))
    assert [stored.seed for stored in replay] == [1]


def test_the_replay_is_rebuilt_from_its_tensors(network: Network) -> None:
    replay, again = Replay(4), Replay(4)
    for seed in range(3):
        # The tasks are drawn from the seed, as the trainer draws them.
        replay.add(seed, play(network, seed))
    again.restore(PROBLEM, replay.tensors())
    for before, after in zip(replay, again, strict=True):
        assert after.seed == before.seed
        assert torch.equal(after.trajectories.query, before.trajectories.query)
        assert torch.equal(after.trajectories.tasks.target, before.trajectories.tasks.target)
        assert torch.equal(after.trajectories.tasks.context, before.trajectories.tasks.context)
