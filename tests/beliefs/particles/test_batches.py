"""An episode's particles depend on its own history alone: to the last digit on one machine.

On another machine, with other vector instructions, the problem's own functions are rounded otherwise and a cloud is
another draw from the same distribution. The first cloud is then the same up to that rounding, and later ones agree
on confidences and decisions as well as those of another seed of the sampler do.
"""

import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Generator, Tensor, nn

from cicpe import trees
from cicpe.beliefs.particles.belief import ParticleBelief, ParticleConfig
from cicpe.beliefs.particles.likelihood import LearnedLikelihood
from cicpe.problems import Problem, TaskBatch
from cicpe.problems.ackley import Ackley
from cicpe.problems.binary_search import BinarySearch
from cicpe.spaces import Box

pytestmark = pytest.mark.conformance

SMALL = ParticleConfig(particles=256, prior_particles=1024, candidates=12, lookahead_particles=64)
ODD = ParticleConfig(particles=101, prior_particles=333, candidates=12, lookahead_particles=64)
"""Numbers of particles that no vector divides: the last of a row are computed otherwise than the others."""
EPISODES, STEPS, EPSILON, STOP = 8, 8, 0.2, 0.8
ELSEWHERE = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}


@dataclass(frozen=True)
class Mixed(Problem):
    """A likelihood, a prior, a target and a loss that pass through matrix products and a sigmoid."""

    query_space = answer_space = parameter_space = Box([-3.0] * 3, [3.0] * 3)
    mixing = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))

    def sample(self, n: int, rng: Generator) -> Tensor:
        return torch.randn((n, 3), generator=rng).clamp(-3, 3)

    def value(self, task: Tensor, query: Tensor) -> Tensor:
        return torch.sigmoid((task @ self.mixing * query).sum(dim=-1))

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return self.value(task, query) + 0.05 * torch.randn(len(query), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return (task @ self.mixing).clamp(-3, 3)

    def loss(self, task: Tensor, answer: Tensor) -> Tensor:
        return ((answer - self.target(task)) @ self.mixing.T).abs().sum(dim=-1)

    def parameters(self, task: Tensor) -> Tensor:
        return task

    def from_parameters(self, parameters: Tensor, context: Tensor) -> Tensor:
        return parameters

    def log_prior(self, parameters: Tensor) -> Tensor:
        return -0.5 * ((parameters @ torch.eye(3)) * parameters).sum(dim=-1)

    def log_likelihood(self, task: Tensor, query: Tensor, observation: Tensor) -> Tensor:
        error = (observation[:, 0] - self.value(task, query)) / 0.05
        return -0.5 * error.square() - math.log(0.05)


class Seen(NamedTuple):
    """What a step of some episodes comes to."""

    unit_BNP: Tensor
    log_settled_BN: Tensor
    log_pending_BN: Tensor
    query_BQ: Tensor
    recommendation_BX: Tensor
    confidence_B: Tensor
    foreseen_mean_BY: Tensor
    """Of the observation that the alarm compares the next one with."""
    foreseen_logit_BY: Tensor


def rng(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


def learned(problem: Problem) -> LearnedLikelihood:
    """One that was not trained: what it says matters less here than how it is computed."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        likelihood = LearnedLikelihood(problem, 32)
        nn.init.normal_(likelihood.body[-1].weight)
    return likelihood.eval().requires_grad_(False)


def histories(problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """Contexts, and queries and observations that come nearer to the target."""
    tasks = TaskBatch.draw(problem, EPISODES, rng(3))
    queries, observations = [], []
    for t in range(STEPS):
        near = tasks.target + 0.8 * 0.7**t * torch.randn(tasks.target.shape, generator=rng(50 + t))
        queries.append(problem.query_space.project(near))
        observations.append(tasks.observe(queries[-1], rng(100 + t)))
    return tasks.context, torch.stack(queries, dim=1), torch.stack(observations, dim=1)


def play(belief: ParticleBelief, history: tuple[Tensor, Tensor, Tensor], index: Tensor) -> list[Seen]:
    """Some of the episodes, step by step."""
    context, query, observation = (part[index] for part in history)
    state, seen = belief.begin(context), []
    for t in range(STEPS):
        state = belief.update(state, query[:, t], observation[:, t])
        found, cloud = belief.assess(state, (EPSILON,), rng(t)), state.cloud
        foreseen = belief.predict(state, query[:, t])
        particles = (cloud.unit_BNP, cloud.log_settled_BN, cloud.log_pending_BN)
        answer = (found.recommendation[0], found.confidence[0])
        seen.append(Seen(*particles, found.query, *answer, foreseen.mean, foreseen.logit))
    return seen


BELIEFS = {
    "ackley": ParticleBelief(Ackley(dim=3), 20, SMALL.model_copy(update={"query": "thompson"})),
    "binary search": ParticleBelief(BinarySearch(dim=2), 20, SMALL.model_copy(update={"query": "greedy"})),
    "mixed": ParticleBelief(Mixed(), 20, SMALL.model_copy(update={"query": "thompson"})),
    "odd": ParticleBelief(Ackley(dim=4), 20, ODD.model_copy(update={"query": "thompson"})),
    "learned": ParticleBelief(
        Ackley(dim=2), 20, ODD.model_copy(update={"query": "thompson"}), learned=learned(Ackley(dim=2))
    ),
}


@pytest.mark.parametrize("name", BELIEFS)
def test_particles_are_the_same_in_every_batch(name: str) -> None:
    belief = BELIEFS[name]
    history = histories(belief.problem)
    whole = play(belief, history, torch.arange(EPISODES))
    order = torch.randperm(EPISODES, generator=rng(1))
    for size in (1, 2, 3, 5, 8):
        some = order[:size]
        for t, (part, all_of_them) in enumerate(zip(play(belief, history, some), whole, strict=True), start=1):
            for field, found, expected in zip(Seen._fields, part, all_of_them, strict=True):
                same = [torch.equal(a, b) for a, b in zip(found, expected[some], strict=True)]
                assert all(same), f"{field} after {t} steps: in a batch of {size} only {sum(same)} are the same"


def test_a_selected_state_goes_on_as_it_would_have() -> None:
    belief = BELIEFS["ackley"]
    context, query, observation = histories(belief.problem)
    state, some = belief.begin(context), torch.tensor([4, 1])
    for t in range(3):
        state = belief.update(state, query[:, t], observation[:, t])
    part = trees.select(state, some)
    for t in range(3, 6):
        state = belief.update(state, query[:, t], observation[:, t])
        part = belief.update(part, query[some, t], observation[some, t])
    for one, two in zip(trees.leaves(trees.select(state, some)), trees.leaves(part), strict=True):
        assert torch.equal(torch.as_tensor(one), torch.as_tensor(two))


def record(folder: Path, seed: int = 0) -> list[list[Seen]]:
    """What the episodes of two problems come to, from histories that are in a folder, or are put there."""
    seen = []
    for name in ("ackley", "binary search"):
        problem, config = BELIEFS[name].problem, BELIEFS[name].config.model_copy(update={"seed": seed})
        file = folder / f"{name}.pt"
        if not file.exists():
            torch.save(histories(problem), file)
        seen.append(play(ParticleBelief(problem, 20, config), torch.load(file), torch.arange(EPISODES)))
    return seen


def confidences(seen: list[list[Seen]]) -> Tensor:
    """By problem, step and episode."""
    return torch.stack([torch.stack([step.confidence_B for step in steps]) for steps in seen])


def test_under_other_arithmetic_particles_are_another_draw_of_the_same(tmp_path: Path) -> None:
    here, other_seed = record(tmp_path), record(tmp_path, seed=1)
    environment = {**os.environ, **ELSEWHERE}
    subprocess.run([sys.executable, "-W", "ignore", __file__, str(tmp_path)], env=environment, check=True)
    there = [[Seen(*step) for step in steps] for steps in torch.load(tmp_path / "there.pt")]
    for mine, theirs in zip(here, there, strict=True):
        # Before the first move there is nothing to accept.
        for found, expected in zip(mine[0], theirs[0], strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    one, two, seed = confidences(here), confidences(there), confidences(other_seed)
    assert float((one - two).abs().mean()) < float((one - seed).abs().mean())
    assert float(((one >= STOP) == (two >= STOP)).float().mean()) >= 0.95


@pytest.mark.parametrize(("rule", "is_shared"), [("agreement", True), ("thompson", False)])
def test_queries_are_chosen_among_the_same_ones_in_every_block(rule: str, is_shared: bool) -> None:
    """Were those that are compared drawn for every block of episodes, its successes would not be independent."""
    belief = ParticleBelief(Ackley(dim=2), 20, SMALL.model_copy(update={"query": rule}))
    state = belief.begin(TaskBatch.draw(belief.problem, 1, rng(0)).context)
    first = torch.cat([belief.assess(state, (EPSILON,), rng(seed)).query[:, 0] for seed in range(40)])
    assert (len(first.unique(dim=0)) <= SMALL.candidates) == is_shared


if __name__ == "__main__":
    there = [[tuple(step) for step in steps] for steps in record(Path(sys.argv[1]))]
    torch.save(there, Path(sys.argv[1]) / "there.pt")
