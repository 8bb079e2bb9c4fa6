"""What was published: the paper's figures and earlier exact references, cell by cell, to put beside ours."""

import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

OURS = "C-ICPE-"
"""How the paper's own methods begin."""


USUAL_HORIZON = 100
"""t_max of the cells that the paper's table of budgets does not name."""


class Figures(NamedTuple):
    """What one method reaches in one cell; None where the paper gives no number."""

    accuracy: float | None
    queries: float | None


class PublishedCell(NamedTuple):
    """The figures of one problem, dimension, epsilon and noise level, at delta = 0.1."""

    methods: Mapping[str, Figures]
    reference_queries: float | None
    horizon: int = USUAL_HORIZON
    """t_max, the most queries of an episode."""

    @property
    def best(self) -> Figures:
        """The paper's method with the fewest queries among its own whose accuracy is 0.89 or more."""
        own = [f for name, f in self.methods.items() if name.startswith(OURS) and (f.accuracy or 0) >= 0.89]
        return min(own, key=lambda f: f.queries or math.inf, default=Figures(None, None))


@cache
def _cells() -> tuple[dict[str, Any], ...]:
    return tuple(json.loads((Path(__file__).parent / "published.json").read_text(encoding="utf-8"))["cells"])


def published(problem: str, dim: int, epsilon: float, noise: float) -> PublishedCell | None:
    """What was published of a cell.

    Args:
        problem: The family's name.
        dim: Its dimension.
        epsilon: The tolerance.
        noise: The noise level.

    Returns:
        The cell at delta = 0.1; None where there is none.
    """
    for cell in _cells():
        same = (cell["problem"], cell["dim"]) == (problem, dim)
        if same and math.isclose(cell["epsilon"], epsilon) and math.isclose(cell["noise"], noise):
            figures = {name: Figures(f.get("accuracy"), f.get("queries")) for name, f in cell["methods"].items()}
            return PublishedCell(figures, cell["reference_queries"], cell.get("horizon", USUAL_HORIZON))
    return None
