"""What the next observation will be, and how one that came compares with that."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

CLOSEST = 1e-6
"""How few standard deviations off an observation counts as, at least."""
FARTHEST = 30.0
"""How many standard deviations off an observation counts as, at most."""


class Surprise(NamedTuple):
    """How every entry of an observation compares with its predictive distribution."""

    residual: Float[Tensor, "*batch observation"]
    """Standardised: mean zero and variance one, if the prediction is right."""
    excess: Float[Tensor, "*batch observation"]
    """Its log-loss, less what was expected."""
    variance: Float[Tensor, "*#batch observation"]
    """The variance of that."""
    closeness: Float[Tensor, "*batch observation"]
    """-log P(a smaller residual): with a mean of one if the prediction is right, large where it is too good; one where
    there are two values."""


class Prediction(NamedTuple):
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
            torch.where(self.binary, 1.0, -torch.erf(z.abs().clamp_min(CLOSEST) / 2**0.5).log()),
        )

    def contradiction(self, other: "Prediction") -> Float[Tensor, "*batch observation"]:
        """The evidence against this prediction that another would give on average: KL(other || this), per entry."""
        p, q = (torch.sigmoid(prediction.logit).clamp(1e-4, 1 - 1e-4) for prediction in (other, self))
        coin = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
        ratio, apart = other.log_std - self.log_std, (other.mean - self.mean) * torch.exp(-self.log_std)
        return torch.where(self.binary, coin, (torch.exp(2 * ratio) + apart.square() - 1) / 2 - ratio)

    def log_loss(self, observation: Float[Tensor, "*batch observation"]) -> Float[Tensor, "*batch observation"]:
        """Negative log density or probability of every entry, up to a constant."""
        upper = (observation > self.centre).float()
        bernoulli = nn.functional.softplus(self.logit) - upper * self.logit
        z = (observation - self.mean) * torch.exp(-self.log_std)
        return torch.where(self.binary, bernoulli, z.square() / 2 + self.log_std)


def two_values(
    observation: Float[Tensor, "n observation"],
) -> tuple[Bool[Tensor, " observation"], Float[Tensor, " observation"]]:
    """Which entries take two values, and what lies between the two (or between the extremes of the others)."""
    binary = torch.tensor([len(set(values.tolist())) == 2 for values in observation.unbind(dim=-1)])
    return binary, (observation.amin(dim=0) + observation.amax(dim=0)) / 2


class ObservationPredictor(ABC):
    """Predicts the next observation of histories, as a core holds them."""

    @abstractmethod
    def predict(
        self, state: Any, context: Float[Tensor, "batch context"], query: Float[Tensor, "batch query"]
    ) -> Prediction:
        """What a query of each history will show."""

    @abstractmethod
    def surprise(
        self,
        state: Any,
        context: Float[Tensor, "batch context"],
        query: Float[Tensor, "batch query"],
        observation: Float[Tensor, "batch observation"],
    ) -> tuple[Surprise, Float[Tensor, "batch channel features"]]:
        """How the observation compares, and features of the history: of every entry, or one for all."""

    def training_rows(
        self,
        state: Any,
        context: Float[Tensor, "batch context"],
        query: Float[Tensor, "batch query"],
        observation: Float[Tensor, "batch observation"],
    ) -> tuple[Any, Float[Tensor, "batch observation"]]:
        """What a head that has yet to be fitted sees, and the observation as it is to predict it."""
        raise NotImplementedError(f"{type(self).__name__} has no head to fit")


@final
@dataclass(frozen=True)
class OwnPredictor(ObservationPredictor):
    """What a belief itself says of the next observation."""

    belief: Any

    def predict(self, state: Any, context: Tensor, query: Tensor) -> Prediction:
        prediction: Prediction = self.belief.predict(state, query)
        return prediction

    def surprise(
        self, state: Any, context: Tensor, query: Tensor, observation: Tensor
    ) -> tuple[Surprise, Float[Tensor, "batch channel features"]]:
        return self.predict(state, context, query).surprise(observation), torch.zeros(len(query), 1, 0)
