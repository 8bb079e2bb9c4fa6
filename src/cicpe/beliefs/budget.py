"""How long a fit may take."""

import math
from dataclasses import dataclass
from typing import final

from cicpe.errors import InvalidInput

CALIBRATION_SHARE = 0.1
"""Share of a budget in minutes that is kept for calibration, whatever training takes."""


@final
@dataclass(frozen=True)
class Budget:
    """How long to train: a number of updates (reproducible), or minutes of wall-clock, or the first to end."""

    minutes: float | None = None
    updates: int | None = None

    def __post_init__(self) -> None:
        if self.minutes is None and self.updates is None:
            raise InvalidInput("minutes", None, "a number of minutes, or a number of updates")
        if self.minutes is not None and not (0 < self.minutes < 1e5):
            raise InvalidInput("minutes", self.minutes, "a positive number")
        if self.updates is not None and self.updates < 1:
            raise InvalidInput("updates", self.updates, "a whole number of at least 1")

    def progress(self, updates: int, seconds: float) -> float:
        """The share of the budget that is spent: 0 at the start, 1 when it is time to end."""
        shares = []
        if self.minutes is not None:
            shares.append(seconds / (60 * self.minutes))
        if self.updates is not None:
            shares.append(updates / self.updates)
        return min(1.0, max(shares))

    def part(self, share: float, most: float) -> float:
        """Seconds for a part of the work: a share of the minutes, and at most ``most``; without end for updates."""
        return math.inf if self.minutes is None else min(most, 60 * self.minutes * share)
