"""Readings that are one and the same number again and again: an instrument that saturates, a contact that is lost.

Such a number has a probability, and all others have a density. A density alone would have to have a spike there, whose
width means nothing and yet decides how likely the number is.
"""

from typing import Annotated, Literal, final

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from cicpe.beliefs.answers.heads import Head, LogisticMixtureHead, NormalHead

SHARE = 0.005
"""The least share of the readings that one number has to have."""
MOST = 4
"""Numbers that have a probability of their own, at most."""
SAME = 1e-4
"""How near an encoded reading is to such a number: the two may be computed by different instructions."""
LEAST_SHARE = 1e-12


@final
class PointMassHead(Head):
    """A real entry of which some values have a probability of their own."""

    kind: Literal["point-masses"] = "point-masses"
    values: tuple[float, ...]
    rest: Annotated[NormalHead | LogisticMixtureHead, Field(discriminator="kind")]
    """Of all other values."""

    @property
    def parameters(self) -> int:
        return len(self.values) + 1 + self.rest.parameters

    @property
    def is_real(self) -> bool:
        return True

    @property
    def is_mixture(self) -> bool:
        return self.rest.is_mixture

    @property
    def _codes(self) -> list[float]:
        """The values as they are encoded."""
        return self.rest.encode(torch.tensor(self.values)).tolist()

    def encode(self, value: Tensor) -> Tensor:
        return self.rest.encode(value)

    def decode(self, encoded: Tensor) -> Tensor:
        decoded = self.rest.decode(encoded)
        for value, code in zip(self.values, self._codes, strict=True):
            decoded = torch.where(_same(encoded, code), value, decoded)
        return decoded

    def log_probability(self, parameters: Tensor, encoded: Tensor) -> Tensor:
        shares, rest = self._split(parameters.movedim(-1, 0))
        density = self.rest.log_probability(rest.movedim(0, -1), encoded)
        return self._with_points(shares.log_softmax(dim=0), density, encoded)

    def settled(self, parameters: Tensor) -> Tensor:
        shares, rest = parameters.split([len(self.values) + 1, self.rest.parameters], dim=-1)  # type: ignore[no-untyped-call]
        return torch.cat([shares.softmax(dim=-1), self.rest.settled(rest)], dim=-1)

    def settled_log_probability(self, settled: Tensor, encoded: Tensor) -> Tensor:
        shares, rest = self._split(settled)
        density = self.rest.settled_log_probability(rest, encoded)
        return self._with_points(shares.clamp_min(LEAST_SHARE).log(), density, encoded)

    def draw(self, settled: Tensor, uniform: Float[Tensor, "*batch 2"]) -> Tensor:
        shares, rest = self._split(settled)
        below = shares[:-1].cumsum(dim=0)
        # What lies above the shares of all points is a uniform number again.
        left = (uniform[..., 0] - below[-1]) / shares[-1].clamp_min(LEAST_SHARE)
        again = torch.stack(torch.broadcast_tensors(left.clamp(0, 1), uniform[..., 1]), dim=-1)  # type: ignore[no-untyped-call]
        drawn = self.rest.draw(rest, again)
        for code, upper in reversed(list(zip(self._codes, below, strict=True))):
            drawn = torch.where(uniform[..., 0] < upper, code, drawn)
        return drawn

    def quick(self, settled: Tensor, plain: bool) -> tuple[Head, Tensor]:
        shares, rest = self._split(settled)
        head, parameters = self.rest.quick(rest, plain)
        # The same codes, by the quick head's own encoding.
        values = tuple(head.decode(torch.tensor(self._codes)).tolist())
        return PointMassHead(values=values, rest=head), torch.cat([shares, parameters])

    def residual(self, settled: Tensor, encoded: Tensor) -> Tensor:
        _, rest = self._split(settled)
        apart = self.rest.residual(rest, encoded)
        for code in self._codes:
            apart = torch.where(_same(encoded, code), 0.0, apart)
        return apart

    def shifted(self, parameters: Tensor, shift: Tensor) -> Tensor:
        shares, rest = self._split(parameters)
        moved = self.rest.shifted(rest, shift)
        return torch.cat([shares.expand(-1, *moved.shape[1:]), moved])

    def _split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Those of the shares and those of the rest, where the first axis is their own."""
        own, rest = parameters.split([len(self.values) + 1, self.rest.parameters])  # type: ignore[no-untyped-call]
        return own, rest

    def _with_points(self, log_shares: Tensor, density: Tensor, encoded: Tensor) -> Tensor:
        """The log density of the rest, times its share; where an entry is a point, that one's share."""
        value = log_shares[-1] + density
        for code, log_share in zip(self._codes, log_shares, strict=False):
            value = torch.where(_same(encoded, code), log_share, value)
        return value


def _same(encoded: Tensor, code: float) -> Tensor:
    return (encoded - code).abs() <= SAME


def find_point_masses(entry: Float[Tensor, " n"]) -> tuple[float, ...]:
    """The values that real readings have again and again, in order.

    Args:
        entry: Simulated readings.

    Returns:
        At most ``MOST`` of them; none where most readings repeat, since these lie on a lattice.
    """
    values, counts = entry.unique(return_counts=True)  # type: ignore[no-untyped-call]
    often = counts >= max(3.0, SHARE * len(entry))
    if int(often.sum()) > MOST or int((counts[~often] > 1).sum()) > 0.1 * len(counts):
        return ()
    return tuple(values[often].tolist())
