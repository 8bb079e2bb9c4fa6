"""Two agents that share the episodes."""

import pytest
import torch

from cicpe.baselines.wrappers import Mixed
from cicpe.beliefs.particles.belief import ParticleBelief, ParticleConfig
from cicpe.episodes.play import play
from cicpe.errors import InvalidInput
from cicpe.evaluation.evaluate import evaluate_agent
from cicpe.problems import TaskBatch
from cicpe.problems.binary_search import BinarySearch
from cicpe.testing import check_agent
from confidences import make_rng
from stopping import stopping_at

PROBLEM = BinarySearch(dim=1, noise=0.1)


def belief(horizon: int = 10) -> ParticleBelief:
    sizes = ParticleConfig(particles=64, prior_particles=256, candidates=4, lookahead_particles=16)
    return ParticleBelief(PROBLEM, horizon, sizes)


def test_each_episode_is_played_by_one_of_them() -> None:
    """The mean number of queries, and the accuracy, are those of the two in the proportion that was asked for."""
    hasty, careful = (stopping_at(belief(), confidence, 0.2) for confidence in (0.4, 0.95))
    n, share = 200, 0.3
    mixed = Mixed(hasty, careful, share)
    results = [evaluate_agent(agent, PROBLEM, 0.2, n, seed=1) for agent in (hasty, careful, mixed)]
    queries = [result.mean_queries for result in results]
    assert queries[2] == pytest.approx(share * queries[0] + (1 - share) * queries[1], abs=0.5)
    assert queries[0] + 1 < queries[2] < queries[1] - 0.3


@pytest.mark.parametrize("share", [0.0, 0.123, 0.5, 1.0])
def test_the_share_is_kept_however_many_episodes_there_are(share: float) -> None:
    agent = stopping_at(belief(), 0.4, 0.2)
    for n in (10, 137, 1000):
        takes_first = Mixed(agent, agent, share).begin(torch.zeros(n, 1)).takes_first
        assert abs(int(takes_first.sum()) - share * n) <= 2


def test_whose_episode_it_is_does_not_change_on_the_way() -> None:
    never, at_once = stopping_at(belief(4), 2.0, 0.2), stopping_at(belief(4), 0.0, 0.2)
    lengths = torch.zeros(50, dtype=torch.long)
    for step in play(Mixed(never, at_once, 0.5), TaskBatch.draw(PROBLEM, 50, make_rng(2)), make_rng(3)):
        lengths[step.rows] = step.time
    assert sorted(set(lengths.tolist())) == [0, 4]


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_it_is_an_agent(share: float) -> None:
    """With a share in between it is one too, but for one promise: who plays an episode is told by its place."""
    agents = stopping_at(belief(), 0.4, 0.2), stopping_at(belief(), 0.95, 0.2)
    check_agent(Mixed(*agents, share), PROBLEM, n=6)
    if share == 1:
        with pytest.raises(AssertionError, match="independence of episodes"):
            check_agent(Mixed(*agents, 0.5), PROBLEM, n=6)


def test_what_cannot_be_mixed_is_refused() -> None:
    one = stopping_at(belief(), 0.4, 0.2)
    with pytest.raises(InvalidInput, match="share must be between 0 and 1"):
        Mixed(one, one, 1.2)
    with pytest.raises(InvalidInput, match="horizon of 10 too"):
        Mixed(one, stopping_at(belief(4), 0.4, 0.2), 0.5)
