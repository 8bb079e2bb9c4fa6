"""What is said of a family before training, against families whose facts are known."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Generator, Tensor

from cicpe.doctor import diagnose_problem
from cicpe.problems import Problem, make_problem
from cicpe.spaces import Box
from commands import Run


class Coin(Problem):
    """A bias in [0, 1] from tosses that any query makes; ``noise`` is how often a toss says nothing."""

    query_space = Box([0.0], [1.0])
    answer_space = Box([0.0], [1.0])
    default_epsilon = (0.05, 0.2)

    def __init__(self, noise: float = 0.0, horizon: int = 100) -> None:
        self.noise, self.horizon = noise, horizon

    def sample(self, n: int, rng: Generator) -> Tensor:
        return torch.rand((n, 1), generator=rng)

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        p = (1 - self.noise) * task[:, 0] + self.noise / 2
        return (torch.rand(len(query), generator=rng) < p).float()

    def target(self, task: Tensor) -> Tensor:
        return task


def test_what_a_toss_tells_is_bounded_and_its_queries_too() -> None:
    """A uniform bias: H(1/2) - 4 E[p (1 - p)] = 1/3 bits bounds the true 1 - 0.5 / ln 2 = 0.28."""
    seen = diagnose_problem(Coin())
    assert seen.hidden == 0
    assert seen.observation == ("one of two values (0 or 1)",)
    assert 0.27 < seen.bits < 0.45
    narrow, wide = seen.bounds[0], seen.bounds[-1]
    assert narrow.guess == pytest.approx(0.1, abs=0.04)
    assert 4 < narrow.least_queries < 12  # far below the dozens that are needed, and above none
    assert wide.least_queries < narrow.least_queries


def test_a_toss_that_tells_nothing_is_warned_of() -> None:
    seen = diagnose_problem(Coin(noise=1.0))
    assert seen.bits < 0.1
    assert diagnose_problem(Coin(horizon=3)).warnings[0].startswith("epsilon 0.05 needs at least")


def test_noise_leaves_fewer_bits() -> None:
    quiet, loud = (diagnose_problem(make_problem("binary-search", dim=1, noise=noise)) for noise in (0.025, 0.3))
    assert quiet.bits > 2 * loud.bits > 0


@pytest.mark.slow
def test_what_is_hidden_is_counted() -> None:
    seen = diagnose_problem(make_problem("ackley", dim=3))
    assert (seen.answer, seen.hidden) == (3, 2)
    assert diagnose_problem(make_problem("gp-max")).hidden is None
    assert not seen.gives_answer


class TwoTosses(Coin):
    """Of two biases, the difference: a function of both."""

    def sample(self, n: int, rng: Generator) -> Tensor:
        return torch.rand((n, 2), generator=rng)

    def target(self, task: Tensor) -> Tensor:
        return (1 + task[:, :1] - task[:, 1:]) / 2


def test_an_answer_that_is_a_function_is_no_number_of_its_own() -> None:
    seen = diagnose_problem(TwoTosses())
    assert (seen.hidden, seen.gives_answer) == (2, True)


def test_the_command_says_it(run: Run) -> None:
    done = run("doctor", "binary-search", "--dim", 2, "--epsilon", 0.1)
    assert done.code == 0
    for words in ("an answer of 2 numbers; 0 numbers beside it", "2 x one of two values (-1 or 1)", "Epsilon 0.1"):
        assert words in done.out
    data = json.loads(run("check", "binary-search", "--dim", 2, "--json").out)
    assert (data["unknowns"], data["hidden"], data["faults"]) == (2, 0, [])
    assert data["query_space"]["kind"] == "box"
    assert data["observation_kind"] == "one of two values (-1 or 1)"
    assert data["expected_queries"] > 0
    assert all(math.isfinite(bound["least_queries"]) for bound in data["bounds"])


def test_faults_of_a_problem_are_told_and_end_the_command(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(
        "import torch\nimport cicpe\n\n\nclass Broken(cicpe.Problem):\n"
        "    query_space = answer_space = cicpe.Box([0.0], [1.0])\n\n"
        "    def sample(self, n, rng):\n        return torch.rand(n, 1, generator=rng)\n\n"
        "    def observe(self, task, query, rng):\n        return torch.full((len(query),), float('nan'))\n\n"
        "    def target(self, task):\n        return task\n"
    )
    done = run("check", f"{file}:Broken")
    assert done.code == 2
    assert "observe" in done.err
    data = json.loads(run("check", f"{file}:Broken", "--json").out)
    assert any("observe" in fault for fault in data["faults"])
