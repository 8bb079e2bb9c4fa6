"""A search in the plane as a map: the hidden field, the queries by number, the answer, and where it would be right."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import AbstractPathEffect, withStroke

from cicpe.plots.style import COLOURS, INK, Array, dress, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh

FIELD = "cividis"
"""Reads the same with and without colour blindness, and in grey; orange and pink stand out on all of it."""
TARGET, ANSWER = COLOURS[1], COLOURS[3]
DARK, LIGHT = "#111111", "#fefefe"
"""On the field, whose colours do not follow the page: nor do these."""
EDGE: list[AbstractPathEffect] = [withStroke(linewidth=2.6, foreground=DARK)]
"""A dark line below a light one: seen on any colour of the field."""
COLUMNS = 3
"""Panels in a row, at most."""


class Map(NamedTuple):
    """An episode on a field of two coordinates."""

    field: Array
    """side x side: values on an even grid of the query space, the first coordinate first."""
    loss: Array
    """The loss of an answer at every point of the same grid."""
    epsilon: float
    """Where the loss is at most this, an answer is right."""
    query: Array
    """T x 2, in their order."""
    answer: Array
    target: Array
    title: str


@styled
def plot_maps(
    episodes: Sequence[Map],
    low: tuple[float, float],
    high: tuple[float, float],
    *,
    names: tuple[str, str] = ("coordinate 1", "coordinate 2"),
    title: str | None = None,
) -> Figure:
    """Draws small maps side by side, the colours of each from its own lowest value to its highest.

    Args:
        episodes: One panel each.
        low: The lower left corner of the query space.
        high: Its upper right corner.
        names: Of the two coordinates.
        title: A line above.

    Returns:
        The figure.
    """
    columns = len(episodes) if len(episodes) <= COLUMNS else (2 if len(episodes) == 4 else COLUMNS)
    rows = -(-len(episodes) // columns)
    lines = max(episode.title.count("\n") for episode in episodes) + 1
    figure = new_figure(0.9 + rows * (5.5 / columns + 0.2 * lines), title=title)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    panels: list[Axes] = list(grid.flat)
    for panel, episode in zip(panels, episodes, strict=False):
        mesh = _draw(panel, episode, low, high, size=3.4 + 3.6 / columns)
    for panel in panels[len(episodes) :]:
        panel.set_visible(False)
    for row in grid:
        row[0].set_ylabel(names[1])
    for panel in grid[-1]:
        panel.set_xlabel(names[0])
    bar = figure.colorbar(mesh, ax=panels, shrink=0.6, pad=0.02, ticks=mesh.get_clim())
    lowest, highest = bar.ax.set_yticklabels(["lowest", "highest"], rotation=90)
    lowest.set_verticalalignment("bottom")
    highest.set_verticalalignment("top")
    bar.set_label("value in each panel")
    bar.ax.tick_params(color=INK, labelcolor=INK, labelsize=8)
    bar.outline.set_visible(False)
    _legend(figure)
    return figure


def _draw(panel: "Axes", episode: Map, low: tuple[float, float], high: tuple[float, float], size: float) -> "QuadMesh":
    """One map; ``size`` is that of the numbers, in points."""
    axes = [np.linspace(a, b, n) for a, b, n in zip(low, high, episode.field.shape, strict=True)]
    mesh = panel.pcolormesh(*axes, episode.field.T, cmap=FIELD, shading="gouraud", rasterized=True)
    if episode.loss.min() < episode.epsilon < episode.loss.max():  # otherwise there is no edge to draw
        edge = panel.contour(*axes, episode.loss.T, levels=[episode.epsilon], colors=[LIGHT], linewidths=1.3)
        edge.set_path_effects(EDGE)
    for number, (x, y) in enumerate(episode.query, start=1):
        disc = {"boxstyle": "circle,pad=0.22", "facecolor": LIGHT, "edgecolor": DARK, "linewidth": 0.5}
        panel.text(x, y, str(number), ha="center", va="center", fontsize=size, color=DARK, bbox=disc, zorder=3)
    panel.plot(*episode.target, **_mark("*", TARGET, 2.0 * size), zorder=4, clip_on=False)
    panel.plot(*episode.answer, **_mark("X", ANSWER, 1.3 * size), zorder=5, clip_on=False)
    panel.set_title(episode.title)
    panel.set_xlim(low[0], high[0])
    panel.set_ylim(low[1], high[1])
    panel.set_box_aspect(1)
    dress(panel, grid=False)
    return mesh


def _mark(marker: str, colour: str, size: float) -> dict[str, Any]:
    """Filled, with a light edge: seen on any colour of the field."""
    edge = {"markerfacecolor": colour, "markeredgecolor": LIGHT, "markeredgewidth": 0.8}
    return {"marker": marker, "markersize": size, "linestyle": "none", **edge}


def _legend(figure: Figure) -> None:
    handles = [
        Line2D([], [], marker="o", markersize=8, markerfacecolor=LIGHT, markeredgecolor=DARK, linestyle="none"),
        Line2D([], [], **_mark("X", ANSWER, 9)),
        Line2D([], [], **_mark("*", TARGET, 13)),
        Line2D([], [], color=LIGHT, linewidth=1.3, path_effects=EDGE),
    ]
    labels = ["query, by number", "answer", "target", "answers within epsilon"]
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
