"""Queries against epsilon, on logarithmic axes, with slopes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from cicpe.plots.bands import STROKES
from cicpe.plots.style import COLOURS, GREY, Array, dress, look_of, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ScalingCurve(NamedTuple):
    """One method."""

    name: str
    epsilon: Array
    queries: Array
    low: Array
    high: Array


class Slope(NamedTuple):
    """A straight line through (epsilon, queries) to compare with."""

    name: str
    epsilon: tuple[float, float]
    queries: float
    """At the first epsilon."""
    slope: float


@styled
def plot_scaling(
    methods: Sequence[ScalingCurve],
    slopes: Sequence[Slope] = (),
    *,
    title: str | None = None,
    xlabel: str = r"$\epsilon$, smaller to the right",
) -> Figure:
    """Draws each method's queries with intervals; epsilon shrinks to the right. Slopes are thin dashed lines."""
    figure = new_figure(3.9, title=title)
    panel: Axes = figure.subplots()
    for i, method in enumerate(methods):
        colour, marker = look_of(i)
        panel.fill_between(method.epsilon, method.low, method.high, color=colour, alpha=0.2, linewidth=0)
        panel.plot(
            method.epsilon,
            method.queries,
            color=colour,
            marker=marker,
            markersize=5,
            linewidth=1.5,
            label=method.name,
        )
    for slope in slopes:
        ends = np.array(slope.epsilon)
        line = slope.queries * (ends / ends[0]) ** slope.slope
        panel.plot(ends, line, color=GREY, linewidth=1, linestyle=(0, (4, 2)))
        panel.annotate(
            slope.name,
            (ends[1], line[1]),
            xytext=(4, 0),
            textcoords="offset points",
            color=GREY,
            fontsize=8,
            va="center",
        )
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.invert_xaxis()
    panel.set_xlabel(xlabel)
    panel.set_ylabel("mean queries")
    dress(panel)
    panel.legend()
    return figure


class BoundLine(NamedTuple):
    """What a theorem says of the number of queries; 0 where it says nothing."""

    name: str
    epsilon: Array
    queries: Array


@styled
def plot_separation(
    methods: Sequence[ScalingCurve],
    bounds: Sequence[BoundLine],
    limits: Sequence[tuple[str, float]],
    *,
    title: str | None = None,
) -> Figure:
    """Draws measured queries above lower bounds, and the slopes between neighbouring epsilons beside the theorem's.

    Args:
        methods: What was measured.
        bounds: Dashed lines; where a bound is 0 it is not drawn.
        limits: Name and slope of each horizontal line beside the measured slopes.
        title: A line above.

    Returns:
        The figure.
    """
    figure = new_figure(4.0, title=title)
    left, right = figure.subplots(1, 2)
    for i, method in enumerate(methods):
        colour, marker = look_of(i)
        left.fill_between(method.epsilon, method.low, method.high, color=colour, alpha=0.2, linewidth=0)
        look = {"color": colour, "marker": marker, "markersize": 4.5, "linewidth": 1.5}
        left.plot(method.epsilon, method.queries, label=method.name, **look)
        steps = np.diff(np.log(method.queries)) / np.diff(np.log(method.epsilon))
        right.plot(np.sqrt(method.epsilon[1:] * method.epsilon[:-1]), steps, **look)
    for i, bound in enumerate(bounds):
        drawn = np.where(bound.queries > 0, bound.queries, np.nan)
        colour, stroke = COLOURS[3 + i % 3], STROKES[1 + i % 3]
        left.plot(bound.epsilon, drawn, color=colour, linestyle=stroke, linewidth=1.3, label=bound.name)
    for i, (name, slope) in enumerate(limits):
        right.axhline(slope, color=GREY, linewidth=1.1, linestyle=STROKES[1 + i % 3], zorder=0, label=name)
    left.set(yscale="log", ylabel="mean queries")
    right.set(ylabel="slope between neighbouring epsilons")
    for panel in (left, right):
        panel.set_xscale("log")
        panel.invert_xaxis()
        panel.set_xlabel(r"$\epsilon$, smaller to the right")
        dress(panel)
    handles, labels = (a + b for a, b in zip(*(p.get_legend_handles_labels() for p in (left, right)), strict=True))
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure
