"""``cicpe sweep``: many runs of training from one file, each measured, and all of it in one table."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cicpe.cli import options
from cicpe.cli.output import note, plain_table, print_json, print_table, say
from cicpe.cli.playing import on_a_cluster
from cicpe.display import amount
from cicpe.rounding import interval

if TYPE_CHECKING:
    from rich.table import Table

    from cicpe.cli.sweep_process import RunResult
    from cicpe.cli.sweep_runs import Run

RESULTS = "results.sqlite"


def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to run, as TOML or JSON.")],
    jobs: options.Jobs = None,
    backend: options.Backend = "local",
    as_json: options.Json = False,
) -> int:
    """Train a model for every combination of settings, and measure each.

    Every run is a `cicpe train` in a folder and a process of its own, on one thread. The same command again skips
    what is finished and goes on with what was interrupted or has failed. The figures are printed and kept in
    results.sqlite, with how every episode ended: `cicpe compare` and `cicpe report` read it. On a Ray cluster models
    come home by themselves: no folder has to be shared. The exit code is 1 if a run failed.

    \b
    A file:
      problem = "binary-search"
      out = "runs/sweep"                       # a folder for all runs
      cells = [{ epsilon = 0.2, delta = 0.1 }, { epsilon = 0.1, delta = 0.1, noise = 0.1 }]
      episodes = 4000                          # in each of these, every model is measured on so many tasks
      trajectories = 1                         # each of them played so often
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
      cicpe compare runs/sweep/results.sqlite
      cicpe report runs/sweep/results.sqlite --out pages/sweep
    """
    from cicpe.cli import sweep_process, sweep_runs
    from cicpe.files import write_atomic
    from cicpe.parallel import Executor, the_ray
    from cicpe.reporting.sweep_results import SweepResults

    executor, travels = Executor(jobs, backend), backend == "ray"
    if travels:
        the_ray()
    asked = sweep_runs.read_sweep(file)
    runs = {run.name: run for run in sweep_runs.runs_of(asked)}
    results = SweepResults(asked.out.resolve() / RESULTS)
    results.begin({run.name: run.settings for run in runs.values()})
    waiting = sweep_runs.left_to_do(asked, list(runs.values()), results.rows(), travels)
    untrained = sum(not runs[name].finished for name in waiting)
    note(f"{amount(len(runs), 'run')} in {asked.out}, {untrained} to train")
    for name in waiting:
        write_atomic(runs[name].folder / sweep_runs.ASKED, runs[name].asked.encode())
    names, requests, failed = list(waiting), list(waiting.values()), dict[str, str]()
    try:
        with (
            _interruptible(),
            on_a_cluster(backend),
            _live_table(list(runs.values()), waiting) as show,
            closing(
                executor.completed(partial(sweep_process.do_run, sweep_runs.study_of(asked, travels)), requests)
            ) as completed,
        ):
            for index, result in completed:
                sweep_process.write_files(requests[index].folder, result.files)
                results.keep(names[index], result.figures, result.fault)
                if result.fault is not None:
                    failed[names[index]] = result.fault
                show(names[index], result)
    except KeyboardInterrupt:
        note("interrupted; the same command goes on from here")
        raise typer.Exit(130) from None
    rows = sweep_runs.wanted_rows(asked, list(runs.values()), results.rows())
    if as_json:
        print_json({"out": str(asked.out), "results": str(results.path), "rows": rows, "failed": failed})
    else:
        _report(results.path, list(asked.product), rows, failed)
    return 1 if failed else 0


@contextmanager
def _interruptible() -> Iterator[None]:
    """Lets a request to end reach the runs under way, as an interruption does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _live_table(runs: "Sequence[Run]", waiting: dict[str, Any]) -> "Iterator[Callable[[str, RunResult], None]]":
    """Shows every run as it ends: in a table on a terminal, else a line each, on standard error."""
    import sys

    states = {run.name: "waiting" if run.name in waiting else "done before" for run in runs}
    ended = 0

    def told(name: str, result: "RunResult") -> None:
        nonlocal ended
        ended += 1
        states[name] = _in_short(result)
        note(f"{ended} of {len(waiting)}: {name}: {states[name]}")

    if not sys.stderr.isatty():
        yield told
        return
    from rich.console import Console
    from rich.live import Live

    with Live(_states(states), console=Console(stderr=True)) as live:

        def drawn(name: str, result: "RunResult") -> None:
            states[name] = _in_short(result)
            live.update(_states(states))

        yield drawn


def _states(states: dict[str, str]) -> "Table":
    table = plain_table()
    for heading in ("run", ""):
        table.add_column(heading)
    for name, state in states.items():
        table.add_row(name, state)
    return table


def _in_short(result: "RunResult") -> str:
    if result.fault is not None:
        return f"failed: {result.fault}"
    return "; ".join(
        f"epsilon {row['epsilon']:g}, delta {row['delta']:g}: "
        + ("refused" if row["refused"] else f"accuracy {row['accuracy']:.3f}, {row['mean_queries']:.2f} queries")
        for row in result.figures
    )


def _report(path: Path, names: list[str], rows: list[dict[str, Any]], failed: dict[str, str]) -> None:
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
    say(f"All figures are in {path}; the log of each run is in its folder.")
