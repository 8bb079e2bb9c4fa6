"""The report of a sweep, from its file of results."""

from collections.abc import Sequence
from pathlib import Path

from cicpe.plots.methods import MethodRow, plot_methods
from cicpe.reporting.page import Picture, Report, Section, Table
from cicpe.reporting.sweep_results import SweepGroup, SweepResults, sweep_groups


def sweep_report(path: Path) -> Report:
    """Lays the results of a sweep out.

    Args:
        path: Its file.

    Returns:
        A section per cell: all runs that differ in their seed alone as one point, and the runs that failed.
    """
    results = SweepResults(path)
    rows, failed = results.rows(), results.failures()
    groups = sweep_groups(rows)
    cells = list(dict.fromkeys(group.cell for group in groups))
    sections = [
        _section(number, cell, [group for group in groups if group.cell == cell]) for number, cell in enumerate(cells)
    ]
    refused = [(row.run, str(row.row["refused"])) for row in rows if row.row["refused"] is not None]
    if refused:
        sections.append(Section("Refused", [Table(("run", "why"), refused)]))
    if failed:
        sections.append(Section("Failed", [Table(("run", "why"), list(failed.items()))]))
    lead = (
        f"{len({row.run for row in rows})} runs. Runs that differ in their seed alone are one row; intervals are 95 %, "
        "by the bootstrap over seeds and tasks."
    )
    numbers: dict[str, object] = {"kind": "sweep", "rows": [group.to_json() for group in groups], "failed": failed}
    return Report(f"{path.parent.name}: a sweep", lead, sections, numbers)


def _section(number: int, cell: tuple[float, float, float | None], groups: Sequence[SweepGroup]) -> Section:
    epsilon, delta, noise = cell
    at = f"epsilon {epsilon:g}, delta {delta:g}" + ("" if noise is None else f", noise {noise:g}")
    figure = plot_methods([_drawn(group) for group in groups], goal=1 - delta)
    caption = f"Accuracy and queries at {at}."
    return Section(at, [Picture(f"cell-{number}", figure, caption), _table(groups)])


def _drawn(group: SweepGroup) -> MethodRow:
    return MethodRow(
        name=f"{group.name} ({group.seeds})",
        group="ours",
        accuracy=group.accuracy.value,
        accuracy_ci=group.accuracy.interval,
        queries=group.queries.value,
        queries_ci=group.queries.interval,
    )


def _table(groups: Sequence[SweepGroup]) -> Table:
    head = ("settings", "seeds", "tasks", "accuracy", "95 %", "queries", "95 %")
    return Table(
        head,
        [
            (
                group.name,
                f"{group.seeds}",
                f"{group.episodes:,}",
                f"{group.accuracy.value:.3f}",
                f"{group.accuracy.low:.3f} to {group.accuracy.high:.3f}",
                f"{group.queries.value:.2f}",
                f"{group.queries.low:.2f} to {group.queries.high:.2f}",
            )
            for group in groups
        ],
    )
