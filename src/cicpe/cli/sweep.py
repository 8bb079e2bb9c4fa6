"""``cicpe sweep``: many runs of training from one file, each measured, and all of it in one table."""

import json
import signal
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from cicpe.cli import options
from cicpe.cli.arguments import threads
from cicpe.cli.output import amount, note, plain_table, print_json, print_table, say
from cicpe.errors import InvalidInput
from cicpe.rounding import interval

RESULTS = "results.jsonl"


def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to run, as TOML or JSON.")],
    backend: Annotated[str, typer.Option(metavar="local|ray", help="This machine, or a Ray cluster.")] = "local",
    jobs: Annotated[int, typer.Option(parser=threads, metavar="N", help="Runs at a time on this machine.")] = 1,
    as_json: options.Json = False,
) -> int:
    """Train a model for every combination of settings, and measure each.

    Every run is a `cicpe train` in a folder and a process of its own, on one thread. The same command again skips
    what is finished and goes on with what was interrupted. The figures are printed and kept in results.jsonl, a line
    for each run and cell. The exit code is 1 if a run failed.

    \b
    A file:
      problem = "binary-search"
      out = "runs/sweep"                       # a folder for all runs
      cells = [{ epsilon = 0.2, delta = 0.1 }, { epsilon = 0.1, delta = 0.1, noise = 0.1 }]
      episodes = 4000                          # in each of these, every model is measured
      [train]                                  # settings of `cicpe train`, options of the problem
      minutes = 2
      noise = [0.025, 0.1]
      [product]                                # a run for every combination: here six
      dim = [2, 4, 6]
      seed = [0, 1]
      [tasks]                                  # options that differ where models are measured

    \b
    Examples:
      cicpe sweep examples/sweep.toml
      cicpe sweep mine.toml --jobs 8 --json
    """
    from cicpe.cli import sweep_runs

    if backend not in ("local", "ray"):
        raise InvalidInput("backend", backend, "local or ray")
    if backend == "ray":
        sweep_runs.the_ray()
    asked = sweep_runs.read_sweep(file)
    runs = sweep_runs.runs_of(asked)
    waiting = [run for run in runs if not run.finished]
    note(f"{amount(len(runs), 'run')} in {asked.out}, {len(waiting)} to train")
    rows, failed = _kept(asked.out), dict[str, str]()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # it has to reach the runs under way
    try:
        train = sweep_runs.train_on_ray(waiting) if backend == "ray" else sweep_runs.train_here(waiting, jobs)
        with closing(train) as trained:
            for count, (run, fault) in enumerate(trained, start=1):
                note(f"{count} of {len(waiting)}: {run.folder.name}" + ("" if fault is None else f": {fault}"))
                if fault is None:
                    rows += sweep_runs.measure(run, asked, rows)
                    _keep(asked.out, rows)
                else:
                    failed[run.folder.name] = fault
        rows = [row for run in runs if run.finished for row in sweep_runs.measure(run, asked, rows)]
        _keep(asked.out, rows)
    except KeyboardInterrupt:
        note("interrupted; the same command goes on from here")
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)
    if as_json:
        print_json({"out": str(asked.out), "rows": rows, "failed": failed})
    else:
        _report(asked.out, list(asked.product), rows, failed)
    return 1 if failed else 0


def _kept(folder: Path) -> list[dict[str, Any]]:
    """The rows of an earlier sweep in this folder."""
    path = folder / RESULTS
    try:
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
    except ValueError as error:
        raise InvalidInput("out", str(path), f"a file that a sweep has written ({error}); remove it") from None


def _keep(folder: Path, rows: list[dict[str, Any]]) -> None:
    from cicpe.files import write_atomic

    write_atomic(folder / RESULTS, "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode())


def _report(folder: Path, names: list[str], rows: list[dict[str, Any]], failed: dict[str, str]) -> None:
    table = plain_table()
    for heading in (*names, "epsilon", "delta", "noise", "accuracy", "95 %", "queries", "95 %", "minutes"):
        table.add_column(heading)
    for row in rows:
        figures = ["refused", "", "", ""]
        if row["refused"] is None:
            figures = [f"{row['accuracy']:.3f}", interval(row["accuracy_ci"], 3)]
            figures += [f"{row['mean_queries']:.2f}", interval(row["mean_queries_ci"], 2)]
        at = [*(row["settings"][name] for name in names), row["epsilon"], row["delta"], row["noise"]]
        table.add_row(*map(str, at), *figures, f"{row['minutes']:.2f}")
    print_table(table)
    for reason in dict.fromkeys(row["refused"] for row in rows if row["refused"] is not None):
        say(f"refused: {reason}")
    for name, fault in failed.items():
        say(f"failed: {name}: {fault}")
    say(f"All figures are in {folder / RESULTS}; the log of each run is in its folder.")
