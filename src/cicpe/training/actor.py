"""The update of the learned actor (td3): it follows the critic, where X = A the posterior too, and where X != A, if the
critic tells queries apart by what they gain, the best of the memory's probes."""

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from cicpe.beliefs.network.critic import Goal
from cicpe.beliefs.network.network import Network, NetworkOutput
from cicpe.beliefs.network.policy import Policy, moments

KNEE = 1.5
"""Where a tanh counts as saturating: at nine tenths of its way."""
SATURATION = 0.01
"""Weight of that: enough to turn back a query that the critic has stopped asking for."""


def actor_loss(
    network: Network,
    output: NetworkOutput,
    features: Float[Tensor, "batch prefix goal"],
    goal: Goal,
    weights: Float[Tensor, "batch step"],
    kl_weight: float,
    rng: Generator,
    saturation_price: float = SATURATION,
    probe_weight: float = 0.0,
) -> Tensor:
    """The loss of the learned actor (the paper's deterministic and Gaussian TD3 losses).

    L = E[-Q_1(h, A) + beta KL(I || pi)], with A = pi(h) of a deterministic actor and A ~ pi(. | h) of a
    Gaussian one, plus a small price on saturation. beta is 0 for a deterministic actor. A gradient of Q finds the
    top of the hill that a query is on, and no other; with ``probe_weight`` the actor is also drawn to the best of the
    probes at which the memory has its function, by the same critic.

    Args:
        network: Holds the actor and the critic.
        output: What the network makes of the prefixes.
        features: The critic's goal features at those prefixes.
        goal: Epsilon and cost of each episode.
        weights: The weight of each prefix but the last.
        kl_weight: beta.
        rng: Draws the queries of a Gaussian actor.
        saturation_price: Weight of the price on saturation.
        probe_weight: Weight of the squared distance from the best probe, in unit coordinates.

    Returns:
        The loss, averaged over episodes and weighted over prefixes.
    """
    assert network.actor is not None
    policy = network.policy(output, features)
    noise = torch.randn(policy.mean_unit.shape, generator=rng)
    query = network.actor.draw(policy, noise, float(network.actor.config.gaussian))
    value = network.continue_values(output.state, output, features, query, goal.cost)[..., 0]
    loss = saturation_price * saturation(policy) - value
    if kl_weight > 0:
        loss = loss + kl_weight * imitation(*moments(output.posterior, network.answer_space), policy)
    if probe_weight > 0:
        with torch.no_grad():
            best = network.best_probe(output, features)
        assert best is not None, "drawn to probes: needs a memory that holds a function, and a critic with gains"
        loss = loss + probe_weight * (policy.mean_unit - best).square().sum(dim=-1)
    return (weights * loss[:, :-1]).sum(dim=1).mean()


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


def imitation(
    mean: Float[Tensor, "batch prefix query"], log_std: Float[Tensor, "batch prefix query"], policy: Policy
) -> Float[Tensor, "batch prefix"]:
    """KL(I || pi) of diagonal Gaussians in unit coordinates, I given by its moments.

    sum_i log(s_pi / s_I) + (s_I^2 + (m_I - m_pi)^2) / (2 s_pi^2) - 1/2.
    """
    ratio = 2 * (log_std - policy.log_std_unit)
    apart = (mean - policy.mean_unit) * torch.exp(-policy.log_std_unit)
    return ((ratio.exp() + apart.square() - ratio - 1) / 2).sum(dim=-1)


def saturation(policy: Policy) -> Float[Tensor, "batch prefix"]:
    """How far the actor's tanh saturates, from where no critic could call it back.

    sum_i max(|raw_i| - KNEE, 0)^2.
    """
    return (policy.raw.abs() - KNEE).clamp_min(0).square().sum(dim=-1)
