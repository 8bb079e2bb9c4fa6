"""The update of the learned actor (td3): it follows the critic, and a guide beside it.

Where X = A the guide is the posterior itself, where X != A and the memory holds a function its upper confidence bound.
"""

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe import trees
from cicpe.beliefs.network.critic import Goal
from cicpe.beliefs.network.network import Network, NetworkOutput
from cicpe.beliefs.network.policy import ActorHead, imitation, moments, saturation

SATURATION = 0.01
"""Weight of that: enough to turn back a query that the critic has stopped asking for."""
SCORED_ROWS = 48
"""Histories of an update that an actor which scores places learns from: each is as many places as there are probes."""
ENTROPY = 0.1
"""Weight of the entropy of scores beside gains of unit spread: places that are nearly as good are queried too."""
GUIDE_SPREAD = 2.0
"""Weight of the standard deviation in the upper confidence bound that guides at first."""


def actor_loss(
    network: Network,
    output: NetworkOutput,
    features: Float[Tensor, "batch prefix goal"],
    goal: Goal,
    weights: Float[Tensor, "batch step"],
    kl_weight: float,
    rng: Generator,
    saturation_price: float = SATURATION,
) -> Tensor:
    """The loss of the learned actor (the paper's deterministic and Gaussian TD3 losses).

    L = E[-Q_1(h, A) + beta KL(I || pi)], with A = pi(h) of a deterministic actor and A ~ pi(. | h) of a
    Gaussian one, plus a small price on saturation. beta is 0 for a deterministic actor.

    Args:
        network: Holds the actor and the critic.
        output: What the network makes of the prefixes.
        features: The critic's goal features at those prefixes.
        goal: Epsilon and cost of each episode.
        weights: The weight of each prefix but the last.
        kl_weight: beta.
        rng: Draws the queries of a Gaussian actor.
        saturation_price: Weight of the price on saturation.

    Returns:
        The loss, averaged over episodes and weighted over prefixes.
    """
    assert isinstance(network.actor, ActorHead)
    policy = network.policy(output, features)
    noise = torch.randn(policy.mean_unit.shape, generator=rng)
    query = network.actor.draw(policy, noise, float(network.actor.config.gaussian))
    value = network.continue_values(output.state, output, features, query, goal.cost)[..., 0]
    loss = saturation_price * saturation(policy) - value
    if kl_weight > 0:
        loss = loss + kl_weight * imitation(*moments(output.posterior, network.answer_space), policy)
    return (weights * loss[:, :-1]).sum(dim=1).mean()


def scoring_loss(
    network: Network,
    output: NetworkOutput,
    features: Float[Tensor, "batch prefix goal"],
    weights: Float[Tensor, "batch step"],
    value_weight: float,
    guide_weight: float,
    rng: Generator,
) -> Tensor:
    """The loss of a learned actor that scores places (TD3 where X != A and the memory holds a function).

    L = E[-sum_j pi_j A(h, a_j) / s - tau H(pi) + beta KL(G || pi)], with pi the softmax of the scores over the memory's
    probes a_j, s the spread of the gains A over them, and G all on the probe with the highest upper confidence bound.
    The sum is exact: no query is drawn, and a probe far from the others is as near as any.

    Args:
        network: Holds the actor, and a critic that tells queries apart by what they gain.
        output: What the network makes of the prefixes.
        features: The critic's goal features at those prefixes.
        weights: The weight of each prefix but the last.
        value_weight: Weight of the first two terms.
        guide_weight: beta.
        rng: Draws the histories that the actor learns from.

    Returns:
        The loss, averaged over episodes and weighted over prefixes.
    """
    rows = torch.randperm(len(features), generator=rng)[:SCORED_ROWS]
    seen = output._replace(
        state=trees.select(output.state, rows),
        memory_features=trees.select(output.memory_features, rows),
        critic_features=trees.select(output.critic_features, rows),
    )
    log_policy = network.probe_scores(seen, features[rows]).log_softmax(dim=-1)
    loss = torch.zeros(log_policy.shape[:2])
    if value_weight > 0:
        with torch.no_grad():
            gains = network.probe_gains(seen, features[rows])
            gains = gains - gains.mean(dim=-1, keepdim=True)
            gains = gains / gains.square().mean().sqrt().clamp_min(1e-6)
        loss = loss + value_weight * (log_policy.exp() * (ENTROPY * log_policy - gains)).sum(dim=-1)
    if guide_weight > 0:
        mean, std = seen.memory_features.function_mean, seen.memory_features.function_std
        assert mean is not None
        assert std is not None
        best = (mean + GUIDE_SPREAD * std).argmax(dim=-1, keepdim=True)
        loss = loss - guide_weight * log_policy.gather(-1, best)[..., 0]
    return (weights[rows] * loss[:, :-1]).sum(dim=1).mean()


def actor_gradients(parameters: list[torch.nn.Parameter], loss: Tensor, clip: float) -> None:
    """Sets the gradients of the actor's parameters alone: the critic is not to please the actor.

    Args:
        parameters: What the loss trains.
        loss: The actor's loss.
        clip: Largest norm of the gradient.
    """
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = gradient
    torch.nn.utils.clip_grad_norm_(parameters, clip)
