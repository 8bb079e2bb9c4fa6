"""Which reading of the paper's text is its GP maximum? Its two estimates without a model, under several readings.

    python benchmarks/gp_reading.py            # about a minute on one core; writes docs/results/gp-reading.md and .json

The paper gives the accuracy of uniform bins and of the top 5 % of uniform queries at its own budgets. Both are defined
in a sentence each, have nothing to learn, and see only how wiggly the functions are: they say which functions the paper
has drawn. Every reading of the kernel, the domain and the grid is combined with every reading of the two estimates.
"""

import argparse
import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

OUT = Path(__file__).parent.parent / "docs" / "results"
CELLS = ((0.2, 0.05, 13.7), (0.2, 0.1, 22.7), (0.15, 0.0375, 39.9), (0.15, 0.075, 43.7))
"""Epsilon, noise, and the queries of the paper's agent, to which the budgets are tied."""
BINS = (0.130, 0.176, 0.230, 0.226)
TOP = (0.648, 0.672, 0.762, 0.696)
PUBLISHED_TASKS = 500
"""By the width of the published intervals, [.606, .690] about .648."""
FIT = 15.5
"""The 95 % point of chi-square with eight degrees of freedom."""


@dataclass(frozen=True)
class Functions:
    """A reading of the functions."""

    words: str
    shorter: float = 1.0
    """How many times shorter the length scale is than in exp(-r^2 / (2 l^2)) on [0, 1]."""
    grid: int = 512
    ring: int = 2
    """Grids in the ring of the circulant embedding; with 1 the function is periodic."""
    kernel: str = "rbf"
    lengthscale: tuple[float, float] = (0.05, 0.2)
    log_uniform: bool = False


SHORTER = (1.1, 1.15, 1.2, 1.25, 1.3, 1.35, 1.5)
"""Factors that no sentence names: by them it is known how much shorter the length scales would have to be."""
FUNCTIONS = (
    Functions("exp(-r²/(2 l²)) on [0, 1], l uniform: the text as it stands"),
    Functions("exp(-r²/l²): the kernel without its 2", shorter=math.sqrt(2)),
    Functions("the same length scales on [-1, 1]", shorter=2.0),
    Functions("periodic: a ring of the size of the grid (embedding without padding)", ring=1),
    Functions("l log-uniform in its range", log_uniform=True),
    Functions("Matérn 5/2 in place of RBF", kernel="matern"),
    Functions("a grid of 64 points, linear between them", grid=64),
    Functions("a grid of 32 points, linear between them", grid=32),
    Functions("l uniform from 0.05 to 0.15", lengthscale=(0.05, 0.15)),
    *(Functions(f"{factor:g} times shorter (no sentence says so)", shorter=factor) for factor in SHORTER),
)


@dataclass(frozen=True)
class Estimates:
    """A reading of the two estimates."""

    budget: str
    """How a mean number of queries becomes a whole one: round, ceil or floor."""
    per_bin: str
    """Queries of a bin: the budget dealt out in turn, or budget / bins of them rounded down or up."""
    share: str
    """How 5 % of the queries become a whole number: ceil, or floor but at least one."""


ESTIMATES = tuple(
    Estimates(*parts)
    for parts in itertools.product(("round", "ceil", "floor"), ("in turn", "floor", "ceil"), ("ceil", "floor"))
)


def draw_functions(reading: Functions, n: int, rng: np.random.Generator) -> np.ndarray:
    """n functions on the grid of [0, 1], exactly Gaussian: the kernel is summed both ways round the ring."""
    low, high = reading.lengthscale
    drawn = rng.random(n)
    scale = (low * (high / low) ** drawn if reading.log_uniform else low + (high - low) * drawn) / reading.shorter
    points = reading.ring * reading.grid
    steps = np.arange(points)
    lags = np.stack([steps, points - steps]) / (reading.grid - 1)
    away = lags[None] / scale[:, None, None]
    if reading.kernel == "matern":
        away = math.sqrt(5) * away
        row = ((1 + away + away**2 / 3) * np.exp(-away)).sum(axis=1)
    else:
        row = np.exp(-0.5 * away**2).sum(axis=1)
    if reading.ring == 1:
        row = row / row[:, :1]  # unit variance, which the sum both ways round would exceed
    root = np.sqrt(np.fft.rfft(row).real.clip(0))
    path: np.ndarray = np.fft.irfft(np.fft.rfft(rng.standard_normal((n, points))) * root, n=points)
    return path[:, : reading.grid]


def observe(values: np.ndarray, place: np.ndarray, noise: float, rng: np.random.Generator) -> np.ndarray:
    """Noisy values at places in [0, 1], linear between grid points."""
    at = place * (values.shape[1] - 1)
    cell = np.minimum(at.astype(int), values.shape[1] - 2)
    rows = np.arange(len(values))[:, None]
    exact = values[rows, cell] + (at - cell) * (values[rows, cell + 1] - values[rows, cell])
    return exact + noise * rng.standard_normal(place.shape)


def whole(number: float, how: str) -> int:
    return {"round": round, "ceil": math.ceil, "floor": math.floor}[how](number)


@dataclass(frozen=True, eq=False)
class Scored:
    """Some functions, and the scores of the two estimates on them; a reading of an estimate is scored once."""

    values: np.ndarray
    seed: int

    @cache  # noqa: B019  the script ends with them
    def bins(self, budget_by: str, per_bin: str) -> list[float]:
        return [self._bins(cell, budget_by, per_bin) for cell in CELLS]

    @cache  # noqa: B019
    def top(self, budget_by: str, share_by: str) -> list[float]:
        return [self._top(cell, budget_by, share_by) for cell in CELLS]

    def _bins(self, cell: tuple[float, float, float], budget_by: str, per_bin: str) -> float:
        epsilon, noise, mean_queries = cell
        rng = np.random.default_rng(self.seed)
        budget, bins = whole(mean_queries, budget_by), math.ceil(math.sqrt(mean_queries))
        own = np.arange(budget if per_bin == "in turn" else whole(budget / bins, per_bin) * bins) % bins
        place = (own + rng.random((len(self.values), len(own)))) / bins
        seen = observe(self.values, place, noise, rng)
        best = np.max([seen[:, own == b].mean(axis=1) for b in range(bins)], axis=0)
        return self._right(best, epsilon)

    def _top(self, cell: tuple[float, float, float], budget_by: str, share_by: str) -> float:
        epsilon, noise, mean_queries = cell
        rng = np.random.default_rng(self.seed + 1)
        budget = whole(mean_queries, budget_by)
        kept = max(1, whole(0.05 * budget, share_by))
        seen = observe(self.values, rng.random((len(self.values), budget)), noise, rng)
        return self._right(np.sort(seen, axis=1)[:, -kept:].mean(axis=1), epsilon)

    def _right(self, estimate: np.ndarray, epsilon: float) -> float:
        return float((abs(estimate - self.values.max(axis=1)) <= epsilon).mean())


def misfit(scores: list[float], published: tuple[float, ...], tasks: int) -> float:
    """Sum of squared differences in standard errors of both."""
    sampling = 1 / PUBLISHED_TASKS + 1 / tasks
    return sum((a - b) ** 2 / (b * (1 - b) * sampling) for a, b in zip(scores, published, strict=True))


def measured(tasks: int, seed: int) -> Iterator[dict[str, Any]]:
    """Every reading of the functions with that reading of the estimates under which it fits best."""
    for reading in FUNCTIONS:
        scored, rows = Scored(draw_functions(reading, tasks, np.random.default_rng(seed)), seed), []
        for how in ESTIMATES:
            bins, top = scored.bins(how.budget, how.per_bin), scored.top(how.budget, how.share)
            off = misfit(bins, BINS, tasks) + misfit(top, TOP, tasks)
            rows.append({"bins": bins, "top": top, "misfit": off, "estimates": vars(how)})
        best = min(rows, key=lambda row: row["misfit"])
        plain = next(row for row in rows if row["estimates"] == vars(Estimates("round", "in turn", "ceil")))
        yield {"functions": reading.words, "best": best, "as_we_read": plain}


def page(kept: dict[str, Any]) -> str:
    rows, tasks, seed = kept["rows"], kept["tasks"], kept["seed"]
    lines = [
        "# Which functions are the paper's GP maximum?",
        "",
        f"Written by `python benchmarks/gp_reading.py`: {tasks} tasks per reading (a standard error of at most "
        f"{0.5 / math.sqrt(tasks):.3f}), seed {seed}. Entries are the accuracy of *uniform bins / top 5 %* at the paper's budgets of "
        "13.7, 22.7, 39.9 and 43.7 queries. The misfit is chi-square over the eight figures, with the paper's own 500 tasks; "
        f"a reading under which the paper could have drawn its figures has less than {FIT:g} in 19 cases of 20. The estimates are read "
        f"in {len(ESTIMATES)} ways (the budget to the nearest, up or down; bins of equal size or dealt in turn; 5 % up or down), "
        "and the best of them counts.",
        "",
        "| functions | (0.2, 0.05) | (0.2, 0.1) | (0.15, 0.0375) | (0.15, 0.075) | misfit | misfit as our baselines read them |",
        "|---|---|---|---|---|---|---|",
        "| *the paper* | " + " | ".join(f"{b:.3f} / {t:.3f}" for b, t in zip(BINS, TOP, strict=True)) + " | | |",
    ]
    for row in sorted(rows, key=lambda row: row["best"]["misfit"]):
        best = row["best"]
        entries = " | ".join(f"{b:.3f} / {t:.3f}" for b, t in zip(best["bins"], best["top"], strict=True))
        lines.append(f"| {row['functions']} | {entries} | {best['misfit']:.1f} | {row['as_we_read']['misfit']:.1f} |")
    if "agents" in kept:
        lines += ["", *agents_table(kept["agents"])]
    notes = OUT / "notes" / "gp-reading.md"
    return "\n".join([*lines, ""]) + ("\n" + notes.read_text() if notes.exists() else "")


def agents_table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Our agents under both readings, as benchmarks/gp_reading_agents.py has measured them: a line for each."""
    cells = list(dict.fromkeys((row["epsilon"], row["noise"]) for row in rows))
    yield "## Our agents on the reading that fits"
    yield ""
    yield (
        f"Written by `python benchmarks/gp_reading_agents.py`: *accuracy / mean queries* at delta {rows[0]['delta']:g}, "
        f"{rows[0]['episodes']:,} fresh tasks per cell, seed 30000, half a 95 % interval of at most "
        f"{max((r['accuracy_ci'][1] - r['accuracy_ci'][0]) / 2 for r in rows):.3f} and "
        f"{max((r['mean_queries_ci'][1] - r['mean_queries_ci'][0]) / 2 for r in rows):.1f}. A star means that no threshold was "
        "safe, and that every query was made."
    )
    yield ""
    yield "| agent | tasks | " + " | ".join(f"({epsilon:g}, {noise:g})" for epsilon, noise in cells) + " |"
    yield "|---" * (len(cells) + 2) + "|"
    published = (0.906, 0.910, 0.920, 0.930)
    entries = [f"{accuracy:.3f} / {cell[2]:g}" for accuracy, cell in zip(published, CELLS, strict=True)]
    yield "| *the paper's TD3* | its own | " + " | ".join(entries) + " |"
    for agent, on in dict.fromkeys((row["agent"], row["on"]) for row in rows):
        own = {(r["epsilon"], r["noise"]): r for r in rows if (r["agent"], r["on"]) == (agent, on)}
        entries = [
            f"{own[cell]['accuracy']:.3f} / {own[cell]['mean_queries']:.1f}{' *' * (own[cell]['stop'] == 'never')}"
            for cell in cells
        ]
        yield f"| {agent} | {on} | " + " | ".join(entries) + " |"


def write(kept: dict[str, Any]) -> None:
    """Keeps the figures, and writes the page from them."""
    (OUT / "gp-reading.json").write_text(json.dumps(kept, indent=1) + "\n")
    (OUT / "gp-reading.md").write_text(page(kept))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rows = []
    for row in measured(arguments.tasks, arguments.seed):
        rows.append(row)
        print(json.dumps(row), flush=True)
    file = OUT / "gp-reading.json"
    kept = json.loads(file.read_text()) if file.exists() else {}
    write(kept | {"rows": rows, "tasks": arguments.tasks, "seed": arguments.seed})


if __name__ == "__main__":
    main()
