"""The alarm: whether a history looks like one of the prior's, as a p-value.

Every observation is compared with what was foreseen, and the surprises are followed through the episode by
five statistics: the evidence of a recurrent detector that was trained to tell the prior from worlds that are
off; the cumulative excess of the log-loss; the largest residual; the most one-sided entry; and how much closer
observations are to what was foreseen than they should be (as readings in a smaller unit are). Each becomes a tail
probability by what the prior's own episodes give after as many queries. The smallest so far is ranked among the
smallest of whole episodes of the prior: the chance that a p-value of a prior episode is ever below p is at most p,
however often one looks and whenever one stops.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, final

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from cicpe.beliefs.network.prediction_head import PredictionConfig, PredictionHead
from cicpe.beliefs.predictors import ObservationPredictor, Surprise
from cicpe.config import Config
from cicpe.problems.context import ContextGrid

InPrior = Literal["yes", "doubtful", "no", "unknown"]
DOUBTFUL, NO = 0.05, 0.01
"""p-values at which an episode is called so: the shares of false alarms under the prior."""
STATISTICS = 5
TAILS = tuple(0.5**j for j in range(1, 11))
"""Probabilities at which the statistics' upper quantiles are kept."""
SOFT = 0.25
"""Variance that is added to a sum's own, so that one with hardly any is not divided by nothing."""


def in_prior(p_value: float | None) -> InPrior:
    """A p-value in a word."""
    if p_value is None:
        return "unknown"
    return "no" if p_value <= NO else "doubtful" if p_value <= DOUBTFUL else "yes"


@final
class AlarmConfig(Config):
    """How an alarm was made: the content of ``alarm.json``."""

    prediction: PredictionConfig | None
    """The head's sizes; None for beliefs that predict by themselves."""
    inputs: int = Field(ge=0)
    """Of the detector; zero if there is none."""
    hidden: int = Field(default=32, ge=1)
    """Hidden units of the detector."""
    context_knots: tuple[tuple[float, ...], ...]
    """Values of each context at which prior episodes were ranked; their combinations are the points."""
    ranked: int = Field(ge=1)
    """How many of them at each point."""
    horizon: int = Field(ge=1)
    entries: int = Field(ge=1)
    """Numbers of an observation."""
    episodes: int = Field(ge=1)
    """Prior episodes for the statistics' quantiles."""
    seed: int
    statistics: int = Field(default=4, ge=4, le=STATISTICS)
    """How many of the statistics are followed; alarms of earlier versions have the first four."""

    @model_validator(mode="before")
    @classmethod
    def _migrate(cls, data: Any) -> Any:
        """Reads what the first format called ``foresight`` and ``knots``."""
        if not isinstance(data, dict) or "knots" not in data:
            return data
        data = dict(data)
        return {"prediction": data.pop("foresight", None), "context_knots": (data.pop("knots"),), **data}

    @property
    def grid(self) -> ContextGrid:
        """The contexts at which prior episodes were ranked."""
        return ContextGrid(self.context_knots)

    @model_validator(mode="after")
    def _sizes(self) -> "AlarmConfig":
        for values in self.context_knots:
            if not values or list(values) != sorted(values):
                raise ValueError(f"context_knots must be numbers that rise; got {values}")
        sees = self.prediction
        inputs = 0 if sees is None else sees.features + 2 * sees.entries // sees.channels
        if self.inputs != inputs or (sees is not None and sees.entries != self.entries):
            raise ValueError(f"inputs = {self.inputs}, entries = {self.entries}: not what the head gives ({inputs})")
        return self


@final
class Detector(nn.Module):
    """A recurrent network on the surprises of every witness; their evidence adds up."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.embed = nn.Linear(inputs, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.evidence = nn.Linear(hidden, 1)
        with torch.no_grad():
            self.evidence.weight.mul_(0.1)
            self.evidence.bias.zero_()

    def step(self, hidden_BWH: Tensor, inputs_BWF: Tensor) -> Tensor:
        """The witnesses after one more observation."""
        seen = nn.functional.silu(self.embed(inputs_BWF)).flatten(0, 1)
        stepped: Tensor = self.cell(seen, hidden_BWH.flatten(0, 1))
        return stepped.view_as(hidden_BWH)

    def logit(self, hidden_BWH: Tensor) -> Float[Tensor, " batch"]:
        """Log odds of a world that is off."""
        total: Tensor = self.evidence(hidden_BWH).sum(dim=(1, 2))
        return total


class AlarmState(NamedTuple):
    """What is carried through an episode."""

    context: Float[Tensor, "batch context"]
    time: Float[Tensor, " batch"]
    hidden: Float[Tensor, "batch witness hidden"]
    excess: Float[Tensor, " batch"]
    variance: Float[Tensor, " batch"]
    largest: Float[Tensor, " batch"]
    total: Float[Tensor, "batch observation"]
    closeness: Float[Tensor, " batch"]
    lowest: Float[Tensor, " batch"]
    """The smallest logarithm of a tail probability so far."""


@final
class AlarmTables(nn.Module):
    """Everything of an alarm that was fitted: what ``alarm.safetensors`` holds."""

    def __init__(self, config: AlarmConfig) -> None:
        super().__init__()
        self.head = None if config.prediction is None else PredictionHead(config.prediction)
        self.detector = Detector(config.inputs, config.hidden) if config.inputs else None
        self.register_buffer("quantiles_TSJ", torch.zeros(config.horizon, config.statistics, len(TAILS)))
        self.register_buffer("lowest_KR", torch.zeros(len(config.grid), config.ranked))
        self.quantiles_TSJ: Tensor
        """Upper quantiles of each statistic after every number of observations."""
        self.lowest_KR: Tensor
        """The smallest log tail probabilities of prior episodes, sorted, for every point."""


@final
@dataclass(frozen=True)
class Alarm:
    """Follows histories and says how likely the prior is to look as odd."""

    config: AlarmConfig
    tables: AlarmTables
    predictor: ObservationPredictor

    @property
    def channels(self) -> int:
        """How many parts of a history are looked at alike."""
        return 1 if self.config.prediction is None else self.config.prediction.channels

    def begin(self, context: Float[Tensor, "batch context"]) -> AlarmState:
        """Nothing seen yet."""
        batch, entries = len(context), self.config.entries
        hidden = torch.zeros(batch, self.channels, self.config.hidden if self.config.inputs else 0)
        zeros = torch.zeros(batch)
        return AlarmState(context, zeros, hidden, zeros, zeros, zeros, torch.zeros(batch, entries), zeros, zeros)

    def observe(self, alarm_state: AlarmState, state: Any, query: Tensor, observation: Tensor) -> AlarmState:
        """After one more observation of the histories ``state``."""
        surprise, features = self.predictor.surprise(state, alarm_state.context, query, observation)
        alarm_state = self.follow(alarm_state, surprise, features)
        return alarm_state._replace(lowest=torch.minimum(alarm_state.lowest, self._log_tail(alarm_state).amin(dim=-1)))

    def follow(self, alarm_state: AlarmState, surprise: Surprise, features: Tensor) -> AlarmState:
        """The sums after one more surprise."""
        hidden = alarm_state.hidden
        if self.tables.detector is not None:
            with torch.no_grad():
                hidden = self.tables.detector.step(hidden, detector_inputs(surprise, features))
        return alarm_state._replace(
            time=alarm_state.time + 1,
            hidden=hidden,
            excess=alarm_state.excess + surprise.excess.sum(dim=-1),
            variance=alarm_state.variance + surprise.variance.sum(dim=-1),
            largest=torch.maximum(alarm_state.largest, surprise.residual.abs().amax(dim=-1)),
            total=alarm_state.total + surprise.residual,
            closeness=alarm_state.closeness + surprise.closeness.sum(dim=-1),
        )

    def statistics(self, alarm_state: AlarmState) -> Float[Tensor, "batch statistic"]:
        """Large where a history is odd."""
        with torch.no_grad():
            detector = self.tables.detector
            evidence = torch.zeros_like(alarm_state.time) if detector is None else detector.logit(alarm_state.hidden)
        one_sided = alarm_state.total.abs().amax(dim=-1) / alarm_state.time.sqrt()
        seen = alarm_state.time * self.config.entries
        statistics = [
            evidence,
            alarm_state.excess / (alarm_state.variance + SOFT).sqrt(),
            alarm_state.largest,
            one_sided,
            (alarm_state.closeness - seen) / seen.sqrt(),  # a sum of exponential variables, if all is right
        ]
        return torch.stack(statistics[: self.config.statistics], dim=-1)

    def _log_tail(self, alarm_state: AlarmState) -> Float[Tensor, "batch statistic"]:
        """Log of the chance of a larger statistic under the prior, between its kept quantiles and beyond them."""
        time = alarm_state.time.long().clamp_max(self.config.horizon) - 1
        return log_tail(self.tables.quantiles_TSJ[time], self.statistics(alarm_state))

    def p_value(self, alarm_state: AlarmState) -> Float[Tensor, " batch"]:
        """(1 + prior episodes that were ever as odd) / (1 + all of them), at the least alarming point nearby."""
        point_BK = self.config.grid.corners(alarm_state.context).point
        ranked_KR = self.tables.lowest_KR
        # At every point of the grid, which are few: a copy of a point's episodes per history would be large.
        lowest_KB = alarm_state.lowest.expand(len(ranked_KR), -1).contiguous()
        odder_BK = torch.searchsorted(ranked_KR.contiguous(), lowest_KB, right=True).T
        return (1 + odder_BK.gather(1, point_BK).amax(dim=1)) / (1 + ranked_KR.shape[1])


def detector_inputs(surprise: Surprise, features_BWF: Tensor) -> Float[Tensor, "*batch witness inputs"]:
    """Features with the surprises beside them, an entry each or all of them; large ones are compressed."""
    seen = torch.asinh(torch.stack([surprise.residual, surprise.excess], dim=-1))
    if seen.shape[-2] != features_BWF.shape[-2]:
        seen = seen.flatten(-2)[..., None, :]
    return torch.cat([features_BWF, seen], dim=-1)


def log_tail(quantiles: Float[Tensor, "*batch tail"], value: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Log probability of a larger value, linear between the kept quantiles and beyond the last."""
    tails = torch.tensor(TAILS).log()
    # Quantiles that coincide are given a little width, for the slope.
    width = torch.diff(quantiles, dim=-1).clamp_min(1e-4)
    edges = torch.cat([quantiles[..., :1], quantiles[..., :1] + width.cumsum(dim=-1)], dim=-1)
    cell = (torch.searchsorted(edges.contiguous(), value[..., None].contiguous()) - 1).clamp(0, len(TAILS) - 2)
    left, span = edges.gather(-1, cell)[..., 0], width.gather(-1, cell)[..., 0]
    share = (value - left) / span
    step = tails[1] - tails[0]
    return (tails[0] + step * (cell[..., 0] + share)).clamp(-40.0, 0.0)
