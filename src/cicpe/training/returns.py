"""Values of going on, from the values along a trajectory."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def lambda_returns(
    stop: Float[Tensor, "batch prefix"],
    go: Float[Tensor, "batch step"],
    cost: Float[Tensor, " batch"],
    trace: float,
    length: Int[Tensor, " batch"] | None = None,
) -> Float[Tensor, "batch step"]:
    """Continuation targets at the prefixes 0 ... T-1 of trajectories with T = ``length`` observations (all, if None).

    y_t = -c + V_{t+1},  V_T = stop_T,  and before that
    V_t = stop_t if stop_t >= go_t, else (1 - lambda) go_t + lambda y_t.
    """
    over = _over(go, length)
    value = stop[:, -1]
    targets = []
    for t in range(go.shape[1] - 1, -1, -1):
        target = value - cost
        targets.append(target)
        onward = (1 - trace) * go[:, t] + trace * target
        value = torch.where((stop[:, t] >= go[:, t]) | over[:, t], stop[:, t], onward)
    return torch.stack(targets[::-1], dim=1)


def shaped_returns(
    reward: Float[Tensor, "batch prefix"],
    go: Float[Tensor, "batch step"],
    cost: Float[Tensor, " batch"],
    trace: float,
    length: Int[Tensor, " batch"] | None = None,
) -> Float[Tensor, "batch step"]:
    """Targets of the shaped continuation value, whose stop value is zero: no stop head is needed.

    y_t = -c + r_{t+1} - r_t + S_{t+1},  S_T = 0,  and before that
    S_t = 0 if go_t <= 0, else (1 - lambda) go_t + lambda y_t.
    """
    over = _over(go, length)
    value = torch.zeros(len(go))
    targets = []
    for t in range(go.shape[1] - 1, -1, -1):
        target = value - cost + reward[:, t + 1] - reward[:, t]
        targets.append(target)
        value = torch.where((go[:, t] > 0) & ~over[:, t], (1 - trace) * go[:, t] + trace * target, 0.0)
    return torch.stack(targets[::-1], dim=1)


def _over(go: Float[Tensor, "batch step"], length: Int[Tensor, " batch"] | None) -> Bool[Tensor, "batch step"]:
    """Where a trajectory has ended: what follows is padding."""
    if length is None:
        return torch.zeros_like(go, dtype=torch.bool)
    return torch.arange(go.shape[1]) >= length[:, None]


def one_step_targets(
    reward: Float[Tensor, "batch prefix"],
    stop: Float[Tensor, "batch prefix"],
    go: Float[Tensor, "batch prefix"],
    cost: Float[Tensor, " batch"],
    final: Float[Tensor, "batch step"],
    discount: float,
    clip: tuple[float, float] | None,
) -> Float[Tensor, "batch step"]:
    """y = -c (1 - d) + d r(h') + gamma (1 - d) V(h'), with V = max(stop, go) of the target network.

    ``final`` is d: one where the next prefix is the horizon. ``clip`` bounds the bootstraps by quantiles.
    """
    value = torch.maximum(_clipped(stop, clip), _clipped(go, clip))[:, 1:]
    return final * reward[:, 1:] + (1 - final) * (discount * value - cost[:, None])


def _clipped(values: Tensor, quantiles: tuple[float, float] | None) -> Tensor:
    if quantiles is None:
        return values
    low, high = torch.quantile(values.flatten()[:100_000], torch.tensor(quantiles))
    return values.clamp(low, high)
