"""TD3 on a computed posterior (the paper's Gaussian variant, where queries and answers share a space).

The posterior is frozen. Episodes are played, every step of them is kept, and two critics learn what going on is worth:

    Q(h, a) = E[-c + max(r(h'), min_i Q'_i(h', a'))],    a' = pi'(h') + noise,

where r(h') is the probability that the recommendation after one observation more is right, as the posterior says it,
and primes of Q and pi mark slowly averaged copies. The actor follows the first critic and is drawn to the posterior,

    L = E[-Q_1(h, A) + beta KL(I || pi)],    A ~ pi(. | h),

I by its recommendation and spread. Episodes are queried by posterior samples at first, later by the actor, drawing or
at its mean; whichever of the two was surer after as many queries is what is deployed.

Shapes: B episodes or rows of a batch, F features, Q query.
"""

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn

from cicpe import trees
from cicpe.beliefs.answers.actor import ACTOR_SHARE, HIDDEN, LearnedQueries, PosteriorActor, query_of, seeded_mlp
from cicpe.beliefs.base import Assessment, FitRequest, FittedBelief
from cicpe.beliefs.network.policy import REACH, imitation, saturation
from cicpe.episodes.play import play
from cicpe.problems.base import Problem, TaskBatch
from cicpe.spaces import Space

COST = 0.01
"""c, the price of a query: the paper's first."""
IMITATION = 0.1
"""beta, the weight of the divergence from the posterior."""
SATURATION = 0.01
"""Weight of a saturating tanh, from where no critic could call the actor back."""
EPISODES = 32
"""Episodes of a round."""
LONGEST, CERTAIN = 40, 0.97
"""An episode of a round ends after so many queries, or when it is so sure."""
SAMPLED_ROUNDS, SAMPLED_LATER, RANDOM = 0.3, 0.2, 0.05
"""Share of training whose queries are posterior samples, of episodes with such queries later, of uniform queries."""
UPDATES, BATCH, RATE = 200, 256, 1e-3
"""Updates per round, steps per update, and the learning rate."""
DELAY, POLYAK, SMOOTHING = 2, 0.01, 0.2
"""Updates of the critics per one of the actor; the rate of the averages; target noise in the policy's spread."""
FEWEST_ROUNDS = 4
"""Rounds, at least, where the budget is one of updates."""
SPREADS = (0.0, 1.0)
"""Of the actor's queries: its mean, and draws."""


class Transitions(NamedTuple):
    """Steps of episodes, one row each."""

    features_BF: Float[Tensor, "B F"]
    query_BQ: Float[Tensor, "B Q"]
    """In unit coordinates."""
    next_features_BF: Float[Tensor, "B F"]
    next_confidence_B: Float[Tensor, " B"]
    is_last_B: Bool[Tensor, " B"]
    """Whether the episode ended after it."""


@final
class QueryCritic(nn.Module):
    """Q(h, a), of what the actor sees and where the query lies beside the recommendation."""

    def __init__(self, actor: PosteriorActor, rng: Generator) -> None:
        super().__init__()
        self._moments = actor.moments
        self.layers = seeded_mlp([actor.features + 2 * actor.dim, HIDDEN, HIDDEN, 1], 0.1, rng)

    def forward(self, features_BF: Float[Tensor, "B F"], query_BQ: Float[Tensor, "B Q"]) -> Float[Tensor, " B"]:
        """The value of queries, which are in unit coordinates."""
        centre, log_std = self._moments(features_BF)
        apart = ((query_BQ - centre) * torch.exp(-log_std) / REACH).clamp(-3, 3)
        value: Tensor = self.layers(torch.cat([features_BF, query_BQ, apart], dim=-1))[:, 0]
        return value


class ActorLimit(NamedTuple):
    """What learning an actor may take: seconds of wall-clock, or a number of rounds."""

    seconds: float | None = None
    rounds: int | None = None

    def progress(self, began: float, done: int) -> float:
        """From 0 to 1."""
        by_time = 0.0 if self.seconds is None else (time.perf_counter() - began) / max(self.seconds, 1e-3)
        return max(by_time, 0.0 if self.rounds is None else done / self.rounds)


class LearnedActor(NamedTuple):
    """What came of it."""

    query_spread: float
    """Of its queries: 0 for its mean, 1 for draws."""
    updates: int


class ExplorerState(NamedTuple):
    """The belief's state, and how each episode is queried."""

    own: Any
    spread_B: Float[Tensor, " B"]
    """Of the actor's queries; NaN where queries are posterior samples."""


@final
@dataclass(frozen=True)
class _Explorer:
    """Plays a round: a belief whose episodes are queried in several ways."""

    asked: LearnedQueries
    spread_B: Tensor

    @property
    def horizon(self) -> int:
        return min(LONGEST, self.asked.horizon)

    def begin(self, context: Tensor) -> ExplorerState:
        return ExplorerState(self.asked.begin(context), self.spread_B)

    @torch.no_grad()
    def propose(self, state: ExplorerState, rng: Generator) -> Assessment:
        belief, space, spread = self.asked.belief, self.asked.query_space, state.spread_B[:, None]
        assessment = belief.assess(state.own, (self.asked.aim,), rng)
        drawn = space.project(belief.sample_answers(state.own, 1, rng)[:, 0])
        policy = self.asked.actor(self.features(state, assessment))
        noise = torch.randn(policy.mean_unit.shape, generator=rng)
        query = torch.where(spread.isnan(), drawn, query_of(policy, noise, spread.nan_to_num(0.0), space))
        strays = torch.rand(len(query), generator=rng) < RANDOM
        query[strays] = belief.random_queries(int(strays.sum()), rng)
        return assessment._replace(query=query[:, None])

    def features(self, state: ExplorerState, assessment: Assessment) -> Float[Tensor, "B F"]:
        """What the actor sees."""
        return self.asked.actor.seen(assessment, state.own.context_BC, self.asked.answer_space)

    def observe(self, state: ExplorerState, query: Tensor, observation: Tensor) -> ExplorerState:
        return state._replace(own=self.asked.observe(state.own, query, observation))


class Round(NamedTuple):
    """Some episodes."""

    steps: Transitions
    length_B: Float[Tensor, " B"]


def play_round(asked: LearnedQueries, problem: Problem, spread_B: Float[Tensor, " B"], rng: Generator) -> Round:
    """Plays an episode per spread and keeps its steps.

    Args:
        asked: Belief and actor.
        problem: Draws the tasks.
        spread_B: Of the actor's queries; NaN for posterior samples.
        rng: Draws everything.

    Returns:
        The steps of all episodes, and how many queries each made.
    """
    explorer, length = _Explorer(asked, spread_B), torch.zeros(len(spread_B))
    before: tuple[Tensor, Tensor] | None = None
    parts = []

    def is_certain(rows: Tensor, assessment: Assessment) -> Tensor:
        return assessment.confidence[0] >= CERTAIN

    tasks = TaskBatch.draw(problem, len(spread_B), rng)
    for step in play(explorer, tasks, rng, ends=is_certain):
        features, going = explorer.features(step.state, step.proposal), ~step.ends
        if before is not None:
            parts.append(Transitions(*before, features, step.proposal.confidence[0], step.ends))
        before = features[going], asked.query_space.to_unit(step.proposal.query[going, 0])
        length[step.rows] = step.time
    return Round(trees.concatenate(parts), length)


@final
class ActorLearner:
    """Actor and critics under training, with their slow copies."""

    def __init__(self, actor: PosteriorActor, space: Space, rng: Generator) -> None:
        self.actor, self.space, self.rng, self.updates = actor, space, rng, 0
        self.critics = nn.ModuleList([QueryCritic(actor, rng), QueryCritic(actor, rng)])
        self.slow_actor, self.slow_critics = copy.deepcopy(actor), copy.deepcopy(self.critics)
        self._of_actor = torch.optim.Adam(actor.parameters(), lr=RATE)
        self._of_critics = torch.optim.Adam(self.critics.parameters(), lr=RATE)

    def update(self, steps: Transitions) -> None:
        """One of the critics; every other time, one of the actor and of the slow copies."""
        target = self.targets(steps)
        losses = [(critic(steps.features_BF, steps.query_BQ) - target).square().mean() for critic in self.critics]
        self._of_critics.zero_grad()
        sum(losses[1:], losses[0]).backward()
        self._of_critics.step()
        self.updates += 1
        if self.updates % DELAY == 0:
            self._of_actor.zero_grad()
            self.actor_loss(steps.features_BF).backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.actor.parameters(), 1.0)
            self._of_actor.step()
            self._follow()

    @torch.no_grad()
    def targets(self, steps: Transitions) -> Float[Tensor, " B"]:
        """What the critics learn: -c + max(r(h'), min_i Q'_i(h', a')), or -c + r(h') where the episode ended."""
        policy = self.slow_actor(steps.next_features_BF)
        noise = (SMOOTHING * torch.randn(policy.mean_unit.shape, generator=self.rng)).clamp(-2.5, 2.5)
        query = self._feasible(policy.mean_unit + policy.log_std_unit.exp() * noise)
        values = torch.stack([critic(steps.next_features_BF, query) for critic in self.slow_critics])
        going_on = values.amin(dim=0).maximum(steps.next_confidence_B)
        return torch.where(steps.is_last_B, steps.next_confidence_B, going_on) - COST

    def actor_loss(self, features_BF: Float[Tensor, "B F"]) -> Float[Tensor, ""]:
        """-Q_1(h, A) + beta KL(I || pi), with a small price on saturation."""
        policy = self.actor(features_BF)
        noise = torch.randn(policy.mean_unit.shape, generator=self.rng)
        query = self._feasible(policy.mean_unit + policy.log_std_unit.exp() * noise)
        value = self.critics[0](features_BF, query)
        drawn_to = imitation(*self.actor.moments(features_BF), policy)
        loss: Tensor = IMITATION * drawn_to + SATURATION * saturation(policy) - value
        return loss.mean()

    def _feasible(self, unit_BQ: Tensor) -> Tensor:
        return self.space.to_unit(self.space.project(self.space.from_unit(unit_BQ)))

    @torch.no_grad()
    def _follow(self) -> None:
        pairs = [(self.slow_actor, self.actor), (self.slow_critics, self.critics)]
        for slow, quick in pairs:
            for old, new in zip(slow.parameters(), quick.parameters(), strict=True):
                old.lerp_(new, POLYAK)


def with_learned_actor(fitted: FittedBelief, request: FitRequest) -> FittedBelief:
    """A fit, with its actor trained where it has one that has yet to learn.

    Args:
        fitted: What was fitted.
        request: The problem, the budget (of which the actor takes a share), the seed, and who follows.

    Returns:
        The same, unless its belief is asked by a learned actor.
    """
    asked, budget, began = fitted.belief, request.budget, time.perf_counter()
    if not isinstance(asked, LearnedQueries):
        return fitted
    seconds = None if budget.minutes is None else ACTOR_SHARE * 60 * budget.minutes
    rounds = None if budget.updates is None else max(FEWEST_ROUNDS, budget.updates // UPDATES)

    def on_progress(share: float) -> None:
        request.callback.on_stage("learning what to ask", share)

    learned = learn_actor(asked, request.problem, ActorLimit(seconds, rounds), request.seed, on_progress)
    config = fitted.config.model_copy(update={"actor_spread": learned.query_spread})
    spent = time.perf_counter() - began
    return FittedBelief(asked, config, fitted.updates + learned.updates, fitted.seconds + spent)


def learn_actor(
    asked: LearnedQueries,
    problem: Problem,
    limit: ActorLimit,
    seed: int,
    on_progress: Callable[[float], None] = lambda share: None,
) -> LearnedActor:
    """Trains an actor, in place, on a belief that stays as it is.

    Args:
        asked: The belief, and the actor that is to ask it.
        problem: Draws the tasks.
        limit: Seconds or rounds.
        seed: Seeds everything.
        on_progress: Told how far it is, from 0 to 1.

    Returns:
        The spread of its queries whose episodes were shorter, and the updates that were made.
    """
    began, rng, actor = time.perf_counter(), torch.Generator().manual_seed(seed), asked.actor
    actor.standardise(TaskBatch.draw(problem, 256, rng).context)
    learner = ActorLearner(actor.requires_grad_(True), problem.query_space, rng)
    kept: list[Transitions] = []
    lengths: dict[float, list[Tensor]] = {spread: [] for spread in SPREADS}
    rounds = 0
    while (share := limit.progress(began, rounds)) < 1:
        on_progress(share)
        spread_B = _spreads(share, rng)
        played = play_round(asked, problem, spread_B, rng)
        kept.append(played.steps)
        for spread in SPREADS:
            lengths[spread].append(played.length_B[spread_B == spread])
        steps = trees.concatenate(kept)
        for _ in range(UPDATES):
            rows = torch.randint(len(steps.is_last_B), (BATCH,), generator=rng)
            learner.update(trees.select(steps, rows))
        rounds += 1
    actor.requires_grad_(False)
    # Episodes of the last half of the rounds: the actor has changed since the first.
    recent = {spread: torch.cat(parts[len(parts) // 2 :]) for spread, parts in lengths.items()}
    means = {spread: float(length.mean()) if len(length) else math.inf for spread, length in recent.items()}
    return LearnedActor(min(SPREADS, key=lambda spread: means[spread]), learner.updates)


def _spreads(share: float, rng: Generator) -> Float[Tensor, " B"]:
    """How the episodes of a round are queried: NaN for posterior samples."""
    spread = torch.tensor(SPREADS)[torch.arange(EPISODES) % len(SPREADS)]
    sampled = torch.rand(EPISODES, generator=rng) < (1.0 if share < SAMPLED_ROUNDS else SAMPLED_LATER)
    return torch.where(sampled, torch.nan, spread)
