"""The page of benchmarks/growth.py: docs/results/growth.md and its figure, from docs/results/growth.json."""

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cicpe.plots.growth import GrowthCurve, GrowthPanel, plot_growth
from cicpe.plots.style import png

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
FILE, PAGE, IMAGE = RESULTS / "growth.json", RESULTS / "growth.md", ROOT / "docs" / "images" / "growth.png"
FARTHEST = 100
"""How many times the largest measured size a curve is carried on; farther would be a guess."""
NOTES = RESULTS / "notes" / "growth.md"


class Words(NamedTuple):
    """How a study is shown."""

    title: str
    xlabel: str
    ylabel: str
    size: str
    unit: str
    limit: float
    limit_words: str


WORDS = {
    "queries-by-dimension": Words(
        "One query, by dimension", "dimension, d", "ms per query", "d", "ms", 100.0, "100 ms per query"
    ),
    "updates-by-dimension": Words(
        "One update, by dimension", "dimension, d", "s per update", "d", "s", 1.0, "a second per update"
    ),
    "queries-by-number": Words(
        "The t-th query of an episode", "queries so far, t", "ms per query", "t", "ms", 100.0, "100 ms per query"
    ),
    "updates-by-horizon": Words(
        "One update, by horizon", "horizon, T", "s per update", "T", "s", 1.0, "a second per update"
    ),
    "evaluation-by-episodes": Words("Evaluation", "episodes", "s in all", "episodes", "s", 600.0, "ten minutes"),
    "memory-by-dimension": Words("Memory of training", "dimension, d", "MB at the peak", "d", "MB", 4096.0, "4 GB"),
}


def read() -> dict[str, Any]:
    return dict(json.loads(FILE.read_text())) if FILE.exists() else {}


def write(results: dict[str, Any]) -> None:
    rounded = json.loads(json.dumps(results), parse_float=lambda text: float(f"{float(text):.4g}"))
    FILE.write_text(json.dumps(rounded, indent=1) + "\n")


def curve_of(points: list[dict[str, float]]) -> GrowthCurve:
    return GrowthCurve(*(np.array([p[key] for p in points]) for key in ("size", "value", "low", "high")))


def power(points: list[dict[str, float]]) -> float:
    """The slope of the logarithms over the upper half of the sizes: 1 where cost grows as the size does."""
    upper = points[-max(2, math.ceil(len(points) / 2)) :]
    x, y = (np.log([p[key] for p in upper]) for key in ("size", "value"))
    return float(np.polyfit(x, y, 1)[0])


def reached(points: list[dict[str, float]], limit: float) -> str:
    """The size at which a limit is reached: measured, or carried on from the upper half of the sizes."""
    for p in points:
        if p["value"] >= limit:
            return f"{p['size']:g} (measured)"
    slope, last = power(points), points[-1]
    if slope < 0.05:
        return "no size: flat"
    times = math.log(limit / last["value"]) / slope
    if times > math.log(FARTHEST):
        return f"more than {FARTHEST} times the largest size here"
    size = float(f"{last['size'] * math.exp(times):.2g}")
    return f"about {size:,.0f}, carried on"


def section(name: str, curves: dict[str, list[dict[str, float]]]) -> list[str]:
    words = WORDS[name]
    sizes = sorted({p["size"] for points in curves.values() for p in points})
    head = [f"{words.size} = {size:g}" for size in sizes]
    lines = [
        "",
        f"## {words.title}",
        "",
        f"{words.unit}, median of the repetitions. *Power*: the slope of the logarithms over the upper half of the sizes.",
    ]
    lines += ["", f"| | {' | '.join(head)} | power | {words.limit_words} at |", "|---" * (len(head) + 3) + "|"]
    for label, points in curves.items():
        by_size = {p["size"]: p["value"] for p in points}
        cells = [f"{by_size[size]:.3g}" if size in by_size else "" for size in sizes]
        lines.append(f"| {label} | {' | '.join(cells)} | {power(points):.2f} | {reached(points, words.limit)} |")
    return lines


def page(results: dict[str, Any]) -> str:
    about = results["about"]
    lines = [
        "# How cost grows",
        "",
        f"Written by `python benchmarks/growth.py` on {about['date']} ({about['machine']}, one thread, torch {about['torch']}; seed 0). "
        "Processor time, not wall-clock: the machine had other work, which still shows in times by some tens of per cent. Lines are medians of three repetitions (of 20 queries "
        "each for queries by dimension, of three neighbouring queries for the t-th; one for memory), bands their quartiles, "
        "dashed lines where it begins to hurt.",
        "",
        "![How cost grows](../images/growth.png)",
    ]
    for name in WORDS:
        if name in results:
            lines += section(name, results[name])
    return "\n".join([*lines, ""]) + ("\n" + NOTES.read_text() if NOTES.exists() else "")


def write_page(results: dict[str, Any]) -> None:
    panels = [
        GrowthPanel(
            w.title, w.xlabel, w.ylabel, {label: curve_of(points) for label, points in results[name].items()}, w.limit
        )
        for name, w in WORDS.items()
        if name in results
    ]
    IMAGE.write_bytes(png(plot_growth(panels), dpi=110))
    PAGE.write_text(page(results))
