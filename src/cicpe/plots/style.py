"""The look of every figure: colours that everyone can tell apart, sizes for a page, and how to save."""

import io
import re
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, final

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

P = ParamSpec("P")
Array = npt.NDArray[np.floating]
Curve = tuple[Array, Array, Array]
"""A line over t = 0, 1, ... with the two edges of its band."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito: told apart by people with any common colour blindness."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""A second way to tell things apart, for print in grey."""
SEQUENTIAL = "viridis"
"""For time and for amounts."""
INK, GREY, GRID, SHADE = "#1a1a1a", "#595959", "#dddddd", "#eeeeee"
WIDTH = 7.2
"""Inches: a page's."""
LABELS: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "axes.titlelocation": "left",
    "figure.titlesize": 10.5,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
}
THEME = {
    INK: "currentColor",
    "#000000": "currentColor",
    GREY: "var(--muted)",
    GRID: "var(--rule)",
    SHADE: "var(--shade)",
}
"""Colours of a figure that follow the page around it."""


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Gives everything that a figure function makes the house's fonts and colours."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with rc_context(LABELS):
            return draw(*args, **kwargs)

    return drawn


@final
class HouseFigure(Figure):
    """A figure that a notebook shows, whatever backend it has chosen."""

    def _repr_png_(self) -> bytes:
        return png(self)


def new_figure(height: float, width: float = WIDTH, title: str | None = None) -> Figure:
    """An empty figure, its title above everything."""
    figure = HouseFigure(figsize=(width, height), layout="constrained")
    if title is not None:
        figure.suptitle(title)
    return figure


def dress(panel: "Axes", grid: bool = True) -> None:
    """Axes in the house style: a faint grid behind, no frame above and to the right."""
    panel.set_axisbelow(True)
    panel.grid(False)
    if grid:
        panel.grid(True, color=GRID, linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)
    panel.spines[["bottom", "left"]].set_color(INK)
    panel.tick_params(which="both", color=INK, labelcolor=INK, labelsize=8)


def look_of(i: int) -> tuple[str, str]:
    """Colour and marker of the i-th thing; pairs repeat after 49."""
    return COLOURS[i % len(COLOURS)], MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]


def png(figure: Figure, dpi: int = 150) -> bytes:
    """The figure as a picture."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})
    return file.getvalue()


def svg(figure: Figure) -> str:
    """The figure as an element of a page, whose text colour and custom properties it follows; no links in it."""
    file = io.StringIO()
    with rc_context({"svg.hashsalt": "cicpe", "svg.fonttype": "path"}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:xlink)?="[^"]*"', "", text)
    for colour, name in THEME.items():
        text = text.replace(colour, name)
    return text
