"""What a mixture of Gaussian processes would observe next."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from cicpe.beliefs.functions.belief import FunctionBelief, FunctionState
from cicpe.beliefs.predictors import ObservationPredictor, Prediction, Surprise


@final
@dataclass(frozen=True)
class FunctionPredictor(ObservationPredictor):
    """What the mixture of Gaussian processes predicts: its mean and its standard deviation."""

    belief: FunctionBelief

    def surprise(
        self, state: FunctionState, context: Tensor, query: Tensor, observation: Tensor
    ) -> tuple[Surprise, Tensor]:
        mean, std = self.belief.predict(state, query)
        none = torch.zeros(1, dtype=torch.bool)
        foresight = Prediction(none, torch.zeros(1), torch.zeros_like(mean), mean, std.clamp_min(1e-6).log())
        return foresight.surprise(observation), torch.zeros(len(query), 1, 0)
