"""What the scripts that draw figures share: where they write, which cells, seeds and numbers of tasks."""

import io
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from PIL import Image

import cicpe
from cicpe.agents.base import Agent
from cicpe.plots.style import png
from cicpe.problems import Problem

ROOT = Path(__file__).parent.parent
IMAGES, RESULTS = ROOT / "docs" / "images", ROOT / "docs" / "results"
DELTA, SEED, EPISODES = 0.1, 30_000, 1000
HARDEST = {
    **{f"binary-search-{dim}d": (0.1, 0.05) for dim in (6, 8, 10, 20)},
    **{f"best-arm-{dim}d": (0.005, 0.0025) for dim in (5, 10, 15)},
    **{f"ackley-{dim}d": (0.1, 0.05) for dim in (3, 4, 5)},
    "gp-max-1d": (0.15, 0.075),
    "geochem-2d": (0.15, 0.0),
}
"""Model -> the (epsilon, noise) that takes it most queries of those in the paper."""


class Drawn(NamedTuple):
    """A figure and the words below it."""

    figure: Figure
    caption: str


def counted(numbers: set[int]) -> str:
    """Numbers of tasks in words: "500", or "200 to 1,000"."""
    return " to ".join(f"{number:,}" for number in dict.fromkeys((min(numbers), max(numbers))))


def played(name: str) -> tuple[Agent, Problem, float]:
    """A model of the zoo at its hardest cell: the agent, its tasks, and epsilon."""
    epsilon, noise = HARDEST[name]
    model = cicpe.load(name)
    return model.agent(epsilon, DELTA), model.tasks({"noise": noise}), epsilon


def small_png(figure: Figure) -> bytes:
    """The figure as a picture of 256 colours: about a third of the size, and nobody sees the difference."""
    picture = Image.open(io.BytesIO(png(figure))).convert("RGB")
    file = io.BytesIO()
    few = picture.quantize(colors=256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    few.save(file, format="png", optimize=True)
    return file.getvalue()
