"""The published algorithm, whole: "Implementation of C-ICPE" in the paper's appendix on algorithms.

Each iteration

1. plays a batch of fresh tasks with the actor rule; after the warm-up and a minimum time an episode
   stops once Q(h, stop) >= Q(h, a) for the query a that it would make (``BellmanTest``);
2. stores the trajectories in the replay, and after the warm-up moves the cost c towards success 1 - delta
   (``dual_cost``). Two additions of ours keep it from falling to 0 before anything is learnt, and can be turned
   off: the warm-up lasts until success at the horizon exceeds 1 - delta (``dual_waits``), and c has a floor
   (``dual_floor``);
3. makes a few updates, each at sampled prefixes of a batch of trajectories and the prefix after each
   (``_sampled_prefixes``): the robust likelihood of the target, the squared error of the stop head
   from the sampled reward (``_sampled_reward``), and that of the continuation head from one-step
   targets of the target network (``one_step_targets``), with the minimum of twins, smoothed target
   queries and clipped bootstraps;
4. on a delayed schedule moves a learned actor (td3: deterministic where X != A, Gaussian and drawn to the posterior
   where X = A), and after every update the target network, which holds a target actor too. A Gaussian actor has to
   learn to encode histories first; until then posterior samples query (``_rule``, an addition of ours).

Inference, critic and actor have an encoder each. What is deployed is the network itself, at the cost that the run ended
with (``trained_cost``), by its own test (``stop="own"``). Our own
algorithm is in ``cicpe.training.loop``; the losses of inference and actor are shared.
"""

import math
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cicpe.beliefs.network.critic import Goal
from cicpe.beliefs.network.network import Network, NetworkOutput
from cicpe.problems import TaskBatch
from cicpe.statistics import log_uniform
from cicpe.training import losses
from cicpe.training.actor import actor_loss
from cicpe.training.base import BaseTrainer, LossTerms
from cicpe.training.config import SMALLEST_COST, PaperConfig
from cicpe.training.measure import RolloutFigures
from cicpe.training.optimisation import follow
from cicpe.training.reading import read_prefixes
from cicpe.training.replay import select_rows
from cicpe.training.rollout import Behaviour, Trajectories, collect

GROWS_FROM, GAIN, GROWTH = 0.2, 0.03, 1.5
"""Share of training before episodes may get longer, success that a twentieth of training has to add for them not to,
and how much longer they get."""


@final
class PaperTrainer(BaseTrainer[PaperConfig]):
    """Trains networks by the published algorithm."""

    @property
    def target(self) -> Network:
        """The network that bootstraps and rewards are taken from."""
        return self.second

    @property
    def _first_cost(self) -> float:
        return self.config.dual_start

    @property
    def average(self) -> Network:
        return self.network

    @property
    def modules(self) -> dict[str, torch.nn.Module]:
        return {"network": self.network, "target": self.target}

    @property
    def trained_config(self) -> PaperConfig:
        return self.config.model_copy(update={"trained_cost": self._cost})

    @property
    def _cost(self) -> float:
        """The cost as it is deployed."""
        return max(self.at.cost, SMALLEST_COST)

    # --- rollouts ---------------------------------------------------------------------------------

    def _rollout(self, progress: float) -> Trajectories:
        """Plays fresh tasks until the critic stops them, keeps the trajectories, and moves the cost."""
        config = self.config
        seed, tasks, behaviour = self._fresh_tasks(config.batch, progress)
        goal = self._draw_goal(config.batch)
        self._begin_actor(progress)
        rule = self._rule(progress)
        warm = progress >= config.warmup and rule is self.actor
        stops = warm and (self.at.dual_started or not config.dual_waits)
        test = BellmanTest(self.network, goal, config.minimum_time) if stops else None
        trajectories = collect(self.network, rule, tasks, self.at.horizon, behaviour, self.rng, test)
        self.replay.add(seed, trajectories)
        if warm:
            self._move_cost(*self._as_deployed(trajectories, goal, behaviour), began=stops)
        return trajectories

    def _move_cost(self, trajectories: Trajectories, goal: Goal, began: bool) -> None:
        """Moves the cost, or lets it begin to move; what is promised at every epsilon is judged at the smaller ones."""
        config = self.config
        if not began:
            smallest = goal._replace(epsilon=torch.full_like(goal.epsilon, config.epsilon[0]))
            self.at.dual_started = self._final_success(trajectories, smallest) > 1 - config.dual_delta
            return
        low, high = config.epsilon
        hard = goal.epsilon <= (low * high) ** 0.5 * (1 + 1e-6)
        some = hard if bool(hard.any()) else torch.ones_like(hard)
        success = self._final_success(select_rows(trajectories, some), Goal(goal.epsilon[some], goal.cost[some]))
        self.at.cost = dual_cost(self.at.cost, success, config.dual_delta, config.dual_rate, config.smallest_cost)
        self.at.dual_started = True

    def _begin_actor(self, progress: float) -> None:
        """Half way to its first queries, lets a guided actor's encoder begin as that of what it imitates."""
        config = self.config
        if not config.has_guided_actor or self.at.actor_began or progress < config.actor_start / 2:
            return
        for network in (self.network, self.target):
            assert network.actor_memory is not None
            network.actor_memory.load_state_dict(network.memory.state_dict())
        self.at.actor_began = True

    def _adapt(self, figures: RolloutFigures) -> None:
        """Makes episodes longer where too few succeed at their end for the cost to move, and training does not help."""
        # What a guide, or an actor that still learns to take its place, does not reach says nothing of longer episodes.
        guided = self._handed_over if self.guide is not None else 0.0
        late = self.progress >= max(GROWS_FROM, self.config.warmup, guided)
        stuck = figures.success[-1] < self.at.success_before + GAIN
        if self.config.grow_horizon and late and stuck and not self.at.dual_started:
            self.at.horizon = min(self.problem.horizon, math.ceil(GROWTH * self.at.horizon))
        self.at.success_before = figures.success[-1]

    def _as_deployed(self, trajectories: Trajectories, goal: Goal, behaviour: Behaviour) -> tuple[Trajectories, Goal]:
        """The episodes of a rollout that were queried as the agent will be once it is trained; all if none was."""
        spread = self.config.deployed_spread
        rows = ~behaviour.random_episode & (behaviour.query_spread == spread)
        if spread is None or not bool(rows.any()):
            return trajectories, goal
        return select_rows(trajectories, rows), Goal(goal.epsilon[rows], goal.cost[rows])

    def _draw_goal(self, n: int) -> Goal:
        """Epsilon, log-uniform in its range, and the present cost, for each of ``n`` episodes."""
        return Goal(log_uniform(*self.config.epsilon, n, self.rng), torch.full((n,), self._cost))

    def _final_success(self, trajectories: Trajectories, goal: Goal) -> float:
        """The smooth success of the recommendations with which a rollout ended."""
        with torch.no_grad():
            answers = read_prefixes(self.network, trajectories, trajectories.length[:, None]).posterior.recommendation
            loss = trajectories.tasks.loss(answers[:, 0])
            return float(losses.smooth_success(loss, goal.epsilon, self.config.dual_softness).mean())

    # --- updates ----------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Moves the target network."""
        follow(self.target, self.network, self.config.polyak)

    def _losses(self, batch: Trajectories) -> LossTerms:
        """The losses at sampled prefixes h, with targets from the prefix h' after each."""
        config, network, tasks, many = self.config, self.network, batch.tasks, self.config.prefixes
        goal = self._draw_goal(len(tasks))
        chosen = self._sampled_prefixes(batch)
        output = read_prefixes(network, batch, chosen)
        features = network.goal_features(output.state, output, goal.epsilon)
        # Everything is fitted at the prefixes h alone; h' are there for the targets.
        weights = torch.tensor([1 / many, 0.0]).repeat_interleave(many).expand(len(tasks), -1)
        inference = self._inference_loss(output.posterior, tasks.target, weights)
        with torch.no_grad():
            target_output = read_prefixes(self.target, batch, chosen)
            reward = self._sampled_reward(tasks, target_output, goal)
        stop = squared_stop_loss(network.stop_logits(output, features), reward, weights, config.stop_slope)

        # The query made at each prefix; a terminal prefix has none, and is masked (M in the paper).
        rows = torch.arange(len(tasks))[:, None]
        query = batch.query[rows, chosen.clamp_max(batch.query.shape[1] - 1)]
        values = network.continue_values(output.state, output, features, query, goal.cost)[:, :many]
        acting = weights * (chosen < batch.length[:, None]).float()
        with torch.no_grad():
            final = (chosen[:, :many] == batch.length[:, None] - 1) & ~batch.stopped[:, None]
            target = self._continuation_target(target_output, reward, final.float(), goal)
        continuation = losses.continuation_loss(values, target, acting[:, :many])
        actor = None
        if self._actor_is_due():
            price = config.saturation_price
            actor = actor_loss(network, output, features, goal, acting[:, :-1], config.actor_kl, self.rng, price)
        return LossTerms(inference, stop, continuation, actor)

    def _sampled_prefixes(self, batch: Trajectories) -> Int[Tensor, "batch prefix"]:
        """A few prefixes per trajectory, drawn from the mixture, and then the prefix after each."""
        many = self.config.prefixes
        stop_time = batch.length.float().mean().expand(len(batch.length))
        weights = losses.prefix_weights(batch.length, stop_time, batch.query.shape[1] + 1, self.config.mixture)
        first = torch.multinomial(weights, many, replacement=many > 1, generator=self.rng)
        return torch.cat([first, torch.minimum(first + 1, batch.length[:, None])], dim=1)

    def _sampled_reward(self, tasks: TaskBatch, output: NetworkOutput, goal: Goal) -> Float[Tensor, "batch prefix"]:
        """The share of m posterior samples that are within epsilon (the paper's sampled reward).

        r(h, theta) = 1/m sum_k 1{L_theta(X_k) <= epsilon},  X_k ~ I(. | h) of the target network.
        """
        samples = [output.posterior.sample(self.rng) for _ in range(self.config.reward_samples)]
        loss = tasks.loss(torch.stack(samples, dim=2))
        return (loss <= goal.epsilon[:, None, None]).float().mean(dim=-1)

    def _continuation_target(
        self,
        output: NetworkOutput,
        reward: Float[Tensor, "batch prefix"],
        final: Float[Tensor, "batch step"],
        goal: Goal,
    ) -> Float[Tensor, "batch step"]:
        """One-step targets, with the values of the target network at its own smoothed query."""
        target, config = self.target, self.config
        features = target.goal_features(output.state, output, goal.epsilon)
        stop_value = torch.sigmoid(target.stop_logits(output, features)).amin(dim=-1)
        query = self._target_query(output, features)
        continue_value = target.continue_values(output.state, output, features, query, goal.cost).amin(dim=-1)
        # Each prefix and the one after it are a trajectory of one step.
        reward, stop_value, continue_value = (_transitions(part) for part in (reward, stop_value, continue_value))
        cost = goal.cost.repeat_interleave(config.prefixes)
        targets = one_step_targets(
            reward, stop_value, continue_value, cost, final.reshape(-1, 1), config.discount, config.bootstrap_clip
        )
        return targets.view(final.shape)

    def _target_query(
        self, output: NetworkOutput, features: Float[Tensor, "batch prefix goal"]
    ) -> Float[Tensor, "batch prefix query"]:
        """a+(h'): the target actor's query (td3) or the target network's mean (ts, ttps), smoothed; or uniform."""
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


@final
@dataclass(frozen=True, eq=False)
class BellmanTest:
    """Stops an episode once Q(h, stop) >= Q(h, a), both by the minimum of twins, after a minimum time."""

    network: Network
    goal: Goal
    minimum_time: int

    def __call__(self, time: int, output: NetworkOutput, query: Float[Tensor, "batch query"]) -> Bool[Tensor, " batch"]:
        """Which episodes stop now.

        Args:
            time: Observations so far.
            output: What the network makes of each history (one prefix).
            query: The query a that each episode would make.

        Returns:
            True where an episode stops.
        """
        if time < self.minimum_time:
            return torch.zeros(len(query), dtype=torch.bool)
        features = self.network.goal_features(output.state, output, self.goal.epsilon)
        stop_value = torch.sigmoid(self.network.stop_logits(output, features))
        continue_value = self.network.continue_values(output.state, output, features, query[:, None], self.goal.cost)
        return stop_value.amin(dim=(1, 2)) >= continue_value.amin(dim=(1, 2))


def squared_stop_loss(
    logits: Float[Tensor, "batch prefix twin"],
    reward: Float[Tensor, "batch prefix"],
    weights: Float[Tensor, "batch prefix"],
    least_slope: float = 0.0,
) -> Tensor:
    """Half the squared error of the stop head, summed over twins (second term of the paper's critic loss).

    Where the sigmoid has saturated its slope is nearly 0, and a head that once said 0 would go on saying it. With a
    least slope, gradients pass as if it were at least that steep: the loss and its minimum are the same.

    Args:
        logits: What the stop head says; its value is their sigmoid.
        reward: What it should say.
        weights: The weight of each prefix.
        least_slope: The slope of the sigmoid that gradients see is no less than this.

    Returns:
        The loss, averaged over episodes and weighted over prefixes.
    """
    value = torch.sigmoid(logits)
    missing = (least_slope - value * (1 - value)).clamp_min(0).detach()
    loss = (value + missing * (logits - logits.detach()) - reward[..., None]).square() / 2
    return (weights * loss.sum(dim=-1)).sum(dim=1).mean()


def one_step_targets(
    reward: Float[Tensor, "batch prefix"],
    stop_value: Float[Tensor, "batch prefix"],
    continue_value: Float[Tensor, "batch prefix"],
    cost: Float[Tensor, " batch"],
    final: Float[Tensor, "batch step"],
    discount: float,
    clip: tuple[float, float] | None,
) -> Float[Tensor, "batch step"]:
    """Continuation targets by one-step bootstraps (the paper's TD targets).

    y = -c (1 - d) + d r(h') + gamma (1 - d) V(h'), with V = max(stop, continue) of the target network.

    Args:
        reward: r at every prefix.
        stop_value: The target network's Q(h, stop), by the minimum of twins.
        continue_value: Its Q(h, a+(h)), likewise.
        cost: The cost c of a query, per episode.
        final: d, which is 1 where the next prefix is the horizon.
        discount: gamma.
        clip: Quantiles of the batch to which both values are clipped.

    Returns:
        The target at every prefix but the last.
    """
    value = torch.maximum(_clipped(stop_value, clip), _clipped(continue_value, clip))[:, 1:]
    return final * reward[:, 1:] + (1 - final) * (discount * value - cost[:, None])


def _transitions(values: Float[Tensor, "batch prefix"]) -> Float[Tensor, "transition 2"]:
    """Values at prefixes h and then at those after them, as one row for each pair of h and h'."""
    return torch.stack(values.chunk(2, dim=1), dim=2).flatten(0, 1)


def _clipped(values: Tensor, quantiles: tuple[float, float] | None) -> Tensor:
    if quantiles is None:
        return values
    low, high = torch.quantile(values.flatten()[:100_000], torch.tensor(quantiles))
    return values.clamp(low, high)


def dual_cost(cost: float, success: float, delta: float, rate: float, floor: float = 0.0) -> float:
    """The cost update: cheaper while success is short of 1 - delta.

    c <- Proj_[floor,1] (c - eta ((1 - delta) - p)), where the paper's floor is 0.

    Args:
        cost: c, the present cost of a query.
        success: p, the success of completed rollouts.
        delta: How often an answer may be wrong.
        rate: eta.
        floor: The smallest cost.

    Returns:
        The next cost.
    """
    return min(1.0, max(floor, cost - rate * ((1 - delta) - success)))
