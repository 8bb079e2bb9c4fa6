"""A stop threshold for any agent with a confidence, from episodes played past every stop."""

from cicpe.agents.stop_rules import STOP_RULES, first_passages
from cicpe.calibration.table import ThresholdCell
from cicpe.calibration.thresholds import DELTAS, choose_cells
from cicpe.episodes.table import AgentTable
from cicpe.errors import InvalidInput


def choose_threshold(table: AgentTable, epsilon: float, delta: float, alpha: float = 0.5) -> ThresholdCell | None:
    """The lowest threshold before the first, from the safest down, whose accuracy falls short; None where all do.

    With ``alpha`` one half the accuracy on these episodes is taken at its word: right for a comparison at the
    same accuracy, not for a promise.

    Args:
        table: Episodes of the agent.
        epsilon: How close is close enough.
        delta: How often it may fail.
        alpha: Level of the bound on its success.

    Returns:
        The threshold with its accuracy and queries on these episodes.
    """
    safe = [i for i, value in enumerate(DELTAS) if value <= delta * (1 + 1e-9)]
    if not safe:
        raise InvalidInput("delta", delta, f"at least {DELTAS[0]:g}")
    thresholds = STOP_RULES["confidence"].thresholds(None)
    stops = first_passages(table.confidence_BT, thresholds)
    return choose_cells(table.loss_BT <= epsilon, stops, thresholds, alpha)[safe[-1]]
