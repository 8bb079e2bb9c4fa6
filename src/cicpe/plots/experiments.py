"""Experiments that might happen, side by side, in units."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from cicpe.plots.style import COLOURS, SEQUENTIAL, Array, dress, new_figure, styled


@styled
def plot_curves(
    place: Array,
    curves: Sequence[Array],
    readings: Sequence[tuple[Array, Array]],
    answers: Sequence[float | None],
    names: tuple[str, str],
    *,
    log: bool = False,
    title: str | None = None,
) -> Figure:
    """Draws curves of one setting with readings on them, a panel each.

    Args:
        place: Values of the setting.
        curves: The truth of each experiment there.
        readings: Where each was read, and what.
        answers: Where on the axis the answer of each is; None where it is no place.
        names: What is on the axes.
        log: Whether the setting is on a log scale.
        title: Above all.
    """
    rows = (len(curves) + 3) // 4
    figure = new_figure(1.7 * rows + 0.6, title=title)
    panels = figure.subplots(rows, 4, sharex=True, sharey=True, squeeze=False)
    for axes, curve, (at, value), answer in zip(panels.flat, curves, readings, answers, strict=False):
        axes.plot(place, curve, color=COLOURS[0], linewidth=1.5)
        axes.plot(at, value, "o", color=COLOURS[1], markersize=2.5)
        if answer is not None:
            axes.axvline(answer, color=COLOURS[2], linewidth=1, linestyle="--")
        if log:
            axes.set_xscale("log")
        dress(axes)
    for axes in panels[-1]:
        axes.set_xlabel(names[0])
    for axes in panels[:, 0]:
        axes.set_ylabel(names[1])
    return figure


@styled
def plot_surfaces(
    grid: tuple[Array, Array],
    surfaces: Sequence[Array],
    answers: Sequence[tuple[float, float] | None],
    names: tuple[str, str, str],
    *,
    log: tuple[bool, bool] = (False, False),
    title: str | None = None,
) -> Figure:
    """Draws functions of two settings, a panel each with its answer.

    Args:
        grid: Values of the two settings.
        surfaces: The truth of each experiment, a row per value of the second setting.
        answers: The answer of each as a place; None where it is none.
        names: Of the settings, and of what is measured.
        log: Which settings are on a log scale.
        title: Above all.
    """
    rows = (len(surfaces) + 3) // 4
    figure = new_figure(1.8 * rows + 0.6, title=title)
    panels = figure.subplots(rows, 4, sharex=True, sharey=True, squeeze=False)
    low, high = min(surface.min() for surface in surfaces), max(surface.max() for surface in surfaces)
    drawn = None
    for axes, surface, answer in zip(panels.flat, surfaces, answers, strict=False):
        drawn = axes.pcolormesh(*grid, surface, cmap=SEQUENTIAL, vmin=low, vmax=high, shading="nearest")
        if answer is not None:
            axes.plot(*answer, "x", color=COLOURS[1], markersize=6)
        if log[0]:
            axes.set_xscale("log")
        if log[1]:
            axes.set_yscale("log")
    for axes in panels[-1]:
        axes.set_xlabel(names[0])
    for axes in panels[:, 0]:
        axes.set_ylabel(names[1])
    if drawn is not None:
        figure.colorbar(drawn, ax=panels, label=names[2], shrink=0.8)
    return figure
