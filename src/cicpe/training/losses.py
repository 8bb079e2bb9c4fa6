"""The losses of inference and critic, over weighted prefixes."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, smooth_l1_loss

from cicpe.beliefs.network.posteriors.gaussian import Posterior
from cicpe.spaces import Space, Sphere
from cicpe.training.config import PrefixMixture

CONFIDENT = 0.9
"""The confidence at which a run in training takes an episode to stop."""


def first_true(hit: Bool[Tensor, "batch prefix"]) -> Float[Tensor, " batch"]:
    """The first prefix at which each row is true; the last prefix where none is."""
    index = torch.arange(hit.shape[1], dtype=torch.float32).expand_as(hit)
    return torch.where(hit, index, float(hit.shape[1] - 1)).amin(dim=1)


def prefix_weights(
    length: Int[Tensor, " batch"], stop_time: Float[Tensor, " batch"], prefixes: int, mixture: PrefixMixture
) -> Float[Tensor, "batch prefix"]:
    """A probability over the prefixes 0 ... length of each trajectory (the paper's prefix sampler).

    Args:
        length: Observations of each trajectory.
        stop_time: Where it would stop.
        prefixes: How many prefixes there are, padding included.
        mixture: The shares of uniform prefixes, of those near the stop, and of the terminal one.

    Returns:
        Weights that sum to 1 over the prefixes of each trajectory; 0 in the padding.
    """
    t = torch.arange(prefixes, dtype=torch.float32)
    inside = (t <= length[:, None]).float()
    uniform = inside / inside.sum(dim=1, keepdim=True)
    near = torch.exp(-(((t - stop_time[:, None]) / 3) ** 2) / 2) * inside + 1e-9 * inside
    near = near / near.sum(dim=1, keepdim=True)
    terminal = (t == length[:, None]).float()
    total = mixture.uniform + mixture.near_stop + mixture.terminal
    return (mixture.uniform * uniform + mixture.near_stop * near + mixture.terminal * terminal) / total


def robust(u: Tensor, tail: float) -> Tensor:
    """rho(u) = min(u, 0) + tail log(1 + max(u, 0) / tail): a logarithmic tail for bad early prefixes."""
    return u.clamp_max(0) + tail * torch.log1p(u.clamp_min(0) / tail)


def smooth_success(
    loss: Float[Tensor, "*batch"], epsilon: Float[Tensor, "*batch"], softness: float
) -> Float[Tensor, "*batch"]:
    """The smooth success of recommendations (the paper's proxy): sigmoid((epsilon - D) / (kappa epsilon)).

    Args:
        loss: D, the loss of each recommendation.
        epsilon: The epsilon that each is judged by.
        softness: kappa.

    Returns:
        A number from 0 to 1 for each.
    """
    return torch.sigmoid((epsilon - loss) / (softness * epsilon))


def inference_loss(
    posterior: Posterior,
    target: Float[Tensor, "batch answer"],
    weights: Float[Tensor, "batch prefix"],
    space: Space,
    tail: float,
    anchor_weight: float,
    rng: Generator,
) -> Tensor:
    """The robust likelihood with its anchor (the paper's robust NLL and epsilon-best-arm losses).

    L = E[rho(nll(h, x*)) + alpha SmoothL1(mean(h), x*)] in unit coordinates. On a sphere, where radial
    errors are harmless, the anchor is minus the cosine between a posterior sample and the target.

    Args:
        posterior: The posterior at every prefix.
        target: The target of each episode.
        weights: The weight of each prefix.
        space: The answer space.
        tail: tau of the robust transform rho.
        anchor_weight: alpha, the weight of the anchor.
        rng: Draws the sample on a sphere.

    Returns:
        The loss, averaged over episodes and weighted over prefixes.
    """
    targets = target[:, None].expand_as(posterior.recommendation)
    loss = robust(posterior.nll(targets), tail)
    if anchor_weight > 0:
        if isinstance(space, Sphere):
            anchor = space.distance(posterior.sample(rng), targets) - 1
        else:
            unit, target_unit = space.to_unit(posterior.recommendation), space.to_unit(targets)
            anchor = smooth_l1_loss(unit, target_unit, reduction="none").mean(dim=-1)
        loss = loss + anchor_weight * anchor
    return (weights * loss).sum(dim=1).mean()


def stop_loss(
    logits: Float[Tensor, "batch prefix twin"],
    reward: Float[Tensor, "batch prefix"],
    weights: Float[Tensor, "batch prefix"],
) -> Tensor:
    """Cross-entropy of the stop head with the success of the recommendation, summed over twins.

    Args:
        logits: What the stop head says.
        reward: 1 where stopping would have been right, else 0 (or a probability of that).
        weights: The weight of each prefix.

    Returns:
        The loss, averaged over episodes and weighted over prefixes.
    """
    loss = binary_cross_entropy_with_logits(logits, reward[..., None].expand_as(logits), reduction="none")
    return (weights * loss.sum(dim=-1)).sum(dim=1).mean()


def continuation_loss(
    values: Float[Tensor, "batch step twin"], target: Float[Tensor, "batch step"], weights: Float[Tensor, "batch step"]
) -> Tensor:
    """Half the squared error of the continuation head, summed over twins (first term of the paper's critic loss).

    Args:
        values: What the continuation head says of the query that was made.
        target: What it should say.
        weights: The weight of each prefix; 0 where no query followed.

    Returns:
        The loss, averaged over episodes and weighted over prefixes.
    """
    loss = (values - target[..., None]).square().sum(dim=-1) / 2
    return (weights * loss).sum(dim=1).mean()
