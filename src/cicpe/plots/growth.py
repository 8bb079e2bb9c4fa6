"""How cost grows: processor time or memory against size, on logarithmic axes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from cicpe.plots.style import GREY, Array, dress, look_of, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 2
"""Panels in a row."""


class GrowthCurve(NamedTuple):
    """One quantity at several sizes: the middle of its repetitions, and their quartiles."""

    size: Array
    value: Array
    low: Array
    high: Array


class GrowthPanel(NamedTuple):
    """What is drawn against one size."""

    title: str
    xlabel: str
    ylabel: str
    curves: Mapping[str, GrowthCurve]
    limit: float | None = None
    """Where it begins to hurt: a dashed line."""


@styled
def plot_growth(panels: Sequence[GrowthPanel], *, title: str | None = None) -> Figure:
    """Draws one panel per pair of size and cost, each with a legend of its own below.

    Args:
        panels: What to draw, at least one.
        title: A line above.

    Returns:
        The figure.
    """
    rows = -(-len(panels) // COLUMNS)
    figure = new_figure(0.4 + 3.3 * rows, title=title)
    grid = figure.subplots(rows, COLUMNS, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, panel in zip(grid.flat, panels, strict=False):
        _draw(axes, panel)
    return figure


def _draw(axes: "Axes", panel: GrowthPanel) -> None:
    for i, (label, curve) in enumerate(panel.curves.items()):
        colour, marker = look_of(i)
        axes.fill_between(curve.size, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(curve.size, curve.value, color=colour, marker=marker, markersize=4, linewidth=1.4, label=label)
    if panel.limit is not None:
        axes.axhline(panel.limit, color=GREY, linewidth=1, linestyle=(0, (4, 2)), zorder=0)
    axes.set(xscale="log", yscale="log", xlabel=panel.xlabel, ylabel=panel.ylabel)
    axes.set_title(panel.title)
    sizes = sorted({float(size) for curve in panel.curves.values() for size in curve.size})
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    dress(axes)
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.2), fontsize=7.5)
