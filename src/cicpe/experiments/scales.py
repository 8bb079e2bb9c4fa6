"""The scales of an experiment: what its settings, its measurement and its answer are in a model's coordinates."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from cicpe.experiments.checks import per_cent
from cicpe.experiments.experiment import Experiment
from cicpe.experiments.schema import ExperimentSetting, Range
from cicpe.spaces import Box
from cicpe.units import Readout, Scale, Units

BEYOND = 2.0
"""How many widths beyond what is typical a number is refused."""


class AnswerLayout(NamedTuple):
    """Where answers lie, and how far off they may be."""

    scales: tuple[Scale, ...]
    epsilon: float

    @property
    def space(self) -> Box:
        """The box of the answers: with several coordinates, each has to be within its tolerance."""
        ends = [scale.start + scale.extent for scale in self.scales]
        return Box([scale.start for scale in self.scales], ends, norm="max" if len(ends) > 1 else "euclidean")


def setting_scale(one: ExperimentSetting) -> Scale:
    """The scale of a setting, from 0 to 1."""
    low, high = one.limits
    values = tuple(sorted(one.values)) if one.values is not None else ()
    return Scale(name=one.name, unit=one.unit, low=low, high=high, log=one.scale == "log", step=one.step, values=values)


def tolerances(experiment: Experiment, names: Sequence[str]) -> list[float | str]:
    """How far off each thing that is sought may be, as it was written."""
    within = experiment.goal.within
    return [within[name] if isinstance(within, dict) else within for name in names]


def is_relative(tolerance: float | str) -> bool:
    """Whether a tolerance is in per cent."""
    return isinstance(tolerance, str)


def tolerance_share(scale: Scale, tolerance: float | str) -> float:
    """A tolerance as a share of a scale's range."""
    if isinstance(tolerance, str):
        share = per_cent(tolerance)
        assert share is not None, "checked"
        return math.log1p(share) / math.log(scale.high / scale.low)
    return tolerance / abs(scale.high - scale.low)


def answer_layout(scales: Sequence[Scale], wanted: Sequence[float | str]) -> AnswerLayout:
    """Scales whose extents make the tolerances equal, the finest scale from 0 to 1.

    Args:
        scales: What is sought, each from 0 to 1.
        wanted: Its tolerances.

    Returns:
        The scales stretched, and the one tolerance.
    """
    shares = [tolerance_share(scale, tolerance) for scale, tolerance in zip(scales, wanted, strict=True)]
    finest = min(shares)
    stretched = [
        scale.model_copy(update={"extent": finest / share}) for scale, share in zip(scales, shares, strict=True)
    ]
    return AnswerLayout(tuple(stretched), finest)


def number_limits(experiment: Experiment, typical: Range) -> Range:
    """Beyond which numbers a measurement is refused."""
    if experiment.measurement.limits is not None:
        return experiment.measurement.limits
    low, high = typical
    reach = BEYOND * (high - low) + 5 * max(noise_range_of(experiment))
    return low - reach, high + reach


def noise_range_of(experiment: Experiment) -> Range:
    """The lowest and the highest noise of a number."""
    noise = experiment.measurement.noise
    assert noise is not None, "checked"
    return noise if isinstance(noise, tuple) else (noise, noise)


def readout_of(experiment: Experiment, typical: Range | None, origin: float, scale: float) -> Readout:
    """What is measured, as a session takes it."""
    measurement = experiment.measurement
    if measurement.kind == "number":
        assert typical is not None
        low, high = number_limits(experiment, typical)
    else:
        low, high = 0.0, 1.0 if measurement.kind == "yes/no" else float(measurement.of or 1e9)
    return Readout(
        name=measurement.name,
        unit=measurement.unit,
        kind=measurement.kind,
        low=low,
        high=high,
        of=measurement.of,
        origin=origin,
        scale=scale,
    )


def units_of(experiment: Experiment, settings: Sequence[Scale], readout: Readout, answers: AnswerLayout) -> Units:
    """All scales of an experiment together."""
    return Units(
        title=experiment.title,
        settings=tuple(settings),
        readout=readout,
        answers=answers.scales,
        epsilon=answers.epsilon,
        delta=round(1 - experiment.goal.sure, 6),
    )


def values_at(scale: Scale, coordinate: Tensor) -> Tensor:
    """The quantities at coordinates, for tensors."""
    share = (coordinate - scale.start) / scale.extent
    if scale.log:
        return torch.exp(math.log(scale.low) + share * math.log(scale.high / scale.low))
    return scale.low + share * (scale.high - scale.low)


def coordinates_of(scale: Scale, value: Tensor) -> Tensor:
    """The inverse of ``values_at``."""
    if scale.log:
        share = torch.log(value / scale.low) / math.log(scale.high / scale.low)
    else:
        share = (value - scale.low) / (scale.high - scale.low)
    return scale.start + scale.extent * share


def settable_query(settings: Sequence[Scale], query: Float[Tensor, "*n query"]) -> Float[Tensor, "*n query"]:
    """Queries as the instruments can be set: simulated measurements are made there, as real ones will be.

    Args:
        settings: The scale of every coordinate.
        query: In the model's coordinates.

    Returns:
        The same, each coordinate at the nearest step or value; unchanged where an instrument has neither.
    """
    if not any(setting.step is not None or setting.values for setting in settings):
        return query
    return torch.stack([_settable(setting, query[..., i]) for i, setting in enumerate(settings)], dim=-1)


def _settable(scale: Scale, coordinate: Tensor) -> Tensor:
    if scale.values:
        known = torch.tensor([scale.coordinate(value) for value in scale.values])
        middles = (known[1:] + known[:-1]) / 2
        return known[torch.bucketize(coordinate.contiguous(), middles)]
    if scale.step is None:
        return coordinate
    steps = torch.round((values_at(scale, coordinate) - scale.low) / scale.step)
    most = math.floor((scale.high - scale.low) / scale.step + 1e-9)
    return coordinates_of(scale, scale.low + steps.clamp(0, most) * scale.step)


def outward(low: float, high: float, digits: int = 2) -> Range:
    """A range with few digits around another: the same on every machine."""
    unit = 10.0 ** (math.floor(math.log10(high - low)) - digits + 1)
    return math.floor(low / unit) * unit, math.ceil(high / unit) * unit
