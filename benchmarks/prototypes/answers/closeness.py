"""Whether an answer would succeed on a target: the loss as a function of the two.

Where the loss is the answer space's distance it is used as it is. Elsewhere its distribution given the target and the
answer is learned from simulations (a lognormal whose parameters a small network gives), so that a loss that also
depends on hidden things becomes a probability of success.

Shapes: B episodes, A answers, N targets, X answer.
"""

import math
from typing import final

import torch
from clock import CLOCK
from jaxtyping import Float
from torch import Generator, Tensor, nn

from cicpe.problems.base import Problem, TaskBatch
from cicpe.spaces import Sphere


@final
class Closeness:
    """Probability that the loss of an answer is at most epsilon, were the target a given one."""

    def __init__(self, problem: Problem, rng: Generator, seconds: float = 6.0) -> None:
        self.problem = problem
        self.network: nn.Sequential | None = None
        if not problem.has_distance_loss and not self._is_distance(rng):
            self._fit(rng, seconds)

    def _is_distance(self, rng: Generator) -> bool:
        """Whether a loss that was written out is the space's distance all the same."""
        hidden = TaskBatch.draw(self.problem, 2048, rng)
        answer = self.problem.answer_space.sample(2048, rng)
        distance = self.problem.answer_space.distance(answer, hidden.target)
        return bool(torch.allclose(hidden.loss(answer), distance, rtol=1e-3, atol=1e-6))

    def _features(self, answer: Tensor, target: Tensor) -> Tensor:
        apart = answer - target
        waves = [f(math.pi * k * apart / 2) for k in (1, 2, 4) for f in (torch.sin, torch.cos)]
        norm = torch.linalg.vector_norm(apart, dim=-1, keepdim=True)
        shape = torch.broadcast_shapes(answer.shape, target.shape)
        return torch.cat([answer.expand(shape), target.expand(shape), apart.abs(), (norm + 0.01).log(), *waves], dim=-1)

    def _fit(self, rng: Generator, seconds: float) -> None:
        problem, space = self.problem, self.problem.answer_space
        wide = self._features(torch.zeros(1, space.dim), torch.zeros(1, space.dim)).shape[-1]
        network = nn.Sequential(nn.Linear(wide, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 2))
        for layer in network:
            if isinstance(layer, nn.Linear):
                layer.weight.data = torch.randn(layer.weight.shape, generator=rng) / math.sqrt(layer.in_features)
                layer.bias.data.zero_()
        optimiser = torch.optim.Adam(network.parameters(), lr=5e-3)
        began = CLOCK()
        while (share := (CLOCK() - began) / seconds) < 1:
            hidden = TaskBatch.draw(problem, 1024, rng)
            target = space.to_unit(hidden.target)
            reach = torch.exp(-4 * torch.rand((1024, 1), generator=rng))
            local = space.project(space.from_unit(target + reach * torch.randn(target.shape, generator=rng)))
            answer = torch.where(torch.rand((1024, 1), generator=rng) < 0.5, local, space.sample(1024, rng))
            log_loss = hidden.loss(answer).clamp_min(1e-9).log()
            mean, log_sd = network(self._features(space.to_unit(answer), target)).unbind(dim=-1)
            log_sd = log_sd.clamp(-4, 3)
            value = (0.5 * ((log_loss - mean) * torch.exp(-log_sd)).square() + log_sd).mean()
            for group in optimiser.param_groups:
                group["lr"] = 5e-3 * (1 - share) + 1e-5
            optimiser.zero_grad()
            value.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
        self.network = network.requires_grad_(False)

    def success(
        self, answer_BAX: Tensor, target_BNX: Tensor, epsilon: float, softness: float = 0.0
    ) -> Float[Tensor, "B A N"]:
        """Probability of success of every answer on every target (both in unit coordinates).

        ``softness`` is the distance, in the loss's units, over which it goes from one to zero: the width of a cell.
        """
        space = self.problem.answer_space
        if self.network is not None:
            seen = self._features(answer_BAX[:, :, None], target_BNX[:, None])
            mean, log_sd = self.network(seen).unbind(dim=-1)
            return torch.special.ndtr((math.log(epsilon) - mean) * torch.exp(-log_sd.clamp(-4, 3)))
        answer, target = space.from_unit(answer_BAX), space.from_unit(target_BNX)
        if isinstance(space, Sphere):
            loss = space.distance(answer[:, :, None], target[:, None])
        else:  # the same as the box's own distance, without every difference in memory
            loss = torch.cdist(answer, target, compute_mode="donot_use_mm_for_euclid_dist")
        if softness == 0:
            return (loss <= epsilon).float()
        return ((epsilon - loss) / softness + 0.5).clamp(0, 1)
