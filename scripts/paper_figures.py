"""The figures of the paper's experiments, from the zoo's models and the figures of docs/results. Called by figures.py.

Each is a study: what it measures is kept in docs/results/paper-figures.json, and drawn from there, so a figure can be
drawn again (``--redraw``) without an episode being played.
"""

import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from figure_parts import DELTA, EPISODES, HARDEST, RESULTS, SEED, Drawn, played
from main_figure import draw_main, measure_main

from cicpe.agents.base import Agent
from cicpe.data.collection import open_collection, read_tensor
from cicpe.data.places import DataError
from cicpe.data.regions import Region, regions_of
from cicpe.data.survey import read_surveys
from cicpe.episodes.table import tabulate_agent
from cicpe.evaluation.evaluate import evaluate_agent
from cicpe.evaluation.reliability import Curve, spread, survival
from cicpe.evaluation.robustness import robustness
from cicpe.evaluation.theory import max_value_lower_bound
from cicpe.plots.bands import plot_stopping
from cicpe.plots.heat import plot_robustness
from cicpe.plots.regions import BoundCurve, RegionSamples, plot_bounds, plot_regions
from cicpe.plots.scaling import BoundLine, ScalingCurve, plot_separation
from cicpe.problems import Problem
from cicpe.problems.geochem import Geochem
from cicpe.problems.gp_max import LENGTHSCALE
from cicpe.reporting.robustness_panels import robustness_panels

KEPT = RESULTS / "paper-figures.json"
COSTLY_TASKS = {"ackley": 200, "geochem": 200}
"""Tasks per curve where an episode is costly."""
FAMILIES = ("binary-search", "best-arm", "ackley", "gp-max")
PRIORS = {
    "binary-search-6d": (None, 500),
    "binary-search-20d": (None, 500),
    "best-arm-15d": (None, 500),
    "gp-max-1d": (None, 500),
    "gp-max-1d-lengthscale": ("lengthscale", 500),
    "ackley-5d": (None, 30),
    "geochem-2d": (None, 60),
}
"""Figure -> the number of a task that is shifted (None: its target), and tasks per cell of the grid."""
COPPER = "copper"
"""The name of the fitted fields."""


class Study(NamedTuple):
    """A figure of the paper: what is measured, and how that is drawn."""

    measure: Callable[[], dict[str, Any]]
    """Raises ``DataError`` where fields or a survey are missing."""
    draw: Callable[[dict[str, Any]], Drawn]
    is_kept: bool = True
    """False for what is read from elsewhere: of a survey no copy is kept."""


def draw_study(name: str, study: Study, redraw: bool) -> Drawn | None:
    """Measures, keeps and draws; None where data are missing, or nothing is kept."""
    measured = None
    if not (redraw and study.is_kept):
        try:
            measured = study.measure()
        except DataError as error:
            print(f"{name}: not measured, {error}")
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if measured is not None and study.is_kept:
        kept[name] = measured
        KEPT.write_text(json.dumps(dict(sorted(kept.items()))) + "\n")
    measured = measured or kept.get(name)
    if measured is None:
        print(f"{name}: skipped, nothing was measured")
        return None
    return study.draw(measured)


# --- when episodes stop, and how far the posterior has narrowed --------------------------------------------------


def stopping(agent: Agent, problem: Problem, epsilon: float, tasks: int) -> dict[str, Any]:
    """The survival curve, and the posterior's spread had every episode gone on for half as long again."""
    result = evaluate_agent(agent, problem, epsilon, tasks, SEED)
    longest = float(torch.quantile(result.outcomes.queries.double(), 0.95))
    steps = min(agent.horizon, math.ceil(1.5 * longest))
    beliefs = tabulate_agent(agent, problem, tasks // 2, steps, SEED + 1)
    return {
        "survival": rounded(survival(result.outcomes.queries)),
        "spread": rounded(spread(beliefs)),
        "median": result.median_queries,
        "tasks": tasks,
    }


def rounded(curve: Curve) -> list[list[float]]:
    return [np.round(part, 5).tolist() for part in curve]


def measure_family(family: str) -> dict[str, Any]:
    models = [name for name in HARDEST if name.startswith(family)]
    tasks = COSTLY_TASKS.get(family, EPISODES)
    return {f"d = {name.split('-')[-1][:-1]}": stopping(*played(name), tasks) for name in models}


def measure_copper() -> dict[str, Any]:
    """On tasks as in training, and on the regions of the survey that were held out."""
    agent, problem, epsilon = played("geochem-2d")
    assert isinstance(problem, Geochem)
    tasks = COSTLY_TASKS["geochem"]
    curves = {"as in training": stopping(agent, problem, epsilon, tasks)}
    held_out = problem.as_surveyed("held-out")
    return curves | {f"{len(held_out.entries)} held-out regions": stopping(agent, held_out, epsilon, tasks)}


def draw_stopping(family: str, curves: dict[str, Any]) -> Drawn:
    epsilon, noise = next(cell for name, cell in HARDEST.items() if name.startswith(family))
    survivals, spreads = (
        {label: tuple(np.array(part) for part in curve[key]) for label, curve in curves.items()}
        for key in ("survival", "spread")
    )
    stops = {label: curve["median"] for label, curve in curves.items()}
    title = f"{family}: epsilon {epsilon:g}, noise {noise:g}, delta {DELTA:g}"
    tasks = next(iter(curves.values()))["tasks"]
    caption = (
        f"How long episodes last (n = {tasks:,} tasks per curve, seed {SEED}), and the posterior's standard deviation, averaged "
        f"over the coordinates of the answer, had every episode gone on (n = {tasks // 2:,}, seed {SEED + 1})."
    )
    return Drawn(plot_stopping(survivals, spreads, stops, title=title), caption)  # type: ignore[arg-type]


# --- other priors, with the theory's bounds -----------------------------------------------------------------------


def measure_priors(figure: str) -> dict[str, Any]:
    field, tasks = PRIORS[figure]
    agent, problem, epsilon = played(figure.removesuffix("-lengthscale"))
    study = robustness(agent, problem, epsilon, DELTA, tasks, SEED, field)
    alphas, betas, panels = robustness_panels(study, bounds=True)
    listed = [
        [name, *(None if part is None else np.round(part, 4).tolist() for part in parts)] for name, *parts in panels
    ]
    return {"alphas": alphas, "betas": betas, "panels": listed, "shifted": study.shifted, "tasks": tasks}


def draw_priors(figure: str, study: dict[str, Any]) -> Drawn:
    name = figure.removesuffix("-lengthscale")
    epsilon, noise = HARDEST[name]
    panels = [
        (heading, *(None if part is None else np.array(part) for part in parts)) for heading, *parts in study["panels"]
    ]
    title = f"{name}: epsilon {epsilon:g}, noise {noise:g}, delta {DELTA:g}; shifted: {study['shifted']}"
    drawn = plot_robustness(study["alphas"], study["betas"], panels, title=title)
    caption = (
        f"The frozen agent under Beta priors, n = {study['tasks']:,} tasks per cell, seed {SEED}, with 95 % intervals; the training "
        "prior is boxed. Below, what the theory promises from measurements under the training prior alone "
        f"(n = {4 * study['tasks']:,} tasks, each played twice): the best of its bounds in each cell. "
    ) + words_on_bounds(panels)
    return Drawn(drawn, caption)


def words_on_bounds(panels: Sequence[tuple[Any, ...]]) -> str:
    """In how many cells the lower bound of the accuracy says something, and whether any cell is below it."""
    (_, accuracy, low, high), (_, promised, _, _) = panels[0], panels[2]
    informative, below = int((promised >= 0.5).sum()), int((high < promised).sum())
    worst = np.unravel_index(int(accuracy.argmin()), accuracy.shape)
    return (
        f"The lower bound of the accuracy is 0.5 or more in {informative} of {promised.size} cells; in {below} the measured accuracy is "
        f"below it by more than its interval. The lowest accuracy is {accuracy[worst]:.2f} ({low[worst]:.2f}-{high[worst]:.2f})."
    )


# --- copper: the survey and its fits --------------------------------------------------------------------------------


def measure_regions(survey: Path | None) -> dict[str, Any]:
    """The samples of every region, with the peak of its fitted field."""
    if survey is None:
        raise DataError("no survey was named: --survey FOLDER, a folder of CSV files")
    collection = open_collection(COPPER)
    samples: dict[str, Region] = {region.name: region for region in regions_of(read_surveys([survey]))}
    regions = {}
    for entry in collection.entries:
        mean = read_tensor(collection.folder, entry, "mean")
        place = divmod(int(mean.argmax()), mean.shape[1])
        region = samples[entry.name]
        regions[entry.name] = {
            "place": np.round(region.place, 3).tolist(),
            "value": np.round(region.value, 2).tolist(),
            "peak": [coordinate / (mean.shape[0] - 1) for coordinate in place],
            "resolvable": entry.resolvable,
        }
    return regions


def draw_regions(regions: dict[str, Any]) -> Drawn:
    panels = [
        RegionSamples(name, *(np.array(about[key]) for key in ("place", "value", "peak")), about["resolvable"])
        for name, about in regions.items()
    ]
    count = sum(len(panel.value) for panel in panels)
    title = f"{len(panels)} regions of the survey, {count:,} places"
    caption = (
        "Every region with at least 50 samples, stretched to a unit square, north above. A region is resolvable where both "
        f"fitted length scales are at least a tenth of its side: {sum(panel.resolvable for panel in panels)} of {len(panels)} are."
    )
    return Drawn(plot_regions(panels, title=title), caption)


def measure_fits() -> dict[str, Any]:
    """The bound after every fifth step; curves are smooth."""
    collection = open_collection(COPPER)
    return {
        entry.name: {
            "bound": np.round(read_tensor(collection.folder, entry, "elbo").numpy()[4::5], 5).tolist(),
            "resolvable": entry.resolvable,
            "seconds": entry.seconds,
        }
        for entry in collection.entries
    }


def draw_fits(fits: dict[str, Any]) -> Drawn:
    curves = [BoundCurve(name, np.array(about["bound"]), about["resolvable"]) for name, about in fits.items()]
    minutes = sum(about["seconds"] for about in fits.values()) / 60
    steps = 5 * len(curves[0].bound)
    figure = plot_bounds(
        curves, step=5, title=f"Sparse variational fits of {len(curves)} regions, {steps:,} steps each"
    )
    caption = (
        f"The evidence lower bound of each region's field (`cicpe data fit FOLDER`, seed 0; {minutes:.1f} minutes of one core in all). "
        "On the right, what the last tenth of the steps still gained."
    )
    return Drawn(figure, caption)


# --- the separation theorem -----------------------------------------------------------------------------------------


def measure_separation() -> dict[str, Any]:
    """What `benchmarks/value_against_argmax.py` has measured."""
    study = json.loads((RESULTS / "value-against-argmax.json").read_text())
    return {key: study[key] for key in ("value", "place", "noise", "delta")}


def draw_separation(study: dict[str, Any]) -> Drawn:
    names = {
        "value": r"measured: the maximum within $\epsilon$",
        "place": r"measured: its place within $\sqrt{\epsilon}$",
    }
    methods = []
    for question, name in names.items():
        rows = study[question]["rows"]
        columns = [[row["epsilon"] for row in rows], [row["queries"] for row in rows]]
        ends = [[row["queries_ci"][i] for row in rows] for i in (0, 1)]
        methods.append(ScalingCurve(name, *(np.array(column) for column in (*columns, *ends))))
    epsilon, noise, delta = methods[0].epsilon, study["noise"], study["delta"]
    bounds = []
    for shortest in (math.inf, 1.0, 0.5):
        line = [max_value_lower_bound(float(e), delta, noise, 1, shortest) for e in epsilon]
        words = "endless length scales" if math.isinf(shortest) else f"length scales from {shortest:g}"
        bounds.append(BoundLine(f"lower bound, maximum: {words}", epsilon, np.array(line)))
    limits = [("theorem, maximum: slope -2 or steeper", -2.0), ("theorem, place: slope -3/2 or flatter", -1.5)]
    title = f"Noise {noise:g}, delta {delta:g}, n = {study['value']['tasks']} functions"
    least = math.exp(-1 / (2 * LENGTHSCALE[0] ** 2))
    ratio = [float(v / b) for v, b in zip(methods[0].queries, bounds[0].queries, strict=True)]
    slope = "{slope:.2f} ({slope_ci[0]:.2f} to {slope_ci[1]:.2f})"
    caption = (
        "The measured queries of `benchmarks/value_against_argmax.py` (seeds 500 to 504 and 600 to 604, 40 functions each; intervals 95 %) above the lower "
        "bound of the separation theorem, sigma^2 / C+^2 [C-^2 z^2 / epsilon^2 - 1]+. At the length scales that were measured (from "
        f"{LENGTHSCALE[0]:g} on) the bound is 0 down to an epsilon of about {2 * least:.0e}: it says nothing here. Dashed lines are what it would say of longer "
        f"ones; the highest, for endless length scales, is the most that it can say, and the measured queries are {min(ratio):.1f} to {max(ratio):.1f} times it. "
        f"Slopes from epsilon 0.01 down: {slope.format(**study['value'])} for the maximum, {slope.format(**study['place'])} for the place."
    )
    return Drawn(plot_separation(methods, bounds, limits, title=title), caption)


def studies(survey: Path | None) -> dict[str, Study]:
    """Every figure of this file, by name."""
    named = {
        f"stopping-{family}": Study(partial(measure_family, family), partial(draw_stopping, family))
        for family in FAMILIES
    }
    named["stopping-copper"] = Study(measure_copper, partial(draw_stopping, "geochem"))
    named |= {f"robustness-{name}": Study(partial(measure_priors, name), partial(draw_priors, name)) for name in PRIORS}
    named["copper-regions"] = Study(partial(measure_regions, survey), draw_regions, is_kept=False)
    named["copper-bounds"] = Study(measure_fits, draw_fits)
    named["separation"] = Study(measure_separation, draw_separation, is_kept=False)
    named["main"] = Study(measure_main, draw_main, is_kept=False)
    return named
