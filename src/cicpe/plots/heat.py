"""A model under other priors, as heat maps."""

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cicpe.plots.style import INK, Array, dress, new_figure, styled

MAP = "cividis"
DARK, LIGHT = "#111111", "#fefefe"


@styled
def plot_robustness(
    alpha: Sequence[float],
    beta: Sequence[float],
    panels: Sequence[tuple[str, Array, Array, Array]],
    *,
    matched: tuple[float, float] = (1.0, 1.0),
    title: str | None = None,
) -> Figure:
    """Draws one heat map a quantity over the grid of Beta(alpha, beta) priors, each cell with its 95 % interval.

    Args:
        alpha: Values of alpha, the rows.
        beta: Values of beta, the columns.
        panels: Name, value, lower and upper end, each alpha x beta.
        matched: The training prior: it is boxed.
        title: A line above.

    Returns:
        The figure.
    """
    figure = new_figure(3.9, title=title)
    for panel, (name, value, low, high) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        mesh = panel.pcolormesh(value, cmap=MAP, edgecolors="face", linewidth=0.2)
        for i, j in np.ndindex(value.shape):
            level = mesh.norm(float(value[i, j]))
            colour = DARK if sum(colormaps[MAP](level)[:3]) > 1.5 else LIGHT
            shown = (_short(float(of[i, j])) for of in (value, low, high))
            text = "{}\n{}-{}".format(*shown)
            panel.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=6.5, color=colour, linespacing=1.3)
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


def _short(value: float) -> str:
    """At most four signs: 0.91, 12.3."""
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
