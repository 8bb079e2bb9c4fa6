"""A model under other priors, as heat maps."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cicpe.plots.style import INK, Array, dress, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh

COLUMNS = 2
"""Heat maps in a row, at most."""
MAP = "cividis"
DARK, LIGHT = "#111111", "#fefefe"


Panel = tuple[str, Array, Array | None, Array | None]
"""Name, value, lower and upper end of an interval, each alpha x beta; a bound has no interval."""


@styled
def plot_robustness(
    alpha: Sequence[float],
    beta: Sequence[float],
    panels: Sequence[Panel],
    *,
    matched: tuple[float, float] = (1.0, 1.0),
    scales: Sequence[tuple[float, float]] = (),
    title: str | None = None,
) -> Figure:
    """Draws one heat map per quantity over the grid of Beta(alpha, beta) priors, two in a row.

    Args:
        alpha: Values of alpha, the rows.
        beta: Values of beta, the columns.
        panels: What to draw; every cell shows its value, and its interval where there is one.
        matched: The training prior: it is boxed.
        scales: For every panel, the values at the two ends of its colours; its own extremes where none are given.
        title: A line above.

    Returns:
        The figure.
    """
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(3.9 * rows, title=title)
    grid = figure.subplots(rows, columns, squeeze=False)
    ends: Sequence[tuple[float | None, float | None]] = scales or [(None, None)] * len(panels)
    for panel, (name, value, low, high), (least, most) in zip(grid.flat, panels, ends, strict=False):
        mesh = panel.pcolormesh(value, cmap=MAP, vmin=least, vmax=most, edgecolors="face", linewidth=0.2)
        _write_cells(panel, mesh, value, None if low is None or high is None else (low, high))
        if matched[0] in alpha and matched[1] in beta:
            corner = (list(beta).index(matched[1]), list(alpha).index(matched[0]))
            panel.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="white", linewidth=4))
            panel.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="#d55e00", linewidth=2))
        panel.set_xticks(np.arange(len(beta)) + 0.5, [f"{b:g}" for b in beta])
        panel.set_yticks(np.arange(len(alpha)) + 0.5, [f"{a:g}" for a in alpha])
        panel.set_xlabel(r"$\beta$ of the prior")
        panel.set_ylabel(r"$\alpha$ of the prior")
        panel.set_title(name)
        dress(panel, grid=False)
        panel.spines[:].set_visible(False)
        panel.tick_params(length=0)
        bar = figure.colorbar(mesh, ax=panel, location="bottom", shrink=0.8, pad=0.03)
        bar.ax.tick_params(color=INK, labelcolor=INK, labelsize=8)
        bar.outline.set_visible(False)
    return figure


def _write_cells(panel: "Axes", mesh: "QuadMesh", value: Array, interval: tuple[Array, Array] | None) -> None:
    """Puts the value of every cell on it, in a colour that its own can carry."""
    levels = np.asarray(mesh.norm(value))
    for i, j in np.ndindex(value.shape):
        colour = DARK if sum(colormaps[MAP](float(levels[i, j]))[:3]) > 1.5 else LIGHT
        text = _short(float(value[i, j]))
        if interval is not None:
            text += "\n{}-{}".format(*(_short(float(end[i, j])) for end in interval))
        panel.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=6.5, color=colour, linespacing=1.3)


def _short(value: float) -> str:
    """At most four signs: 0.91, 12.3."""
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
