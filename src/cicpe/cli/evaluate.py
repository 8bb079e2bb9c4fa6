"""``cicpe evaluate``: accuracy and queries of a model on fresh tasks."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cicpe.cli import options
from cicpe.cli.arguments import whole
from cicpe.cli.output import plain_table, print_json, print_table
from cicpe.cli.playing import playing
from cicpe.cli.tasks import PlayedFamily, load_model, tasks_of
from cicpe.display import amount
from cicpe.rounding import interval

if TYPE_CHECKING:
    from cicpe.episodes.outcomes import Outcomes
    from cicpe.model import Model
    from cicpe.parallel import Executor


def evaluate(
    model: options.Model,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    noise: options.Noise = None,
    context: options.Context = None,
    stop: options.Stop = "confidence",
    episodes: Annotated[int, typer.Option(parser=whole, metavar="N", help="Fresh tasks to play.")] = 4000,
    trajectories: Annotated[int, typer.Option(parser=whole, metavar="N", help="Plays of each task.")] = 1,
    random_seed: options.Seed = 0,
    problem: options.OwnProblem = None,
    changed_problem: options.ChangedProblem = False,
    option: options.OtherTasks = None,
    jobs: options.Jobs = None,
    backend: options.Backend = "local",
    as_json: options.Json = False,
) -> None:
    """Measure a model on fresh tasks: accuracy and queries.

    Intervals are 95 %. The exit code is 0 whatever the figures are: measuring is done. They say whether an accuracy
    of 1 - delta was reached.

    \b
    Examples:
      cicpe evaluate binary-search-6d --epsilon 0.2 --delta 0.1
      cicpe evaluate runs/mine --epsilon 0.1 --delta 0.05 --noise 0.05 --json
      cicpe evaluate runs/copper --epsilon 0.2 --delta 0.1 --option regions=held-out
          --option draws=0 --option twins=0 --option 'augment=[]'
    """
    trained = load_model(model, problem, changed_problem)
    epsilon, delta = trained.promise(epsilon, delta)
    played = tasks_of(trained, problem, option, noise, context)
    with playing(jobs, backend) as executor:
        summary, _ = measured(trained, played, epsilon, delta, stop, episodes, random_seed, executor, trajectories)
    if as_json:
        print_json(summary)
    else:
        _report(summary, played)


def measured(
    model: "Model",
    played: PlayedFamily,
    epsilon: float,
    delta: float,
    stop: str = "confidence",
    episodes: int = 4000,
    seed: int = 0,
    executor: "Executor | None" = None,
    trajectories: int = 1,
) -> "tuple[dict[str, Any], Outcomes]":
    """A model's figures on fresh tasks, as the JSON says them, and how every episode ended."""
    import cicpe
    from cicpe.parallel import HERE

    result = cicpe.evaluate(
        model,
        epsilon=epsilon,
        delta=delta,
        stop=stop,
        episodes=episodes,
        seed=seed,
        problem=played.problem,
        executor=executor or HERE,
        trajectories=trajectories,
    )
    about = model.description
    summary = {
        "problem": about.problem,
        "dim": played.options.get("dim", model.belief.answer_space.dim),
        "options": played.options,
        "noise": played.context.get("noise", _noise(played.options.get("noise"))),
        "context": played.context,
        "epsilon": epsilon,
        "delta": delta,
        "actor": about.training.query_rule,
        "stop": stop,
        "episodes": result.episodes,
        "trajectories": result.trajectories,
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
    return summary, result.outcomes


def _noise(noise: Any) -> float | list[float] | str | None:
    """One level, the range of levels, the name of a choice, or None where the problem has no noise to set."""
    if isinstance(noise, list | tuple):
        low, high = noise
        return float(low) if low == high else [float(low), float(high)]
    return noise if noise is None or isinstance(noise, str) else float(noise)


def _report(summary: dict[str, Any], played: PlayedFamily) -> None:
    noise = summary["noise"]
    levels = " to ".join(f"{level:g}" for level in noise) if isinstance(noise, list) else noise
    at = "" if noise is None else f", noise {levels}"
    print(f"{summary['problem']}, {amount(summary['dim'], 'dimension')}{at}")
    if played.changed:
        print(f"tasks with {played.said}, which is not the model's own")
    tasks = amount(summary["episodes"] // summary["trajectories"], "fresh task")
    times = "" if summary["trajectories"] == 1 else f", each played {summary['trajectories']} times,"
    print(
        f"{tasks}{times} at epsilon {summary['epsilon']:g}, delta {summary['delta']:g} "
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
