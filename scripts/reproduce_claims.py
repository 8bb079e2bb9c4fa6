"""The claims of the paper, each with whether it holds here and the figures that say so. Called by reproduce_page.py.

A claim about figures that have intervals holds where all of the intervals say so, fails where all of them say that it is
not so, and is not settled elsewhere.
"""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cicpe.evaluation.theory import max_value_lower_bound

if TYPE_CHECKING:
    from reproduce_page import CellResult

RESULTS = Path(__file__).parent.parent / "docs" / "results"
HOLDS, FAILS, OPEN, UNSETTLED = "holds", "**does not hold here**", "not measured", "not settled by these tasks"


class Claim(NamedTuple):
    """What the paper says, and what is so here."""

    statement: str
    verdict: str
    evidence: str


def claim_lines(results: "Sequence[CellResult]") -> list[str]:
    """A table with a line per claim."""
    lines = ["| the paper | here | evidence |", "|---|---|---|"]
    for check in CHECKS:
        claim = check(results)
        lines.append(f"| {claim.statement} | {claim.verdict} | {claim.evidence} |")
    return lines


def read(name: str) -> Any:
    """A file of docs/results; None where there is none."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else None


def verdict(is_so: bool | None) -> str:
    """In words; None where the figures do not settle it."""
    return UNSETTLED if is_so is None else HOLDS if is_so else FAILS


def settled(surely: bool, possibly: bool) -> bool | None:
    """Whether something is so: by all of the intervals, by none of them, or not settled.

    Args:
        surely: Whether it is so wherever in their intervals the figures are.
        possibly: Whether it is so somewhere in them.

    Returns:
        None where it is possible and not sure.
    """
    return True if surely else None if possibly else False


def meets_the_target(results: "Sequence[CellResult]") -> Claim:
    statement = "Learned agents meet an accuracy of 1 - delta in every cell"
    measured = [cell for cell in results if cell.accuracy is not None]
    refused = [cell for cell in results if cell.seeds and cell.refused]
    if not measured:
        return Claim(statement, OPEN, "no cell is measured")
    missed = [cell for cell in measured if cell.accuracy and cell.accuracy.value < 1 - cell.delta]
    lowest = min(cell.accuracy.value for cell in measured if cell.accuracy)
    evidence = f"{len(measured) - len(missed)} of {len(measured)} measured cells, the lowest {lowest:.3f}; {len(refused)} cells are refused by some seed"
    return Claim(statement, verdict(not missed and not refused), evidence)


def sublinear(results: "Sequence[CellResult]") -> Claim:
    statement = "Binary search: queries grow less than linearly with d"
    ratios = []
    for cell in results:
        if cell.problem == "binary-search" and cell.queries is not None:
            smallest = min(
                (c for c in results if c.key[2:] == cell.key[2:] and c.problem == cell.problem and c.queries),
                key=lambda c: c.dim,
            )
            if smallest.dim < cell.dim and smallest.queries:
                ratios.append((cell.queries.value / smallest.queries.value) / (cell.dim / smallest.dim))
    if not ratios:
        return Claim(statement, OPEN, "two dimensions are needed")
    return Claim(
        statement,
        verdict(max(ratios) < 1),
        f"growth of queries over growth of d: at most {max(ratios):.2f} in {len(ratios)} pairs",
    )


def more_than_track_and_stop(results: "Sequence[CellResult]") -> Claim:
    statement = "Best arm: the learned agent needs more queries than Track-and-Stop, which needs d"
    ratios = [cell.queries.value / cell.dim for cell in results if cell.problem == "best-arm" and cell.queries]
    if not ratios:
        return Claim(statement, OPEN, "best-arm is not measured")
    return Claim(
        statement,
        verdict(min(ratios) > 1),
        f"queries over d: {min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} cells",
    )


def uniform_degrades(results: "Sequence[CellResult]") -> Claim:
    statement = "Uniform queries are much worse than learned ones on binary search and Ackley"
    rows = (read("actors") or {"rows": []})["rows"]
    pairs = []
    for row in rows:
        # Weights that never saw uniform queries would show the weights and not the rule.
        own_weights = row.get("weights", "own") == "own"
        if row["actor"] == "uniform" and own_weights and row["problem"] in ("binary-search", "ackley"):
            same = [
                r
                for r in rows
                if r["actor"] == "ts" and all(r[k] == row[k] for k in ("problem", "dim", "epsilon", "noise"))
            ]
            pairs += [(row, other) for other in same]
    if not pairs:
        return Claim(statement, OPEN, "docs/results/actors.json has no pair")
    worse = [u["mean_queries"] > 1.5 * t["mean_queries"] or u["accuracy"] < t["accuracy"] - 0.1 for u, t in pairs]
    dims = sorted({(u["problem"], u["dim"]) for u, _ in pairs})
    where = ", ".join(f"{problem} d = {dim}" for problem, dim in dims)
    return Claim(
        statement,
        verdict(all(worse)),
        f"in {sum(worse)} of {len(worse)} cells half as many queries again, or accuracy lower by 0.1 ({where}; higher d not measured)",
    )


def optimisers_fall_short(family: str, words: str) -> Callable[..., Claim]:
    """A claim about methods without a stop rule in a family, from docs/results/baselines.json."""
    statement = f"{words}: Bayesian optimisation with as many queries as the paper's agent stays below 1 - delta"

    def check(results: "Sequence[CellResult]") -> Claim:
        rows = (read("baselines") or {"rows": []})["rows"]
        own = [row for row in rows if row["problem"] == family and row["whose"] == "paper"]
        if not own:
            return Claim(statement, OPEN, f"docs/results/baselines.json has no {family}")
        surely, possibly = (all(row["accuracy_ci"][end] < 0.9 for row in own) for end in (1, 0))
        best = max(own, key=lambda row: row["accuracy"])
        evidence = (
            f"{len(own)} cells and methods, the best {best['method']} at epsilon {best['epsilon']:g}, noise {best['noise']:g}: "
            f"{best['accuracy']:.3f} ({best['accuracy_ci'][0]:.3f}-{best['accuracy_ci'][1]:.3f}) after {best['queries']} queries"
        )
        return Claim(statement, verdict(settled(surely, possibly)), evidence)

    return check


def optimisers_fall_short_on_copper(results: "Sequence[CellResult]") -> Claim:
    statement = "Copper: Bayesian optimisation stays below 1 - delta at 22 and 39 queries"
    figures = read("copper")
    if figures is None:
        return Claim(statement, OPEN, "docs/results/copper.json is missing")
    accuracies = {}
    for name in ("tpe", "cma-es", "gp-logei", "gp-ucb"):
        for epsilon, queries in ((0.2, 22), (0.15, 39)):
            right = [line[min(queries, len(line) - 1)] <= epsilon for row in figures[name] for line in row["losses"]]
            accuracies[f"{name} at {epsilon:g}"] = float(np.mean(right))
    above = [f"{name} {value:.2f}" for name, value in accuracies.items() if value >= 0.9]
    evidence = f"35 regions, not the paper's: {min(accuracies.values()):.2f} to {max(accuracies.values()):.2f}"
    return Claim(statement, verdict(not above), evidence + (f"; above: {', '.join(above)}" if above else ""))


def grid_claim(
    figure: str, statement: str, is_so: Callable[[np.ndarray, np.ndarray, np.ndarray], bool | None]
) -> Callable[..., Claim]:
    """A claim about the accuracies under other priors and their intervals, from docs/results/paper-figures.json."""

    def check(results: "Sequence[CellResult]") -> Claim:
        study = (read("paper-figures") or {}).get(f"robustness-{figure}")
        if study is None:
            return Claim(statement, OPEN, f"docs/results/paper-figures.json has no robustness-{figure}")
        accuracy, low, high = (np.array(part) for part in study["panels"][0][1:])
        lowest = np.unravel_index(int(accuracy.argmin()), accuracy.shape)
        evidence = (
            f"{figure}: {accuracy.min():.3f} ({low[lowest]:.3f}-{high[lowest]:.3f}) to {accuracy.max():.3f} over {accuracy.size} "
            f"priors, {study['tasks']} tasks each"
        )
        return Claim(statement, verdict(is_so(accuracy, low, high)), evidence)

    return check


def value_is_dearer(results: "Sequence[CellResult]") -> Claim:
    statement = (
        "Separation: the height of a maximum costs at least epsilon^-2, its place at most epsilon^-3/2 (up to log log)"
    )
    study = read("value-against-argmax")
    if study is None:
        return Claim(statement, OPEN, "docs/results/value-against-argmax.json is missing")
    value, place = study["value"], study["place"]
    words = "{slope:.2f} ({slope_ci[0]:.2f} to {slope_ci[1]:.2f})"
    bounds = [
        max_value_lower_bound(row["epsilon"], study["delta"], study["noise"], 1, math.inf) for row in value["rows"]
    ]
    ratios = [row["queries"] / bound for row, bound in zip(value["rows"], bounds, strict=True)]
    evidence = (
        f"the height took {min(ratios):.1f} to {max(ratios):.1f} times the most that the bound can say; slopes over a finite range "
        f"{words.format(**value)} and {words.format(**place)}, on {value['tasks']} functions"
    )
    is_kept = min(ratios) >= 1 and place["slope_ci"][1] >= -1.5
    is_shown = is_kept and value["slope_ci"][1] <= -2 and place["slope_ci"][0] >= -1.5
    return Claim(statement, verdict(settled(is_shown, is_kept)), evidence)


CHECKS: tuple[Callable[..., Claim], ...] = (
    meets_the_target,
    sublinear,
    more_than_track_and_stop,
    uniform_degrades,
    optimisers_fall_short("ackley", "Ackley"),
    optimisers_fall_short("gp-max", "GP maximum (not a table of the paper)"),
    optimisers_fall_short_on_copper,
    grid_claim(
        "binary-search-20d",
        "Other priors: binary search at d = 20 stays above 0.83",
        lambda a, low, high: settled(bool(low.min() > 0.83), bool(high.min() > 0.83)),
    ),
    grid_claim(
        "best-arm-15d",
        "Other priors: best arm at d = 15 varies by less than 0.04",
        lambda a, low, high: settled(bool(high.max() - low.min() < 0.04), bool(low.max() - high.min() < 0.04)),
    ),
    grid_claim(
        "ackley-5d",
        "Other priors: Ackley at d = 5 gains where alpha and beta are 3 or more, and loses at 0.5",
        lambda a, low, high: settled(
            bool(low[2:, 2:].mean() > high[1, 1] and min(high[0].mean(), high[:, 0].mean()) < low[1, 1]),
            bool(high[2:, 2:].mean() > low[1, 1] and min(low[0].mean(), low[:, 0].mean()) < high[1, 1]),
        ),
    ),
    grid_claim(
        "gp-max-1d-lengthscale",
        "Other priors: the GP maximum loses where beta is large and alpha small",
        lambda a, low, high: settled(bool(high[0, -1] < low[1, 1]), bool(low[0, -1] < high[1, 1])),
    ),
    grid_claim(
        "geochem-2d",
        "Other priors: copper stays at 0.90 or above",
        lambda a, low, high: settled(bool(low.min() >= 0.9), bool(high.min() >= 0.9)),
    ),
    value_is_dearer,
)
