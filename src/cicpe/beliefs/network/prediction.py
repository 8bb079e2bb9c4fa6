"""What the next observation will be, by a history that a frozen network has encoded.

A small head on the memory's features, fitted after training: the networks that it looks at stay as they
are. Entries of an observation that take two values get a probability, others a Gaussian. Where the memory
treats coordinates alike and an observation has an entry for each, so does the head; where the memory
predicts the observed function itself, the head only corrects that.
"""

from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from cicpe.beliefs.network.layers import mlp, time_features
from cicpe.beliefs.network.memories.base import FunctionMemory
from cicpe.beliefs.network.network import Network, NetworkState
from cicpe.beliefs.predictors import ObservationPredictor, Prediction, Surprise, two_values
from cicpe.config import Config


class PredictionInputs(NamedTuple):
    """What the head sees of a history and a query, for every entry or for all at once."""

    features: Float[Tensor, "batch *entry features"]
    context: Float[Tensor, "batch context"]
    mean: Float[Tensor, "batch observation"]
    log_std: Float[Tensor, "batch observation"]
    """Mean and spread that the memory itself predicts; zeros where it does not."""


@final
class PredictionConfig(Config):
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
    def channels(self) -> int:
        """How many parts of a history are looked at alike."""
        return self.entries if self.per_axis else 1


@final
class PredictionHead(nn.Module):
    """Logit, mean and spread of every entry."""

    def __init__(self, config: PredictionConfig) -> None:
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

    def predict(self, inputs: PredictionInputs) -> Prediction:
        """The predictive distribution of what comes next."""
        raw = self.layers(self.normalised(inputs.features))
        if not self.config.per_axis:
            raw = raw.unflatten(-1, (self.config.entries, 3))
        logit, mean, log_std = raw.unbind(dim=-1)
        if self.config.corrects:
            noise = self.log_noise(inputs.context)
            log_std = log_std + torch.logaddexp(2 * inputs.log_std, 2 * noise) / 2
            mean = inputs.mean + log_std.exp() * mean
        return Prediction(self.binary, self.centre, logit, mean, log_std.clamp(-12.0, 6.0))


def prediction_config(network: Network) -> PredictionConfig:
    """The sizes that a network asks for."""
    dims = network.dims
    context, query = torch.ones(1, dims.context), network.query_space.from_unit(torch.zeros(1, dims.query))
    inputs = prediction_inputs(network, network.begin(context), context, query)
    return PredictionConfig(
        features=inputs.features.shape[-1],
        context=dims.context,
        entries=dims.observation,
        per_axis=inputs.features.ndim == 3,
        corrects=isinstance(network.memory, FunctionMemory),
    )


def prediction_inputs(
    network: Network,
    state: NetworkState,
    context: Float[Tensor, "batch context"],
    query: Float[Tensor, "batch query"],
) -> PredictionInputs:
    """The features of a stepping state, seen from the query that is about to be made."""
    memory, dims = network.memory, network.dims
    unit_BQ = network.query_space.to_unit(query)
    memory_features = memory.features(state.inference)
    time_BF = time_features(state.prefix_BP)[:, 0]
    context_BC = network.scaling.context(context)
    mean_BY = torch.zeros(len(query), dims.observation)
    log_std_BY = torch.zeros(len(query), dims.observation)
    if memory_features.axes is not None and dims.query == dims.observation == dims.answer:
        own = [unit_BQ]
        if memory_features.point_estimate is not None and memory_features.log_spread is not None:
            anchor_BX, log_spread_BX = memory_features.point_estimate[:, 0], memory_features.log_spread[:, 0]
            relative_BX = ((unit_BQ - anchor_BX) * torch.exp(-log_spread_BX)).clamp(-5.0, 5.0)
            own += [anchor_BX, log_spread_BX, relative_BX]
        shared_BXF = torch.cat([time_BF, context_BC], dim=-1)[:, None].expand(-1, dims.observation, -1)
        features = torch.cat([memory_features.axes[:, 0], torch.stack(own, dim=-1), shared_BXF], dim=-1)
        return PredictionInputs(features, context_BC, mean_BY, log_std_BY)
    at_BF = memory.features_at(state.inference, memory_features, unit_BQ[:, None])[:, 0]
    if isinstance(memory, FunctionMemory):
        mean_BY, std_BY = memory.predict(state.inference, unit_BQ[:, None])
        log_std_BY = std_BY.clamp_min(1e-6).log()
    return PredictionInputs(torch.cat([at_BF, time_BF, context_BC], dim=-1), context_BC, mean_BY, log_std_BY)


@final
@dataclass(frozen=True)
class NetworkPredictor(ObservationPredictor):
    """A head on the features of a network's memory."""

    network: Network
    head: PredictionHead

    def predict(self, state: NetworkState, context: Tensor, query: Tensor) -> Prediction:
        with torch.no_grad():
            return self.head.predict(prediction_inputs(self.network, state, context, query))

    def surprise(
        self, state: NetworkState, context: Tensor, query: Tensor, observation: Tensor
    ) -> tuple[Surprise, Tensor]:
        with torch.no_grad():
            inputs = prediction_inputs(self.network, state, context, query)
            surprise = self.head.predict(inputs).surprise(self.network.scaling.observation(observation))
            features = self.head.normalised(inputs.features)
        return surprise, features.reshape(len(query), -1, features.shape[-1])

    def training_rows(
        self, state: NetworkState, context: Tensor, query: Tensor, observation: Tensor
    ) -> tuple[PredictionInputs, Tensor]:
        return prediction_inputs(self.network, state, context, query), self.network.scaling.observation(observation)
