"""One episode over time: queries, posterior mean and posterior spread of every coordinate."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from cicpe.plots.style import GREY, INK, SHADE, Array, dress, look_of, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@styled
def plot_trajectory(
    query: Array,
    mean: Array,
    std: Array,
    *,
    target: Array | None = None,
    stop_time: int | None = None,
    confidence: Array | None = None,
    names: Sequence[str] | None = None,
    same_space: bool = True,
    title: str | None = None,
) -> Figure:
    """Draws three panels over the number of observations t (four, where the confidence is given).

    Args:
        query: T x query: the query made after t observations, for t = 0 ... T - 1.
        mean: T + 1 x answer: the recommendation after t observations.
        std: T + 1 x answer: its standard deviation.
        target: The true answer, drawn dashed; on the queries too where the spaces are the same.
        stop_time: Where the agent stopped; what follows is shaded.
        confidence: T + 1: the probability of success after t observations.
        names: Names of the answer's coordinates; 1, 2, ... where not given.
        same_space: Whether a query may be the answer; where the numbers of coordinates differ it is not.
        title: A line above the panels.

    Returns:
        The figure.
    """
    panels = 3 if confidence is None else 4
    figure = new_figure(1.2 + 1.5 * panels, title=title)
    axes: list[Axes] = list(figure.subplots(panels, 1, sharex=True))
    same = same_space and query.shape[1] == mean.shape[1]
    _curves(axes[0], query, "query", target if same else None)
    _curves(axes[1], mean, "posterior mean", target)
    _curves(axes[2], std, "posterior std", None)
    axes[2].set_ylim(bottom=0)
    if confidence is not None:
        axes[3].plot(np.arange(len(confidence)), confidence, color=INK, linewidth=1.6, marker=".")
        axes[3].set_ylabel("confidence")
        axes[3].set_ylim(-0.03, 1.03)
    for panel in axes:
        _dress(panel, stop_time, len(mean) - 1)
    axes[-1].set_xlabel("observations, t")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    labels = list(names) if names is not None else [str(i + 1) for i in range(mean.shape[1])]
    further = stop_time is not None and stop_time < len(mean) - 1
    _legend(figure, labels, target is not None, stop_time is not None, further)
    return figure


def _curves(panel: "Axes", values: Array, label: str, target: Array | None) -> None:
    """One line per coordinate, and its target as a dashed line of the same colour."""
    t = np.arange(len(values))
    for i in range(values.shape[1]):
        colour, marker = look_of(i)
        panel.plot(t, values[:, i], color=colour, marker=marker, markersize=3.5, linewidth=1.2)
        if target is not None:
            panel.axhline(float(target[i]), color=colour, linestyle=(0, (5, 3)), linewidth=0.9, alpha=0.8, zorder=0)
    panel.set_ylabel(label)


def _dress(panel: "Axes", stop_time: int | None, last: int) -> None:
    dress(panel)
    panel.set_xlim(-0.3, last + 0.3)
    if stop_time is not None:
        panel.axvline(stop_time, color=GREY, linewidth=1.4)
        if stop_time < last:
            panel.axvspan(stop_time, last + 0.3, color=SHADE, zorder=-1)


def _legend(figure: Figure, names: list[str], has_target: bool, has_stop: bool, further: bool) -> None:
    handles: list[Artist] = []
    for i, _ in enumerate(names):
        colour, marker = look_of(i)
        handles.append(Line2D([], [], color=colour, marker=marker, markersize=4, linewidth=1.2))
    labels = [f"coordinate {names[0]}", *names[1:]]
    if has_target:
        handles.append(Line2D([], [], color=GREY, linestyle=(0, (5, 3)), linewidth=1))
        labels.append("target")
    if has_stop:
        handles.append(Line2D([], [], color=GREY, linewidth=1.4))
        labels.append("stop")
    if further:
        handles.append(Patch(color=SHADE))
        labels.append("had it gone on")
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 10), fontsize=8, frameon=False)
