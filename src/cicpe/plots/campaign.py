"""One campaign on a function of one variable: what was asked and seen, and how sure it was after each measurement."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cicpe.plots.query_space import ANSWER, PathQueries
from cicpe.plots.style import COLOURS, GREY, INK, Array, dress, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@styled
def plot_campaign(campaign: PathQueries, confidence: Array, *, asked: float, title: str | None = None) -> Figure:
    """Draws two panels: the measurements by number with the answer, and the confidence after each of them.

    Args:
        campaign: The hidden function, what was measured of it, and the answer.
        confidence: T + 1: the probability of success after t measurements.
        asked: The confidence at which the campaign may stop.
        title: A line above the panels.

    Returns:
        The figure.
    """
    figure = new_figure(2.9, title=title)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _measurements(left, campaign)
    _confidence(right, confidence, asked)
    for panel in (left, right):
        dress(panel)
    return figure


def _measurements(panel: "Axes", campaign: PathQueries) -> None:
    panel.plot(campaign.place, campaign.value, color=GREY, linewidth=1, linestyle=(0, (2, 2)))
    panel.axhspan(campaign.answer - campaign.std, campaign.answer + campaign.std, color=ANSWER, alpha=0.2, linewidth=0)
    panel.axhline(campaign.answer, color=ANSWER, linewidth=1.4)
    panel.plot(campaign.query, campaign.observation, "o", color=COLOURS[0], markersize=5)
    for number, (x, y) in enumerate(zip(campaign.query, campaign.observation, strict=True), start=1):
        panel.annotate(str(number), (x, y), textcoords="offset points", xytext=(5, -11))
    panel.set_title("What it asked for, and its answer")
    panel.set_xlabel("setting")
    panel.set_ylabel("measurement")


def _confidence(panel: "Axes", confidence: Array, asked: float) -> None:
    panel.axhline(asked, color=COLOURS[1], linewidth=1, linestyle=(0, (5, 3)))
    panel.annotate("asked for", (0, asked), textcoords="offset points", xytext=(0, 4), color=COLOURS[1])
    panel.plot(np.arange(len(confidence)), confidence, color=INK, marker="o", markersize=4)
    panel.set_ylim(0, 1.05)
    panel.set_title("How sure it was")
    panel.set_xlabel("measurements")
    panel.set_ylabel("confidence")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
