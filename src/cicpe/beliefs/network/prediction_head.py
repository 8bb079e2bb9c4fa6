"""The head that says what the next observation will be, on features that a frozen network has made of a history.

Entries of an observation that take two values get a probability, others a Gaussian. It knows no network: the alarm
builds it again from its sizes.
"""

from typing import NamedTuple, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from cicpe.beliefs.network.layers import affine, mlp
from cicpe.beliefs.predictors import Prediction, two_values
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
        self.log_noise = affine(config.context, 1)
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
