"""Learning from a slow simulator: few observations, not to be learned by heart. Time is what the simulator takes."""

import copy
import time
from dataclasses import dataclass

import pytest
import torch
from torch import Generator, Tensor

from cicpe.beliefs.answers.histories import HistoryPool, simulate
from cicpe.beliefs.answers.learn import SCARCE, Family, Learner, LearningSizes, Limit
from cicpe.problems import Problem
from cicpe.spaces import Box
from watches import Watch

EACH = 0.005
"""Seconds per observation."""


@dataclass(frozen=True)
class Ramp(Problem):
    """The onset of a ramp with unknown steepness."""

    watch: Watch
    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])

    def sample(self, n: int, rng: Generator) -> Tensor:
        return torch.rand((n, 2), generator=rng) * torch.tensor([1.0, 2.0]) + torch.tensor([0.0, 1.0])

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        self.watch.seconds += EACH * len(query)
        mean = task[:, 1] * (query[:, 0] - task[:, 0]).clamp_min(0)
        return mean + 0.2 * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return task[:, :1]


@pytest.mark.slow
def test_few_observations_are_not_learned_by_heart(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    monkeypatch.setattr(time, "perf_counter", watch)
    problem = Ramp(watch)
    family = Family.look(problem, LearningSizes(), 1, 2.0)
    limit = Limit(seconds=40.0)
    learner = family.learn(limit)
    assert limit.seconds is not None
    assert watch.seconds - limit.began <= 1.1 * limit.seconds
    # Most of the time went into observations, and they are few.
    assert learner.pool.kept is not None
    observations = learner.pool.kept.observation_BTY.shape[:2].numel()
    assert 0.6 * limit.seconds / EACH < observations < SCARCE
    fresh = simulate(problem, 1000, 8, torch.Generator().manual_seed(3), family.nuisance)
    loss = learner.validate(fresh)
    # Gone on with, on batches that are all fresh: what there is to learn.
    plenty = _copied(learner)
    plenty.pool = HistoryPool(problem, 8, torch.Generator().manual_seed(4), family.nuisance, timed=False)
    plenty.train(Limit(updates=250), start_rate=0.5)
    assert loss < plenty.validate(fresh) + 0.06
    # The negative control: the same histories, shown as often as there is time for.
    by_heart = _copied(learner)
    for _ in range(500):
        rows = torch.randint(len(learner.pool.kept.place_BV), (128,), generator=learner.pool.rng)
        shown = by_heart.loss(learner.pool.kept.rows(rows)).mean()
        by_heart.optimiser.zero_grad()
        shown.backward()
        by_heart.optimiser.step()
    assert by_heart.validate(fresh) > loss + 0.03


def _copied(learner: Learner) -> Learner:
    """A copy that can be trained on."""
    model = copy.deepcopy(learner.model)
    model.network.requires_grad_(True)
    optimiser = torch.optim.Adam(model.network.parameters(), lr=learner.sizes.rate, betas=(0.9, 0.98))
    return Learner(model, learner.pool, learner.sizes, optimiser, learner.updates)
