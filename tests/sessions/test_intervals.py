"""Intervals agree with the data: quantiles of what is believed, for every kind of belief that the zoo has."""

import pytest
import torch

import cicpe
from cicpe.beliefs.base import Belief, quantiles_of
from cicpe.episodes.play import play
from cicpe.problems import TaskBatch
from cicpe.statistics import clopper_pearson


def test_an_interval_of_a_maximum_knows_what_was_seen() -> None:
    session = cicpe.load("gp-max-1d").session(epsilon=0.2, delta=0.1, noise=0.05)
    session.tell(-0.012)
    ((low, high),) = session.credible_region
    # The largest of a function of unit variance: the answer space, -5 to 5, is no interval of it.
    assert -0.2 < low < 1.2
    assert 1.5 < high < 3.5
    session.attach([0.68], 1.292)
    ((low, high),) = session.credible_region
    assert 1.292 - 4 * 0.05 < low < 1.292  # no maximum is below what was seen, but for noise
    assert high > 1.292


def test_at_every_step_nine_in_ten_intervals_hold_the_maximum() -> None:
    """At the least: the memory's own noise is a little larger than the true one. Alpha is 1e-3 per step."""
    model, episodes = cicpe.load("gp-max-1d"), 60
    tasks = TaskBatch.draw(model.tasks({"noise": 0.05}), episodes, torch.Generator().manual_seed(5))
    normal_misses = 0.0
    for step in play(model.unstopped(0.2), tasks, torch.Generator().manual_seed(1)):
        if step.time > 5:
            break
        if step.time not in (1, 3, 5):
            continue
        low, high = model.belief.quantiles(step.state.belief, (0.05, 0.95), torch.Generator().manual_seed(0))[:, 0].T
        target = step.tasks.target[:, 0]
        inside = int(((low <= target) & (target <= high)).sum())
        assert clopper_pearson(inside, episodes, 1e-3)[1] >= 0.9, step.time
        assert float((high - low).mean()) < 3.0
        half = 1.645 * step.proposal.std[:, 0]
        normal_misses = max(normal_misses, float((2 * half).mean()))
    assert normal_misses > 4.0  # the control: what was shown before is far wider than the prior itself


def uniform_draws(n: int) -> torch.Tensor:
    return torch.stack([torch.linspace(0, 1, n), torch.linspace(-4, 4, n)], dim=-1)[None]


def test_quantiles_are_of_each_coordinate() -> None:
    found = quantiles_of(uniform_draws(1001), (0.1, 0.5, 0.75))
    assert found.shape == (1, 2, 3)
    torch.testing.assert_close(found[0], torch.tensor([[0.1, 0.5, 0.75], [-3.2, 0.0, 2.0]]), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["binary-search-6d", "best-arm-5d", "ackley-3d", "geochem-2d"])
def test_quantiles_are_those_of_the_beliefs_own_draws(name: str) -> None:
    model = cicpe.load(name)
    session = model.session(epsilon=model.calibration.epsilons[-1], delta=0.2)
    for _ in range(2):
        session.tell([1.0 if name == "binary-search-6d" else 0.2] * session.observation_dim)
    belief: Belief = model.belief
    state = session._now.state.belief
    drawn = belief.sample_answers(state, 1000, torch.Generator().manual_seed(3))
    lower, upper = belief.quantiles(state, (0.1, 0.9), torch.Generator().manual_seed(4)).unbind(dim=-1)
    share = ((drawn >= lower[:, None]) & (drawn <= upper[:, None])).double().mean(dim=1)
    assert bool((share >= 0.74).all()), share  # 0.8, but for draws on a few places or at an edge of the box
    region = torch.as_tensor(session.credible_region)
    assert bool((region[:, 0] <= torch.as_tensor(session.recommendation) + 1e-6).all())
    assert bool((torch.as_tensor(session.recommendation) <= region[:, 1] + 1e-6).all())
