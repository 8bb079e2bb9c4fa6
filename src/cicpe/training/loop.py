"""The training loop, top to bottom.

Each iteration plays a batch of fresh tasks with the current network and makes a few updates. One
update encodes every prefix of a batch of trajectories in one causal pass and fits, together,

* the posterior of the target (robust likelihood),
* the stop head (is the deployed recommendation within epsilon?),
* the continuation head (lambda-returns over the trajectory),

and, every other time, a learned actor (td3) on the critic's value of its queries,
with epsilon and the cost drawn per episode. ``TrainingConfig`` switches each part to the paper's own.
"""

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Generator, Tensor

from cicpe.beliefs.network.critic import Goal
from cicpe.beliefs.network.memories.base import Dims
from cicpe.beliefs.network.network import Network, NetworkOutput, NetworkState
from cicpe.beliefs.network.policy import ActorHead, moments
from cicpe.beliefs.network.query_rules import make_actor
from cicpe.beliefs.network.scaling import Scaling
from cicpe.problems import Problem, TaskBatch
from cicpe.training import losses
from cicpe.training.config import TrainingConfig
from cicpe.training.cost import dual_cost, smooth_success
from cicpe.training.replay import Replay, join, select_rows
from cicpe.training.returns import lambda_returns, one_step_targets, shaped_returns
from cicpe.training.rollout import Behaviour, StopTest, Trajectories, collect
from cicpe.training.schedule import Budget, adapted_horizon, learning_rate

RANDOM_START = 0.1
"""Share of training over which queries go from uniform to the actor's own."""
SNAPSHOTS = 20
"""How many times a run looks at itself: it reports, and adapts the horizon."""


class Losses(NamedTuple):
    """The parts of one update's loss."""

    inference: float
    stop: float
    go: float
    actor: float = 0.0
    """Of the learned actor (td3), where there is one."""


class Snapshot(NamedTuple):
    """What a run says of itself from time to time."""

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


def build_network(problem: Problem, config: TrainingConfig, rng: Generator) -> Network:
    """A fresh network for a problem: scaling measured, weights drawn from ``rng``'s next seed."""
    scaling = Scaling.measured(problem, rng)
    dims = Dims(problem.query_space.dim, problem.observation_dim, len(problem.context_names), problem.answer_space.dim)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (1,), generator=rng)))
        return Network(config.network, scaling, dims, problem.query_space, problem.answer_space)


@dataclass
class Progress:
    """The moving numbers of a run; a checkpoint keeps them all."""

    update: int = 0
    seconds: float = 0.0
    looks: int = 0
    horizon: int = 0
    cost: float = 0.0
    success_before: float = -1.0


@final
class Trainer:
    """Holds everything that changes during training. ``run`` trains to the end of the budget."""

    def __init__(
        self,
        problem: Problem,
        config: TrainingConfig,
        budget: Budget,
        seed: int = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.problem, self.config, self.budget, self.seed = problem, config, budget, seed
        self.rng = torch.Generator().manual_seed(seed)
        self.network = build_network(problem, config, self.rng)
        self.average = copy.deepcopy(self.network)
        self.target = None if config.polyak is None else copy.deepcopy(self.network)
        self.actor = make_actor(config.actor, problem.query_space, problem.answer_space, self.network, config.aim)
        self.optimiser = torch.optim.Adam(
            _groups(self.network, config.actor_rate), lr=config.learning_rate, betas=(0.9, 0.99), fused=True
        )
        self.replay = Replay(config.replay_rollouts)
        self.at = Progress(horizon=min(config.horizon, problem.horizon), cost=config.dual_start)
        self.last_losses = Losses(float("nan"), float("nan"), float("nan"))
        self._now, self._clock = clock, clock()

    @property
    def progress(self) -> float:
        """The share of the budget that is spent."""
        return self.budget.progress(self.at.update, self.at.seconds)

    def resume_clock(self) -> None:
        """Starts counting time from now (after a pause, or a restored checkpoint)."""
        self._clock = self._now()

    def iterate(self) -> Snapshot | None:
        """One rollout and its updates. Returns a snapshot of the run when one is due."""
        progress = self.progress
        trajectories = self._rollout(progress)
        for k in range(self.config.updates_per_rollout):
            batch = trajectories if k == 0 else self.replay.sample(len(trajectories.tasks), self.rng)
            self.last_losses = self._update(batch, progress)
        self._count_time()
        if self.progress * SNAPSHOTS >= self.at.looks + 1:
            self.at.looks = int(self.progress * SNAPSHOTS)
            return self._snapshot()
        return None

    def _count_time(self) -> None:
        now = self._now()
        self.at.seconds += now - self._clock
        self._clock = now

    # --- rollouts ---------------------------------------------------------------------------------

    def _rollout(self, progress: float) -> Trajectories:
        config = self.config
        n = round(config.first_batch + (config.batch - config.first_batch) * progress)
        seed = int(torch.randint(2**62, (1,), generator=self.rng))
        tasks = TaskBatch.draw(self.problem, n, torch.Generator().manual_seed(seed))
        scales = torch.tensor(config.query_scales)
        alone = self._uniform_start()
        everywhere = max(config.random_episodes, 1 - (progress - alone) / RANDOM_START)
        behaviour = Behaviour(
            scales[torch.randint(len(scales), (n,), generator=self.rng)],
            torch.rand(n, generator=self.rng) < everywhere,
            config.random_queries,
        )
        test = None
        goal = self._draw_goal(n)
        if not config.run_past_stop and progress >= config.warmup:
            test = StopTest(goal, config.minimum_time)
        trajectories = collect(self.network, self.actor, tasks, self.at.horizon, behaviour, self.rng, test)
        self.replay.add(seed, trajectories)
        if config.dual_cost and progress >= config.warmup:
            self._update_cost(trajectories, goal)
        return trajectories

    def _uniform_start(self) -> float:
        """The share of training in which queries are uniform before they go over to the actor's own.

        An actor that goes by values would first go by those of a critic that has seen nothing; where X = A
        the posterior guides it until then.
        """
        guided = self.problem.query_space == self.problem.answer_space
        return self.config.actor_start if self.config.actor in ("td3", "search") and not guided else 0.0

    def _draw_goal(self, n: int) -> Goal:
        def log_uniform(low: float, high: float) -> Tensor:
            return low * (high / low) ** torch.rand(n, generator=self.rng)

        epsilon = log_uniform(*self.config.epsilon)
        if self.config.dual_cost:
            return Goal(epsilon, torch.full((n,), max(self.at.cost, 1e-6)))
        return Goal(epsilon, log_uniform(*self.config.cost))

    def _update_cost(self, trajectories: Trajectories, goal: Goal) -> None:
        with torch.no_grad():
            state = self.network.unroll(trajectories.tasks.context, trajectories.query, trajectories.observation)
            answers = self.network.believe(state).posterior.recommendation
            final = answers[torch.arange(len(answers)), trajectories.length]
            success = smooth_success(trajectories.tasks.loss(final), goal.epsilon, self.config.dual_softness)
        self.at.cost = dual_cost(self.at.cost, float(success), self.config.dual_delta, self.config.dual_rate)

    # --- updates ----------------------------------------------------------------------------------

    def _update(self, batch: Trajectories, progress: float) -> Losses:
        inference, stop, go, actor = self._losses(batch)
        for group in self.optimiser.param_groups:
            group["lr"] = group["share"] * learning_rate(self.config.learning_rate, progress)
        self.optimiser.zero_grad(set_to_none=True)
        (inference + self.config.stop_weight * stop + go).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.config.gradient_clip)
        if actor is not None:
            self._actor_gradients(actor)
        self.optimiser.step()
        self.at.update += 1
        # Early on the average would lag far behind; it forgets its first steps faster.
        decay = min(self.config.weight_average, self.at.update / (self.at.update + 10))
        _follow(self.average, self.network, 1 - decay)
        if self.target is not None and self.config.polyak is not None:
            _follow(self.target, self.network, self.config.polyak)
        # Between its updates the actor's loss is the last one.
        actor_loss = self.last_losses.actor if actor is None else float(actor.detach())
        return Losses(float(inference.detach()), float(stop.detach()), float(go.detach()), actor_loss)

    def _actor_gradients(self, loss: Tensor) -> None:
        """Gradients of the actor's loss for the actor's parameters alone: the critic is not to please it."""
        assert self.network.actor is not None
        parameters = list(self.network.actor.parameters())
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient
        torch.nn.utils.clip_grad_norm_(parameters, self.config.gradient_clip)

    def _losses(self, batch: Trajectories) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        config, network, tasks = self.config, self.network, batch.tasks
        goal = self._draw_goal(len(tasks))
        state = network.unroll(tasks.context, batch.query, batch.observation)
        chosen = self._sampled_prefixes(batch) if config.prefixes == "sampled" else None
        if chosen is not None:
            state = state.at_prefixes(chosen)
        output = network.believe(state)
        features = network.goal_features(state, output, goal.epsilon)
        logits = network.stop_logits(output, features)
        stop_probability = torch.sigmoid(logits).detach()

        prefix = state.prefix_BP
        if chosen is None:
            stop_time = _first(stop_probability.mean(dim=-1) >= 0.9)
            weights = losses.prefix_weights(batch.length, stop_time, prefix.shape[1], config.mixture)
        else:
            weights = torch.tensor([1.0, 0.0]).expand(len(tasks), -1)

        inference = losses.inference_loss(
            output.posterior,
            tasks.target,
            weights,
            self.problem.answer_space,
            config.robust_tail,
            config.anchor_weight,
            self.rng,
        )
        with torch.no_grad():
            target_state, target_output = self._target_view(batch, chosen, state, output)
            reward = self._reward(tasks, target_output, goal)
        stop = losses.stop_head_loss(logits, reward, weights, config.stop_loss)

        # The query made at each prefix; a terminal prefix has none, and is masked.
        rows = torch.arange(len(tasks))[:, None]
        taken = batch.query[rows, prefix.clamp_max(batch.query.shape[1] - 1)]
        continue_values = network.continue_values(state, output, features, taken, goal.cost)[:, :-1]
        going_on = (prefix[:, :-1] < batch.length[:, None]).float()
        with torch.no_grad():
            go_now = continue_values.amin(dim=-1)
            if config.shaped:
                target = shaped_returns(reward, go_now, goal.cost, config.trace, batch.length)
            elif config.returns == "lambda":
                stop_now = stop_probability.amin(dim=-1)
                target = lambda_returns(stop_now, go_now, goal.cost, config.trace, batch.length)
            else:
                final = (prefix[:, :-1] == batch.length[:, None] - 1) & ~batch.stopped[:, None]
                target = self._bootstrapped(goal, target_state, target_output, reward, final.float())
        acting = weights[:, :-1] * going_on
        go = losses.continuation_loss(continue_values, target, acting)
        actor = None
        due = self.progress >= config.actor_start and self.at.update % config.actor_delay == 0
        if network.actor is not None and due:
            actor = self._actor_loss(network.actor, output, features, goal, acting)
        return inference, stop, go, actor

    def _actor_loss(
        self, actor: ActorHead, output: NetworkOutput, features: Tensor, goal: Goal, weights: Tensor
    ) -> Tensor:
        """-Q_1(h, A) + beta KL(I || pi), with A = pi(h), or a draw of a Gaussian pi; weighted over prefixes."""
        policy = self.network.policy(output, features)
        noise = torch.randn(policy.mean_unit.shape, generator=self.rng)
        query = actor.draw(policy, noise, float(actor.config.gaussian))
        value = self.network.continue_values(output.state, output, features, query, goal.cost)[..., 0]
        loss = losses.saturation(policy) - value
        if self.config.actor_kl > 0:
            toward = moments(output.posterior, self.problem.answer_space)
            loss = loss + self.config.actor_kl * losses.imitation(*toward, policy)
        return (weights * loss[:, :-1]).sum(dim=1).mean()

    def _sampled_prefixes(self, batch: Trajectories) -> Tensor:
        """One prefix a trajectory, drawn from the mixture, and the prefix after it (the paper's sampler)."""
        stop_time = batch.length.float().mean().expand(len(batch.length))
        weights = losses.prefix_weights(batch.length, stop_time, batch.query.shape[1] + 1, self.config.mixture)
        first = torch.multinomial(weights, 1, generator=self.rng)
        return torch.cat([first, torch.minimum(first + 1, batch.length[:, None])], dim=1)

    def _target_view(
        self, batch: Trajectories, chosen: Tensor | None, state: NetworkState, output: NetworkOutput
    ) -> tuple[NetworkState, NetworkOutput]:
        """What bootstraps and sampled rewards look at: the target network, where there is one."""
        if self.target is None:
            return state, output
        state = self.target.unroll(batch.tasks.context, batch.query, batch.observation)
        state = state if chosen is None else state.at_prefixes(chosen)
        return state, self.target.believe(state)

    def _reward(self, tasks: TaskBatch, output: NetworkOutput, goal: Goal) -> Tensor:
        """Success at every prefix: of the deployed recommendation, or the share of K posterior samples."""
        if self.config.reward == "deployed":
            return (tasks.loss(output.posterior.recommendation) <= goal.epsilon[:, None]).float()
        samples = [output.posterior.sample(self.rng) for _ in range(self.config.reward_samples)]
        loss = tasks.loss(torch.stack(samples, dim=2))
        return (loss <= goal.epsilon[:, None, None]).float().mean(dim=-1)

    def _bootstrapped(
        self, goal: Goal, state: NetworkState, output: NetworkOutput, reward: Tensor, final: Tensor
    ) -> Tensor:
        """One-step targets of the target network, at its mean action with smoothing noise."""
        assert self.target is not None
        features = self.target.goal_features(state, output, goal.epsilon)
        stop = torch.sigmoid(self.target.stop_logits(output, features)).amin(dim=-1)
        action = self._target_action(output, features)
        go = self.target.continue_values(state, output, features, action, goal.cost).amin(dim=-1)
        clip = self.config.bootstrap_clip
        return one_step_targets(reward, stop, go, goal.cost, final, self.config.discount, clip)

    def _target_action(self, output: NetworkOutput, features: Tensor) -> Tensor:
        """The target network's query at every prefix: its actor's or its recommendation, smoothed, or a uniform one."""
        assert self.target is not None
        space, config = self.problem.query_space, self.config
        if self.target.actor is not None:
            unit, clip = self.target.policy(output, features).mean_unit, config.target_clip
        elif config.actor != "uniform" and space == self.problem.answer_space:
            unit, clip = space.to_unit(output.posterior.recommendation), math.inf
        else:
            shape = features.shape[:2]
            return space.sample(shape.numel(), self.rng).view(*shape, -1)
        noise = torch.randn(unit.shape, generator=self.rng).clamp(-clip, clip)
        return space.project(space.from_unit(unit + config.target_noise * noise))

    # --- looking at itself ------------------------------------------------------------------------

    def _snapshot(self) -> Snapshot:
        """Measures the averaged network on the actor's own episodes, and adapts the horizon."""
        trajectories = join([stored.trajectories for stored in self.replay])
        if bool(trajectories.own.any()):
            trajectories = select_rows(trajectories, trajectories.own)
        tasks, config = trajectories.tasks, self.config
        with torch.no_grad():
            state = self.average.unroll(tasks.context, trajectories.query, trajectories.observation)
            output = self.average.believe(state)
            loss = tasks.loss(output.posterior.recommendation)
            low, high = config.epsilon
            middle = (low * high) ** 0.5
            n = len(tasks)
            features = self.average.goal_features(state, output, torch.full((n,), middle))
            confidence = torch.sigmoid(self.average.stop_logits(output, features)).mean(dim=-1)
        stop_time = _first(confidence >= 0.9).long()
        correct = loss[torch.arange(n), stop_time] <= middle
        snapshot = Snapshot(
            self.at.update,
            self.progress,
            self.at.seconds,
            self.at.horizon,
            self.at.cost,
            self.last_losses,
            float(correct.float().mean()),
            float(stop_time.float().mean()),
        )
        if config.adapt_horizon and self._uniform_start() + RANDOM_START <= self.progress <= 0.7:
            success = (loss <= low).float().mean(dim=0).tolist()
            # A horizon far beyond what was trained for undoes what was learnt; it may only grow with training.
            limit = min(self.problem.horizon, int(config.horizon * (1 + 5 * self.progress)))
            self.at.horizon = adapted_horizon(self.at.horizon, limit, success, self.at.success_before)
            self.at.success_before = success[-1]
        return snapshot


def _first(hit: Tensor) -> Tensor:
    """The first prefix at which each row is true; the last prefix where none is."""
    index = torch.arange(hit.shape[1], dtype=torch.float32).expand_as(hit)
    return torch.where(hit, index, float(hit.shape[1] - 1)).amin(dim=1)


def _groups(network: Network, actor_rate: float) -> list[dict[str, Any]]:
    """The parameters by their share of the learning rate: an actor's smaller than all others'."""
    own = [] if network.actor is None else list(network.actor.parameters())
    rest = [p for p in network.parameters() if all(p is not q for q in own)]
    groups = [{"params": rest, "share": 1.0}, {"params": own, "share": actor_rate}]
    return [group for group in groups if group["params"]]


def _follow(slow: Network, fast: Network, rate: float) -> None:
    """slow <- (1 - rate) slow + rate fast, parameter by parameter."""
    with torch.no_grad():
        pairs = zip(slow.parameters(), fast.parameters(), strict=True)
        for a, b in pairs:
            a.lerp_(b.to(a), rate)
