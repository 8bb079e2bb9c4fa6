"""A survey and its fitted fields: the samples of every region, and how the bound of every fit rose."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from cicpe.plots.style import COLOURS, GREY, INK, Array, dress, new_figure, styled

FIELD = "cividis"
COLUMNS = 7
"""Regions in a row."""
EDGES = (-2.0, 2.0)
"""Standard scores at the ends of the colour bar: what lies beyond has their colours."""


class RegionSamples(NamedTuple):
    """What a survey has of one region."""

    name: str
    place: Array
    """n x 2, in the unit square: east and north."""
    value: Array
    """Standard scores of the logarithm."""
    peak: Array
    """Where the fitted field is highest."""
    resolvable: bool
    """Whether both fitted length scales are long enough for a peak to be searched."""


class BoundCurve(NamedTuple):
    """The evidence lower bound of one fit, per place, as the optimiser went on."""

    name: str
    bound: Array
    resolvable: bool


@styled
def plot_regions(regions: Sequence[RegionSamples], *, title: str | None = None) -> Figure:
    """Draws the samples of every region in its unit square, coloured by value, with the peak of the fitted field.

    Args:
        regions: One panel each, at least one.
        title: A line above.

    Returns:
        The figure.
    """
    rows = -(-len(regions) // COLUMNS)
    figure = new_figure(1.0 + 1.16 * rows, title=title)
    grid = figure.subplots(rows, COLUMNS, squeeze=False, sharex=True, sharey=True)
    for panel in grid.flat[len(regions) :]:
        panel.set_visible(False)
    for panel, region in zip(grid.flat, regions, strict=False):
        east, north = region.place.T
        points = panel.scatter(east, north, c=region.value, cmap=FIELD, vmin=EDGES[0], vmax=EDGES[1], s=5, linewidth=0)
        panel.plot(*region.peak, marker="*", markersize=8, color=COLOURS[1], markeredgecolor="#fefefe", clip_on=False)
        panel.set_title(region.name, fontsize=7.5, color=INK if region.resolvable else GREY)
        panel.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), xticks=[], yticks=[], box_aspect=1)
        dress(panel, grid=False)
        panel.spines[:].set_visible(True)
        panel.spines[:].set_color("#bbbbbb")
    bar = figure.colorbar(points, ax=grid, location="bottom", shrink=0.45, aspect=40, pad=0.01, extend="both")
    bar.set_label("standard score of log copper; star: peak of the fitted field; grey name: not resolvable", fontsize=8)
    bar.ax.tick_params(color=INK, labelcolor=INK, labelsize=8)
    bar.outline.set_visible(False)
    return figure


@styled
def plot_bounds(curves: Sequence[BoundCurve], *, step: int = 1, title: str | None = None) -> Figure:
    """Draws how the bound of every fit rose, and by how much it still rose in the last tenth of the steps.

    Args:
        curves: One line each, at least one.
        step: Steps of the optimiser from one entry to the next.
        title: A line above.

    Returns:
        The figure.
    """
    figure = new_figure(3.4, title=title)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    groups = ((True, COLOURS[0], "resolvable"), (False, COLOURS[1], "not resolvable"))
    for resolvable, colour, label in groups:
        own = [curve for curve in curves if curve.resolvable == resolvable]
        for i, curve in enumerate(own):
            steps = step * np.arange(1, len(curve.bound) + 1)
            left.plot(steps, curve.bound, color=colour, linewidth=0.9, alpha=0.6, label=label if i == 0 else None)
        rises = sorted(float(curve.bound[-1] - curve.bound[-1 - len(curve.bound) // 10]) for curve in own)
        right.plot(rises, np.linspace(0, 1, len(rises)), color=colour, marker="o", markersize=3.5, linewidth=1)
    left.set(xlabel="step of Adam", ylabel="bound per place (nats)")
    right.set(xlabel="rise in the last tenth of the steps (nats)", ylabel="share of regions", ylim=(-0.03, 1.03))
    for panel in (left, right):
        dress(panel)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure
