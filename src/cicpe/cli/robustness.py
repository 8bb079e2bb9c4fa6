"""``cicpe robustness``: a model under a grid of other priors, beside what the bounds promise."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cicpe.cli import options
from cicpe.cli.arguments import whole
from cicpe.cli.output import plain_table, print_json, print_table, say
from cicpe.cli.playing import playing
from cicpe.cli.tasks import load_model, tasks_of
from cicpe.display import amount
from cicpe.rounding import interval

if TYPE_CHECKING:
    from cicpe.evaluation.robustness import Robustness, RobustnessCell


def robustness(
    model: options.Model,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    noise: options.Noise = None,
    context: options.Context = None,
    stop: options.Stop = "confidence",
    episodes: Annotated[int, typer.Option(parser=whole, metavar="N", help="Tasks to play under each prior.")] = 1000,
    random_seed: options.Seed = 0,
    shift: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Which number of a task to shift, such as lengthscale; by default its target.",
        ),
    ] = None,
    problem: options.OwnProblem = None,
    changed_problem: options.ChangedProblem = False,
    option: options.OtherTasks = None,
    jobs: options.Jobs = None,
    backend: options.Backend = "local",
    as_json: options.Json = False,
) -> None:
    """Measure a model under priors that it was not trained for.

    What was uniform in training follows Beta(alpha, beta), for alpha and beta in 0.5, 1, 3, 5 and 7; at (1, 1) the
    prior is the training prior. Beside each measured accuracy stands the best of the bounds that the accuracy under
    the training prior implies.

    \b
    Examples:
      cicpe robustness binary-search-6d --epsilon 0.2 --delta 0.1
      cicpe robustness gp-max-1d --epsilon 0.2 --delta 0.1 --shift lengthscale --episodes 4000
    """
    from cicpe.evaluation.robustness import robustness as measure

    trained = load_model(model, problem, changed_problem)
    epsilon, delta = trained.promise(epsilon, delta)
    played = tasks_of(trained, problem, option, noise, context)
    tasks = played.problem
    agent = trained.agent(epsilon, delta, stop)
    with playing(jobs, backend) as executor:
        result = measure(agent, tasks, epsilon, delta, episodes, random_seed, shift, executor=executor)
    about = {
        "problem": trained.description.problem,
        "options": played.options,
        "noise": played.context.get("noise"),
        "context": played.context,
        "epsilon": epsilon,
        "delta": delta,
        "stop": stop,
        "episodes": episodes,
        "seed": random_seed,
        "model_sha256": trained.sha256,
    }
    if as_json:
        print_json(about | _summary(result))
    else:
        _report(about, result)


def _summary(result: "Robustness") -> dict[str, Any]:
    training = result.training
    return {
        "shifted": result.shifted,
        "coordinates": result.coordinates,
        "training_prior": {
            "tasks": len(training.unit),
            "accuracy": training.accuracy,
            "accuracy_ci": list(training.accuracy_ci),
            "mean_queries": training.mean_queries,
            "mean_queries_ci": list(training.mean_queries_ci),
            "success_variance": training.success_variance,
            "queries_variance": training.queries_variance,
            "profile": [row._asdict() for row in training.profile()],
        },
        "cells": [cell._asdict() for cell in result.cells],
    }


def _report(about: dict[str, Any], result: "Robustness") -> None:
    training = result.training
    say(f"{about['problem']} at epsilon {about['epsilon']:g}, delta {about['delta']:g} ({about['stop']} stop)")
    say(f"Shifted: {result.shifted}. {amount(about['episodes'], 'task')} under each prior.")
    say(
        f"Training prior: accuracy {training.accuracy:.3f} ({interval(training.accuracy_ci, 3)}), "
        f"{training.mean_queries:.2f} queries."
    )
    grid = sorted({cell.alpha for cell in result.cells})
    cells = {(cell.alpha, cell.beta): cell for cell in result.cells}
    for title, entry in (
        ("accuracy / best lower bound", _accuracy),
        ("mean queries / best upper bound", _queries),
    ):
        table = plain_table(title)
        table.add_column("alpha")
        for beta in grid:
            table.add_column(f"beta {beta:g}")
        for alpha in grid:
            table.add_row(f"{alpha:g}", *(entry(cells[alpha, beta]) for beta in grid))
        print_table(table)


def _accuracy(cell: "RobustnessCell") -> str:
    best = max(bound for bound in cell.accuracy_bounds.values() if bound is not None)
    return f"{cell.accuracy:.3f} / {best:.3f}"


def _queries(cell: "RobustnessCell") -> str:
    best = min(bound for bound in cell.queries_bounds.values() if bound is not None)
    return f"{cell.mean_queries:.2f} / {best:.2f}"
