"""Dose finding with yes/no outcomes: which dose makes 30 % of patients respond with a side effect?

Every patient gets one dose in [0, 1] and either has the side effect or not. The curve of its probability
is a logistic one with hidden place and slope; the answer is the dose at which it crosses 30 %. Run it::

    python examples/dose_finding.py
"""

from typing import NamedTuple

import torch
from torch import Generator, Tensor

import cicpe


class Cohort(NamedTuple):
    """n hidden patients' curves."""

    target_dose: Tensor
    slope: Tensor


class DoseFinding(cicpe.Problem):
    """Find the dose with a 30 % side-effect rate from single yes/no outcomes."""

    query_space = cicpe.Box(low=[0.0], high=[1.0])
    answer_space = cicpe.Box(low=[0.0], high=[1.0])
    horizon = 80
    rate = 0.3

    def sample(self, n: int, rng: Generator) -> Cohort:
        dose = 0.1 + 0.8 * torch.rand(n, generator=rng)
        return Cohort(dose, 20 + 30 * torch.rand(n, generator=rng))

    def observe(self, task: Cohort, query: Tensor, rng: Generator) -> Tensor:
        at_target = torch.logit(torch.tensor(self.rate))
        chance = torch.sigmoid(at_target + task.slope * (query[:, 0] - task.target_dose))
        return (torch.rand(len(query), generator=rng) < chance).float()

    def target(self, task: Cohort) -> Tensor:
        return task.target_dose[:, None]


if __name__ == "__main__":
    model = cicpe.train(DoseFinding(), epsilon=(0.05, 0.15), minutes=4, out="runs/dose-finding")
    for epsilon in (0.15, 0.1, 0.07):
        result = cicpe.evaluate(model, epsilon=epsilon, delta=0.1)
        print(f"within {epsilon}: accuracy {result.accuracy:.3f}, {result.mean_queries:.1f} patients on average")
