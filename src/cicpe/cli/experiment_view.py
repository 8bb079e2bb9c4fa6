"""Experiments that might happen, drawn with letters."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cicpe.units import Scale, Units

if TYPE_CHECKING:
    from cicpe.experiments.predictive import DrawnExperiment, PriorPredictive

WIDTH, HEIGHT = 36, 8
"""Letters of one picture."""
SHADES = " .:-=+*#%@"
LABEL = 8
"""Letters beside a picture, for the values at its edges."""


def pictures(drawn: "PriorPredictive", units: Units) -> list[str]:
    """Lines with two experiments side by side, under each other."""
    assert units.readout is not None
    low, high = (float(edge(draw.truth)) for edge, draw in ((np.min, _lowest(drawn)), (np.max, _highest(drawn))))
    flat = len(drawn.grid) == 1
    panels = [_curve(draw, drawn, units, low, high) if flat else _map(draw, low, high) for draw in drawn.draws]
    if flat:
        labels = [f"{high:.4g}"] + [""] * (HEIGHT - 2) + [f"{low:.4g}"]
        below = _axis(units.settings[0])
    else:
        second = units.settings[1]
        labels = [f"{second.most:.4g}"] + [""] * (HEIGHT - 2) + [f"{second.least:.4g}"]
        below = _axis(units.settings[0])
    lines = []
    for left in range(0, len(panels), 2):
        for number in range(HEIGHT):
            side = f"{labels[number]:>{LABEL}} "
            lines.append(side + "|" + "|   |".join(panel[number] for panel in panels[left : left + 2]) + "|")
        lines.append(" " * (LABEL + 1) + " " + "     ".join([below] * len(panels[left : left + 2])))
    return [*lines, _legend(drawn, units, low, high)]


def _lowest(drawn: "PriorPredictive") -> "DrawnExperiment":
    return min(drawn.draws, key=lambda draw: float(draw.truth.min()))


def _highest(drawn: "PriorPredictive") -> "DrawnExperiment":
    return max(drawn.draws, key=lambda draw: float(draw.truth.max()))


def _axis(scale: Scale) -> str:
    ends = f"{scale.low:.4g}", f"{scale.high:.4g}"
    return ends[0] + " " * (WIDTH - len(ends[0]) - len(ends[1])) + ends[1]


def _legend(drawn: "PriorPredictive", units: Units, low: float, high: float) -> str:
    assert units.readout is not None
    across = _named(units.settings[0])
    unit = f" in {units.readout.unit}" if units.readout.unit else ""
    if len(drawn.grid) == 1:
        return f"{units.readout.name}{unit} over {across}; o the truth, x a reading, | the answer if it is a place"
    up = _named(units.settings[1])
    return f"{units.readout.name} from {low:.4g} (blank) to {high:.4g} (@){unit}; {across} across, {up} upwards"


def _named(scale: Scale) -> str:
    unit = f" ({scale.unit})" if scale.unit else ""
    return f"{scale.name}{unit}" + (", log scale" if scale.log else "")


def _column(share: float) -> int:
    return min(max(int(share * WIDTH), 0), WIDTH - 1)


def _row(value: float, low: float, high: float) -> int:
    share = (value - low) / (high - low) if high > low else 0.5
    return HEIGHT - 1 - min(max(int(share * HEIGHT), 0), HEIGHT - 1)


def _share(scale: Scale, value: float) -> float:
    return (scale.coordinate(value) - scale.start) / scale.extent


def _curve(draw: "DrawnExperiment", drawn: "PriorPredictive", units: Units, low: float, high: float) -> list[str]:
    canvas = [[" "] * WIDTH for _ in range(HEIGHT)]
    across = units.settings[0]
    if units.answers and units.answers[0].name == across.name:
        for row in canvas:
            row[_column(_share(across, float(draw.answer[0])))] = "|"
    for place, value in zip(drawn.grid[0], draw.truth, strict=True):
        canvas[_row(float(value), low, high)][_column(_share(across, float(place)))] = "o"
    for (place, *_), value in zip(draw.read_at, draw.readings, strict=True):
        if low <= value <= high:
            canvas[_row(float(value), low, high)][_column(_share(across, float(place)))] = "x"
    return ["".join(row) for row in canvas]


def _map(draw: "DrawnExperiment", low: float, high: float) -> list[str]:
    rows: Sequence[int] = np.linspace(len(draw.truth) - 1, 0, HEIGHT).round().astype(int).tolist()
    columns: Sequence[int] = np.linspace(0, draw.truth.shape[1] - 1, WIDTH).round().astype(int).tolist()
    scale = (len(SHADES) - 1) / (high - low) if high > low else 0.0
    return ["".join(SHADES[round((draw.truth[i, j] - low) * scale)] for j in columns) for i in rows]
