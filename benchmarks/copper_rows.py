"""Copper's rows of the actors' page, from the figures of scripts/copper.py, which holds every region out once.

A region is one deterministic task, so 2,000 fresh tasks would be 2,000 times the same few: regions are played several times
each, and intervals resample regions, then trajectories.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from actor_models import OWN

from cicpe.evaluation.bootstrap import Mean, bootstrap_mean

FUNCTIONS, NETWORK = ("functions", "Gaussian processes"), ("fast", "lattice")


class CopperAgent(NamedTuple):
    """An agent of scripts/copper.py as the page names it."""

    actor: str
    recipe: str
    memory: str
    weights: str
    """Whose weights it has."""
    loss: str = ""
    """What it is trained and judged by, where that is not the distance to the peak."""


AGENTS = {
    "functions-ts": CopperAgent("ts", *FUNCTIONS, "resolvable"),
    "functions-ttps": CopperAgent("ttps", *FUNCTIONS, "resolvable"),
    "functions-uniform": CopperAgent("uniform", *FUNCTIONS, "resolvable"),
    "lattice-ts": CopperAgent("ts", *NETWORK, "lattice"),
    "lattice-ttps": CopperAgent("ttps", *NETWORK, "lattice"),
    "lattice-td3": CopperAgent("td3", *NETWORK, OWN),
    "lattice-uniform": CopperAgent("uniform", *NETWORK, "lattice"),
    "lattice-value-ts": CopperAgent("ts", *NETWORK, "lattice-value", "value gap"),
    "lattice-value-td3": CopperAgent("td3", *NETWORK, OWN, "value gap"),
}
"""By what scripts/copper.py calls them."""
PARTS = {"held-out": "held-out", "train": "seen"}


def copper_rows(file: Path) -> Iterator[dict[str, Any]]:
    """A row per agent, epsilon and part of the regions; none where nothing was measured."""
    figures = json.loads(file.read_text()) if file.exists() else {}
    for name, agent in AGENTS.items():
        measured = figures.get(f"ours-{name}", [])
        for epsilon in sorted({row["epsilon"] for row in measured}, reverse=True):
            for part, regions in PARTS.items():
                some = [row for row in measured if (row["epsilon"], row["part"]) == (epsilon, part)]
                accuracy = _mean(some, lambda row, epsilon=epsilon: [float(loss <= epsilon) for loss in row["loss"]])
                queries = _mean(some, lambda row: row["queries"])
                yield {
                    "problem": "geochem",
                    "dim": 2,
                    "epsilon": epsilon,
                    "noise": 0.0,
                    "actor": agent.actor,
                    "recipe": agent.recipe,
                    "weights": agent.weights,
                    "loss": agent.loss,
                    "stop": "never" if any(row["delta"] is None for row in some) else "calibrated",
                    "delta": max((row["delta"] for row in some if row["delta"] is not None), default=None),
                    "memory": agent.memory,
                    "minutes": max(row["minutes"] for row in some),
                    "updates": some[0]["updates"],
                    "horizon": some[0]["horizon"],
                    "episodes": sum(len(row["loss"]) for row in some),
                    "accuracy": accuracy.value,
                    "accuracy_ci": [accuracy.low, accuracy.high],
                    "mean_queries": queries.value,
                    "mean_queries_ci": [queries.low, queries.high],
                    "regions": regions,
                    "splits": sorted({row["split"] for row in some}),
                }


def _mean(rows: list[dict[str, Any]], values: Callable[[dict[str, Any]], list[float]]) -> Mean:
    return bootstrap_mean(np.array([[values(row) for row in rows]]), replicates=4000)
