"""The report of a comparison, from the JSON that ``cicpe compare --json`` prints."""

import json
from pathlib import Path
from typing import Any

from cicpe.baselines.catalogue import METHODS
from cicpe.errors import InvalidInput
from cicpe.plots.methods import Group, MethodRow, plot_methods
from cicpe.reporting.page import Picture, Report, Section, Table, Text

NEEDED = ("problem", "epsilon", "delta", "seed", "budget", "budget_from", "rows", "left_out")


def read_comparison(path: Path) -> dict[str, Any]:
    """The comparison in a file, or an error that says what the file should be."""
    allowed = "the JSON of `cicpe compare --json`"
    try:
        comparison = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidInput("run", str(path), f"{allowed} ({error})") from None
    missing = [key for key in NEEDED if not isinstance(comparison, dict) or key not in comparison]
    if missing or not comparison["rows"]:
        raise InvalidInput("run", str(path), f"{allowed}; this has no {missing[0] if missing else 'rows'}")
    return dict(comparison)


def group_of(method: str) -> Group:
    """Ours, a reference that knows the likelihood, or a baseline."""
    if method.startswith("reference"):
        return "reference"
    return "baseline" if method in METHODS else "ours"


def method_of(row: dict[str, Any]) -> MethodRow:
    """A row of the comparison as it is drawn."""
    return MethodRow(
        name=row["method"],
        group=group_of(row["method"]),
        accuracy=row["accuracy"],
        accuracy_ci=tuple(row["accuracy_ci"]),
        queries=row["mean_queries"],
        queries_ci=tuple(row["mean_queries_ci"]),
        paper_accuracy=row["paper_accuracy"],
        paper_queries=row["paper_queries"],
    )


def comparison_report(comparison: dict[str, Any]) -> Report:
    """Lays a comparison out."""
    rows: list[dict[str, Any]] = comparison["rows"]
    setting = [(key, comparison.get(key)) for key in ("dim", "noise", "epsilon", "delta", "seed")]
    at = ", ".join(f"{key} {value:g}" for key, value in setting if isinstance(value, int | float))
    lead = f"{at}. All methods played the same tasks with the same noise. Intervals are 95 %."
    figure = plot_methods([method_of(row) for row in rows], goal=1 - comparison["delta"])
    tasks = sorted({row["tasks"] for row in rows})
    many = f"{tasks[0]:,}" if len(tasks) == 1 else f"{tasks[0]:,} to {tasks[-1]:,}"
    caption = f"Accuracy and queries, n = {many} tasks per method, seed {comparison['seed']}."
    budget = f"Methods that cannot stop by themselves had {comparison['budget']} queries ({comparison['budget_from']})."
    sections = [
        Section("Accuracy and queries", [Picture("methods", figure, caption), Text(budget), _table(rows)]),
        Section("Time", [_times(rows)]),
    ]
    if comparison["left_out"]:
        sections.append(Section("Left out", [Table(("method", "why"), list(comparison["left_out"].items()))]))
    return Report(f"{comparison['problem']}: methods compared", lead, sections, {"kind": "comparison", **comparison})


def _table(rows: list[dict[str, Any]]) -> Table:
    head = ("method", "tasks", "accuracy", "95 %", "queries", "95 %", "paper: accuracy", "queries")
    return Table(
        head,
        [
            (
                row["method"],
                f"{row['tasks']:,}",
                f"{row['accuracy']:.3f}",
                "{:.3f} to {:.3f}".format(*row["accuracy_ci"]),
                f"{row['mean_queries']:.2f}",
                "{:.2f} to {:.2f}".format(*row["mean_queries_ci"]),
                "" if row["paper_accuracy"] is None else f"{row['paper_accuracy']:.3f}",
                "" if row["paper_queries"] is None else f"{row['paper_queries']:g}",
            )
            for row in rows
        ],
    )


def _times(rows: list[dict[str, Any]]) -> Table:
    return Table(
        ("method", "ms per query, one episode at a time", "ms per query, all at once"),
        [
            (
                row["method"],
                f"{1000 * row['seconds_per_query']:.2f}",
                f"{1000 * row['batched_seconds_per_query']:.3f}",
            )
            for row in rows
        ],
    )
