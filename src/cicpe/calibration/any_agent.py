"""A stop threshold for any agent with a confidence, from episodes played past every stop (``evaluation.curves``)."""

from cicpe.calibration.table import Cell
from cicpe.calibration.thresholds import DELTAS, KAPPAS, choose_cells, confidence_stops
from cicpe.episodes.table import Beliefs
from cicpe.errors import InvalidInput


def choose_threshold(beliefs: Beliefs, epsilon: float, delta: float, alpha: float = 0.5) -> Cell | None:
    """The lowest threshold before the first, from the safest down, whose accuracy falls short; None where all do.

    With ``alpha`` one half the accuracy on these episodes is taken at its word: right for a comparison at the
    same accuracy, not for a promise.
    """
    safe = [i for i, value in enumerate(DELTAS) if value <= delta * (1 + 1e-9)]
    if not safe:
        raise InvalidInput("delta", delta, f"at least {DELTAS[0]:g}")
    success = beliefs.loss_BT <= epsilon
    return choose_cells(success, confidence_stops(beliefs.confidence_BT), KAPPAS, alpha)[safe[-1]]
