"""How a training run went."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from cicpe.plots.style import COLOURS, GREY, Array, dress, new_figure, styled


@styled
def plot_training(
    minutes: Array,
    accuracy: Array,
    queries: Array,
    update: Array,
    losses: Mapping[str, Array],
    *,
    title: str | None = None,
) -> Figure:
    """Draws what the run saw when it looked at itself (left) and its losses (right).

    Args:
        minutes: Of wall-clock, at every look.
        accuracy: At every look.
        queries: Mean number, at every look.
        update: Gradient steps, at every recorded loss.
        losses: Name -> values there.
        title: A line above.

    Returns:
        The figure.
    """
    figure = new_figure(1.0 + 1.3 * max(2, len(losses)), title=title)
    halves: Any = figure.subfigures(1, 2)  # an array of two, which its annotation does not say
    left, right = halves
    looks = left.subplots(2, 1, sharex=True)
    for panel, values, label, colour in (
        (looks[0], accuracy, "accuracy of its own rollouts", COLOURS[0]),
        (looks[1], queries, "mean queries", COLOURS[1]),
    ):
        panel.plot(minutes, values, color=colour, marker="o", markersize=3.5, linewidth=1.3)
        panel.set_ylabel(label)
        dress(panel)
    looks[1].set_ylim(0, 1.1 * float(queries.max()))
    looks[1].set_xlabel("minutes")
    if losses:
        panels = right.subplots(len(losses), 1, sharex=True, squeeze=False)[:, 0]
        for panel, (name, values) in zip(panels, losses.items(), strict=True):
            panel.plot(update, values, color=GREY, linewidth=0.7)
            panel.set_ylabel(f"loss: {name}")
            dress(panel)
        panels[-1].set_xlabel("updates")
    return figure
