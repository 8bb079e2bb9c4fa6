"""An Optuna parameter's range as one coordinate of a model's box.

A model is trained on one box and serves every box of the same shape: the whole range of a parameter is mapped onto the
whole range of a coordinate, linearly, or by the logarithm where the parameter is suggested with ``log=True``. Shares
from 0 to 1 stand between the two.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution

from cicpe.spaces import Space
from cicpe.units import Units

Ranges = Mapping[str, BaseDistribution]
"""Parameters by name, in the order of the model's coordinates."""


def is_numeric(distribution: BaseDistribution) -> bool:
    """Whether a distribution is a range of numbers with more than one value."""
    return isinstance(distribution, FloatDistribution | IntDistribution) and not distribution.single()


def fits(ranges: Ranges, dim: int) -> bool:
    """Whether every parameter is a range of numbers, and there are as many as coordinates."""
    return len(ranges) == dim and all(map(is_numeric, ranges.values()))


def ranges_of(units: Units) -> dict[str, BaseDistribution] | None:
    """The settings of an experiment as parameters; None where a model has no units."""
    if not units.settings:
        return None
    return {
        setting.name: FloatDistribution(
            setting.least, setting.most, log=setting.log, step=None if setting.log else setting.step
        )
        for setting in units.settings
    }


def share_of(distribution: BaseDistribution, value: float) -> float:
    """Where a value lies in its range: 0 at the low end, 1 at the high one."""
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high = distribution.low, distribution.high
    if distribution.log:
        return (math.log(value) - math.log(low)) / (math.log(high) - math.log(low)) if value > 0 else -math.inf
    return (value - low) / (high - low)


def value_at(distribution: BaseDistribution, share: float) -> float | int:
    """The inverse of ``share_of``, at the nearest value that the distribution has."""
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high = distribution.low, distribution.high
    share = min(max(share, 0.0), 1.0)
    value = low * (high / low) ** share if distribution.log else low + share * (high - low)
    if distribution.step is not None and not distribution.log:
        value = low + round((value - low) / distribution.step) * distribution.step
    if isinstance(distribution, IntDistribution):
        value = round(value)
    return min(max(value, low), high)


def count_places(ranges: Ranges, dim: int) -> float:
    """How many different places there are; infinite where a parameter is continuous, or not known yet."""
    if len(ranges) < dim:
        return math.inf
    return math.prod(map(_count_values, ranges.values()))


def _count_values(distribution: BaseDistribution) -> float:
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    if distribution.step is None:
        return math.inf
    return round((distribution.high - distribution.low) / distribution.step) + 1


def shares_of(space: Space, point: Sequence[float]) -> list[float]:
    """A point of a model's box as shares."""
    unit = space.to_unit(torch.tensor([float(number) for number in point])).double()
    shares: list[float] = ((unit + 1) / 2).clamp(0, 1).tolist()
    return shares


def point_at(space: Space, shares: Sequence[float]) -> list[float]:
    """The inverse of ``shares_of``."""
    unit = 2 * torch.tensor([float(share) for share in shares]) - 1
    point: list[float] = space.project(space.from_unit(unit)).tolist()
    return point


def rounded(ranges: Ranges, shares: Sequence[float]) -> tuple[float, ...]:
    """The parameters' values at some shares; a share itself where its parameter is not known yet."""
    known = [value_at(distribution, share) for distribution, share in zip(ranges.values(), shares, strict=False)]
    return (*known, *shares[len(known) :])


def shares_of_params(ranges: Ranges, params: Mapping[str, float]) -> list[float] | None:
    """Where a trial's parameters lie; None where one is missing or outside its range."""
    if not all(name in params for name in ranges):
        return None
    shares = [share_of(distribution, params[name]) for name, distribution in ranges.items()]
    return shares if all(-1e-9 <= share <= 1 + 1e-9 for share in shares) else None
