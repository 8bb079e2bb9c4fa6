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
    for i, (label, (value, low, high)) in enumerate(curves.items()):
        t = np.arange(len(value))
        colour, stroke = COLOURS[i % len(COLOURS)], STROKES[i % len(STROKES)]
        panel.step(t, value, where="post", color=colour, linestyle=stroke, linewidth=1.6, label=label)
        panel.fill_between(t, low, high, step="post", color=colour, alpha=0.2, linewidth=0)
    panel.set_ylim(-0.02, 1.02)
    panel.set_ylabel(r"still under way, $P(\tau > t)$")
    _finish(figure, panel, note)
    return figure


@styled
def plot_spread(
    curves: Mapping[str, Curve],
    median_stop: Mapping[str, float],
    *,
    title: str | None = None,
    note: str = "line: median over episodes; band: middle 80 %; vertical: median stop",
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
    for i, (label, (value, low, high)) in enumerate(curves.items()):
        t = np.arange(len(value))
        colour, stroke = COLOURS[i % len(COLOURS)], STROKES[i % len(STROKES)]
        panel.plot(t, value, color=colour, linestyle=stroke, linewidth=1.6, label=label)
        panel.fill_between(t, low, high, color=colour, alpha=0.2 if len(curves) < 3 else 0.1, linewidth=0)
        if label in median_stop:
            panel.axvline(median_stop[label], color=colour, linewidth=1.2, linestyle=(0, (2, 2)))
    panel.set_yscale("log")
    panel.set_ylabel("posterior std")
    _finish(figure, panel, note)
    return figure


def _finish(figure: Figure, panel: "Axes", note: str) -> None:
    panel.set_xlabel("queries, t")
    panel.margins(x=0)
    panel.set_xlim(left=0)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    dress(panel)
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, title=note, title_fontsize=8, loc="outside lower center", ncols=len(labels))
