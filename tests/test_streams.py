"""Seeds of different purposes never meet."""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

import cicpe
from cicpe.certification.certify import stream_seed
from cicpe.errors import InvalidInput
from cicpe.evaluation.compare import CommonTasks
from cicpe.evaluation.diagnose import diagnose
from cicpe.evaluation.robustness import robustness
from cicpe.streams import PURPOSES, SHARE, seed_for, stream

SEEDS = (0, 1, 2, 10, 20, 1_000_003, 2**27 - 1, 2**27, 2**31, 2**32 - 1, 2**62, -1)


def test_no_two_purposes_share_a_stream() -> None:
    shares = {
        purpose: {seed_for(seed, purpose, *labels) for seed in SEEDS for labels in ((), (1,), ("a", 2))}
        for purpose in PURPOSES
    }
    for one, two in combinations(PURPOSES, 2):
        assert not shares[one] & shares[two]
    every = set().union(*shares.values())
    assert min(every) >= SHARE, "the first share is for what frozen agents draw for themselves"
    assert max(every) < 2**31, "the upper half is for certificates"
    assert min(stream_seed(seed, "x") for seed in SEEDS) >= 2**31


def test_different_seeds_and_labels_are_different_streams() -> None:
    for purpose in PURPOSES:
        assert len({seed_for(seed, purpose) for seed in range(5000)}) == 5000
        assert len({seed_for(seed, purpose) for seed in SEEDS}) == len(SEEDS)
        assert len({seed_for(0, purpose, label) for label in range(500)}) == 500


def test_a_stream_is_what_its_names_say() -> None:
    one, two = stream(3, "evaluation", "a"), stream(3, "evaluation", "a")
    assert torch.equal(torch.rand(4, generator=one), torch.rand(4, generator=two))
    assert seed_for(0, "evaluation") == seed_for(0, "evaluation")


def test_a_purpose_without_a_name_is_refused() -> None:
    with pytest.raises(InvalidInput, match="purpose must be one of training"):
        seed_for(0, "anything")


@dataclass(frozen=True)
class Watched(cicpe.Problem):
    """Notes which generators tasks are drawn by."""

    drawn: set[int] = field(default_factory=set, compare=False)
    query_space = answer_space = parameter_space = cicpe.Box([0.0], [1.0])
    horizon = 2
    default_epsilon = (0.3, 0.4)

    def sample(self, n: int, rng: Generator) -> Tensor:
        if n > 2:  # two are drawn, with generator 0, to see how many numbers an observation has
            self.drawn.add(rng.initial_seed())
        return torch.rand(n, 1, generator=rng)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        return task + 0.1 * torch.randn(task.shape, generator=rng)

    def log_likelihood(self, task: Tensor, query: Tensor, observation: Tensor) -> Tensor:
        return -50 * (observation - task).square()[..., 0]

    def target(self, task: Tensor) -> Tensor:
        return task

    def parameters(self, task: Tensor) -> Tensor:
        return task

    def from_parameters(self, parameters: Tensor, context: Tensor) -> Tensor:
        return parameters


def test_what_is_played_for_one_purpose_is_not_played_for_another() -> None:
    """At the default seed of everything, evaluation used to play the agent's own prior particles."""
    problem, drawn = Watched(), defaultdict[str, set[int]](set)

    def noted(purpose: str, result: Any) -> Any:
        own = {seed for seed in problem.drawn if seed < SHARE}  # what the particles draw of the prior, whoever plays
        drawn["agent"] |= own
        drawn[purpose] |= problem.drawn - own
        problem.drawn.clear()
        return result

    small = {"particles": {"particles": 16, "prior_particles": 16}}
    asked: dict[str, Any] = {"updates": 1, "calibration_episodes": 128, "settings": small}
    model = noted("training", cicpe.train(problem, recipe="particles", **asked))
    agent = model.agent(0.4, 0.4)
    noted("evaluation", cicpe.evaluate(model, epsilon=0.4, delta=0.4, episodes=20))
    noted("certification", cicpe.certify(model, epsilon=0.4, delta=0.4, episodes=20))
    noted("recalibration", cicpe.recalibrate(model, episodes=128, seed=0))
    noted("alarm", cicpe.fit_alarm(model, seed=0, episodes=20, ranked=99))
    noted("diagnosis", diagnose(agent, problem, 120, 0))
    noted("robustness", robustness(agent, problem, 0.4, 0.4, 20, 0, grid=(1.0,)))
    noted("comparison", CommonTasks.draw(problem, 20, 0))
    assert all(drawn.values())
    for one, two in combinations(drawn, 2):
        if (one, two) == ("training", "alarm"):
            continue  # training ends with an alarm, whose own stream this is
        assert not drawn[one] & drawn[two], (one, two)
