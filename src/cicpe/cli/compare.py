"""``cicpe compare``: our models, baselines and references on the same tasks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cicpe.cli import options
from cicpe.cli.arguments import number, seed, whole
from cicpe.cli.output import note, plain_table, print_json, print_table
from cicpe.cli.playing import playing
from cicpe.cli.tasks import problem_of
from cicpe.errors import InvalidInput
from cicpe.rounding import interval

if TYPE_CHECKING:
    from cicpe.reporting.comparison import Comparison


def compare(
    problem: Annotated[
        str,
        typer.Argument(
            metavar="PROBLEM|RESULTS", help="A registered name, or FILE.py:Class; or a sweep's results.sqlite."
        ),
    ],
    epsilon: Annotated[
        float | None, typer.Option(parser=number, metavar="E", help="How far off an answer may be.")
    ] = None,
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
    trajectories: Annotated[int, typer.Option(parser=whole, metavar="N", help="Episodes per task.")] = 1,
    budget: Annotated[
        int | None,
        typer.Option(parser=whole, metavar="N", help="Queries of methods that cannot stop; our mean, if left out."),
    ] = None,
    random_seed: Annotated[int, typer.Option("--seed", parser=seed, metavar="N", help="Seeds the tasks.")] = 0,
    jobs: options.Jobs = None,
    backend: options.Backend = "local",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Compare our agent with baselines and with agents that know the likelihood.

    All play the same tasks with the same noise. Methods that cannot stop get our mean number of queries, rounded
    up. Intervals are 95 %. Seconds per query are measured one episode at a time. A model that is named with --model may
    have been trained with other options of the problem.

    For the results of `cicpe sweep` its runs are compared, those that differ in their seed alone as one; nothing is
    played. --epsilon and --noise then choose among its cells.

    \b
    Examples:
      cicpe compare binary-search --dim 6 --noise 0.1 --epsilon 0.2
      cicpe compare gp-argmax --noise 0.1 --option margin=0.1 --epsilon 0.1 --methods tpe --budget 20
      cicpe compare geochem --option regions=held-out --epsilon 0.2 --model runs/copper --methods cicpe,tpe
      cicpe compare runs/sweep/results.sqlite --epsilon 0.2
    """
    from cicpe.reporting.sweep_results import is_sweep

    if is_sweep(Path(problem)):
        _compare_sweep(Path(problem), epsilon, noise, as_json)
        return
    if epsilon is None:
        raise InvalidInput("epsilon", None, "given, with a problem")
    import torch

    import cicpe
    from cicpe.reporting.comparison import compare as run

    torch.set_num_threads(1)
    family, chosen = problem_of(problem, option, dim=dim, noise=noise)
    with playing(jobs, backend) as executor:
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
            executor=executor,
        )
    asked = {"problem": problem, "dim": dim, "noise": noise, "options": chosen}
    asked |= {"epsilon": epsilon, "delta": delta, "seed": random_seed}
    if as_json:
        print_json(asked | _summary(result))
    else:
        _report(asked, result)


def _compare_sweep(path: Path, epsilon: float | None, noise: float | None, as_json: bool) -> None:
    """The runs of a sweep, seeds taken together."""
    from cicpe.reporting.sweep_results import SweepResults, sweep_groups

    results = SweepResults(path)
    cells = {row.cell: row for row in results.rows()}
    chosen = {cell for cell in cells if epsilon in (None, cell[0]) and noise in (None, cell[2])}
    if not chosen:
        there = ", ".join(f"({cell[0]:g}, {cell[2]})" for cell in cells) or "none yet"
        raise InvalidInput("epsilon, noise", (epsilon, noise), f"a cell of this sweep: {there}")
    rows = [group.to_json() for group in sweep_groups([row for row in results.rows() if row.cell in chosen])]
    failed = results.failures()
    if as_json:
        print_json({"results": str(path), "rows": rows, "failed": failed})
        return
    table = plain_table()
    for heading in ("settings", "epsilon", "delta", "noise", "seeds", "accuracy", "95 %", "queries", "95 %"):
        table.add_column(heading)
    for row in rows:
        at = [f"{row['epsilon']:g}", f"{row['delta']:g}", "" if row["noise"] is None else f"{row['noise']:g}"]
        accuracy, queries = interval(row["accuracy_ci"], 3), interval(row["mean_queries_ci"], 2)
        figures = [f"{row['accuracy']:.3f}", accuracy, f"{row['mean_queries']:.2f}", queries]
        table.add_row(row["method"], *at, str(row["seeds"]), *figures)
    print_table(table)
    for name, fault in failed.items():
        print(f"failed: {name}: {fault}")


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
    for heading in ("tasks", "accuracy", "95 %", "queries", "95 %", "ms per query", "paper: accuracy", "queries"):
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
