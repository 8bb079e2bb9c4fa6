"""What the next observation will be, by a history that a frozen network has encoded.

A small head (``prediction_head.py``) on the memory's features, fitted after training: the networks that it looks at
stay as they are. Where the memory treats coordinates alike and an observation has an entry for each, so does the head;
where the memory predicts the observed function itself, the head only corrects that.
"""

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from cicpe.beliefs.network.layers import time_features
from cicpe.beliefs.network.memories.base import FunctionMemory
from cicpe.beliefs.network.network import Network, NetworkState
from cicpe.beliefs.network.prediction_head import PredictionConfig, PredictionHead, PredictionInputs
from cicpe.beliefs.predictors import ObservationPredictor, Prediction, Surprise


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
