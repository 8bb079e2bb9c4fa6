"""Learns a family from simulations within a budget: what is hidden, the prior, success and the likelihood.

The likelihood is fitted by maximum likelihood, conditional on what is hidden, so that any queries will do. Which head
real observations have is decided by the loss of held-out histories after short slices.
"""

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import final

import torch
from torch import Generator, Tensor, nn

from cicpe.beliefs.answers.head_choice import choose_heads
from cicpe.beliefs.answers.hidden import PILOT, Nuisance
from cicpe.beliefs.answers.histories import Histories, HistoryPool, places_of, simulate
from cicpe.beliefs.answers.joint_heads import Heads
from cicpe.beliefs.answers.model import AnswerModel
from cicpe.beliefs.answers.prior import Prior
from cicpe.beliefs.answers.query_scale import QueryScale
from cicpe.beliefs.answers.repeats import entries_depend, noise_is_a_share, observe_repeatedly
from cicpe.beliefs.answers.success import Success
from cicpe.errors import InvalidInput
from cicpe.problems.base import Problem, TaskBatch
from cicpe.problems.structure import declared_kinds

HEAVIER = 0.005
"""How much better, per observation, a mixture has to be than a Gaussian, which is three times as fast."""
RACE = 0.2
"""Share of the time for the comparison of heads."""
CODES = 32
"""Points that stand for a nuisance which cannot be read."""
LOSS_SECONDS = 6.0
"""Most seconds for learning a loss that is no distance."""
SCALE_SHARE = 0.2
"""Share of looking at tasks for the scale of queries."""
REPEATS_SHARE = 0.2
"""Share of it for whether entries of an observation depend on each other."""
MAP_SECONDS = 10.0
"""Most seconds for learning the answer as a function of the hidden numbers."""
UNEXPLAINED = 0.15
"""How wrong that function may be, by its own measure; else, where they will do, codes are learned."""
SCARCE = 60_000
"""Observations below which a network would learn their noise by heart."""
SIMULATING = 0.8
"""Share of the time for simulating them."""
EPOCHS, FEWEST_ON_FEW, MOST_ON_FEW = 40, 200, 1500
"""How often each is shown, within these numbers of updates."""
DECAY = 0.1
"""Decay of the weights meanwhile, per unit of the learning rate."""
CHECKED = 20
"""Updates after which the network is judged by histories that it is not shown."""
WARM_UP = 50
"""Updates over which the learning rate rises."""


@final
@dataclass(frozen=True)
class LearningSizes:
    """How the likelihood is learned."""

    hidden: int = 32
    """Units of the network."""
    steps: int = 8
    """Observations per task."""
    batch: int = 512
    """Tasks per update; fewer where a nuisance has to be discovered."""
    rate: float = 4e-3
    """Peak learning rate."""
    prior_draws: int = 20_000
    """Simulated tasks that the prior is made of."""


@final
@dataclass
class Limit:
    """Seconds of wall-clock or a number of updates: what a stage of learning may take."""

    seconds: float | None = None
    updates: int | None = None
    done: int = 0
    began: float = field(default_factory=lambda: time.perf_counter())

    def part(self, share: float) -> "Limit":
        """A part of what there is in all."""
        seconds = None if self.seconds is None else share * self.seconds
        return Limit(seconds, None if self.updates is None else max(1, round(share * self.updates)))

    def rest(self) -> "Limit":
        """What is left."""
        spent = time.perf_counter() - self.began
        seconds = None if self.seconds is None else max(0.0, self.seconds - spent)
        return Limit(seconds, None if self.updates is None else max(0, self.updates - self.done))

    @property
    def progress(self) -> float:
        """From 0 to 1."""
        by_time = 0.0 if self.seconds is None else (time.perf_counter() - self.began) / max(self.seconds, 1e-3)
        return max(by_time, 0.0 if self.updates is None else self.done / max(1, self.updates))


@final
@dataclass
class Learner:
    """A model under training, with its optimiser's state."""

    model: AnswerModel
    pool: HistoryPool
    sizes: LearningSizes
    optimiser: torch.optim.Optimizer
    updates: int = 0
    had_few: bool = False
    """Whether histories were so few that it learned from the same ones again and again."""

    def loss(self, histories: Histories) -> Tensor:
        """Negative log-likelihood per observation of each history."""
        encoded = self.model.heads.encode(histories.observation_BTY)
        return self.model.history_loss(histories.query_BTQ, encoded, histories.place_BV, histories.context_BC)

    def train(
        self,
        limit: Limit,
        start_rate: float = 1.0,
        end_rate: float = 0.02,
        on_progress: Callable[[float], None] = lambda share: None,
    ) -> None:
        """Goes on within a limit; the learning rate falls as a cosine."""
        if self.has_few(limit):
            self.simulate(limit, on_progress)
            self.learn_from_few(limit.rest(), start_rate)
            return
        while (share := limit.progress) < 1:
            self._set_rate(share, start_rate, end_rate)
            self._update(self.pool.batch(self._batch))
            limit.done += 1
            if self.updates % 20 == 0:
                on_progress(share)

    @property
    def _batch(self) -> int:
        """Tasks per update."""
        codes = 0 if self.model.codes is None else len(self.model.codes.points_KD)
        return self.sizes.batch if not codes else max(24, 2 * self.sizes.batch // codes)

    def _set_rate(self, share: float, start_rate: float, end_rate: float) -> None:
        rate = end_rate + (start_rate - end_rate) * 0.5 * (1 + math.cos(math.pi * share))
        for group in self.optimiser.param_groups:
            group["lr"] = self.sizes.rate * rate * min(1.0, (self.updates + 1) / WARM_UP)

    def _update(self, histories: Histories) -> None:
        loss = self.loss(histories).mean()
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.updates += 1

    def has_few(self, limit: Limit) -> bool:
        """Whether simulating is so slow that histories are few within a limit."""
        seconds = limit.rest().seconds
        return seconds is not None and self.sizes.steps * self.pool.affordable(SIMULATING * seconds) < SCARCE

    def simulate(self, limit: Limit, on_progress: Callable[[float], None]) -> None:
        """Simulates for most of a limit."""
        self.had_few = True
        while limit.progress < SIMULATING:
            self.pool.simulate_more()
            on_progress(limit.progress)

    def learn_from_few(self, limit: Limit, start_rate: float = 1.0) -> float:
        """Learns from the histories that there are until it begins to learn their noise.

        A network that sees a few thousand observations again and again is soon sure of their noise. So it is judged by
        histories that it is not shown, its weights decay, and those that judged best are kept.

        Args:
            limit: What it may take.
            start_rate: The learning rate at the start, of the peak.

        Returns:
            The mean loss of the histories that it was judged by.
        """
        shown, judging = self.pool.known()
        n = len(shown.place_BV)
        batch = min(self._batch, max(32, n // 8))
        updates = min(MOST_ON_FEW, max(FEWEST_ON_FEW, EPOCHS * n // batch))
        best, kept = self.validate(judging), copy.deepcopy(self.model.state_dict())
        for update in range(updates):
            if limit.progress >= 1:
                break
            self._set_rate(update / updates, start_rate, 0.02)
            self._update(shown.rows(torch.randint(n, (batch,), generator=self.pool.rng)))
            self._decay()
            if update % CHECKED == CHECKED - 1 and (loss := self.validate(judging)) < best:
                best, kept = loss, copy.deepcopy(self.model.state_dict())
        self.model.load_state_dict(kept)
        return best

    @torch.no_grad()
    def _decay(self) -> None:
        """Draws the weights towards zero, by the learning rate."""
        for group in self.optimiser.param_groups:
            for weight in group["params"]:
                weight.mul_(1 - DECAY * group["lr"])

    def longer(self, limit: Limit) -> "Learner":
        """A copy that is trained on, so that what was fitted before stays as it is."""
        model = copy.deepcopy(self.model)
        trained = [*model.network.parameters(), *([] if model.codes is None else model.codes.parameters())]
        for parameter in trained:
            parameter.requires_grad_(True)
        optimiser = torch.optim.Adam(trained, lr=self.sizes.rate, betas=(0.9, 0.98))
        optimiser.load_state_dict(self.optimiser.state_dict())
        pool = replace(self.pool, began=time.perf_counter(), seconds=0.0, simulated=0)
        learner = Learner(model, pool, self.sizes, optimiser, self.updates)
        learner.train(limit, start_rate=0.5)
        model.requires_grad_(False)
        return learner

    @torch.no_grad()
    def validate(self, histories: Histories) -> float:
        """The mean loss of held-out histories."""
        rows = torch.arange(len(histories.place_BV)).split(64)  # type: ignore[no-untyped-call]
        return float(torch.cat([self.loss(histories.rows(index)) for index in rows]).mean())


@final
@dataclass(frozen=True)
class Family:
    """What is known of a family before its likelihood is fitted."""

    problem: Problem
    nuisance: Nuisance | None
    prior: Prior
    success: Success
    sizes: LearningSizes
    seed: int
    timed: bool
    """Whether there is a limit in seconds: without one nothing depends on a clock."""
    scale: QueryScale
    """Of queries."""
    coupled: bool = False
    """Whether entries of an observation depend on each other, given everything that is hidden."""
    noise_shares: tuple[bool | None, ...] = ()
    """Whether the noise of each entry is a share of the reading; None where that cannot be told."""

    @classmethod
    def look(cls, problem: Problem, sizes: LearningSizes, seed: int, seconds: float | None) -> "Family":
        """Looks at simulated tasks, for a few seconds at most where there is a limit."""
        rng = torch.Generator().manual_seed(seed + 7)
        most = math.inf
        if seconds is not None:
            most = max(seconds, 0.1) / max(_seconds_per_draw(problem, rng), 1e-9)
        nuisance = Nuisance.find(problem, int(max(256, min(PILOT, 0.2 * most))), rng)
        if nuisance is None and not _is_searchable(problem, rng):
            raise InvalidInput(
                "recipe",
                "answers",
                "another one: tasks hold more than numbers, or too many, and the answer has several coordinates",
            )
        draws = TaskBatch.draw(problem, int(max(1024, min(sizes.prior_draws, 0.5 * most))), rng)
        gives_answer = nuisance is not None and nuisance.gives_answer
        allowed = math.inf if seconds is None else min(MAP_SECONDS, seconds)
        tilts = nuisance is not None
        prior = Prior.learn(places_of(draws, nuisance), problem.answer_space, rng, gives_answer, allowed, tilts)
        if prior.unexplained > UNEXPLAINED and _is_searchable(problem, rng):
            nuisance = None
            prior = Prior.learn(places_of(draws, None), problem.answer_space, rng)
        values = prior.values()
        allowed = math.inf if seconds is None else min(LOSS_SECONDS, 0.5 * seconds)
        success = Success.learn(problem, nuisance, None if values is None else values[0], rng, allowed)
        looked = torch.Generator().manual_seed(seed + 11)
        scale = QueryScale.find(problem, looked, None if seconds is None else SCALE_SHARE * seconds)
        repeated = torch.Generator().manual_seed(seed + 13)
        seen = observe_repeatedly(problem, repeated, None if seconds is None else REPEATS_SHARE * seconds)
        timed, coupled, shares = seconds is not None, entries_depend(seen), noise_is_a_share(seen)
        return cls(problem, nuisance, prior, success, sizes, seed, timed, scale, coupled, shares)

    def learner(self, heavy_tails: bool, pool: HistoryPool | None = None) -> Learner:
        """A fresh network whose heads a pilot chose; with the histories of another, where these are given."""
        rng = torch.Generator().manual_seed(self.seed)
        pool = pool or HistoryPool(self.problem, self.sizes.steps, rng, self.nuisance, self.scale, self.timed)
        pilot = self._pilot(rng)
        declared = declared_kinds(self.problem, pilot.observation_BTY.shape[-1])
        seen = pilot.observation_BTY.flatten(0, 1)
        heads = Heads(choose_heads(seen, heavy_tails, declared, self.noise_shares), self.coupled)
        spaces = self.problem.query_space, self.problem.answer_space
        codes = CODES if self.nuisance is None else 0
        contexts = len(self.problem.context_names)
        model = AnswerModel(
            spaces, heads, self.prior, contexts, codes, self.success, self.sizes.hidden, rng, self.scale.offsets
        )
        model.network.standardise(pilot.context_BC)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return Learner(model, pool, self.sizes, torch.optim.Adam(trained, lr=self.sizes.rate, betas=(0.9, 0.98)))

    def _pilot(self, rng: Generator, n: int = 512) -> Histories:
        if self.timed:
            n = int(min(n, max(24, 2.0 / (16 * _seconds_per_task(self.problem, rng)))))
        return simulate(self.problem, n, 16, rng, self.nuisance, self.scale)

    def learn(self, limit: Limit, on_progress: Callable[[float], None] = lambda share: None) -> Learner:
        """The likelihood with the best head for real observations, trained for all of the limit."""
        both = [self.learner(heavy_tails=False)]
        learner = both[0]
        if any(head.is_real for head in learner.model.heads.heads):
            both.append(self.learner(heavy_tails=True, pool=learner.pool if self.timed else None))
        if learner.has_few(limit):
            learner.simulate(limit, on_progress)
            each = limit.rest().part(1 / len(both))
            losses = [contender.learn_from_few(each.rest()) for contender in both]
            learner = both[losses.index(min(losses))]
            learner.had_few = True
        elif len(both) > 1:
            held_out = self._pilot(torch.Generator().manual_seed(self.seed + 1), 256)
            for contender in both:
                contender.train(limit.part(RACE / 2), start_rate=0.7, end_rate=0.15)
                limit.done += contender.updates
            learner = min(both, key=lambda candidate: candidate.validate(held_out) + HEAVIER * (candidate is both[1]))
        if not learner.had_few:
            learner.train(limit.rest(), on_progress=on_progress)
        learner.model.requires_grad_(False)
        return learner


def _seconds_per_draw(problem: Problem, rng: Generator, n: int = 64) -> float:
    """How long drawing a task and its target takes, without observing it."""
    began = time.perf_counter()
    TaskBatch.draw(problem, n, rng)
    return (time.perf_counter() - began) / n


def _seconds_per_task(problem: Problem, rng: Generator, n: int = 16) -> float:
    """How long drawing and observing one task takes."""
    began = time.perf_counter()
    tasks = TaskBatch.draw(problem, n, rng)
    tasks.observe(problem.query_space.sample(n, rng), rng)
    return (time.perf_counter() - began) / n


def _is_searchable(problem: Problem, rng: Generator) -> bool:
    """Whether a grid can hold the answers: a line, or a finite set."""
    if problem.answer_space.dim == 1:
        return True
    targets = TaskBatch.draw(problem, 2048, rng).target
    return len(targets.unique(dim=0)) <= len(targets) // 8  # type: ignore[no-untyped-call]
