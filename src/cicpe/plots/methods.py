"""Accuracy and queries of several methods on the same tasks."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cicpe.plots.style import COLOURS, GREY, dress, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Group = Literal["ours", "reference", "baseline", "published"]
LOOK: dict[Group, tuple[str, str, str]] = {
    "ours": (COLOURS[0], "o", "ours"),
    "reference": (COLOURS[2], "s", "knows the likelihood"),
    "baseline": (COLOURS[1], "^", "baseline"),
    "published": (GREY, "", ""),
}
"""Colour, marker and words; of what was only published there is the paper's diamond, and no point of ours."""
WIDE = 12.0
"""From this ratio on, queries are drawn on a logarithmic scale."""


class MethodRow(NamedTuple):
    """One row: what was measured, and what the paper reports."""

    name: str
    group: Group
    accuracy: float
    accuracy_ci: tuple[float, float]
    queries: float
    queries_ci: tuple[float, float]
    paper_accuracy: float | None = None
    paper_queries: float | None = None

    @classmethod
    def published(cls, name: str, accuracy: float | None, queries: float | None) -> "MethodRow":
        """A method that only the paper has measured."""
        unknown = float("nan")
        return cls(name, "published", unknown, (unknown, unknown), unknown, (unknown, unknown), accuracy, queries)


@styled
def plot_methods(methods: Sequence[MethodRow], *, goal: float | None = None, title: str | None = None) -> Figure:
    """Draws one row per method, the first on top: accuracy on the left, queries on the right.

    Args:
        methods: What to draw; bars are 95 % intervals, hollow diamonds the paper's figures.
        goal: The accuracy that was asked for.
        title: A line above.

    Returns:
        The figure.
    """
    figure = new_figure(1.35 + 0.3 * len(methods), title=title)
    left, right = figure.subplots(1, 2, sharey=True)
    _fill(left, right, methods, goal)
    _legend(figure, methods, goal)
    return figure


@styled
def plot_benchmarks(
    benchmarks: Mapping[str, Sequence[MethodRow]], *, goal: float | None = None, title: str | None = None
) -> Figure:
    """Draws several benchmarks below each other, each with its methods as in ``plot_methods``.

    Args:
        benchmarks: Heading -> methods.
        goal: The accuracy that was asked for.
        title: A line above.

    Returns:
        The figure.
    """
    sizes = [len(methods) for methods in benchmarks.values()]
    figure = new_figure(1.0 + sum(0.55 + 0.2 * size for size in sizes), title=title)
    grid = figure.subplots(len(sizes), 2, sharey="row", squeeze=False, height_ratios=[1.2 + size for size in sizes])
    for (left, right), (heading, methods) in zip(grid, benchmarks.items(), strict=True):
        _fill(left, right, methods, goal)
        left.set_title(heading)
    _legend(figure, [method for methods in benchmarks.values() for method in methods], goal)
    return figure


def _fill(left: "Axes", right: "Axes", methods: Sequence[MethodRow], goal: float | None) -> None:
    """Accuracies in one panel and queries in the other."""
    for row, method in enumerate(methods):
        _point(left, row, method.group, method.accuracy, method.accuracy_ci, method.paper_accuracy)
        _point(right, row, method.group, method.queries, method.queries_ci, method.paper_queries)
    if goal is not None:
        left.axvline(goal, color=GREY, linewidth=1, linestyle=(0, (4, 2)), zorder=0)
    shown = _finite([a for m in methods for a in (*m.accuracy_ci, m.paper_accuracy, goal)])
    left.set_xlim(-0.02 if min(shown) < 0.5 else min(shown) - 0.02, 1.005)
    left.set_xlabel("accuracy")
    left.set_yticks(np.arange(len(methods)), [method.name for method in methods])
    left.set_ylim(len(methods) - 0.4, -0.6)
    shown = _finite([q for m in methods for q in (*m.queries_ci, m.paper_queries)])
    if max(shown) > WIDE * max(min(shown), 1e-9):
        right.set_xscale("log")
        right.set_xlabel("queries (logarithmic)")
    else:
        right.set_xlim(0, 1.08 * max(shown))
        right.set_xlabel("queries")
    for panel in (left, right):
        dress(panel)
        panel.tick_params(axis="y", length=0)


def _finite(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def _point(
    panel: "Axes", row: int, group: Group, value: float, interval: tuple[float, float], paper: float | None
) -> None:
    colour, marker, _ = LOOK[group]
    panel.hlines(row, *interval, color=colour, linewidth=2.2, alpha=0.5)
    panel.plot([value], [row], color=colour, marker=marker, markersize=5, linestyle="none", zorder=3)
    if paper is not None:
        panel.plot([paper], [row], marker="D", markersize=6.5, markerfacecolor="none", color=GREY, linestyle="none")


def _legend(figure: Figure, methods: Sequence[MethodRow], goal: float | None) -> None:
    handles, labels = [], []
    for group, (colour, marker, label) in LOOK.items():
        if label and any(method.group == group for method in methods):
            handles.append(Line2D([], [], color=colour, marker=marker, markersize=5, linewidth=2.2))
            labels.append(f"{label}, 95 %")
    if any(method.paper_accuracy is not None or method.paper_queries is not None for method in methods):
        handles.append(Line2D([], [], color=GREY, marker="D", markersize=6.5, markerfacecolor="none", linestyle="none"))
        labels.append("the paper")
    if goal is not None:
        handles.append(Line2D([], [], color=GREY, linewidth=1, linestyle=(0, (4, 2))))
        labels.append(f"asked for, {goal:g}")
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
