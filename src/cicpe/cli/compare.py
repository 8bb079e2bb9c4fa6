"""``cicpe compare``: our models, baselines and references on the same tasks."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cicpe.cli import options
from cicpe.cli.arguments import number, seed, whole
from cicpe.cli.output import note, plain_table, print_json, print_table
from cicpe.cli.tasks import problem_of
from cicpe.rounding import interval

if TYPE_CHECKING:
    from cicpe.reporting.comparison import Comparison


def compare(
    problem: Annotated[str, typer.Argument(metavar="PROBLEM", help="A registered name, or FILE.py:Class.")],
    epsilon: Annotated[float, typer.Option(parser=number, metavar="E", help="How far off an answer may be.")],
    dim: Annotated[int | None, typer.Option(parser=whole, metavar="N", help="Coordinates of the problem.")] = None,
    noise: Annotated[float | None, typer.Option(parser=number, metavar="S", help="The noise level.")] = None,
    option: options.ProblemOption = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL",
            help="A model's folder, or its name in the zoo; may be repeated. Those of the zoo for this very problem, "
            "if left out.",
        ),
    ] = None,
    delta: Annotated[float, typer.Option(parser=number, metavar="D", help="How often it may be farther off.")] = 0.1,
    methods: Annotated[
        str, typer.Option(metavar="A,B,...", help="Methods by name; all: every one that applies.")
    ] = "all",
    episodes: Annotated[
        int | None,
        typer.Option(
            parser=whole, metavar="N", help="Tasks of every method; 1000, or fewer for slow ones, by default."
        ),
    ] = None,
    trajectories: Annotated[int, typer.Option(parser=whole, metavar="N", help="Episodes a task.")] = 1,
    budget: Annotated[
        int | None,
        typer.Option(parser=whole, metavar="N", help="Queries of methods that cannot stop; our mean, if left out."),
    ] = None,
    random_seed: Annotated[int, typer.Option("--seed", parser=seed, metavar="N", help="Seeds the tasks.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Compare our agent with baselines and with agents that know the likelihood.

    All play the same tasks with the same noise. Methods that cannot stop get our mean number of queries, rounded
    up. Intervals are 95 %. Seconds a query are measured one episode at a time. A model that is named with --model may
    have been trained with other options of the problem.

    \b
    Examples:
      cicpe compare binary-search --dim 6 --noise 0.1 --epsilon 0.2
      cicpe compare gp-argmax --noise 0.1 --option margin=0.1 --epsilon 0.1 --methods tpe --budget 20
      cicpe compare geochem --option regions=held-out --epsilon 0.2 --model runs/copper --methods cicpe,tpe
    """
    import torch

    import cicpe
    from cicpe.reporting.comparison import compare as run

    torch.set_num_threads(1)
    family, chosen = problem_of(problem, option, dim=dim, noise=noise)
    result = run(
        family,
        epsilon=epsilon,
        delta=delta,
        methods=None if methods == "all" else [name.strip() for name in methods.split(",")],
        tasks=1000 if episodes is None else episodes,
        trajectories=trajectories,
        budget=budget,
        all_tasks=episodes is not None,
        seed=random_seed,
        models={name: cicpe.load(name) for name in model or ()},
        follow=note,
    )
    asked = {"problem": problem, "dim": dim, "noise": noise, "options": chosen}
    asked |= {"epsilon": epsilon, "delta": delta, "seed": random_seed}
    if as_json:
        print_json(asked | _summary(result))
    else:
        _report(asked, result)


def _summary(result: "Comparison") -> dict[str, Any]:
    return {
        "budget": result.budget,
        "budget_from": result.budget_from,
        "reference_queries": result.reference_queries,
        "rows": [row.to_json() for row in result.rows],
        "left_out": result.left_out,
    }


def _report(asked: dict[str, Any], result: "Comparison") -> None:
    at = ", ".join(f"{key} {value:g}" for key, value in asked.items() if isinstance(value, float))
    at += "".join(f", {name} {value}" for name, value in asked["options"].items())
    print(f"{asked['problem']}: {at}")
    print(f"budget of methods that cannot stop: {result.budget} ({result.budget_from})")
    if result.reference_queries is not None:
        print(f"queries of an exact agent in benchmarks/targets.json: {result.reference_queries:g}")
    table = plain_table()
    table.add_column("method")
    for heading in ("tasks", "accuracy", "95 %", "queries", "95 %", "ms a query", "paper: accuracy", "queries"):
        table.add_column(heading, justify="right")
    for row in (row.to_json() for row in result.rows):
        table.add_row(
            row["method"],
            f"{row['tasks']}",
            f"{row['accuracy']:.3f}",
            interval(row["accuracy_ci"], 3),
            f"{row['mean_queries']:.2f}",
            interval(row["mean_queries_ci"], 2),
            f"{1000 * row['seconds_per_query']:.2f}",
            "" if row["paper_accuracy"] is None else f"{row['paper_accuracy']:.3f}",
            "" if row["paper_queries"] is None else f"{row['paper_queries']:g}",
        )
    print_table(table)
    if result.left_out:
        print("left out:")
        for name, reason in result.left_out.items():
            print(f"  {name}: {reason}")
