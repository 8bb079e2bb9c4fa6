"""``cicpe evaluate``: accuracy and queries of a model on fresh tasks."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cicpe.cli import options
from cicpe.cli.arguments import whole
from cicpe.cli.output import amount, interval, plain_table, print_json, print_table
from cicpe.errors import InvalidInput

if TYPE_CHECKING:
    from cicpe.certification.calibration import StopName
    from cicpe.evaluation.evaluate import Evaluation
    from cicpe.model import Description, Model
    from cicpe.problems import Problem


def evaluate(
    model: options.Model,
    epsilon: options.Epsilon,
    delta: options.Delta,
    noise: options.Noise = None,
    stop: options.Stop = "confidence",
    episodes: Annotated[int, typer.Option(parser=whole, metavar="N", help="Fresh tasks to play.")] = 4000,
    random_seed: options.Seed = 0,
    problem: options.MovedProblem = None,
    as_json: options.Json = False,
) -> None:
    """Measure a model on fresh tasks: accuracy and queries.

    Intervals are 95 %. The exit code is 0 whatever the figures are: measuring is done. They say whether an accuracy
    of 1 - delta was reached.
    """
    import torch

    import cicpe

    rule = stop_rule(stop)
    torch.set_num_threads(1)
    trained = cicpe.load(model)
    result = cicpe.evaluate(
        trained,
        epsilon=epsilon,
        delta=delta,
        noise=noise,
        stop=rule,
        episodes=episodes,
        seed=random_seed,
        problem=tasks_of(trained, problem),
    )
    summary = _summary(trained, result, epsilon, delta, noise, stop, random_seed)
    if as_json:
        print_json(summary)
    else:
        _report(summary)


def stop_rule(name: str) -> "StopName":
    """The stop rule by its name."""
    match name:
        case "confidence" | "bellman" | "shaped":
            return name
    raise InvalidInput("stop", name, "confidence, bellman or shaped")


def tasks_of(model: "Model", place: str | None) -> "Problem":
    """The problem to play: the model's own, or the one at ``place``, which must have the same shape."""
    from cicpe.problems import make_problem

    about = model.description
    if place is None:
        try:
            return model.problem
        except InvalidInput as error:
            raise InvalidInput(
                error.field, error.value, f"{error.allowed}; name its new place with --problem"
            ) from None
    problem = make_problem(place, **about.problem_options)
    found = {
        "query_space": problem.query_space.to_json(),
        "answer_space": problem.answer_space.to_json(),
        "observation_dim": problem.observation_dim,
        "context_names": tuple(problem.context_names),
    }
    for name, value in found.items():
        if value != getattr(about, name):
            raise InvalidInput("problem", place, f"the model needs {name} {getattr(about, name)}, this has {value}")
    return problem


def _summary(
    model: "Model", result: "Evaluation", epsilon: float, delta: float, noise: float | None, stop: str, seed: int
) -> dict[str, Any]:
    about = model.description
    return {
        "problem": about.problem,
        "dim": about.problem_options.get("dim", model.core.answer_space.dim),
        "noise": noise if noise is not None else _trained_noise(about),
        "epsilon": epsilon,
        "delta": delta,
        "actor": about.training.actor,
        "stop": stop,
        "episodes": result.episodes,
        "accuracy": result.accuracy,
        "accuracy_ci": list(result.accuracy_ci),
        "mean_queries": result.mean_queries,
        "mean_queries_ci": list(result.mean_queries_ci),
        "median_queries": result.median_queries,
        "truncated": result.truncated,
        "seconds": result.seconds,
        "reached": result.accuracy >= 1 - delta,
        "confidence": result.confidence,
        "horizon": about.horizon,
        "seed": seed,
        "model_sha256": model.sha256,
    }


def _trained_noise(about: "Description") -> float | list[float] | None:
    """One level, the range of levels, or None where the problem has no noise to set."""
    noise = about.problem_options.get("noise")
    if isinstance(noise, list | tuple):
        low, high = noise
        return float(low) if low == high else [float(low), float(high)]
    return None if noise is None else float(noise)


def _report(summary: dict[str, Any]) -> None:
    noise = summary["noise"]
    levels = " to ".join(f"{level:g}" for level in noise) if isinstance(noise, list) else noise
    at = "" if noise is None else f", noise {levels}"
    print(f"{summary['problem']}, {amount(summary['dim'], 'dimension')}{at}")
    print(
        f"{amount(summary['episodes'], 'fresh task')} at epsilon {summary['epsilon']:g}, delta {summary['delta']:g} "
        f"(actor {summary['actor']}, {summary['stop']} stop)"
    )
    table = plain_table()
    for heading in ("", "measured", "95 % interval", ""):
        table.add_column(heading)
    goal, reached = 1 - summary["delta"], "reached" if summary["reached"] else "not reached"
    accuracy, queries = interval(summary["accuracy_ci"], 3), interval(summary["mean_queries_ci"], 2)
    median, horizon = summary["median_queries"], summary["horizon"]
    table.add_row("accuracy", f"{summary['accuracy']:.3f}", accuracy, f"{goal:g} was asked for: {reached}")
    table.add_row("queries", f"{summary['mean_queries']:.2f}", queries, f"median {median:g}, at most {horizon}")
    table.add_row("truncated", f"{summary['truncated']:.1%}", "", "ended at the horizon, not by choice")
    table.add_row("confidence", f"{summary['confidence']:.3f}", "", "mean at the end; compare it with the accuracy")
    table.add_row("time", f"{summary['seconds']:.2f} s", "", "for all of them")
    print_table(table)
