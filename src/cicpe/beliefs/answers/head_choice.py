"""The heads that simulated observations ask for.

Two values have a logit, a few values a softmax, whole numbers and readings in steps a discretised mixture, and real
numbers a Gaussian or a mixture of logistic components, whose tails are heavier. Of real numbers those that come again
and again have a probability of their own.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from cicpe.beliefs.answers.heads import BinaryHead, CategoricalHead, Head, LogisticMixtureHead, NormalHead, Transform
from cicpe.beliefs.answers.point_masses import PointMassHead, find_point_masses
from cicpe.problems.observations import Category, Count, ObservationKind, YesNo, find_kind

DECADES = 5.0
"""How many times as large the upper quartile of positive numbers is as the lower one where their logarithm is taken."""
MOST_STEPS = 4096
"""Steps of an instrument, from the lowest to the highest reading; more are as good as a density."""


def choose_heads(
    pilot: Float[Tensor, "n Y"],
    heavy_tails: bool = False,
    declared: Sequence[ObservationKind | None] | None = None,
    noise_shares: Sequence[bool | None] = (),
) -> tuple[Any, ...]:
    """The heads that the kinds of observations ask for.

    Args:
        pilot: Simulated observations.
        heavy_tails: Whether real entries have a mixture rather than a Gaussian.
        declared: The kind of each entry, where the problem says so; found from the pilot where it does not.
        noise_shares: Whether the noise of each is a share of the reading (``repeats.py``), where that is known.

    Returns:
        One head per entry.
    """
    nothing = (None,) * pilot.shape[-1]
    entries = zip(declared or nothing, pilot.unbind(dim=-1), noise_shares or nothing, strict=True)
    return tuple(_choose(kind or find_kind(entry), entry, heavy_tails, share) for kind, entry, share in entries)


def _choose(kind: ObservationKind, entry: Tensor, heavy_tails: bool, noise_is_a_share: bool | None) -> Head:
    match kind:
        case YesNo(no=no, yes=yes):
            return BinaryHead(low=min(no, yes), high=max(no, yes))
        case Category():
            return CategoricalHead(values=kind.numbers)
    if (lattice := find_lattice(entry)) is not None:
        is_count = isinstance(kind, Count) and lattice == Lattice(1.0, 0.0)
        steps = ((entry - lattice.origin) / lattice.step).round()
        scale = _scale(steps, "root" if is_count else "none")
        return LogisticMixtureHead(whole=True, signed=not is_count, step=lattice.step, origin=lattice.origin, **scale)
    if isinstance(kind, Count):
        return LogisticMixtureHead(whole=True, **_scale(entry, "root"))
    points = find_point_masses(entry)
    rest = entry[~torch.isin(entry, torch.tensor(points))]
    scale = _real_scale(rest if len(rest) else entry, noise_is_a_share)
    head = LogisticMixtureHead(**scale) if heavy_tails else NormalHead(**scale)
    return PointMassHead(values=points, rest=head) if points else head


def _real_scale(entry: Tensor, noise_is_a_share: bool | None) -> dict[str, Any]:
    """The constants of a head for a density.

    Positive readings are on a logarithmic scale where their noise is a share of them; where that is not known, where
    they spread over decades.
    """
    low, middle, high = torch.quantile(entry[:100_000].double(), torch.tensor([0.25, 0.5, 0.75]).double()).tolist()
    extreme = float((entry - middle).abs().max()) > 25 * max(high - low, 1e-12)
    over_decades = high > DECADES * low if noise_is_a_share is None else noise_is_a_share
    return _scale(entry, "log" if over_decades and float(entry.min()) > 0 else "asinh" if extreme else "none")


def _scale(entry: Tensor, transform: Transform) -> dict[str, Any]:
    """The constants of a scaled head."""
    low, middle, high = torch.quantile(entry[:100_000].double(), torch.tensor([0.25, 0.5, 0.75]).double()).tolist()
    width = max(high - low, 1e-3 * float(entry.std()), 1e-12)
    moved = NormalHead(transform=transform, middle=middle, width=width).transformed(entry)
    centre, spread = float(moved.mean()), max(float(moved.std()), 1e-12)
    return {"transform": transform, "middle": middle, "width": width, "centre": centre, "spread": spread}


class Lattice(NamedTuple):
    """Where readings in steps lie."""

    step: float
    origin: float


def find_lattice(entry: Float[Tensor, " n"]) -> Lattice | None:
    """The steps in which an instrument reads.

    Args:
        entry: Simulated readings.

    Returns:
        The widest steps that all readings have in common, and the reading nearest to zero that counts as no step (zero
        where it can be); None where there are none, or most readings are different anyway.
    """
    values = entry.double().unique()  # type: ignore[no-untyped-call]
    if len(values) < 3 or len(values) > 0.5 * len(entry):
        return None
    apart = values.diff()
    step = float(apart.min())
    # Single precision has seven digits, and a step can be told from their rounding if it has a few of them.
    rounding = 1e-6 * float(values.abs().max())
    if step < 10 * rounding:
        return None
    steps = (values - values[0]) / step
    total = float(steps[-1].round())
    if total < 1 or total > MOST_STEPS:
        return None
    step = float(values[-1] - values[0]) / total
    if float(((values - values[0]) / step - ((values - values[0]) / step).round()).abs().max()) > 0.05:
        return None
    origin = float(values[0]) - step * round(float(values[0]) / step)
    return Lattice(step, 0.0 if abs(origin) < 0.05 * step else origin)
