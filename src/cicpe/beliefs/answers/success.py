"""Whether an answer would succeed on a target: the loss as a function of the two.

Where the loss is the answer space's distance it is used as it is. Elsewhere its distribution given the target and the
answer is learned from simulations (a lognormal, whose parameters a small network gives), so that a loss that also
depends on hidden things becomes a probability of success.

Shapes: B episodes, A answers, N targets, X answer.
"""

import math
import time
from typing import final

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from cicpe.problems.base import Problem, TaskBatch
from cicpe.spaces import Space, Sphere

HIDDEN = 48
RATE = 5e-3


@final
class Success(nn.Module):
    """The probability that the loss of an answer is at most epsilon, were the target a given one."""

    def __init__(self, space: Space, learned: bool) -> None:
        super().__init__()
        self.space, self.learned = space, learned
        if learned:
            wide = self._features(torch.zeros(1, space.dim), torch.zeros(1, space.dim)).shape[-1]
            layers = nn.Linear(wide, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, 2)
            self.network = nn.Sequential(*layers)

    @classmethod
    def learn(cls, problem: Problem, rng: Generator, seconds: float, updates: int = 2000) -> "Success":
        """What a family's loss asks for.

        Args:
            problem: The family.
            rng: Draws tasks, answers and the first weights.
            seconds: How long a network may be fitted.
            updates: For how many steps at most.

        Returns:
            The space's distance where that is the loss, else a fitted network.
        """
        success = cls(problem.answer_space, not problem.has_distance_loss and not _is_distance(problem, rng))
        if success.learned:
            success._fit(problem, rng, seconds, updates)
        return success.requires_grad_(False)

    def _fit(self, problem: Problem, rng: Generator, seconds: float, updates: int) -> None:
        for layer in self.network:
            if isinstance(layer, nn.Linear):
                layer.weight.data = torch.randn(layer.weight.shape, generator=rng) / math.sqrt(layer.in_features)
                layer.bias.data.zero_()
        optimiser = torch.optim.Adam(self.network.parameters(), lr=RATE)
        began = time.perf_counter()
        for update in range(updates):
            share = max(update / updates, (time.perf_counter() - began) / max(seconds, 1e-3))
            if share >= 1:
                break
            for group in optimiser.param_groups:
                group["lr"] = RATE * (1 - share) + 1e-5
            loss = self._nll(problem, rng)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            optimiser.step()

    def _nll(self, problem: Problem, rng: Generator, n: int = 1024) -> Tensor:
        """Negative log-likelihood of the losses of answers near and far."""
        space, tasks = self.space, TaskBatch.draw(problem, n, rng)
        target = space.to_unit(tasks.target)
        reach = torch.exp(-4 * torch.rand((n, 1), generator=rng))
        local = space.project(space.from_unit(target + reach * torch.randn(target.shape, generator=rng)))
        answer = torch.where(torch.rand((n, 1), generator=rng) < 0.5, local, space.sample(n, rng))
        log_loss = tasks.loss(answer).clamp_min(1e-9).log()
        mean, log_std = self._moments(space.to_unit(answer), target)
        return (0.5 * ((log_loss - mean) * torch.exp(-log_std)).square() + log_std).mean()

    def _features(self, answer: Tensor, target: Tensor) -> Tensor:
        apart = answer - target
        waves = [f(math.pi * k * apart / 2) for k in (1, 2, 4) for f in (torch.sin, torch.cos)]
        norm = torch.linalg.vector_norm(apart, dim=-1, keepdim=True)
        answer, target = torch.broadcast_tensors(answer, target)  # type: ignore[no-untyped-call]
        return torch.cat([answer, target, apart.abs(), (norm + 0.01).log(), *waves], dim=-1)

    def _moments(self, answer: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation of the log loss."""
        mean, log_std = self.network(self._features(answer, target)).unbind(dim=-1)
        return mean, log_std.clamp(-4, 3)

    def forward(
        self, answer_BAX: Tensor, target_BNX: Tensor, epsilon: float, softness: float = 0.0
    ) -> Float[Tensor, "B A N"]:
        """The probability of success of every answer on every target, both in unit coordinates.

        Args:
            answer_BAX: Answers.
            target_BNX: Targets.
            epsilon: How far off an answer may be.
            softness: The distance, in the loss's units, over which success goes from one to zero: the width of a cell.
        """
        if self.learned:
            mean, log_std = self._moments(answer_BAX[:, :, None], target_BNX[:, None])
            value: Tensor = torch.special.ndtr((math.log(epsilon) - mean) * torch.exp(-log_std))
            return value
        answer, target = self.space.from_unit(answer_BAX), self.space.from_unit(target_BNX)
        if isinstance(self.space, Sphere):
            loss = self.space.distance(answer[:, :, None], target[:, None])
        else:  # the same as the box's own distance, without every difference in memory
            loss = torch.cdist(answer, target, compute_mode="donot_use_mm_for_euclid_dist")
        if softness == 0:
            return (loss <= epsilon).float()
        return ((epsilon - loss) / softness + 0.5).clamp(0, 1)


def _is_distance(problem: Problem, rng: Generator, n: int = 1024) -> bool:
    """Whether a loss that was written out is the space's distance all the same."""
    tasks = TaskBatch.draw(problem, n, rng)
    answer = problem.answer_space.sample(n, rng)
    distance = problem.answer_space.distance(answer, tasks.target)
    return bool(torch.allclose(tasks.loss(answer), distance, rtol=1e-3, atol=1e-6))
