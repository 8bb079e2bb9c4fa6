"""What the next observation will be, by a history that a frozen network has encoded.

A small head on the memory's features, fitted after training: the networks that it looks at stay as they
are. Entries of an observation that take two values get a probability, others a Gaussian. Where the memory
treats coordinates alike and an observation has an entry for each, so does the head; where the memory
predicts the observed function itself, the head only corrects that.
"""

from typing import NamedTuple, final

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor, nn

from cicpe.networks.base import Config, FunctionMemory, mlp, time_features
from cicpe.networks.network import Network, NetworkState

FARTHEST = 30.0
"""How many standard deviations off an observation counts as, at most."""


class Surprise(NamedTuple):
    """How every entry of an observation compares with its predictive distribution."""

    residual: Float[Tensor, "*batch observation"]
    """Standardised: mean zero and variance one, if the prediction is right."""
    excess: Float[Tensor, "*batch observation"]
    """Its log-loss, less what was expected."""
    variance: Float[Tensor, "*batch observation"]
    """The variance of that."""


class Foresight(NamedTuple):
    """The predictive distribution of every entry, in scaled units."""

    binary: Bool[Tensor, " observation"]
    """Entries that take two values, of which the upper is above zero once it is centred."""
    centre: Float[Tensor, " observation"]
    """Between the two values."""
    logit: Float[Tensor, "*batch observation"]
    """Of the upper value."""
    mean: Float[Tensor, "*batch observation"]
    log_std: Float[Tensor, "*batch observation"]

    def surprise(self, observation: Float[Tensor, "*batch observation"]) -> "Surprise":
        """How an observation compares with what was foreseen."""
        upper = (observation > self.centre).float()
        probability = torch.sigmoid(self.logit).clamp(1e-4, 1 - 1e-4)
        spread = (probability * (1 - probability)).sqrt()
        logit = torch.logit(probability)
        pearson = (upper - probability) / spread
        z = ((observation - self.mean) * torch.exp(-self.log_std)).clamp(-FARTHEST, FARTHEST)
        # -log p(y) less its expectation: (p - y) logit(p), and (z^2 - 1) / 2.
        return Surprise(
            torch.where(self.binary, pearson, z),
            torch.where(self.binary, (probability - upper) * logit, (z.square() - 1) / 2),
            torch.where(self.binary, (spread * logit).square(), 0.5),
        )

    def log_loss(self, observation: Float[Tensor, "*batch observation"]) -> Float[Tensor, "*batch observation"]:
        """Negative log density or probability of every entry, up to a constant."""
        upper = (observation > self.centre).float()
        bernoulli = nn.functional.softplus(self.logit) - upper * self.logit
        z = (observation - self.mean) * torch.exp(-self.log_std)
        return torch.where(self.binary, bernoulli, z.square() / 2 + self.log_std)


class ForesightInputs(NamedTuple):
    """What the head sees of a history and a query, for every entry or for all at once."""

    features: Float[Tensor, "*batch features"]
    context: Float[Tensor, "*batch context"]
    mean: Float[Tensor, "*batch observation"]
    log_std: Float[Tensor, "*batch observation"]
    """Mean and spread that the memory itself predicts; zeros where it does not."""


@final
class ForesightConfig(Config):
    """The head's sizes."""

    features: int = Field(ge=1)
    """Inputs."""
    context: int = Field(ge=0)
    entries: int = Field(ge=1)
    """Numbers of an observation."""
    per_axis: bool
    """The same head for every entry."""
    corrects: bool
    """Whether the memory predicts the observed function."""
    hidden: int = 64

    @property
    def witnesses(self) -> int:
        """How many parts of a history are looked at alike."""
        return self.entries if self.per_axis else 1


@final
class ForesightHead(nn.Module):
    """Logit, mean and spread of every entry."""

    def __init__(self, config: ForesightConfig) -> None:
        super().__init__()
        self.config = config
        outputs = 3 if config.per_axis else 3 * config.entries
        self.layers = mlp([config.features, config.hidden, config.hidden, outputs], last_gain=0.1)
        self.log_noise = nn.Linear(config.context, 1)
        self.register_buffer("shift", torch.zeros(config.features))
        self.register_buffer("scale", torch.ones(config.features))
        self.register_buffer("centre", torch.zeros(config.entries))
        self.register_buffer("binary", torch.zeros(config.entries, dtype=torch.bool))
        self.shift: Tensor
        self.scale: Tensor
        self.centre: Tensor
        self.binary: Tensor

    def normalise(
        self, features: Float[Tensor, "*batch features"], observation: Float[Tensor, "n observation"]
    ) -> None:
        """Measures the scale of its inputs, and which entries take two values."""
        flat = features.flatten(0, -2)
        std = flat.std(dim=0)
        self.shift.copy_(flat.mean(dim=0))
        self.scale.copy_(torch.where(std > 1e-4, std, 1.0))
        binary, centre = two_values(observation)
        self.binary.copy_(binary)
        self.centre.copy_(centre)

    def normalised(self, features: Float[Tensor, "*batch features"]) -> Float[Tensor, "*batch features"]:
        """Features near unit scale."""
        return ((features - self.shift) / self.scale).clamp(-10.0, 10.0)

    def foresee(self, inputs: ForesightInputs) -> Foresight:
        """The predictive distribution of what comes next."""
        raw = self.layers(self.normalised(inputs.features))
        if not self.config.per_axis:
            raw = raw.unflatten(-1, (self.config.entries, 3))
        logit, mean, log_std = raw.unbind(dim=-1)
        if self.config.corrects:
            noise = self.log_noise(inputs.context)
            log_std = log_std + torch.logaddexp(2 * inputs.log_std, 2 * noise) / 2
            mean = inputs.mean + log_std.exp() * mean
        return Foresight(self.binary, self.centre, logit, mean, log_std.clamp(-12.0, 6.0))


def two_values(
    observation: Float[Tensor, "n observation"],
) -> tuple[Bool[Tensor, " observation"], Float[Tensor, " observation"]]:
    """Which entries take two values, and what lies between the two (or between the extremes of the others)."""
    binary = torch.tensor([len(set(values.tolist())) == 2 for values in observation.unbind(dim=-1)])
    return binary, (observation.amin(dim=0) + observation.amax(dim=0)) / 2


def foresight_config(network: Network) -> ForesightConfig:
    """The sizes that a network asks for."""
    dims = network.dims
    context, query = torch.ones(1, dims.context), network.query_space.from_unit(torch.zeros(1, dims.query))
    inputs = foresight_inputs(network, network.begin(context), context, query)
    return ForesightConfig(
        features=inputs.features.shape[-1],
        context=dims.context,
        entries=dims.observation,
        per_axis=inputs.features.ndim == 3,
        corrects=isinstance(network.memory, FunctionMemory),
    )


def foresight_inputs(
    network: Network,
    state: NetworkState,
    context: Float[Tensor, "batch context"],
    query: Float[Tensor, "batch query"],
) -> ForesightInputs:
    """The features of a stepping state, seen from the query that is about to be made."""
    memory, dims = network.memory, network.dims
    unit_BQ = network.query_space.to_unit(query)
    reading = memory.read(state.inference)
    time_BF = time_features(state.prefix_BP)[:, 0]
    context_BC = network.scaling.context(context)
    mean_BY = torch.zeros(len(query), dims.observation)
    log_std_BY = torch.zeros(len(query), dims.observation)
    if reading.axes is not None and dims.query == dims.observation == dims.answer:
        own = [unit_BQ]
        if reading.anchor is not None and reading.log_spread is not None:
            anchor_BX, log_spread_BX = reading.anchor[:, 0], reading.log_spread[:, 0]
            relative_BX = ((unit_BQ - anchor_BX) * torch.exp(-log_spread_BX)).clamp(-5.0, 5.0)
            own += [anchor_BX, log_spread_BX, relative_BX]
        shared_BXF = torch.cat([time_BF, context_BC], dim=-1)[:, None].expand(-1, dims.observation, -1)
        features = torch.cat([reading.axes[:, 0], torch.stack(own, dim=-1), shared_BXF], dim=-1)
        return ForesightInputs(features, context_BC, mean_BY, log_std_BY)
    at_BF = memory.read_at(state.inference, reading, unit_BQ[:, None])[:, 0]
    if isinstance(memory, FunctionMemory):
        mean_BY, std_BY = memory.predict(state.inference, unit_BQ[:, None])
        log_std_BY = std_BY.clamp_min(1e-6).log()
    return ForesightInputs(torch.cat([at_BF, time_BF, context_BC], dim=-1), context_BC, mean_BY, log_std_BY)
