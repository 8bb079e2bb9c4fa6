"""Two-stage Bayesian argmax localisation (T-BAL): a coarse search, then gradient ascent by finite differences.

For ``gp_argmax``. The constants of the regularity lemma are quantiles over draws from the prior, each at
alpha / 5; the rest is the algorithm of the paper's appendix with d = 1:

    h = min(rho / 8, sqrt(3 Gamma / (2 L))),  n_0 = ceil(128 sigma^2 Gamma^-2 log(2 |G| / delta_0))
    K = ceil(4 L / (3 mu) log(rho / (2 r))),  e_k = rho / 2 (1 - 3 mu / (4 L))^k
    s_k = min(rho / 8, sqrt(3 mu e_k / (4 M))),  n_k = ceil(64 sigma^2 mu^-2 e_k^-2 s_k^-2 log(2 K / delta_1))

The guarantee holds for nearly every function at once and is paid for by the steepest and the flattest: the
counts are very large. ``localise`` therefore draws the averages themselves, which is the same in law.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from cicpe.agents.base import Agent, Proposal
from cicpe.errors import InvalidInput
from cicpe.problems import Problem, TaskBatch
from cicpe.problems.gp_argmax import GPArgmax

WIDE = 4
"""Grid steps between the points of a third difference."""


class Constants(NamedTuple):
    """What holds near the maximum of nearly every function of the prior."""

    radius: float
    """rho: about the maximum, the curvature changes by no more than half over this distance."""
    least_curvature: float
    """mu."""
    most_curvature: float
    """L."""
    third: float
    """M: bound of the third derivative."""
    gap: float
    """Gamma: how much lower everything is that is farther than rho / 2."""


def estimate_constants(problem: GPArgmax, alpha: float, draws: int = 4000, seed: int = 0) -> Constants:
    """Constants of which each fails on a share alpha / 5 of the draws, so that all hold on 1 - alpha of them.

    Args:
        problem: The prior.
        alpha: Share of the functions on which some constant may fail.
        draws: Functions from the prior.
        seed: Seeds them.

    Returns:
        Quantiles over the draws.
    """
    task = problem.sample(draws, torch.Generator().manual_seed(seed))
    f = task.values.double()
    points = f.shape[1]
    step = 1 / (points - 1)
    top = f.argmax(dim=1, keepdim=True)
    second = torch.zeros_like(f)
    second[:, 1:-1] = (f[:, 2:] - 2 * f[:, 1:-1] + f[:, :-2]) / step**2
    second[:, 0], second[:, -1] = second[:, 1], second[:, -2]
    w = WIDE
    third = f[:, 4 * w :] - 2 * f[:, 3 * w : -w] + 2 * f[:, w : -3 * w] - f[:, : -4 * w]
    third = third / (2 * (w * step) ** 3)
    peak = -second.gather(1, top)[:, 0]
    away = (torch.arange(points) - top).abs() * step
    changed = (second + peak[:, None]).abs() > peak[:, None] / 2
    radius = torch.where(changed, away, 1.0).amin(dim=1).clamp(step, max(problem.margin, step))
    rho = _quantile(radius, alpha / 5)
    far = torch.where(away > rho / 2, f, -math.inf).amax(dim=1)
    return Constants(
        radius=rho,
        least_curvature=_quantile(peak / 2, alpha / 5),
        most_curvature=_quantile(second.abs().amax(dim=1), 1 - alpha / 5),
        third=_quantile(third.abs().amax(dim=1), 1 - alpha / 5),
        gap=_quantile(f.amax(dim=1) - far, alpha / 5),
    )


def _quantile(values: Tensor, level: float) -> float:
    return float(torch.quantile(values, level))


@final
@dataclass(frozen=True)
class Plan:
    """Every count and step of T-BAL for one radius, confidence and noise level."""

    constants: Constants
    radius: float
    """r: how near is near enough."""
    delta: float
    """Of which half is for the prior (alpha) and a quarter for each stage."""
    noise: float

    @property
    def stage_delta(self) -> float:
        """delta_0 = delta_1."""
        return self.delta / 4

    @cached_property
    def places(self) -> Float[Tensor, " net"]:
        """The net of stage one: every point of [0, 1] is within h of it."""
        c = self.constants
        h = min(c.radius / 8, math.sqrt(3 * c.gap / (2 * c.most_curvature)))
        count = math.ceil(1 / (2 * h))
        return (torch.arange(count) + 0.5) / count

    @property
    def each(self) -> int:
        """n_0: queries at every place of the net."""
        log = math.log(2 * len(self.places) / self.stage_delta)
        return max(1, math.ceil(128 * self.noise**2 / self.constants.gap**2 * log))

    @cached_property
    def ascent(self) -> tuple[tuple[float, int], ...]:
        """s_k and n_k of every step of stage two."""
        c = self.constants
        ratio = c.most_curvature / c.least_curvature
        steps = max(0, math.ceil(4 / 3 * ratio * math.log(c.radius / (2 * self.radius))))
        plan = []
        for k in range(steps):
            error = c.radius / 2 * (1 - 3 / (4 * ratio)) ** k
            apart = min(c.radius / 8, math.sqrt(3 * c.least_curvature * error / (4 * c.third)))
            scale = 64 * self.noise**2 / (c.least_curvature * error * apart) ** 2
            plan.append((apart, max(1, math.ceil(scale * math.log(2 * steps / self.stage_delta)))))
        return tuple(plan)

    @property
    def queries(self) -> int:
        """All of them: the plan is fixed beforehand."""
        return len(self.places) * self.each + sum(2 * count for _, count in self.ascent)


def plan_for(problem: Problem, radius: float, delta: float) -> Plan:
    """The plan for a problem with one noise level, its constants estimated from the prior.

    Args:
        problem: A ``GPArgmax``.
        radius: How near is near enough.
        delta: Probability of error.

    Returns:
        Every count and step.
    """
    if not isinstance(problem, GPArgmax) or problem.noise[0] != problem.noise[1]:  # type: ignore[index]
        raise InvalidInput("problem", type(problem).__name__, "gp_argmax at one noise level")
    return Plan(estimate_constants(problem, delta / 2), radius, delta, float(problem.noise[1]))  # type: ignore[index]


def localise(plan: Plan, tasks: TaskBatch, rng: Generator) -> Float[Tensor, "n 1"]:
    """Where T-BAL ends on every task, with averages of n observations drawn as one with noise / sqrt(n).

    Args:
        plan: Counts and steps.
        tasks: Of a ``GPArgmax``.
        rng: Draws the noise.

    Returns:
        A place per task.
    """
    problem, n = tasks.problem, len(tasks)
    assert isinstance(problem, GPArgmax)

    def average(place_N: Tensor, count: int) -> Tensor:
        noise = torch.randn(n, generator=rng) * tasks.context[:, 0] / math.sqrt(count)
        return problem.value(tasks.task, place_N[:, None]) + noise

    coarse = torch.stack([average(place.expand(n), plan.each) for place in plan.places], dim=1)
    x = plan.places[coarse.argmax(dim=1)]
    for apart, count in plan.ascent:
        slope = (average(x + apart, count) - average(x - apart, count)) / (2 * apart)
        x = (x + slope / plan.constants.most_curvature).clamp(0, 1)
    return x[:, None]


class TBALState(NamedTuple):
    """Where every episode is, and the sums of what it saw in its current stage."""

    time_B: Int[Tensor, " batch"]
    place_B: Float[Tensor, " batch"]
    coarse_BG: Float[Tensor, "batch net"]
    slope_B: Float[Tensor, " batch"]
    """Sum of the observations above minus those below."""


@final
@dataclass(frozen=True)
class TBAL(Agent):
    """T-BAL query by query: for plans that are short enough to play."""

    plan: Plan

    @property
    def horizon(self) -> int:  # type: ignore[override]
        return self.plan.queries

    @cached_property
    def ends(self) -> Int[Tensor, " stage"]:
        """The number of queries at which each step of the ascent begins, and the end."""
        counts = [len(self.plan.places) * self.plan.each, *(2 * count for _, count in self.plan.ascent)]
        return torch.tensor(counts).cumsum(dim=0)

    def begin(self, context: Float[Tensor, "batch context"]) -> TBALState:
        batch = len(context)
        zeros = torch.zeros(batch)
        net = torch.zeros(batch, len(self.plan.places))
        return TBALState(torch.zeros(batch, dtype=torch.long), zeros + 0.5, net, zeros)

    def propose(self, state: TBALState, rng: Generator) -> Proposal:
        batch, time = len(state.place_B), int(state.time_B[0])
        done = time >= self.horizon
        if time < int(self.ends[0]):
            query = self.plan.places[time // self.plan.each].expand(batch)
        elif done:
            query = state.place_B
        else:
            apart, above, _ = self._step(time)
            query = state.place_B + (apart if above else -apart)
        confidence = torch.full((batch,), 1 - self.plan.delta if done else 0.0)
        stop = torch.full((batch,), done)
        answer = state.place_B[:, None]
        return Proposal(query.clamp(0, 1)[:, None, None], stop, answer, confidence, torch.zeros_like(answer))

    def _step(self, time: int) -> tuple[float, bool, bool]:
        """In the ascent: the distance of the query, whether it goes up, and whether it is the step's last."""
        k = int(torch.searchsorted(self.ends, time, right=True)) - 1
        apart, count = self.plan.ascent[k]
        within = time - int(self.ends[k])
        return apart, within < count, within == 2 * count - 1

    def update(
        self, state: TBALState, query: Float[Tensor, "batch query"], observation: Float[Tensor, "batch observation"]
    ) -> TBALState:
        time, value = int(state.time_B[0]), observation[:, 0]
        later = state._replace(time_B=state.time_B + 1)
        if time < int(self.ends[0]):
            coarse = state.coarse_BG.clone()
            coarse[:, time // self.plan.each] += value
            last = time + 1 == int(self.ends[0])
            place = self.plan.places[coarse.argmax(dim=1)] if last else state.place_B
            return later._replace(coarse_BG=coarse, place_B=place)
        apart, above, last = self._step(time)
        slope = state.slope_B + (value if above else -value)
        if not last:
            return later._replace(slope_B=slope)
        count = self.plan.ascent[int(torch.searchsorted(self.ends, time, right=True)) - 1][1]
        rise = slope / (2 * apart * count) / self.plan.constants.most_curvature
        return later._replace(slope_B=torch.zeros_like(slope), place_B=(state.place_B + rise).clamp(0, 1))
