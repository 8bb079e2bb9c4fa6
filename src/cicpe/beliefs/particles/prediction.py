"""What particles would observe next, by simulation."""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from cicpe.beliefs.predictors import Prediction
from cicpe.beliefs.smc import resample

if TYPE_CHECKING:
    from cicpe.beliefs.particle_filter import FilterState
    from cicpe.beliefs.particles.belief import ParticleBelief

SIMULATED = 256
"""Observations that are simulated, one per particle."""


def simulate_prediction(
    belief: "ParticleBelief", state: "FilterState", query: Float[Tensor, "batch query"]
) -> Prediction:
    """The mean and the spread (or the share of the upper value) of what particles would observe.

    Args:
        belief: Whose particles.
        state: Histories.
        query: The query that each is about to make.

    Returns:
        The predictive distribution of every entry of the observation.
    """
    cloud = state.cloud
    seed = belief.config.seed + cloud.query_BTQ.shape[1]

    def simulated(unit_NP: Tensor, context_C: Tensor, query_Q: Tensor) -> Tensor:
        # Every episode has the same random numbers, so that its prediction does not depend on its batch.
        task, rng = belief.task(unit_NP, context_C.expand(SIMULATED, -1)), torch.Generator().manual_seed(seed)
        seen = belief.problem.observe(task, query_Q.expand(SIMULATED, -1), rng)
        return torch.as_tensor(seen, dtype=torch.float32).reshape(SIMULATED, -1)

    with torch.no_grad():
        chosen = resample(cloud.log_pending_BN, SIMULATED, torch.Generator().manual_seed(seed))[..., None]
        unit_BNP = cloud.unit_BNP.gather(1, chosen.expand(-1, -1, cloud.unit_BNP.shape[-1]))
        seen_BNY = torch.stack(list(map(simulated, unit_BNP, cloud.context_BC, query)))
    binary, centre = belief.observed_values
    upper = (seen_BNY > centre).float().sum(dim=1)
    logit = torch.log((upper + 0.5) / (SIMULATED - upper + 0.5))
    log_std = seen_BNY.std(dim=1).clamp_min(1e-6).log()
    return Prediction(binary, centre, logit, seen_BNY.mean(dim=1), log_std)
