"""Maximum likelihood from simulations: the answer-conditioned likelihood, codes marginalised.

The loss of a history is -log sum_k pi_k(x*) p(y_1..y_T | a_1..a_T, x*, z_k), per observation. How many codes
there are, and which head real observations get, is decided by the validation loss after short slices.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from clock import CLOCK
from heads import Heads, choose_heads, has_real_entries
from score_network import ScoreNetwork
from simulate import Histories, simulate
from task_numbers import TaskNumbers
from torch import Generator, Tensor, nn

from cicpe.problems.base import Problem

MARGIN = 0.01
"""How much better, per observation, a mixture has to be than a Gaussian, which is three times as fast."""


class Choice(NamedTuple):
    """One way to model a family: number of codes, linear effects of real entries, heavier tails, nuisance read."""

    codes: int
    effects: int = 0
    tails: bool = False
    given: bool = False
    """Whether the nuisance is read from the tasks' numbers; codes are then points of it."""


@final
@dataclass(frozen=True)
class FitConfig:
    """Sizes of the fit."""

    hidden: int = 64
    """Hidden units of the network."""
    steps: int = 16
    """Observations a history."""
    work: int = 12_000
    """About how many (observation, code) pairs an update scores."""
    rate: float = 4e-3
    """Peak learning rate."""
    codes: tuple[int, ...] = (1, 8, 32)
    """Numbers of codes that are compared."""
    points: tuple[int, ...] = (1, 64, 256, 384)
    """Points of a nuisance that is read, by how many numbers it has; the last for more."""
    race_share: float = 0.3
    """Share of the time for the comparison."""
    seed: int = 0
    """Seed of everything random."""


@final
@dataclass
class Fit:
    """A network under training, with its optimiser's state and what it saw."""

    problem: Problem
    choice: Choice
    heads: Heads
    network: ScoreNetwork
    config: FitConfig
    rng: Generator
    optimiser: torch.optim.Optimizer
    numbers: TaskNumbers | None = None
    updates: int = 0
    spent: float = 0.0

    @classmethod
    def start(cls, problem: Problem, choice: Choice, config: FitConfig) -> "Fit":
        """A fresh network whose heads a pilot chose."""
        rng = torch.Generator().manual_seed(config.seed)
        pilot = simulate(problem, 512, 16, rng)
        heads = choose_heads(pilot.observation_BTY.flatten(0, 1), choice.effects, choice.tails)
        numbers = TaskNumbers.find(problem, rng) if choice.given else None
        points = shares = None
        if choice.given:
            assert numbers is not None
            points, shares = _spread_out(numbers.read(problem.sample(4000, rng)), choice.codes)
        network = ScoreNetwork(
            problem.query_space.dim,
            problem.answer_space.dim,
            pilot.context_BC,
            heads.parameters,
            rng,
            codes=choice.codes,
            hidden=config.hidden,
            points=points,
            shares=shares,
        )
        optimiser = torch.optim.Adam(network.parameters(), lr=config.rate, betas=(0.9, 0.98))
        return cls(problem, choice, heads, network, config, rng, optimiser, numbers)

    def loss(self, histories: Histories) -> Tensor:
        """Negative log-likelihood per observation of whole histories, one a history."""
        return history_loss(self.network, self.heads, self.problem, histories)

    def train(
        self,
        seconds: float | None = None,
        updates: int | None = None,
        played: Histories | None = None,
        start_rate: float = 1.0,
        end_rate: float = 0.02,
    ) -> None:
        """Goes on for some wall-clock seconds or a number of updates, the rate falling as a cosine.

        Up to half of a batch comes from ``played``: histories that the belief itself queried.
        """
        assert (seconds is None) != (updates is None)
        began, done = CLOCK(), 0
        steps = self.config.steps
        batch = max(24, self.config.work // (steps * (1 if self.choice.given else self.choice.codes)))
        batch = min(batch, 256)
        while True:
            share = done / updates if updates is not None else (CLOCK() - began) / max(seconds, 1e-3)
            if share >= 1:
                break
            rate = end_rate + (start_rate - end_rate) * 0.5 * (1 + math.cos(math.pi * share))
            rate *= min(1.0, (self.updates + 1) / 50)
            for group in self.optimiser.param_groups:
                group["lr"] = self.config.rate * rate
            # Few episodes of its own are not shown often: they would be learned by heart.
            few = 0 if played is None else min(batch // 2, len(played.target_BX) // 8)
            loss = self.loss(simulate(self.problem, batch - few, steps, self.rng, self.numbers)).mean()
            if played is not None and few:
                own = played.rows(torch.randint(len(played.target_BX), (few,), generator=self.rng))
                loss = ((batch - few) * loss + few * self.loss(own).mean()) / batch
            self.optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self.optimiser.step()
            self.updates += 1
            done += 1
        self.spent += CLOCK() - began

    @torch.no_grad()
    def validate(self, histories: Histories) -> float:
        """The mean loss of held-out histories."""
        parts = [self.loss(histories.rows(index)) for index in torch.arange(len(histories.target_BX)).split(64)]
        return float(torch.cat(parts).mean())


def history_loss(network: ScoreNetwork, heads: Heads, problem: Problem, histories: Histories) -> Tensor:
    """Negative log-likelihood per observation of each history given its own target."""
    query = problem.query_space.to_unit(histories.query_BTQ)
    answer_BX = problem.answer_space.to_unit(histories.target_BX)
    if network.given:
        parameters_BTP = network(
            query, answer_BX[:, None], histories.context_BC[:, None], histories.nuisance_BD[:, None]
        )
        evidence = heads.evidence(parameters_BTP, heads.encode(histories.observation_BTY)).sum(dim=1)
        return -heads.log_likelihood(evidence) / query.shape[1]
    parameters_BTKP = network(query, answer_BX[:, None], histories.context_BC[:, None])
    encoded_BT1Y = heads.encode(histories.observation_BTY)[:, :, None]
    sums_BKS = heads.evidence(parameters_BTKP, encoded_BT1Y).sum(dim=1)
    log_mix_BK = network.log_mix(answer_BX, histories.context_BC)
    return -(heads.log_likelihood(sums_BKS) + log_mix_BK).logsumexp(dim=-1) / query.shape[1]


def _spread_out(points_MD: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """``n`` of many points, spread out by a few rounds of k-means from evenly chosen ones, and their shares."""
    if points_MD.shape[1] == 0:
        return points_MD[:1], torch.ones(1)
    centre = points_MD[torch.linspace(0, len(points_MD) - 1, n).long()].clone()
    for _ in range(12):
        nearest = torch.cdist(points_MD, centre).argmin(dim=1)
        count = torch.zeros(n).index_add_(0, nearest, torch.ones(len(points_MD)))
        total = torch.zeros_like(centre).index_add_(0, nearest, points_MD)
        centre = torch.where((count > 0)[:, None], total / count.clamp_min(1)[:, None], centre)
    return centre, count


def choices(problem: Problem, config: FitConfig, given: bool) -> list[Choice]:
    """The models that are compared for a problem."""
    pilot = simulate(problem, 512, 16, torch.Generator().manual_seed(config.seed)).observation_BTY.flatten(0, 1)
    if given:
        numbers = TaskNumbers.find(problem, torch.Generator().manual_seed(config.seed))
        assert numbers is not None
        points = config.points[min(numbers.size, len(config.points) - 1)]
        found = [Choice(points, given=True)]
        return found + ([Choice(points, tails=True, given=True)] if has_real_entries(pilot) else [])
    if not has_real_entries(pilot):
        return [Choice(codes) for codes in config.codes]
    few, middle = config.codes[0], config.codes[1]
    found = [Choice(codes) for codes in config.codes]
    return [
        *found,
        Choice(few, effects=3),
        Choice(middle, effects=3),
        Choice(few, tails=True),
        Choice(middle, tails=True),
    ]


def race(
    problem: Problem, seconds: float, config: FitConfig, given: bool, say: Callable[[str], None] = lambda _: None
) -> Fit:
    """The model with the best validation loss after two rounds of short slices (halving)."""
    rng = torch.Generator().manual_seed(config.seed + 1)
    fits = [Fit.start(problem, choice, config) for choice in choices(problem, config, given)]
    held_out = simulate(problem, 256, 2 * config.steps, rng, fits[0].numbers)
    for _ in range(2):
        for fit in fits:
            fit.train(seconds=0.5 * seconds / len(fits), start_rate=0.7, end_rate=0.15)
        scored = sorted((fit.validate(held_out) + MARGIN * fit.choice.tails, place) for place, fit in enumerate(fits))
        say("; ".join(f"{fits[place].choice} {loss:.4f} ({fits[place].updates})" for loss, place in scored))
        fits = [fits[place] for _, place in scored[: max(2, len(fits) // 3)]]
        if len(fits) == 1:
            break
    return fits[0]
