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
from figure_parts import RESULTS, Drawn
from main_figure import draw_main, measure_main
from prior_figures import (
    ACTOR_PRIORS,
    PRIORS,
    draw_actor_priors,
    draw_priors,
    measure_actor_priors,
    measure_priors,
)
from stopping_figures import draw_actors, draw_stopping, measure_actors, measure_copper, measure_family

from cicpe.data.collection import open_collection, read_tensor
from cicpe.data.places import DataError
from cicpe.data.regions import Region, regions_of
from cicpe.data.survey import read_surveys
from cicpe.evaluation.theory import max_value_lower_bound
from cicpe.plots.regions import BoundCurve, RegionSamples, plot_bounds, plot_regions
from cicpe.plots.scaling import BoundLine, ScalingCurve, plot_separation
from cicpe.problems.gp_max import LENGTHSCALE

KEPT = RESULTS / "paper-figures.json"
FAMILIES = ("binary-search", "best-arm", "ackley", "gp-max")
COPPER = "copper"
"""The name of the fitted fields."""


class Study(NamedTuple):
    """A figure of the paper: what is measured, and how that is drawn."""

    measure: Callable[[], dict[str, Any]]
    """Raises ``DataError`` where fields or a survey are missing."""
    draw: Callable[[dict[str, Any]], Drawn]
    is_kept: bool = True
    """False for what is read from elsewhere: of a survey no copy is kept."""
    is_by_actor: bool = False
    """Whether rows of actors are measured: those whose models are not here stay as they were measured before."""


def draw_study(name: str, study: Study, redraw: bool) -> Drawn | None:
    """Measures, keeps and draws; None where data are missing, or nothing is kept."""
    measured = None
    if not (redraw and study.is_kept):
        try:
            measured = study.measure()
        except DataError as error:
            print(f"{name}: not measured, {error}")
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if measured and study.is_by_actor:
        measured = with_other_actors(measured, kept.get(name, {}))
    if measured and study.is_kept:
        kept[name] = measured
        KEPT.write_text(json.dumps(dict(sorted(kept.items()))) + "\n")
    measured = measured or kept.get(name)
    if measured is None:
        print(f"{name}: skipped, nothing was measured")
        return None
    return study.draw(measured)


def with_other_actors(measured: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """What is measured now, and of every row the actors that were measured before alone."""
    return {row: before.get(row, {}) | measured.get(row, {}) for row in {**before, **measured}}


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


def studies(survey: Path | None, tasks: int | None = None, dims: Sequence[int] | None = None) -> dict[str, Study]:
    """Every figure of this file, of stopping_figures.py and of prior_figures.py, by name.

    Args:
        survey: A folder with the samples of the copper survey.
        tasks: Tasks per curve and per cell of a grid; as many as are usual where not given.
        dims: Dimensions whose actors are played; those that are usual where not given.

    Returns:
        In the order of the page.
    """
    named = {
        f"stopping-{family}": Study(partial(measure_family, family, tasks), partial(draw_stopping, family))
        for family in FAMILIES
    }
    named["stopping-copper"] = Study(partial(measure_copper, tasks), partial(draw_stopping, "geochem"))
    for family in (*FAMILIES, "geochem"):
        measure, draw = partial(measure_actors, family, tasks, dims), partial(draw_actors, family)
        named[f"actors-{family}"] = Study(measure, draw, is_by_actor=True)
    for name in PRIORS:
        named[f"robustness-{name}"] = Study(partial(measure_priors, name, tasks), partial(draw_priors, name))
        if name in ACTOR_PRIORS:
            measure, draw = partial(measure_actor_priors, name, tasks), partial(draw_actor_priors, name)
            named[f"robustness-{name}-actors"] = Study(measure, draw, is_by_actor=True)
    named["copper-regions"] = Study(partial(measure_regions, survey), draw_regions, is_kept=False)
    named["copper-bounds"] = Study(measure_fits, draw_fits)
    named["separation"] = Study(measure_separation, draw_separation, is_kept=False)
    named["main"] = Study(measure_main, draw_main, is_kept=False)
    return named
