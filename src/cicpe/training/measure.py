"""Figures of a network on training episodes, for the snapshots of a run."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from cicpe.beliefs.network.network import Network
from cicpe.training.losses import CONFIDENT, first_true
from cicpe.training.replay import join, select_rows
from cicpe.training.rollout import Trajectories


class RolloutFigures(NamedTuple):
    """How good a network is."""

    accuracy: float
    """Of episodes stopped at confidence 0.9, at the middle epsilon."""
    queries: float
    """Their mean number of queries."""
    success: list[float]
    """The share of recommendations within the smallest epsilon, after 0, 1, ... queries."""


def measure(network: Network, rollouts: Sequence[Trajectories], epsilon: tuple[float, float]) -> RolloutFigures:
    """Measures a network on training episodes.

    Args:
        network: Reads the episodes again, whichever network played them.
        rollouts: Episodes of one horizon; those queried by the actor's own rule count, where there are any.
        epsilon: The smallest and the largest epsilon; the middle is their geometric mean.

    Returns:
        The figures.
    """
    trajectories = join(rollouts)
    if bool(trajectories.own.any()):
        trajectories = select_rows(trajectories, trajectories.own)
    tasks = trajectories.tasks
    middle = (epsilon[0] * epsilon[1]) ** 0.5
    with torch.no_grad():
        state = network.unroll(tasks.context, trajectories.query, trajectories.observation)
        output = network.believe(state)
        loss = tasks.loss(output.posterior.recommendation)
        features = network.goal_features(state, output, torch.full((len(tasks),), middle))
        confidence = torch.sigmoid(network.stop_logits(output, features)).mean(dim=-1)
    stop_time = first_true(confidence >= CONFIDENT).long()
    correct = loss[torch.arange(len(tasks)), stop_time] <= middle
    return RolloutFigures(
        float(correct.float().mean()),
        float(stop_time.float().mean()),
        (loss <= epsilon[0]).float().mean(dim=0).tolist(),
    )
