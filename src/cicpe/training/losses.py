"""The losses of inference and critic, over weighted prefixes."""

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, smooth_l1_loss

from cicpe.beliefs.network.policy import Policy
from cicpe.beliefs.network.posteriors.gaussian import Posterior
from cicpe.spaces import Space, Sphere
from cicpe.training.config import PrefixMixture

KNEE = 1.5
"""Where a tanh counts as saturating: at nine tenths of its way."""
SATURATION = 0.01
"""Weight of that: enough to turn back a query that the critic has stopped asking for."""


def prefix_weights(
    length: Int[Tensor, " batch"], stop_time: Float[Tensor, " batch"], prefixes: int, mixture: PrefixMixture
) -> Float[Tensor, "batch prefix"]:
    """A probability over the prefixes 0 ... length of each trajectory: uniform, near the stop, terminal."""
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


def inference_loss(
    posterior: Posterior,
    target: Float[Tensor, "batch answer"],
    weights: Float[Tensor, "batch prefix"],
    space: Space,
    tail: float,
    anchor_weight: float,
    rng: Generator,
) -> Tensor:
    """The robust likelihood with its anchor, averaged over episodes and weighted over prefixes.

    The anchor is SmoothL1 of the mean in unit coordinates; on a sphere, where radial errors are
    harmless, it is minus the cosine between a posterior sample and the target.
    """
    wanted = target[:, None].expand_as(posterior.recommendation)
    loss = robust(posterior.nll(wanted), tail)
    if anchor_weight > 0:
        if isinstance(space, Sphere):
            point_estimate = space.distance(posterior.sample(rng), wanted) - 1
        else:
            unit, wanted_unit = space.to_unit(posterior.recommendation), space.to_unit(wanted)
            point_estimate = smooth_l1_loss(unit, wanted_unit, reduction="none").mean(dim=-1)
        loss = loss + anchor_weight * point_estimate
    return (weights * loss).sum(dim=1).mean()


def stop_head_loss(
    logits: Float[Tensor, "batch prefix twin"],
    reward: Float[Tensor, "batch prefix"],
    weights: Float[Tensor, "batch prefix"],
    kind: str,
) -> Tensor:
    """Fits the stop head to the (estimated) probability of success at every prefix."""
    wanted = reward[..., None].expand_as(logits)
    if kind == "cross-entropy":
        loss = binary_cross_entropy_with_logits(logits, wanted, reduction="none")
    else:
        loss = (torch.sigmoid(logits) - wanted).square() / 2
    return (weights * loss.sum(dim=-1)).sum(dim=1).mean()


def continuation_loss(
    values: Float[Tensor, "batch step twin"], target: Float[Tensor, "batch step"], weights: Float[Tensor, "batch step"]
) -> Tensor:
    """Fits the continuation head to its targets where a continuation was really made."""
    loss = (values - target[..., None]).square().sum(dim=-1) / 2
    return (weights * loss).sum(dim=1).mean()


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
    """A small price on saturating the actor's tanh, from which no critic could call it back.

    sum_i max(|raw_i| - KNEE, 0)^2, times its weight.
    """
    return SATURATION * (policy.raw.abs() - KNEE).clamp_min(0).square().sum(dim=-1)
