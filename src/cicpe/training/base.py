"""What both trainers share: the state of a run, its clock, its optimiser and what it reports.

``cicpe.training.loop`` holds our training loop and ``cicpe.training.paper`` the published algorithm.
Checkpoints, logs and progress bars see a ``BaseTrainer`` and need not know which of the two it is.
"""

import copy
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.beliefs.network.memories.base import Dims, FunctionMemory
from cicpe.beliefs.network.network import Network
from cicpe.beliefs.network.posteriors.gaussian import Posterior
from cicpe.beliefs.network.query_rules import Actor, Optimist, make_actor
from cicpe.beliefs.network.scaling import Scaling
from cicpe.errors import TrainingError
from cicpe.problems import Problem, TaskBatch
from cicpe.training.actor import actor_gradients
from cicpe.training.config import NetworkTraining
from cicpe.training.losses import inference_loss
from cicpe.training.measure import RolloutFigures, measure
from cicpe.training.optimisation import clip_gradients, make_optimiser
from cicpe.training.replay import Replay
from cicpe.training.rollout import Behaviour, Trajectories, draw_behaviour
from cicpe.training.schedule import Budget, learning_rate

SNAPSHOTS = 20
"""How many snapshots of itself a run takes."""
MEASURED_ROLLOUTS = 8
"""The most rollouts that a snapshot is measured on: enough for its figures, however long the replay is."""
RANDOM_START = 0.1
"""Share of training over which queries go from uniform to the actor's own."""
MOST_IN_VAIN = 20
"""Updates in a row whose gradients are not finite, after which training is given up."""


BOUND_SPREADS = (1.0, 1.5, 2.0, 2.5)
"""Weights of the standard deviation in the upper confidence bound that guides, one drawn per episode."""
GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it modulo 1 are spread evenly, however many there are."""
GUIDED_RANDOM = 0.5
"""Share of episodes with uniform queries while a guide chooses the others."""
BY_VALUE = ("td3", "search", "acquisition")
"""Actors that go by the critic's values."""


class Losses(NamedTuple):
    """The parts of an update's loss, as numbers."""

    inference: float
    stop: float
    continuation: float
    actor: float = 0.0
    """Of the learned actor (td3); between its updates, the last value."""


class LossTerms(NamedTuple):
    """The parts of an update's loss, with their gradients."""

    inference: Tensor
    stop: Tensor
    continuation: Tensor
    actor: Tensor | None
    """Where the learned actor is due for an update. Its gradient is for the actor's parameters alone."""

    def values(self, last: Losses) -> Losses:
        """The terms as numbers; where the actor was not due, its value is the ``last`` one."""
        actor = last.actor if self.actor is None else float(self.actor.detach())
        inference, stop, continuation = (float(term.detach()) for term in self[:3])
        return Losses(inference, stop, continuation, actor)


class Snapshot(NamedTuple):
    """What a run reports of itself from time to time."""

    update: int
    progress: float
    seconds: float
    horizon: int
    cost: float
    losses: Losses
    accuracy: float
    """Of training episodes stopped at confidence 0.9, at the middle epsilon."""
    queries: float
    """Their mean number of queries."""


@dataclass
class Progress:
    """The moving numbers of a run; a checkpoint keeps them all."""

    update: int = 0
    seconds: float = 0.0
    snapshots: int = 0
    horizon: int = 0
    cost: float = 0.0
    success_before: float = -1.0
    dual_started: bool = False
    """Whether success at the horizon was once above 1 - delta, which the dual update of a cost may wait for."""
    actor_began: bool = False
    """Whether a guided actor's encoder has begun as that of inference."""


def build_network(problem: Problem, config: NetworkTraining, rng: Generator) -> Network:
    """Makes a fresh network for a problem.

    Args:
        problem: Gives the sizes, and the tasks on which the scaling of inputs is measured.
        config: Describes the network.
        rng: Draws those tasks, and the seed of the first weights.

    Returns:
        A network in training mode.
    """
    scaling = Scaling.measured(problem, rng)
    dims = Dims(problem.query_space.dim, problem.observation_dim, len(problem.context_names), problem.answer_space.dim)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (1,), generator=rng)))
        return Network(config.network, scaling, dims, problem.query_space, problem.answer_space)


ConfigT = TypeVar("ConfigT", bound=NetworkTraining)


class BaseTrainer(ABC, Generic[ConfigT]):
    """Everything that changes during a run. ``iterate`` until ``progress`` is 1.

    The ``second`` network follows the first: ours is the average of its weights, the published one gives targets.
    """

    def __init__(
        self,
        problem: Problem,
        config: ConfigT,
        budget: Budget,
        seed: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.problem, self.config, self.budget, self.seed = problem, config, budget, seed
        self.rng = torch.Generator().manual_seed(seed)
        self.network = build_network(problem, config, self.rng)
        self.second = copy.deepcopy(self.network)
        self.actor = make_actor(config.actor, problem.query_space, problem.answer_space, self.network, config.aim)
        self._parts = self.network.inference_parameters(), self.network.critic_parameters()
        self.optimiser = make_optimiser(self.network, config.learning_rate, config.actor_rate)
        self.replay = Replay(config.replay_rollouts, config.uniform_rollouts)
        self.guide = self._make_guide()
        self.at = Progress(horizon=min(config.horizon, problem.horizon), cost=self._first_cost)
        self.last_losses = Losses(float("nan"), float("nan"), float("nan"))
        self._now, self._clock = clock, clock()
        self._in_vain = 0

    @property
    def _first_cost(self) -> float:
        """The cost that a run begins with, where it moves one."""
        return 0.0

    @property
    @abstractmethod
    def average(self) -> Network:
        """The network that is deployed."""

    @property
    @abstractmethod
    def modules(self) -> dict[str, torch.nn.Module]:
        """Every network of the run by its name in a checkpoint."""

    def iterate(self) -> Snapshot | None:
        """Plays a rollout and makes its updates.

        Returns:
            A snapshot of the run where one is due, else None.
        """
        progress = self.progress
        trajectories = self._rollout(progress)
        for k in range(self._updates_due()):
            batch = trajectories if k == 0 else self.replay.sample(len(trajectories.tasks), self.rng)
            self._update(batch, progress)
        self._count_time()
        if not self._snapshot_is_due():
            return None
        figures = self._figures()
        snapshot = self._snapshot(figures)
        self._adapt(figures)
        return snapshot

    @abstractmethod
    def _rollout(self, progress: float) -> Trajectories:
        """Plays fresh tasks, and keeps the trajectories in the replay."""

    @abstractmethod
    def _losses(self, batch: Trajectories) -> LossTerms:
        """The losses on a batch of trajectories."""

    @abstractmethod
    def _follow(self) -> None:
        """Moves the second network of the run after the first."""

    def _adapt(self, figures: RolloutFigures) -> None:
        """What a run changes about itself when it has taken a snapshot: nothing, where nothing else is said."""

    def _fresh_tasks(self, n: int, progress: float) -> tuple[int, TaskBatch, Behaviour]:
        """Tasks with the seed that draws them again, and how their queries are chosen."""
        seed, config = int(torch.randint(2**62, (1,), generator=self.rng)), self.config
        tasks = TaskBatch.draw(self.problem, n, torch.Generator().manual_seed(seed))
        share = self._random_share(progress)
        spreads = BOUND_SPREADS if isinstance(self._rule(progress), Optimist) else config.query_spreads
        return seed, tasks, draw_behaviour(n, spreads, share, config.random_queries, self.rng)

    def _update(self, batch: Trajectories, progress: float) -> None:
        """Makes a gradient step, and moves the second network."""
        terms = self._losses(batch)
        self._descend(terms, progress)
        self._follow()
        self.last_losses = terms.values(self.last_losses)

    def _inference_loss(
        self, posterior: Posterior, target: Float[Tensor, "batch answer"], weights: Float[Tensor, "batch prefix"]
    ) -> Float[Tensor, ""]:
        """The robust likelihood of the targets."""
        config, space = self.config, self.problem.answer_space
        return inference_loss(posterior, target, weights, space, config.robust_tail, config.anchor_weight, self.rng)

    @property
    def progress(self) -> float:
        """The share of the budget that is spent."""
        return self.budget.progress(self.at.update, self.at.seconds)

    @property
    def trained_config(self) -> ConfigT:
        """The configuration, with what only training could tell filled in."""
        return self.config

    def resume_clock(self) -> None:
        """Starts counting time from now (after a pause, or a restored checkpoint)."""
        self._clock = self._now()

    def go_on(self, minutes: float) -> None:
        """Sets the budget to what is spent and so many minutes more; time since the last iteration does not count."""
        self.budget = Budget(minutes=self.at.seconds / 60 + minutes)
        self._clock = self._now()

    def _count_time(self) -> None:
        now = self._now()
        self.at.seconds += now - self._clock
        self._clock = now

    def _uniform_start(self) -> float:
        """The share of training in which queries are uniform before they go over to the actor's own.

        An actor that goes by values would first go by those of a critic that has seen nothing; where X = A
        the posterior guides it until then.
        """
        guided = self.problem.query_space == self.problem.answer_space
        return self.config.actor_start if self.config.actor in BY_VALUE and not guided else 0.0

    def _make_guide(self) -> Actor | None:
        """A rule that chooses queries until the actor begins.

        That is the posterior's upper confidence bound for actors whose critic tells queries apart by what they gain,
        where the memory holds a function; and posterior samples for an actor that is to imitate a posterior which it
        does not look at.
        """
        by_gains = self.config.actor in BY_VALUE and self.network.critic.gain is not None
        if by_gains and isinstance(self.network.memory, FunctionMemory):
            return make_actor("ucb", self.problem.query_space, self.problem.answer_space, self.network)
        learned = self.config.network.actor
        if learned is not None and learned.imitates_unseen:
            return make_actor("ts", self.problem.query_space, self.problem.answer_space)
        return None

    def _rule(self, progress: float) -> Actor:
        """The rule that chooses the queries of a rollout: the guide while the actor has not begun, where there is one.

        An actor that encodes histories by itself takes over rollout by rollout: it has to learn from those that its
        own queries lead to what the posterior makes of them.
        """
        if self.guide is None or progress >= self._handed_over:
            return self.actor
        left = (self._handed_over - progress) / max(self._handed_over - self.config.actor_start, 1e-9)
        rollout = self.at.update // self.config.updates_per_rollout
        return self.guide if rollout * GOLDEN % 1 < left else self.actor

    @property
    def _handed_over(self) -> float:
        """The share of training after which the actor chooses all queries."""
        start, learned = self.config.actor_start, self.config.network.actor
        return (1 + start) / 2 if learned is not None and learned.own_memory else start

    def _random_share(self, progress: float) -> float:
        """The share of episodes whose queries are all uniform; half of them at most once a guide chooses the others."""
        share = 1 - (progress - self._uniform_start()) / RANDOM_START
        if self.guide is not None and progress >= RANDOM_START:
            share = min(share, GUIDED_RANDOM)
        return max(self.config.random_episodes, share)

    def _updates_due(self) -> int:
        """How many updates follow a rollout: fewer where a budget in updates ends before."""
        due, most = self.config.updates_per_rollout, self.budget.updates
        return due if most is None else min(due, most - self.at.update)

    def _actor_is_due(self) -> bool:
        config = self.config
        begun = self.progress >= config.actor_start or config.has_guided_actor
        # What is only imitated does not run away from the actor, as a young critic does.
        imitates = config.has_guided_actor and config.actor_kl > 0 and self.progress < config.actor_start
        delay = 1 if imitates else config.actor_delay
        return self.network.actor is not None and begun and self.at.update % delay == 0

    def _descend(self, terms: LossTerms, progress: float) -> None:
        """Makes a gradient step on the terms."""
        config = self.config
        for group in self.optimiser.param_groups:
            group["lr"] = group["share"] * learning_rate(config.learning_rate, progress)
        self.optimiser.zero_grad(set_to_none=True)
        total = terms.inference + config.stop_weight * terms.stop + terms.continuation
        total.backward()  # type: ignore[no-untyped-call]
        is_finite = clip_gradients(self._parts, config.gradient_clip)
        if terms.actor is not None:
            actor_gradients(self.network.actor_parameters(), terms.actor, config.gradient_clip)
        self._in_vain = 0 if is_finite else self._in_vain + 1
        if self._in_vain > MOST_IN_VAIN:
            raise TrainingError(
                f"training diverged: the gradients of {MOST_IN_VAIN} updates in a row were not finite. A smaller "
                "learning_rate may help, observations of a more usual size, or another recipe"
            )
        if is_finite:  # one step that is not finite would spoil all weights
            self.optimiser.step()
        self.at.update += 1

    def _snapshot_is_due(self) -> bool:
        if self.progress * SNAPSHOTS < self.at.snapshots + 1:
            return False
        self.at.snapshots = int(self.progress * SNAPSHOTS)
        return True

    def _figures(self) -> RolloutFigures:
        """Figures of the deployed network on the last episodes in the replay."""
        rollouts = [stored.trajectories for stored in self.replay][-MEASURED_ROLLOUTS:]
        return measure(self.average, rollouts, self.config.epsilon)

    def _snapshot(self, figures: RolloutFigures) -> Snapshot:
        return Snapshot(
            self.at.update,
            self.progress,
            self.at.seconds,
            self.at.horizon,
            self.at.cost,
            self.last_losses,
            figures.accuracy,
            figures.queries,
        )


AnyTrainer = BaseTrainer[Any]
