"""A likelihood learned from a simulator, for particles where the problem gives none.

A small network is fitted to simulated (parameters, query, observation, context). Observations that take
two values get a Bernoulli probability an entry; others a Gaussian an entry, with learned mean and spread.
What is hard to learn is a product, of a frequency and a distance for instance, so products are given:
the differences of the query with the target, their squares and norm, each of these times every
parameter, and sines and cosines of linear combinations of all that, whose frequencies are learned.
"""

import math
import time
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cicpe.networks.base import mlp
from cicpe.problems import HiddenTasks, Problem, Task
from cicpe.spaces import Space

WAVES = 64
"""Number of learned frequencies, each with a sine and a cosine."""


class Features(nn.Module):
    """What the network sees of a task and a query."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        space = problem.parameter_space
        assert space is not None
        self.problem, self.space = problem, space
        self.relative = problem.query_space.dim == problem.answer_space.dim
        task = problem.sample(2, torch.Generator().manual_seed(0))
        self.width = self.raw(task, problem.query_space.sample(2, torch.Generator().manual_seed(0))).shape[-1]

    def raw(self, task: Task, query: Tensor) -> Float[Tensor, "n features"]:
        unit = self.space.to_unit(self.problem.parameters(task))
        context = self.problem.context(task)
        place = self.problem.query_space.to_unit(query)
        parts = [unit, place, context, context.abs().clamp_min(1e-6).log()]
        if self.relative:
            target = self.problem.target(task).reshape(len(query), -1)
            apart = place - _unit(self.problem.answer_space, target)
            norm = torch.linalg.vector_norm(apart, dim=-1, keepdim=True) / apart.shape[-1] ** 0.5
            local = torch.cat([apart, apart.square(), norm], dim=-1)
            # A parameter in the units of its box: proportional to what it multiplies, whatever its zero.
            size = self.problem.parameters(task) / torch.tensor(self.space.high).abs().clamp_min(1e-6)
            parts += [local, (local[:, :, None] * size[:, None, :]).flatten(1)]
        return torch.cat(parts, dim=-1)


def _unit(space: Space, point: Tensor) -> Tensor:
    return space.to_unit(point)


@final
class LearnedLikelihood(nn.Module):
    """log p(observation | task, query), in place of ``Problem.log_likelihood``."""

    def __init__(self, problem: Problem, binary: Tensor | None, hidden: int, rng: torch.Generator) -> None:
        super().__init__()
        self.features = Features(problem)
        self.low, self.high = (None, None) if binary is None else (float(binary[0]), float(binary[1]))
        width, outputs = self.features.width, problem.observation_dim
        self.register_buffer("centre", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))
        self.register_buffer("y_centre", torch.zeros(outputs))
        self.register_buffer("y_spread", torch.ones(outputs))
        frequencies = torch.randn((width, WAVES), generator=rng) * 2 / math.sqrt(width)
        self.frequencies = nn.Parameter(frequencies)
        self.body = mlp([width + 2 * WAVES, hidden, hidden, 2 * outputs])

    def outputs(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log spread, or logit and something unused, an entry."""
        scaled = (features - self.centre) / self.spread
        angle = scaled @ self.frequencies
        one, two = self.body(torch.cat([scaled, angle.sin(), angle.cos()], dim=-1)).chunk(2, dim=-1)
        return one, two.clamp(-6, 3)

    def score(self, features: Tensor, observation: Tensor) -> Float[Tensor, " n"]:
        """Log density of observations, from features."""
        one, two = self.outputs(features)
        if self.high is not None:
            yes = (observation == self.high).float()
            return -nn.functional.binary_cross_entropy_with_logits(one, yes, reduction="none").sum(dim=-1)
        error = ((observation - self.y_centre) / self.y_spread - one) * torch.exp(-two)
        return (-0.5 * error.square() - two - torch.log(self.y_spread) - 0.5 * math.log(2 * math.pi)).sum(dim=-1)

    def forward(
        self, task: Task, query: Float[Tensor, "n query"], observation: Float[Tensor, "n observation"]
    ) -> Float[Tensor, " n"]:
        """The log-likelihood of one observation a task."""
        return self.score(self.features.raw(task, query), observation)


def fit_likelihood(
    problem: Problem, seconds: float = 90.0, seed: int = 0, hidden: int = 128, batch: int = 2048
) -> LearnedLikelihood:
    """Fits a likelihood to fresh simulations for ``seconds`` of wall-clock.

    Queries are half uniform and, where a query is a place in the answer's space, half near the target:
    that is where an agent comes to query.
    """
    rng = torch.Generator().manual_seed(seed)

    def draw(n: int) -> tuple[Tensor, Tensor]:
        hidden_tasks = HiddenTasks.draw(problem, n, rng)
        query = problem.query_space.sample(n, rng)
        if problem.query_space.dim == problem.answer_space.dim:
            reach = torch.exp(torch.empty(n, 1).uniform_(math.log(0.02), 0.0, generator=rng))
            near = hidden_tasks.target + reach * problem.query_space.unit_scale * torch.randn(
                query.shape, generator=rng
            )
            query = torch.where(torch.rand(n, 1, generator=rng) < 0.5, query, problem.query_space.project(near))
        return model_features.raw(hidden_tasks.task, query), hidden_tasks.observe(query, rng)

    model_features = Features(problem)
    features, observation = draw(8192)
    values = observation.unique()
    binary = values if len(values) == 2 else None
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # nn.Linear takes no generator; the global one is put back
        model = LearnedLikelihood(problem, binary, hidden, rng)
    model.centre.copy_(features.mean(dim=0))
    model.spread.copy_(features.std(dim=0).clamp_min(1e-3))
    model.y_centre.copy_(observation.mean(dim=0))
    model.y_spread.copy_(observation.std(dim=0).clamp_min(1e-6))
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    began = time.perf_counter()
    while (share := (time.perf_counter() - began) / seconds) < 1:
        for group in optimiser.param_groups:
            group["lr"] = 3e-3 * 0.5 * (1 + math.cos(math.pi * share)) + 1e-6
        loss = -model.score(*draw(batch)).mean()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    return model.eval().requires_grad_(False)
