"""``cicpe check FILE``: what was understood of an experiment file, what it may look like, and how long it may take."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cicpe.cli.output import note, print_json

if TYPE_CHECKING:
    from cicpe.estimate import QueryEstimate
    from cicpe.experiments import Experiment, ExperimentError
    from cicpe.experiments.parametric import ParametricExperiment
    from cicpe.experiments.predictive import PriorPredictive
    from cicpe.experiments.smooth import SmoothExperiment

BAD_INPUT = 2


def check_experiment(name: str, png: Path | None, seconds: float, seed: int, as_json: bool) -> None:
    """Reads an experiment and says what it is, or every fault of it (exit 2)."""
    from cicpe.experiments import Experiment, ExperimentError
    from cicpe.experiments.predictive import prior_predictive

    try:
        plan = Experiment.read(name)
        problem: Any = plan.problem()
    except ExperimentError as error:
        _refuse(error, as_json)
    drawn = prior_predictive(problem, seed=seed)
    if png is not None:
        _draw(drawn, problem, plan, png)
    if not as_json:
        _describe(plan, problem, drawn, png)
    estimate = _estimate(problem, seconds, seed)
    if as_json:
        print_json(_as_json(plan, problem, estimate, png))
        return
    print(f"\n{estimate.words(problem.horizon)}")
    stem = Path(name).stem
    print(f"If this is what you expect:  cicpe train {name} --out {stem}")


def _refuse(error: "ExperimentError", as_json: bool) -> None:
    if as_json:
        nothing = dict.fromkeys(("unknowns", "query_space", "answer_space", "observation_kind", "expected_queries"))
        print_json({**nothing, "faults": [fault.row for fault in error.faults]})
    else:
        for fault in error.faults:
            note(f"error: {fault}")
    raise typer.Exit(BAD_INPUT)


def _describe(plan: "Experiment", problem: Any, drawn: "PriorPredictive", png: Path | None) -> None:
    from cicpe.cli.experiment_view import pictures
    from cicpe.experiments.words import in_words

    if plan.title:
        print(f"{plan.title}\n")
    for line in in_words(plan):
        print(line)
    if png is not None:
        print(f"\nEight experiments of this kind are drawn in {png}. Is this what you expect?")
        return
    print("\nEight experiments of this kind. Is this what you expect?\n")
    for line in pictures(drawn, problem.units):
        print(line)


def _estimate(problem: "SmoothExperiment | ParametricExperiment", seconds: float, seed: int) -> "QueryEstimate":
    import torch

    from cicpe.estimate import estimate_queries

    torch.set_num_threads(1)
    assert problem.units.delta is not None
    return estimate_queries(problem, problem.default_epsilon[0], problem.units.delta, seconds, seed)


def _as_json(plan: "Experiment", problem: Any, estimate: "QueryEstimate", png: Path | None) -> dict[str, Any]:
    from cicpe.experiments.words import in_words

    unknown = None if problem.parameter_space is None else problem.parameter_space.dim
    return {
        "title": plan.title,
        "words": in_words(plan),
        "unknowns": unknown,
        "query_space": problem.query_space.to_json(),
        "answer_space": problem.answer_space.to_json(),
        "observation_kind": plan.measurement.kind,
        "expected_queries": estimate.queries if estimate.queries is not None else estimate.least,
        "least_queries": estimate.least,
        "estimate": estimate._asdict(),
        "at_most": problem.horizon,
        "epsilon": problem.units.epsilon,
        "delta": problem.units.delta,
        "units": problem.units.model_dump(mode="json"),
        "png": None if png is None else str(png),
        "faults": [],
    }


def draw_experiments(plan: "Experiment", png: Path, seed: int = 0) -> None:
    """Draws eight experiments that might happen into a file."""
    from cicpe.experiments.predictive import prior_predictive

    problem: Any = plan.problem()
    _draw(prior_predictive(problem, seed=seed), problem, plan, png)


def _draw(drawn: "PriorPredictive", problem: Any, plan: "Experiment", png: Path) -> None:
    from cicpe.plots.experiments import plot_curves, plot_surfaces

    settings, readout = problem.units.settings, problem.units.readout
    names = [
        f"{quantity.name} ({quantity.unit})" if quantity.unit else quantity.name
        for quantity in (*settings[:2], readout)
    ]
    places = [answer.name for answer in problem.units.answers] == [setting.name for setting in settings]
    title = f"{plan.title}: eight experiments of this kind" if plan.title else "Eight experiments of this kind"
    if len(drawn.grid) == 1:
        figure = plot_curves(
            drawn.grid[0],
            [draw.truth for draw in drawn.draws],
            [(draw.read_at[:, 0], draw.readings) for draw in drawn.draws],
            [float(draw.answer[0]) if places else None for draw in drawn.draws],
            (names[0], names[1]),
            log=settings[0].log,
            title=title,
        )
    else:
        figure = plot_surfaces(
            (drawn.grid[0], drawn.grid[1]),
            [draw.truth for draw in drawn.draws],
            [(float(draw.answer[0]), float(draw.answer[1])) if places else None for draw in drawn.draws],
            (names[0], names[1], names[2]),
            log=(settings[0].log, settings[1].log),
            title=title,
        )
    figure.savefig(png, dpi=120)
