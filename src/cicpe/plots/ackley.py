"""How far the values of an Ackley function reach, against its hidden shape."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from matplotlib.figure import Figure

from cicpe.plots.style import Array, dress, look_of, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Reach(NamedTuple):
    """Ranges over a parameter, for one dimension."""

    parameter: Array
    measured: Array
    """The largest value on the search space."""
    normalisation: Array
    """Z of the paper."""


@styled
def plot_ackley_ranges(
    over_decay: Mapping[int, Reach], over_frequency: Mapping[int, Reach], *, title: str | None = None
) -> Figure:
    """Draws the measured range (markers) and the normalisation (lines) against b and c, one colour a dimension."""
    figure = new_figure(3.1, title=title)
    panels: list[Axes] = list(figure.subplots(1, 2, sharey=True))
    for panel, reaches, label in zip(panels, (over_decay, over_frequency), ("b", "c"), strict=True):
        for i, (dim, reach) in enumerate(reaches.items()):
            colour, marker = look_of(i)
            panel.plot(reach.parameter, reach.normalisation, color=colour, linewidth=1.2)
            panel.plot(
                reach.parameter,
                reach.measured,
                color=colour,
                marker=marker,
                markersize=4,
                linestyle="none",
                label=f"d = {dim}",
            )
        panel.set_xlabel(f"{label}" + (", steepness of the funnel" if label == "b" else ", frequency of the ripples"))
        dress(panel)
    panels[0].set_ylabel("range of values")
    panels[0].set_ylim(bottom=0)
    panels[0].legend(title="markers: measured; lines: Z", title_fontsize=8, alignment="left")
    return figure
