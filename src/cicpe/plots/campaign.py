"""One campaign over its steps: what was measured, what the answer would be, and how sure that is."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cicpe.plots.style import GREY, INK, Array, dress, look_of, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@styled
def plot_campaign(
    observation: Array,
    answer: Array,
    region: Array,
    confidence: Array,
    *,
    asked: float,
    stopped: bool = False,
    title: str | None = None,
) -> Figure:
    """Draws three panels over the number of steps.

    Args:
        observation: T x observation: what was measured at each step.
        answer: T + 1 x answer: the recommendation before the first step and after each.
        region: T + 1 x answer x 2: its credible interval.
        confidence: T + 1: the probability that the recommendation is good enough.
        asked: The confidence that was asked for.
        stopped: Whether the campaign has ended by the agent's choice.
        title: A line above the panels.
    """
    figure = new_figure(5.6, title=title)
    measured, believed, sure = figure.subplots(3, 1, sharex=True)
    steps = np.arange(len(answer), dtype=float)
    _lines(measured, steps[1:], observation, "measured")
    _lines(believed, steps, answer, "answer")
    for i in range(answer.shape[1]):
        believed.fill_between(steps, region[:, i, 0], region[:, i, 1], color=look_of(i)[0], alpha=0.15, linewidth=0)
    sure.plot(steps, confidence, color=INK, linewidth=1.6, marker=".")
    sure.axhline(asked, color=GREY, linestyle=(0, (5, 3)), linewidth=1)
    sure.annotate(f"asked for: {asked:g}", (0, asked), textcoords="offset points", xytext=(2, 3), fontsize=8)
    sure.set_ylabel("confidence")
    sure.set_ylim(-0.03, 1.08)
    sure.set_xlabel("step" + (", the last one where it stopped" if stopped else ""))
    sure.xaxis.set_major_locator(MaxNLocator(integer=True))
    sure.set_xlim(-0.3, max(len(steps) - 1, 1) + 0.3)
    for panel in (measured, believed, sure):
        dress(panel)
    return figure


def _lines(panel: "Axes", steps: Array, values: Array, label: str) -> None:
    """One line per coordinate, named where there are several."""
    for i in range(values.shape[1]):
        colour, marker = look_of(i)
        panel.plot(steps, values[:, i], color=colour, marker=marker, markersize=3.5, linewidth=1.2, label=str(i + 1))
    panel.set_ylabel(label)
    if values.shape[1] > 1:
        panel.legend(loc="upper left", ncols=min(values.shape[1], 10), fontsize=7)
