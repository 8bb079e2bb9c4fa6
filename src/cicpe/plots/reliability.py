"""Is a confidence of 0.9 right nine times out of ten?"""

from typing import NamedTuple

from matplotlib.figure import Figure

from cicpe.plots.style import COLOURS, GREY, Array, dress, new_figure, styled


class AtTheStop(NamedTuple):
    """Episodes as they ended: their mean confidence and their accuracy."""

    confidence: float
    accuracy: float
    accuracy_ci: tuple[float, float]


@styled
def plot_reliability(
    confidence: Array,
    accuracy: Array,
    low: Array,
    high: Array,
    count: Array,
    *,
    stop: AtTheStop | None = None,
    title: str | None = None,
) -> Figure:
    """Draws the share of right answers against the confidence in them, and how often each confidence occurs.

    Args:
        confidence: Mean confidence in each bin.
        accuracy: Share of right answers in each bin.
        low: Lower ends of its 95 % interval.
        high: Upper ends.
        count: Episodes in each bin.
        stop: The same at the stop, drawn as a diamond.
        title: A line above.

    Returns:
        The figure.
    """
    figure = new_figure(4.3, width=5.0, title=title)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    top.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=(0, (4, 2)), label="as confident as right")
    top.errorbar(
        confidence,
        accuracy,
        yerr=[accuracy - low, high - accuracy],
        color=COLOURS[0],
        marker="o",
        markersize=4.5,
        linestyle="none",
        elinewidth=1.4,
        label="after a random number of queries, 95 %",
    )
    if stop is not None:
        below, above = stop.accuracy - stop.accuracy_ci[0], stop.accuracy_ci[1] - stop.accuracy
        top.errorbar(
            [stop.confidence],
            [stop.accuracy],
            yerr=[[below], [above]],
            color=COLOURS[1],
            marker="D",
            markersize=6,
            linestyle="none",
            elinewidth=1.4,
            label="at the stop",
        )
    top.set_ylabel("right answers")
    top.set_ylim(-0.03, 1.03)
    top.set_aspect("auto")
    top.legend(loc="upper left")
    bottom.bar(confidence, count, width=0.03, color=COLOURS[5])
    bottom.set_ylabel("episodes")
    bottom.set_xlabel("confidence")
    bottom.set_xlim(-0.03, 1.03)
    for panel in (top, bottom):
        dress(panel)
    return figure
