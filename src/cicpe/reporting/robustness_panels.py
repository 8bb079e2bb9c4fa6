"""What was measured under other priors, and what the theory promised of it, as panels of a heat map."""

from collections.abc import Callable, Mapping

import numpy as np

from cicpe.evaluation.robustness import Floats, Robustness, RobustnessCell
from cicpe.plots.heat import Panel


def robustness_panels(study: Robustness, bounds: bool = False) -> tuple[list[float], list[float], list[Panel]]:
    """Lays the cells of a study out on their grid.

    Args:
        study: A frozen agent under a grid of Beta priors.
        bounds: Whether the best lower bound of the accuracy and the best upper bound of the queries follow.

    Returns:
        The alphas, the betas, and the panels of accuracy and queries.
    """
    alphas, betas = sorted({c.alpha for c in study.cells}), sorted({c.beta for c in study.cells})
    cell = {(c.alpha, c.beta): c for c in study.cells}

    def table(pick: Callable[[RobustnessCell], float]) -> Floats:
        return np.array([[pick(cell[a, b]) for b in betas] for a in alphas], dtype=np.float64)

    panels: list[Panel] = [
        ("accuracy", table(lambda c: c.accuracy), table(lambda c: c.accuracy_ci[0]), table(lambda c: c.accuracy_ci[1])),
        (
            "mean queries",
            table(lambda c: c.mean_queries),
            table(lambda c: c.mean_queries_ci[0]),
            table(lambda c: c.mean_queries_ci[1]),
        ),
    ]
    if bounds:
        promised = table(lambda c: max(_known(c.accuracy_bounds), default=0.0))
        longest = table(lambda c: min(_known(c.queries_bounds), default=float("nan")))
        panels += [("lower bound of the accuracy", promised, None, None)]
        panels += [("upper bound of the mean queries", longest, None, None)]
    return alphas, betas, panels


def _known(limits: Mapping[str, float | None]) -> list[float]:
    """Those whose distance between the priors is finite."""
    return [limit for limit in limits.values() if limit is not None]
