"""Curves over the number of queries, with bands: how long episodes last, and how fast the posterior narrows."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cicpe.plots.style import COLOURS, Curve, dress, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STROKES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))


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


@styled
def plot_stopping(
    survival: Mapping[str, Curve],
    spread: Mapping[str, Curve],
    median_stop: Mapping[str, float],
    *,
    title: str | None = None,
) -> Figure:
    """Draws when episodes stop beside how far the posterior has narrowed by then.

    Args:
        survival: Label -> the share of episodes under way after t = 0, 1, ... queries, and the edges of its band.
        spread: Label -> the posterior's standard deviation after as many, and the edges of its band.
        median_stop: Label -> the median number of queries at the stop.
        title: A line above.

    Returns:
        The figure.
    """
    figure = new_figure(3.3, title=title)
    left, right = figure.subplots(1, 2, sharex=True)
    _draw_survival(left, survival)
    _draw_spread(right, spread, median_stop)
    left.set_xlim(0, 1.02 * max(len(value) - 1 for value, _, _ in (*survival.values(), *spread.values())))
    left.set_title("band: exact 95 %", fontsize=8)
    right.set_title("median; band: middle 80 %; vertical: median stop", fontsize=8)
    _legend(figure, left, None)
    return figure


def _draw_survival(panel: "Axes", curves: Mapping[str, Curve]) -> None:
    for i, (label, (value, low, high)) in enumerate(curves.items()):
        t = np.arange(len(value))
        colour, stroke = COLOURS[i % len(COLOURS)], STROKES[i % len(STROKES)]
        panel.step(t, value, where="post", color=colour, linestyle=stroke, linewidth=1.6, label=label)
        panel.fill_between(t, low, high, step="post", color=colour, alpha=0.2, linewidth=0)
    panel.set_ylim(-0.02, 1.02)
    panel.set_ylabel(r"still under way, $P(\tau > t)$")
    _finish(panel)


def _draw_spread(panel: "Axes", curves: Mapping[str, Curve], median_stop: Mapping[str, float]) -> None:
    lowest = min((float(value[value > 0].min()) for value, _, _ in curves.values() if (value > 0).any()), default=1.0)
    for i, (label, (value, low, high)) in enumerate(curves.items()):
        t = np.arange(len(value))
        low = np.maximum(low, lowest / DEEPEST)  # a spread of 0 has no logarithm
        colour, stroke = COLOURS[i % len(COLOURS)], STROKES[i % len(STROKES)]
        panel.plot(t, value, color=colour, linestyle=stroke, linewidth=1.6, label=label)
        panel.fill_between(t, low, high, color=colour, alpha=0.2 if len(curves) < 3 else 0.1, linewidth=0)
        if label in median_stop:
            panel.axvline(median_stop[label], color=colour, linewidth=1.2, linestyle=(0, (2, 2)))
    panel.set_yscale("log")
    panel.set_ylabel("posterior std")
    _finish(panel)


def _finish(panel: "Axes") -> None:
    panel.set_xlabel("queries, t")
    panel.margins(x=0.02)
    panel.set_xlim(left=0)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    dress(panel)


def _legend(figure: Figure, panel: "Axes", note: str | None) -> None:
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, title=note, title_fontsize=8, loc="outside lower center", ncols=len(labels))
