"""What the particles would observe next."""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cicpe.beliefs.particles.belief import ParticleBelief, ParticleState
from cicpe.beliefs.particles.smc import resample
from cicpe.beliefs.predictors import ObservationPredictor, Prediction, Surprise, two_values

SIMULATED = 256
"""Observations that are simulated, one per particle."""


@final
@dataclass(frozen=True)
class ParticlePredictor(ObservationPredictor):
    """What the particles would observe, simulated."""

    belief: ParticleBelief

    @cached_property
    def kinds(self) -> tuple[Bool[Tensor, " observation"], Float[Tensor, " observation"]]:
        """Which entries take two values, and what lies between the two."""
        problem, rng = self.belief.problem, torch.Generator().manual_seed(0)
        seen = problem.observe(problem.sample(512, rng), problem.query_space.sample(512, rng), rng)
        return two_values(torch.as_tensor(seen, dtype=torch.float32).reshape(512, -1))

    def surprise(
        self, state: ParticleState, context: Tensor, query: Tensor, observation: Tensor
    ) -> tuple[Surprise, Tensor]:
        belief, cloud, batch = self.belief, state.cloud, len(query)
        rng = torch.Generator().manual_seed(belief.config.seed + cloud.query_BTQ.shape[1])
        with torch.no_grad():
            chosen = resample(cloud.log_pending_BN, SIMULATED, rng)[..., None]
            unit = cloud.unit_BNP.gather(1, chosen.expand(-1, -1, cloud.unit_BNP.shape[-1]))
            task = belief.task(unit.flatten(0, 1), context.repeat_interleave(SIMULATED, dim=0))
            seen = belief.problem.observe(task, query.repeat_interleave(SIMULATED, dim=0), rng)
            seen_BNY = torch.as_tensor(seen, dtype=torch.float32).reshape(batch, SIMULATED, -1)
        binary, centre = self.kinds
        upper = (seen_BNY > centre).float().sum(dim=1)
        logit = torch.log((upper + 0.5) / (SIMULATED - upper + 0.5))
        log_std = seen_BNY.std(dim=1).clamp_min(1e-6).log()
        foresight = Prediction(binary, centre, logit, seen_BNY.mean(dim=1), log_std)
        return foresight.surprise(observation), torch.zeros(batch, 1, 0)
