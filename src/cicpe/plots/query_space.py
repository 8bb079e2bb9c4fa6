"""Where an episode asked: in a plane, and on the graph of a function; early queries dark, late ones light."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from matplotlib.ticker import MaxNLocator

from cicpe.plots.style import COLOURS, GREY, INK, SEQUENTIAL, Array, dress, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TARGET, ANSWER = COLOURS[1], COLOURS[3]


class Plane(NamedTuple):
    """An episode in two coordinates of query space."""

    query: Array
    """T x 2."""
    answer: Array
    """The recommendation at the stop."""
    target: Array
    epsilon: float | None
    """Radius of success about the target, where distances in this plane are distances."""
    title: str


class PathQueries(NamedTuple):
    """An episode on a function of one variable."""

    place: Array
    value: Array
    """The function, on a grid of places."""
    query: Array
    observation: Array
    target: float
    """The true maximum."""
    answer: float
    interval: tuple[float, float] | None
    """Where the maximum lies with a probability of 0.9, by the agent's belief."""
    title: str


@styled
def plot_planes(
    episodes: Sequence[Plane],
    low: tuple[float, float],
    high: tuple[float, float],
    *,
    names: tuple[str, str] = ("coordinate 1", "coordinate 2"),
    title: str | None = None,
) -> Figure:
    """Draws queries in the plane, joined in their order, with the target and the answer, one panel per episode.

    Args:
        episodes: One panel each.
        low: The lower left corner of the query space.
        high: Its upper right corner.
        names: Of the two coordinates.
        title: A line above.

    Returns:
        The figure.
    """
    figure = new_figure(2.9 if title is None else 3.3, title=title)
    panels: list[Axes] = list(figure.subplots(1, len(episodes), sharex=True, sharey=True, squeeze=False)[0])
    last = max(len(episode.query) for episode in episodes)
    for panel, episode in zip(panels, episodes, strict=True):
        x, y = episode.query.T
        panel.plot(x, y, color=GREY, linewidth=0.7, alpha=0.6)
        dots = panel.scatter(x, y, c=np.arange(1, len(x) + 1), **_colours(last))
        if episode.epsilon is not None:
            panel.add_patch(Circle(tuple(episode.target), episode.epsilon, facecolor=TARGET, alpha=0.15))
        panel.plot(*episode.target, **_mark("*", TARGET), zorder=4)
        panel.plot(*episode.answer, **_mark("x", ANSWER), zorder=5)
        panel.set_title(episode.title)
        panel.set_xlabel(names[0])
        panel.set_aspect("equal")
        dress(panel)
    panels[0].set_ylabel(names[1])
    pad = [0.05 * (b - a) for a, b in zip(low, high, strict=True)]
    panels[0].set_xlim(low[0] - pad[0], high[0] + pad[0])
    panels[0].set_ylim(low[1] - pad[1], high[1] + pad[1])
    _time_bar(figure, dots, panels)
    handles = [Line2D([], [], **_mark("*", TARGET)), Line2D([], [], **_mark("x", ANSWER))]
    figure.legend(handles, ["target", "answer"], loc="outside lower center", ncols=2)
    return figure


def _mark(marker: str, colour: str) -> dict[str, Any]:
    """Hollow or thin, so that what lies below is seen."""
    size = 13 if marker == "*" else 8
    look = {"markerfacecolor": "none", "markeredgecolor": colour, "markeredgewidth": 1.7, "linestyle": "none"}
    return {"marker": marker, "markersize": size, **look}


@styled
def plot_paths(episodes: Sequence[PathQueries], *, title: str | None = None) -> Figure:
    """Draws functions of one variable with the queries made of them, up to two panels a row.

    Args:
        episodes: One panel each.
        title: A line above.

    Returns:
        The figure.
    """
    columns = min(2, len(episodes))
    rows = -(-len(episodes) // columns)
    figure = new_figure(0.9 + 2.2 * rows, title=title)
    grid = figure.subplots(rows, columns, sharex=True, squeeze=False)
    panels: list[Axes] = list(grid.flat)
    last = max(len(episode.query) for episode in episodes)
    for panel, episode in zip(panels, episodes, strict=False):
        panel.plot(episode.place, episode.value, color=INK, linewidth=1.3)
        panel.axhline(episode.target, color=TARGET, linewidth=1, linestyle=(0, (5, 3)))
        if episode.interval is not None:
            panel.axhspan(*episode.interval, color=ANSWER, alpha=0.2, linewidth=0)
        panel.axhline(episode.answer, color=ANSWER, linewidth=1.2)
        order = np.arange(1, len(episode.query) + 1)
        dots = panel.scatter(episode.query, episode.observation, c=order, zorder=3, **_colours(last))
        panel.set_title(episode.title)
        dress(panel)
    for panel in panels[len(episodes) :]:
        panel.set_visible(False)
    for row in grid:
        row[0].set_ylabel("value")
    for panel in grid[-1]:
        panel.set_xlabel("place, x")
    _time_bar(figure, dots, panels)
    handles = [
        Line2D([], [], color=INK, linewidth=1.3),
        Line2D([], [], color=TARGET, linewidth=1, linestyle=(0, (5, 3))),
        Line2D([], [], color=ANSWER, linewidth=1.2),
    ]
    labels = ["hidden function", "its maximum", "answer, with its 90 % credible interval"]
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _colours(last: int) -> dict[str, Any]:
    return {
        "cmap": SEQUENTIAL,
        "vmin": 1,
        "vmax": max(2, last),
        "s": 26,
        "edgecolors": "#ffffff",
        "linewidths": 0.5,
    }


def _time_bar(figure: Figure, dots: Any, panels: Sequence["Axes"]) -> None:
    bar = figure.colorbar(dots, ax=list(panels), shrink=0.85, pad=0.02, ticks=MaxNLocator(integer=True, nbins=6))
    bar.set_label("query number")
    bar.ax.tick_params(color=INK, labelcolor=INK, labelsize=8)
    bar.outline.set_visible(False)
