"""Queries against epsilon, on logarithmic axes, with slopes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from cicpe.plots.style import GREY, Array, dress, look_of, new_figure, styled

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
