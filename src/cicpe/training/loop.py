"""Our training loop, top to bottom.

Each iteration plays a batch of fresh tasks with the current network and makes a few updates. One
update encodes every prefix of a batch of trajectories in one causal pass and fits, together,

* the posterior of the target (robust likelihood),
* the stop head (is the deployed recommendation within epsilon?),
* the continuation head (lambda-returns over the trajectory; where the critic tells queries apart by what they gain,
  that is fitted to many candidate queries per history, which the simulator answers: ``cicpe.training.gains``),

and, every other time, a learned actor (td3) on the critic's value of its queries. Epsilon and the cost
of a query are drawn per episode, so that one network serves a range of both; episodes run past their
stop, so that stopping is judged at every prefix. What is deployed is a running average of the weights.

The published algorithm, which differs in most of these points, is in ``cicpe.training.paper``.
"""

from typing import final

import torch
from torch import Tensor

from cicpe.beliefs.network.critic import Goal
from cicpe.beliefs.network.network import Network, NetworkOutput
from cicpe.beliefs.network.policy import ScoringHead
from cicpe.statistics import log_uniform
from cicpe.training import losses
from cicpe.training.actor import actor_loss, scoring_loss
from cicpe.training.base import (
    RANDOM_START,
    AnyTrainer,
    BaseTrainer,
    Losses,
    LossTerms,
    Progress,
    Snapshot,
    build_network,
)
from cicpe.training.config import TrainingConfig
from cicpe.training.gains import gain_loss
from cicpe.training.measure import RolloutFigures
from cicpe.training.optimisation import follow
from cicpe.training.returns import lambda_returns, shaped_returns
from cicpe.training.rollout import Trajectories, collect
from cicpe.training.schedule import adapted_horizon

HORIZON_SETTLES = 0.7
"""Share of training after which the horizon stays as it is."""


@final
class Trainer(BaseTrainer[TrainingConfig]):
    """Trains networks by our own algorithm."""

    @property
    def average(self) -> Network:
        return self.second

    @property
    def modules(self) -> dict[str, torch.nn.Module]:
        return {"network": self.network, "average": self.second}

    # --- rollouts ---------------------------------------------------------------------------------

    def _rollout(self, progress: float) -> Trajectories:
        """Plays fresh tasks to the horizon, and keeps the trajectories in the replay."""
        config = self.config
        n = round(config.first_batch + (config.batch - config.first_batch) * progress)
        seed, tasks, behaviour = self._fresh_tasks(n, progress)
        trajectories = collect(self.network, self._rule(progress), tasks, self.at.horizon, behaviour, self.rng)
        self.replay.add(seed, trajectories)
        return trajectories

    def _draw_goal(self, n: int) -> Goal:
        """Epsilon and the cost of a query, log-uniform in their ranges, for each of ``n`` episodes."""
        epsilon, cost = (log_uniform(low, high, n, self.rng) for low, high in (self.config.epsilon, self.config.cost))
        return Goal(epsilon, cost)

    # --- updates ----------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Moves the average of the weights."""
        # Early on the average would lag far behind; it forgets its first steps faster.
        decay = min(self.config.weight_average, self.at.update / (self.at.update + 10))
        follow(self.second, self.network, 1 - decay)

    def _losses(self, batch: Trajectories) -> LossTerms:
        """The losses at all prefixes of a batch of trajectories, under a goal drawn for each of them."""
        config, network, tasks = self.config, self.network, batch.tasks
        goal = self._draw_goal(len(tasks))
        output = network.believe(network.unroll(tasks.context, batch.query, batch.observation))
        features = network.goal_features(output.state, output, goal.epsilon)
        logits = network.stop_logits(output, features)
        stop_probability = torch.sigmoid(logits).detach()
        stop_time = losses.first_true(stop_probability.mean(dim=-1) >= losses.CONFIDENT)
        weights = losses.prefix_weights(batch.length, stop_time, logits.shape[1], config.mixture)

        inference = self._inference_loss(output.posterior, tasks.target, weights)
        with torch.no_grad():
            reward = (tasks.loss(output.posterior.recommendation) <= goal.epsilon[:, None]).float()
        stop = losses.stop_loss(logits, reward, weights)

        values = self._values_of_queries(batch, output, features, goal)
        with torch.no_grad():
            target = self._continuation_target(reward, stop_probability, values, goal)
        # At the last prefix no query followed.
        continuation = losses.continuation_loss(values, target, weights[:, :-1])
        if network.critic.gain is not None:
            continuation = continuation + gain_loss(
                network, output, features, batch, goal, config.gain_candidates, self.rng
            )
        actor = None
        if self._actor_is_due():
            actor = self._actor_loss(output, features, goal, weights[:, :-1])
        return LossTerms(inference, stop, continuation, actor)

    def _actor_loss(self, output: NetworkOutput, features: Tensor, goal: Goal, weights: Tensor) -> Tensor:
        """The loss of the learned actor; one that scores places imitates its guide at first, and then ever less."""
        config, network = self.config, self.network
        if not isinstance(network.actor, ScoringHead):
            return actor_loss(network, output, features, goal, weights, config.actor_kl, self.rng)
        own_time = (self.progress - config.actor_start) / (1 - config.actor_start)
        value_weight, guide_weight = (0.0, 1.0) if own_time < 0 else (1.0, config.actor_guide * (1 - own_time))
        return scoring_loss(network, output, features, weights, value_weight, guide_weight, self.rng)

    def _values_of_queries(self, batch: Trajectories, output: NetworkOutput, features: Tensor, goal: Goal) -> Tensor:
        """Q(h_t, a_t) of the query made at each prefix t = 0 ... T - 1: batch x step x twin."""
        # Values are read at all prefixes; the last has no query, and is dropped.
        query = torch.cat([batch.query, batch.query[:, -1:]], dim=1)
        # What queries gain is learned from the simulator alone, where it is told apart.
        values = self.network.continue_values(output.state, output, features, query, goal.cost, learns_gains=False)
        return values[:, :-1]

    def _continuation_target(self, reward: Tensor, stop_probability: Tensor, values: Tensor, goal: Goal) -> Tensor:
        """What the continuation head is fitted to, by the smaller of the twins."""
        continue_value, trace = values.amin(dim=-1), self.config.trace
        if self.config.shaped:
            return shaped_returns(reward, continue_value, goal.cost, trace)
        return lambda_returns(stop_probability.amin(dim=-1), continue_value, goal.cost, trace)

    # --- the horizon ------------------------------------------------------------------------------

    def _adapt(self, figures: RolloutFigures) -> None:
        """Grows or shrinks the horizon to what the smallest epsilon needs, by the success at every prefix."""
        success = figures.success
        settled = not self._uniform_start() + RANDOM_START <= self.progress <= HORIZON_SETTLES
        if settled or not self.config.adapt_horizon:
            return
        # A horizon far beyond what was trained for undoes what was learnt; it may only grow with training.
        limit = min(self.problem.horizon, int(self.config.horizon * (1 + 5 * self.progress)))
        self.at.horizon = adapted_horizon(self.at.horizon, limit, success, self.at.success_before)
        self.at.success_before = success[-1]


__all__ = ["AnyTrainer", "Losses", "Progress", "Snapshot", "Trainer", "build_network"]
