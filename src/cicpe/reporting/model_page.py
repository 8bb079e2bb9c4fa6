"""The report of a model: what was measured, as sections of a page."""

from pathlib import Path
from typing import Any

import numpy as np

from cicpe.evaluation.robustness import Robustness
from cicpe.model import Model
from cicpe.parallel import HERE, Executor
from cicpe.plots.bands import plot_spread, plot_survival
from cicpe.plots.heat import plot_robustness
from cicpe.plots.maps import Map, plot_maps
from cicpe.plots.methods import MethodRow, plot_methods
from cicpe.plots.query_space import PathQueries, Plane, plot_paths, plot_planes
from cicpe.plots.reliability import AtTheStop, plot_reliability
from cicpe.plots.training import plot_training
from cicpe.plots.trajectory import plot_trajectory
from cicpe.problems import Problem
from cicpe.reporting.measure import Curves, Example, Measured, Setting, measure, training_curves
from cicpe.reporting.page import Block, Picture, Report, Section, Table, Text, Tile, Tiles
from cicpe.reporting.robustness_panels import robustness_panels


def model_report(
    model: Model,
    name: str,
    setting: Setting,
    folder: Path,
    with_robustness: bool = False,
    problem: Problem | None = None,
    executor: Executor = HERE,
) -> Report:
    """Measures a model and lays it out.

    Args:
        model: What to report on.
        name: What to call it.
        setting: At which epsilon, delta and noise, on how many tasks.
        folder: Where it lies; its training log is read from there.
        with_robustness: Whether to play it under other priors too.
        problem: What to play it on, where that is not its own family.
        executor: Where it is played.
    """
    measured = measure(model, setting, with_robustness, problem, executor)
    curves = training_curves(folder)
    sections = [
        _about(model, measured),
        _accuracy(measured),
        _survival(measured),
        _spread(measured),
        _examples(model, measured),
        _reliability(measured),
        *([_robustness(measured.robustness, setting)] if measured.robustness is not None else []),
        _training(model, curves),
    ]
    lead = f"{_at(setting)}. {setting.episodes:,} fresh tasks, seed {setting.seed}. Intervals are 95 %."
    return Report(f"{name}: a report", lead, sections, _numbers(model, name, measured))


def _at(setting: Setting) -> str:
    noise = "the trained range of noise" if setting.noise is None else f"noise {setting.noise:g}"
    return f"Measured at epsilon {setting.epsilon:g}, delta {setting.delta:g}, {noise}"


def _sample(setting: Setting) -> str:
    return f"n = {setting.episodes:,} tasks, seed {setting.seed}"


def _about(model: Model, measured: Measured) -> Section:
    about, low, high = model.description, model.calibration.epsilons[0], model.calibration.epsilons[-1]
    options = ", ".join(f"{key} {value}" for key, value in about.problem_options.items()) or "none"
    units = about.units
    in_units = [
        ("experiment", units.title),
        (
            "settings",
            ", ".join(
                f"{setting.name}: {setting.words(setting.least)} to {setting.words(setting.most)}"
                for setting in units.settings
            ),
        ),
        (
            "sought",
            ", ".join(answer.name for answer in units.answers)
            + f", within {units.tolerance_words(units.epsilon or low)}",
        ),
    ]
    rows = [
        *(in_units if units.settings else [("problem", f"{about.problem} ({options})")]),
        ("queries", _space(about.query_space)),
        ("answers", _space(about.answer_space)),
        ("epsilon", f"{low:g} to {high:g}"),
        *(
            (n, f"{a:.4g} to {b:.4g}")
            for n, a, b in zip(about.context_names, about.context_low, about.context_high, strict=True)
        ),
        ("horizon", f"{about.horizon} queries"),
        ("thresholds", f"chosen on {model.calibration.episodes:,} held-out episodes"),
        ("weights", model.sha256[:16]),
    ]
    text = (
        "A frozen agent: after every observation it says where to measure next, what it would answer, how likely that "
        "answer is to be within epsilon, and whether to stop."
    )
    return Section("What it is", [Text(text), Table((), rows)])


def _space(space: dict[str, Any]) -> str:
    size = len(space["low"]) if isinstance(space.get("low"), list) else space.get("dim", 1)
    return f"{space['kind']}, {size} coordinate{'' if size == 1 else 's'}"


def _accuracy(measured: Measured) -> Section:
    result, cell = measured.result, measured.published
    low, high = result.accuracy_ci
    q_low, q_high = result.mean_queries_ci
    tiles = [
        Tile(
            f"{result.accuracy:.3f}", f"accuracy, {low:.3f} to {high:.3f}; {1 - measured.setting.delta:g} was asked for"
        ),
        Tile(f"{result.mean_queries:.2f}", f"queries on average, {q_low:.2f} to {q_high:.2f}"),
        Tile(f"{result.median_queries:g}", "queries, median"),
        Tile(f"{result.truncated:.1%}", "of the episodes ended at the horizon, not by choice"),
    ]
    blocks: list[Block] = [Tiles(tiles)]
    if cell is not None:
        methods = [
            MethodRow(
                "this model", "ours", result.accuracy, result.accuracy_ci, result.mean_queries, result.mean_queries_ci
            )
        ]
        rows = [("this model", f"{result.accuracy:.3f}", f"{result.mean_queries:.2f}")]
        for name, figures in cell.methods.items():
            accuracy = "" if figures.accuracy is None else f"{figures.accuracy:.3f}"
            rows.append((f"{name} (paper)", accuracy, "" if figures.queries is None else f"{figures.queries:g}"))
        if cell.reference_queries is not None:
            rows.append(("an agent that knows the likelihood", "", f"{cell.reference_queries:g}"))
        best = cell.best
        if best.accuracy is not None and best.queries is not None:
            methods[0] = methods[0]._replace(paper_accuracy=best.accuracy, paper_queries=best.queries)
            goal = 1 - measured.setting.delta
            blocks.append(
                Picture(
                    "accuracy",
                    plot_methods(methods, goal=goal),
                    f"This model beside the paper's best variant at the same setting; {_sample(measured.setting)}.",
                )
            )
        blocks.append(Table(("", "accuracy", "queries"), rows))
    else:
        blocks.append(Text("The paper reports no figure for this setting."))
    return Section("Accuracy and queries", blocks)


def _survival(measured: Measured) -> Section:
    figure = plot_survival({"this model": measured.survival}, note="band: exact 95 %")
    caption = f"Share of episodes that have not stopped after t queries. {_sample(measured.setting)}."
    return Section("How long episodes last", [Picture("survival", figure, caption)])


def _spread(measured: Measured) -> Section:
    figure = plot_spread({"this model": measured.spread}, {"this model": measured.result.median_queries})
    caption = (
        "Standard deviation of the posterior, averaged over coordinates, had every episode gone on. "
        f"n = {measured.belief_episodes:,} tasks, seed {measured.setting.seed + 1}."
    )
    return Section("The posterior over time", [Picture("posterior", figure, caption)])


def _examples(model: Model, measured: Measured) -> Section:
    examples, setting = measured.examples, measured.setting
    seeds = f"The first tasks of seeds {setting.seed + 2} to {setting.seed + 1 + len(examples)}; they were not chosen."
    blocks: list[Block] = []
    if all(example.path is not None for example in examples):
        figure = plot_paths([path_queries(example, setting.epsilon) for example in examples])
        blocks.append(Picture("examples", figure, f"Functions and the queries made of them. {seeds}"))
    elif all(example.field is not None for example in examples):
        space = model.belief.query_space.to_json()
        figure = plot_maps([map_of(example, setting.epsilon) for example in examples], space["low"], space["high"])
        blocks.append(Picture("examples", figure, f"Hidden fields and the queries made of them. {seeds}"))
    elif examples[0].trace.query.shape[1] >= 2 and examples[0].trace.query.shape[1] == len(examples[0].trace.target):
        whole = examples[0].trace.query.shape[1] == 2
        space = model.belief.query_space.to_json()
        low, high = (tuple(space.get(end, [side] * 2))[:2] for end, side in (("low", -1.0), ("high", 1.0)))
        planes = [plane(example, setting.epsilon, whole) for example in examples[:3]]
        caption = "Queries in query space" if whole else "Queries in the first two coordinates"
        blocks.append(Picture("examples", plot_planes(planes, low, high), f"{caption}. {seeds}"))
    trace = examples[0].trace
    figure = plot_trajectory(
        *(trace.query, trace.mean, trace.std),
        target=trace.target,
        stop_time=trace.stop_time if trace.stopped else None,
        confidence=trace.confidence,
        same_space=model.belief.query_space == model.belief.answer_space,
    )
    ended = f"loss {trace.loss:.3g} after {trace.stop_time} queries"
    caption = f"One episode, coordinate by coordinate (seed {setting.seed + 2}): {ended}."
    blocks.append(Picture("example-coordinates", figure, caption))
    return Section("Example sessions", blocks)


def path_queries(example: Example, epsilon: float) -> PathQueries:
    """An episode on a function, up to its stop."""
    trace, path = example.trace, example.path
    assert path is not None
    stop = trace.stop_time
    return PathQueries(
        place=np.linspace(0, 1, len(path)),
        value=path,
        query=trace.query[:stop, 0],
        observation=trace.observation[:stop, 0],
        target=float(trace.target[0]),
        answer=float(trace.mean[stop, 0]),
        interval=None if trace.interval is None else (float(trace.interval[0, 0]), float(trace.interval[0, 1])),
        title=f"{stop} queries, off by {trace.loss:.3f}" + ("" if trace.loss <= epsilon else f" (above {epsilon:g})"),
    )


def map_of(example: Example, epsilon: float, name: str = "") -> Map:
    """An episode on a field, up to its stop; one that was truncated has made all the queries that it may."""
    trace, field = example.trace, example.field
    assert field is not None
    stop = trace.stop_time
    ended = f"{stop} queries" if trace.stopped else f"all {stop} queries"
    title = f"{ended}, loss {trace.loss:.3f}\nconfidence {trace.confidence[stop]:.2f}"
    return Map(
        field=field.value,
        loss=field.loss,
        epsilon=epsilon,
        query=trace.query[:stop],
        answer=trace.mean[stop],
        target=trace.target,
        title=f"{name}\n{title}" if name else title,
    )


def plane(example: Example, epsilon: float, whole: bool) -> Plane:
    """An episode in its first two coordinates, up to its stop."""
    trace = example.trace
    stop = trace.stop_time
    return Plane(
        query=trace.query[:stop, :2],
        answer=trace.mean[stop, :2],
        target=trace.target[:2],
        epsilon=epsilon if whole else None,
        title=f"{stop} queries, loss {trace.loss:.3f}",
    )


def _reliability(measured: Measured) -> Section:
    result = measured.result
    stop = AtTheStop(result.confidence, result.accuracy, result.accuracy_ci)
    figure = plot_reliability(*measured.reliability.columns, stop=stop)
    caption = (
        "Right answers against the confidence in them: every episode once, after a random number of queries. "
        f"n = {measured.belief_episodes:,} tasks, seed {measured.setting.seed + 1}; bars are exact 95 % intervals."
    )
    return Section("Can its confidence be believed", [Picture("reliability", figure, caption)])


def _robustness(study: Robustness, setting: Setting) -> Section:
    figure = plot_robustness(*robustness_panels(study))
    caption = (
        f"The same frozen agent when the {study.shifted} follows a Beta law; the training prior is boxed. "
        f"{setting.episodes:,} tasks per cell, seed {setting.seed + 3}, with 95 % intervals."
    )
    return Section("Under other priors", [Picture("robustness", figure, caption)])


def _training(model: Model, curves: Curves | None) -> Section:
    about = model.description
    threads = f"{about.threads} thread{'' if about.threads == 1 else 's'}"
    text = (
        f"Recipe {about.recipe}, actor {about.training.query_rule}, seed {about.seed}: {about.updates:,} updates in "
        f"{about.minutes:.1f} minutes on {threads}, calibration included."
    )
    if curves is None:
        return Section("How it was trained", [Text(text), Text("The folder has no training log.")])
    figure = plot_training(*curves)
    caption = "The run's own looks at itself, without a calibrated threshold, and its losses."
    return Section("How it was trained", [Text(text), Picture("training", figure, caption)])


def _numbers(model: Model, name: str, measured: Measured) -> dict[str, object]:
    result, cell = measured.result, measured.published
    best = None if cell is None else cell.best._asdict()
    return {
        "kind": "model",
        "model": name,
        "problem": model.description.problem,
        "model_sha256": model.sha256,
        **measured.setting._asdict(),
        "accuracy": result.accuracy,
        "accuracy_ci": list(result.accuracy_ci),
        "mean_queries": result.mean_queries,
        "mean_queries_ci": list(result.mean_queries_ci),
        "median_queries": result.median_queries,
        "truncated": result.truncated,
        "confidence": result.confidence,
        "paper_best": best,
        "reference_queries": None if cell is None else cell.reference_queries,
        "survival": _lists(measured.survival),
        "posterior_std": _lists(measured.spread),
        "reliability": measured.reliability._asdict(),
        "robustness": None if measured.robustness is None else [cell._asdict() for cell in measured.robustness.cells],
    }


def _lists(record: Any) -> dict[str, list[float]]:
    return {name: getattr(record, name).tolist() for name in record._fields}
