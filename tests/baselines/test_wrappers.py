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
    sizes = ParticleConfig(particles=128, prior_particles=512, candidates=8, lookahead_particles=32)
    return ParticleBelief(PROBLEM, horizon, sizes)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_each_episode_is_played_by_one_of_them(share: float) -> None:
    """The mean number of queries, and the accuracy, are those of the two in the proportion that was asked for."""
    hasty, careful = (stopping_at(belief(), confidence, 0.2) for confidence in (0.4, 0.95))
    mixed = Mixed(hasty, careful, share)
    n = 600
    results = [evaluate_agent(agent, PROBLEM, 0.2, n, seed=1) for agent in (hasty, careful, mixed)]
    for one, other, both in ([r.mean_queries for r in results], [r.accuracy for r in results]):
        assert both == pytest.approx(share * one + (1 - share) * other, abs=0.15 if one > 1 else 0.05)
    state = mixed.begin(torch.zeros(n, 1))
    assert abs(float(state.takes_first.float().mean()) - share) <= 1 / n


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
