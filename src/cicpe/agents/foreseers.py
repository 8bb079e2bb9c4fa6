"""What the next observation will be: by a head on a network's memory, or by a belief that predicts by itself."""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cicpe.agents.alarm import Alarm, AlarmConfig, AlarmTables, Foreseer
from cicpe.agents.core import Core
from cicpe.agents.function_core import FunctionCore, FunctionState
from cicpe.agents.headed_core import HeadedCore
from cicpe.agents.network_core import NetworkCore
from cicpe.agents.particle_core import ParticleCore, ParticleState
from cicpe.agents.smc import resample
from cicpe.networks.network import Network, NetworkState
from cicpe.networks.predictive import Foresight, ForesightHead, Surprise, foresight_inputs, two_values

SIMULATED = 256
"""Observations that are simulated, one a particle."""


@final
@dataclass(frozen=True)
class NetworkForeseer(Foreseer):
    """A head on the features of a network's memory."""

    network: Network
    head: ForesightHead

    def surprise(
        self, state: NetworkState, context: Tensor, query: Tensor, observation: Tensor
    ) -> tuple[Surprise, Tensor]:
        with torch.no_grad():
            inputs = foresight_inputs(self.network, state, context, query)
            found = self.head.foresee(inputs).surprise(self.network.scaling.observation(observation))
            features = self.head.normalised(inputs.features)
        return found, features.reshape(len(query), -1, features.shape[-1])


@final
@dataclass(frozen=True)
class ParticleForeseer(Foreseer):
    """What the particles would observe, simulated."""

    core: ParticleCore

    @cached_property
    def kinds(self) -> tuple[Bool[Tensor, " observation"], Float[Tensor, " observation"]]:
        """Which entries take two values, and what lies between the two."""
        problem, rng = self.core.problem, torch.Generator().manual_seed(0)
        seen = problem.observe(problem.sample(512, rng), problem.query_space.sample(512, rng), rng)
        return two_values(torch.as_tensor(seen, dtype=torch.float32).reshape(512, -1))

    def surprise(
        self, state: ParticleState, context: Tensor, query: Tensor, observation: Tensor
    ) -> tuple[Surprise, Tensor]:
        core, cloud, batch = self.core, state.cloud, len(query)
        rng = torch.Generator().manual_seed(core.config.seed + cloud.query_BTQ.shape[1])
        with torch.no_grad():
            chosen = resample(cloud.log_pending_BN, SIMULATED, rng)[..., None]
            unit = cloud.unit_BNP.gather(1, chosen.expand(-1, -1, cloud.unit_BNP.shape[-1]))
            task = core.task(unit.flatten(0, 1), context.repeat_interleave(SIMULATED, dim=0))
            seen = core.problem.observe(task, query.repeat_interleave(SIMULATED, dim=0), rng)
            seen_BNY = torch.as_tensor(seen, dtype=torch.float32).reshape(batch, SIMULATED, -1)
        binary, centre = self.kinds
        upper = (seen_BNY > centre).float().sum(dim=1)
        logit = torch.log((upper + 0.5) / (SIMULATED - upper + 0.5))
        log_std = seen_BNY.std(dim=1).clamp_min(1e-6).log()
        foresight = Foresight(binary, centre, logit, seen_BNY.mean(dim=1), log_std)
        return foresight.surprise(observation), torch.zeros(batch, 1, 0)


@final
@dataclass(frozen=True)
class FunctionForeseer(Foreseer):
    """What the mixture of Gaussian processes predicts: its mean and its standard deviation."""

    core: FunctionCore

    def surprise(
        self, state: FunctionState, context: Tensor, query: Tensor, observation: Tensor
    ) -> tuple[Surprise, Tensor]:
        mean, std = self.core.predict(state, query)
        none = torch.zeros(1, dtype=torch.bool)
        foresight = Foresight(none, torch.zeros(1), torch.zeros_like(mean), mean, std.clamp_min(1e-6).log())
        return foresight.surprise(observation), torch.zeros(len(query), 1, 0)


def make_alarm(config: AlarmConfig, tables: AlarmTables, core: Core) -> Alarm:
    """The alarm of a core."""
    if isinstance(core, HeadedCore):  # what it foresees is its belief's, and so is its state
        core = core.belief
    if isinstance(core, ParticleCore):
        return Alarm(config, tables, ParticleForeseer(core))
    if isinstance(core, FunctionCore):
        return Alarm(config, tables, FunctionForeseer(core))
    assert isinstance(core, NetworkCore)
    assert tables.head is not None
    return Alarm(config, tables, NetworkForeseer(core.network, tables.head))
