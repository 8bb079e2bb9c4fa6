"""Values of going on, from the values along a trajectory that was played to its horizon."""

import torch
from jaxtyping import Float
from torch import Tensor


def lambda_returns(
    stop_value: Float[Tensor, "batch prefix"],
    continue_value: Float[Tensor, "batch step"],
    cost: Float[Tensor, " batch"],
    trace: float,
) -> Float[Tensor, "batch step"]:
    """Continuation targets at the prefixes 0 ... T - 1 of trajectories with T observations.

    y_t = -c + V_{t+1},  V_T = stop_T,  and before that
    V_t = stop_t if stop_t >= continue_t, else (1 - lambda) continue_t + lambda y_t.

    Args:
        stop_value: Q(h_t, stop) at every prefix.
        continue_value: Q(h_t, a_t) of the query made at every prefix but the last.
        cost: The cost c of a query, per episode.
        trace: lambda.

    Returns:
        The targets y_t.
    """
    value = stop_value[:, -1]
    targets = []
    for t in range(continue_value.shape[1] - 1, -1, -1):
        target = value - cost
        targets.append(target)
        onward = (1 - trace) * continue_value[:, t] + trace * target
        value = torch.where(stop_value[:, t] >= continue_value[:, t], stop_value[:, t], onward)
    return torch.stack(targets[::-1], dim=1)


def shaped_returns(
    reward: Float[Tensor, "batch prefix"],
    continue_value: Float[Tensor, "batch step"],
    cost: Float[Tensor, " batch"],
    trace: float,
) -> Float[Tensor, "batch step"]:
    """Targets of the shaped continuation value, whose stop value is zero (the paper's reward shaping lemma).

    y_t = -c + r_{t+1} - r_t + S_{t+1},  S_T = 0,  and before that
    S_t = 0 if continue_t <= 0, else (1 - lambda) continue_t + lambda y_t.

    Args:
        reward: Success r_t of the recommendation at every prefix.
        continue_value: The shaped value of the query made at every prefix but the last.
        cost: The cost c of a query, per episode.
        trace: lambda.

    Returns:
        The targets y_t.
    """
    value = torch.zeros(len(continue_value))
    targets = []
    for t in range(continue_value.shape[1] - 1, -1, -1):
        target = value - cost + reward[:, t + 1] - reward[:, t]
        targets.append(target)
        onward = (1 - trace) * continue_value[:, t] + trace * target
        value = torch.where(continue_value[:, t] > 0, onward, 0.0)
    return torch.stack(targets[::-1], dim=1)
