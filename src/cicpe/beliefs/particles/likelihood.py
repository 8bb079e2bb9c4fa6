"""A likelihood learned from a simulator, for particles where the problem gives none.

A small network is fitted to simulated (parameters, query, observation, context). Observations that take
two values get a Bernoulli probability an entry; others a Gaussian an entry, with learned mean and spread.
What is hard to learn is a product, of a frequency and a distance for instance, so products are given:
the norm of the difference between query and target times every parameter; and, for every coordinate j of
that difference u and rates w that are linear in the parameters, mean_j cos(w u_j) and mean_j sin(w u_j).
"""

import math
import time
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cicpe.beliefs.network.layers import mlp
from cicpe.problems import Problem, Task, TaskBatch

RATES = (2.0, 4.0, 8.0, 16.0)
"""Radians per unit of distance and of each factor, at the start."""


class Inputs(NamedTuple):
    """What the network sees of a task and a query."""

    flat: Float[Tensor, "n features"]
    apart: Float[Tensor, "n coordinate"]
    """Query minus target, where they have as many coordinates; a zero elsewhere."""
    size: Float[Tensor, "n factor"]
    """One, and every parameter relative to the end of its box: what a difference may be multiplied by."""


def inputs(problem: Problem, task: Task, query: Float[Tensor, "n query"]) -> Inputs:
    """Parameters, query, context, and their differences and products."""
    space = problem.parameter_space
    assert space is not None
    parameters, context = problem.parameters(task), problem.context(task)
    place = problem.query_space.to_unit(query)
    size = parameters / torch.tensor([space.low, space.high]).abs().amax(dim=0).clamp_min(1e-6)
    parts = [space.to_unit(parameters), place, context, context.abs().clamp_min(1e-6).log()]
    apart = torch.zeros(len(query), 1)
    if problem.query_space.dim == problem.answer_space.dim:
        apart = place - problem.answer_space.to_unit(problem.target(task).reshape(len(query), -1))
        norm = torch.linalg.vector_norm(apart, dim=-1, keepdim=True) / apart.shape[-1] ** 0.5
        parts += [apart, apart.square(), norm, norm * size]
    return Inputs(torch.cat(parts, dim=-1), apart, torch.cat([torch.ones(len(query), 1), size], dim=-1))


@final
class LearnedLikelihood(nn.Module):
    """log p(observation | task, query), in place of ``Problem.log_likelihood``."""

    binary: Tensor
    """Whether observations take two values, of which ``high`` is the larger."""
    high: Tensor
    centre: Tensor
    spread: Tensor
    y_centre: Tensor
    y_spread: Tensor

    def __init__(self, problem: Problem, hidden: int) -> None:
        super().__init__()
        self.problem = problem
        self.register_buffer("binary", torch.tensor(False))
        self.register_buffer("high", torch.tensor(0.0))
        task = problem.sample(1, torch.Generator().manual_seed(0))
        seen = inputs(problem, task, problem.query_space.sample(1, torch.Generator().manual_seed(0)))
        width, outputs = seen.flat.shape[-1], problem.observation_dim
        self.register_buffer("centre", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))
        self.register_buffer("y_centre", torch.zeros(outputs))
        self.register_buffer("y_spread", torch.ones(outputs))
        # At first each rate is proportional to one factor: a random mixture of all was learned far more slowly.
        rates = torch.cat([rate * torch.eye(seen.size.shape[-1]) for rate in RATES], dim=-1)
        self.log_gain = nn.Parameter(torch.zeros(rates.shape[-1]))
        self.rates = nn.Parameter(rates)
        self.body = mlp([width + 2 * rates.shape[-1], hidden, hidden, 2 * outputs])

    def outputs(self, seen: Inputs) -> tuple[Tensor, Tensor]:
        """Mean and log spread, or logit and something unused, an entry."""
        scaled = (seen.flat - self.centre) / self.spread
        angle_NJK = seen.apart[:, :, None] * (seen.size @ self.rates * self.log_gain.exp())[:, None, :]
        waves = [angle_NJK.cos().mean(dim=1), angle_NJK.sin().mean(dim=1)]
        centre, log_spread = self.body(torch.cat([scaled, *waves], dim=-1)).chunk(2, dim=-1)
        return centre, log_spread.clamp(-6, 3)

    def score(self, seen: Inputs, observation: Tensor) -> Float[Tensor, " n"]:
        """Log density of observations, from the network's inputs."""
        centre, log_spread = self.outputs(seen)
        if bool(self.binary):
            yes = (observation == self.high).float()
            return -nn.functional.binary_cross_entropy_with_logits(centre, yes, reduction="none").sum(dim=-1)
        error = ((observation - self.y_centre) / self.y_spread - centre) * torch.exp(-log_spread)
        return (-0.5 * error.square() - log_spread - torch.log(self.y_spread) - 0.5 * math.log(2 * math.pi)).sum(dim=-1)

    def forward(
        self, task: Task, query: Float[Tensor, "n query"], observation: Float[Tensor, "n observation"]
    ) -> Float[Tensor, " n"]:
        """The log-likelihood of one observation per task."""
        return self.score(inputs(self.problem, task, query), observation)


def fit_likelihood(
    problem: Problem,
    seconds: float = 90.0,
    seed: int = 0,
    hidden: int = 64,
    batch: int = 2048,
    updates: int | None = None,
) -> LearnedLikelihood:
    """Fits a likelihood to fresh simulations, for ``seconds`` of wall-clock or a number of ``updates``.

    Queries are half uniform and, where a query is a place in the answer's space, half near the target:
    that is where an agent comes to query.
    """
    rng = torch.Generator().manual_seed(seed)

    def draw(n: int) -> tuple[Inputs, Tensor]:
        hidden_tasks = TaskBatch.draw(problem, n, rng)
        query = problem.query_space.sample(n, rng)
        if problem.query_space.dim == problem.answer_space.dim:
            reach = torch.exp(torch.empty(n, 1).uniform_(math.log(0.02), 0.0, generator=rng))
            near = hidden_tasks.target + reach * problem.query_space.unit_scale * torch.randn(
                query.shape, generator=rng
            )
            query = torch.where(torch.rand(n, 1, generator=rng) < 0.5, query, problem.query_space.project(near))
        return inputs(problem, hidden_tasks.task, query), hidden_tasks.observe(query, rng)

    seen, observation = draw(8192)
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # nn.Linear takes no generator; the global one is put back
        model = LearnedLikelihood(problem, hidden)
    values = torch.unique(observation)
    model.binary.fill_(len(values) == 2)
    model.high.fill_(float(values[-1]))
    model.centre.copy_(seen.flat.mean(dim=0))
    model.spread.copy_(seen.flat.std(dim=0).clamp_min(1e-3))
    model.y_centre.copy_(observation.mean(dim=0))
    model.y_spread.copy_(observation.std(dim=0).clamp_min(1e-6))
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    began = time.perf_counter()
    done = 0
    while (share := done / updates if updates is not None else (time.perf_counter() - began) / seconds) < 1:
        done += 1
        for group in optimiser.param_groups:
            group["lr"] = 3e-3 * 0.5 * (1 + math.cos(math.pi * share)) + 1e-6
        loss = -model.score(*draw(batch)).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    return model.eval().requires_grad_(False)
