"""Curves over the number of queries, with bands: how long episodes last, and how fast the posterior narrows."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, ScalarFormatter

from cicpe.plots.style import COLOURS, Curve, dress, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Stroke = str | tuple[float, tuple[float, ...]]
STROKES: tuple[Stroke, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))


DEEPEST = 10.0
"""How far below the lowest median a band is drawn."""
SPREAD_NOTE = "line: median over episodes; band: middle 80 %; vertical: median stop"


@styled
def plot_survival(curves: Mapping[str, Curve], *, title: str | None = None, note: str = "band: 95 %") -> Figure:
    """Draws P(tau > t): the share of episodes that are still under way after t queries.

    Args:
        curves: Label -> the share after t = 0, 1, ... queries, and the edges of its band.
        title: A line above.
        note: What the band is.

    Returns:
        The figure.
    """
    figure = new_figure(3.2, title=title)
    panel: Axes = figure.subplots()
    _draw_survival(panel, curves)
    _legend(figure, panel, note)
    return figure


@styled
def plot_spread(
    curves: Mapping[str, Curve],
    median_stop: Mapping[str, float],
    *,
    title: str | None = None,
    note: str = SPREAD_NOTE,
) -> Figure:
    """Draws the posterior's standard deviation over time, on a logarithmic scale, and the median stop.

    Args:
        curves: Label -> the standard deviation after t = 0, 1, ... queries, and the edges of its band.
        median_stop: Label -> the median number of queries at the stop.
        title: A line above.
        note: What line, band and vertical are.

    Returns:
        The figure.
    """
    figure = new_figure(3.2, title=title)
    panel: Axes = figure.subplots()
    _draw_spread(panel, curves, median_stop)
    _legend(figure, panel, note)
    return figure


class StoppingCurves(NamedTuple):
    """When episodes stop, and how far the posterior has narrowed by then, of several agents by their labels."""

    survival: Mapping[str, Curve]
    """The share of episodes under way after t = 0, 1, ... queries, and the edges of its band."""
    spread: Mapping[str, Curve]
    """The posterior's standard deviation after as many, and the edges of its band."""
    median_stop: Mapping[str, float]
    """The median number of queries at the stop."""

    @property
    def longest(self) -> int:
        """The most queries of any curve."""
        return max(len(value) - 1 for value, _, _ in (*self.survival.values(), *self.spread.values()))


@styled
def plot_stopping(
    rows: Mapping[str, StoppingCurves],
    *,
    order: Sequence[str] = (),
    log_queries: bool = False,
    title: str | None = None,
) -> Figure:
    """Draws when episodes stop beside how far the posterior has narrowed by then, one row below the other.

    Args:
        rows: Heading -> curves; what has the same label in several rows looks the same in all of them.
        order: Labels that may occur, by which each gets its look; as they come where not given.
        log_queries: Whether the number of queries has a logarithmic scale, from 1 on.
        title: A line above.

    Returns:
        The figure.
    """
    figure = new_figure(1.0 + 2.3 * len(rows), title=title)
    grid = figure.subplots(len(rows), 2, sharex="row", squeeze=False)
    drawn = dict.fromkeys(label for curves in rows.values() for label in curves.survival)
    labels = list(dict.fromkeys([*order, *drawn]))
    notes = ["band: exact 95 %", "median; band: middle 80 %; vertical: median stop"]
    for (left, right), (heading, curves) in zip(grid, rows.items(), strict=True):
        _draw_survival(left, curves.survival, labels)
        _draw_spread(right, curves.spread, curves.median_stop, labels)
        left.set_xlim(0, 1.02 * curves.longest)
        if log_queries:
            _log_queries(left, curves.longest)
        left.set_title("; ".join(part for part in (heading, notes[0]) if part), fontsize=8)
        right.set_title(notes[1], fontsize=8)
        notes = ["", ""]
    for panel in grid[:-1].flat:
        panel.set_xlabel("")
    handles = {label: handle for row in grid for handle, label in zip(*row[0].get_legend_handles_labels(), strict=True)}
    shown = [label for label in labels if label in handles]
    figure.legend([handles[label] for label in shown], shown, loc="outside lower center", ncols=len(shown))
    return figure


def _log_queries(panel: "Axes", longest: int) -> None:
    """Gives 5 queries and 100 the same room as 1 query and 20."""
    panel.set_xscale("log")
    panel.set_xlim(1, 1.05 * longest)
    panel.xaxis.set_major_locator(FixedLocator([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]))
    panel.xaxis.set_major_formatter(ScalarFormatter())
    panel.xaxis.set_minor_locator(NullLocator())


def _draw_survival(panel: "Axes", curves: Mapping[str, Curve], labels: Sequence[str] = ()) -> None:
    for label, (value, low, high) in curves.items():
        t = np.arange(len(value))
        colour, stroke = _look(label, labels or list(curves))
        panel.step(t, value, where="post", color=colour, linestyle=stroke, linewidth=1.6, label=label)
        panel.fill_between(t, low, high, step="post", color=colour, alpha=0.2, linewidth=0)
    panel.set_ylim(-0.02, 1.02)
    panel.set_ylabel(r"still under way, $P(\tau > t)$")
    _finish(panel)


def _draw_spread(
    panel: "Axes", curves: Mapping[str, Curve], median_stop: Mapping[str, float], labels: Sequence[str] = ()
) -> None:
    lowest = min((float(value[value > 0].min()) for value, _, _ in curves.values() if (value > 0).any()), default=1.0)
    for label, (value, low, high) in curves.items():
        t = np.arange(len(value))
        low = np.maximum(low, lowest / DEEPEST)  # a spread of 0 has no logarithm
        colour, stroke = _look(label, labels or list(curves))
        panel.plot(t, value, color=colour, linestyle=stroke, linewidth=1.6, label=label)
        panel.fill_between(t, low, high, color=colour, alpha=0.2 if len(curves) < 3 else 0.1, linewidth=0)
        if label in median_stop:
            panel.axvline(median_stop[label], color=colour, linewidth=1.2, linestyle=_dashes(label, median_stop))
    panel.set_yscale("log")
    panel.set_ylabel("posterior std")
    _finish(panel)


def _look(label: str, labels: Sequence[str]) -> tuple[str, Stroke]:
    """Colour and stroke of a label, by its place among all of them."""
    i = labels.index(label)
    return COLOURS[i % len(COLOURS)], STROKES[i % len(STROKES)]


def _dashes(label: str, place: Mapping[str, float]) -> Stroke:
    """Dashes that leave room for those of all labels in the same place, so that each of them is seen."""
    together = [other for other in place if place[other] == place[label]]
    return 2.0 * together.index(label), (2.0, 2.0 * max(1, len(together) - 1))


def _finish(panel: "Axes") -> None:
    panel.set_xlabel("queries, t")
    panel.margins(x=0.02)
    panel.set_xlim(left=0)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    dress(panel)


def _legend(figure: Figure, panel: "Axes", note: str) -> None:
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, title=note, title_fontsize=8, loc="outside lower center", ncols=len(labels))
