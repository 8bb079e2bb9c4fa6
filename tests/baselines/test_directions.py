"""Whether a problem is one of large or of small observations."""

import pytest
import torch
from torch import Generator, Tensor

from bowls import Bowl
from cicpe.baselines.base import orientation
from cicpe.problems import Problem
from cicpe.problems.ackley import Ackley
from cicpe.problems.best_arm import BestArm
from cicpe.problems.binary_search import BinarySearch
from cicpe.problems.gp_argmax import GPArgmax
from cicpe.problems.gp_max import GPMax


class Decoy(Bowl):
    """The lower (or, with ``sign`` 1, the higher), the farther off; but for the target itself, which is best of all."""

    def observe(self, task: Tensor, query: Tensor, rng: Generator) -> Tensor:
        squared = (query - task).square().sum(dim=-1)
        return self.sign * (squared + 30 * torch.exp(-100 * squared))


@pytest.mark.parametrize(
    ("problem", "sign"),
    [(Ackley(3, 0.1), 1), (BestArm(5, 0.01), 1), (GPMax(1, 0.1), 1), (GPArgmax(0.1), 1), (BinarySearch(2, 0.1), None)],
    ids=lambda value: type(value).__name__,
)
def test_orientation_of_the_families(problem: Problem, sign: int | None) -> None:
    assert orientation(problem) == sign


def test_orientation_comes_from_a_pilot() -> None:
    assert orientation(Bowl(sign=-1)) == -1
    assert orientation(Bowl(sign=1)) == 1
    assert orientation(Bowl(sign=0)) is None


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_pilot_asks_the_target(sign: int) -> None:
    assert orientation(Decoy(sign=sign)) == sign
