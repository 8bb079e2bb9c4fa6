"""``cicpe report``: a page of figures about a model or a comparison."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cicpe.cli import options
from cicpe.cli.arguments import number, seed, whole
from cicpe.cli.output import print_json, say
from cicpe.cli.playing import playing
from cicpe.cli.tasks import load_model, tasks_of
from cicpe.errors import InvalidInput

if TYPE_CHECKING:
    from cicpe.model import Model
    from cicpe.parallel import Executor
    from cicpe.reporting.page import Report


def report(
    run: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|RUN",
            help="A model's folder or name in the zoo, a file of compare --json, or a sweep's results.sqlite.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="A folder for the page and its figures.")],
    epsilon: Annotated[
        float | None,
        typer.Option(
            parser=number, metavar="E", help="How far off an answer may be; the model's largest, if left out."
        ),
    ] = None,
    delta: Annotated[float, typer.Option(parser=number, metavar="D", help="How often it may be farther off.")] = 0.1,
    noise: Annotated[
        float | None, typer.Option(parser=number, metavar="S", help="The noise level; the model's usual, if left out.")
    ] = None,
    episodes: Annotated[int, typer.Option(parser=whole, metavar="N", help="Fresh tasks to play.")] = 1000,
    random_seed: Annotated[int, typer.Option("--seed", parser=seed, metavar="N", help="Seeds the tasks.")] = 0,
    robustness: Annotated[bool, typer.Option("--robustness", help="Play it under other priors too.")] = False,
    problem: options.OwnProblem = None,
    changed_problem: options.ChangedProblem = False,
    option: options.OtherTasks = None,
    jobs: options.Jobs = None,
    backend: options.Backend = "local",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Write a page about a model: what it does, on fresh tasks, in figures.

    The page is one file that loads nothing: it can be mailed, printed or read offline. Beside it lie the figures as
    PNG files and all numbers as report.json. For a file of `cicpe compare --json` the page shows the methods
    compared, and for the results of `cicpe sweep` its runs; nothing is played then.

    \b
    Examples:
      cicpe report binary-search-6d --out pages/binary-search
      cicpe compare gp-max --noise 0.1 --epsilon 0.2 --json > run.json; cicpe report run.json --out pages/run
      cicpe report runs/copper --out pages/copper --option regions=held-out
    """
    if Path(run).is_file():
        if option:
            raise InvalidInput("option", option, "left out with a comparison or a sweep: nothing is played")
        run_report = _file(Path(run))
    else:
        trained = load_model(run, problem, changed_problem)
        with playing(jobs, backend) as executor:
            run_report = _model(
                trained, run, epsilon, delta, noise, episodes, random_seed, robustness, option, executor
            )
    page = run_report.write(out)
    if as_json:
        print_json({"page": str(page), **run_report.numbers})
    else:
        say(f"{page}")


def _file(path: Path) -> "Report":
    from cicpe.reporting.comparison_page import comparison_report, read_comparison
    from cicpe.reporting.sweep_page import sweep_report
    from cicpe.reporting.sweep_results import is_sweep

    if is_sweep(path):
        return sweep_report(path)
    return comparison_report(read_comparison(path))


def _model(
    model: "Model",
    name: str,
    epsilon: float | None,
    delta: float,
    noise: float | None,
    episodes: int,
    random_seed: int,
    robustness: bool,
    option: list[str] | None,
    executor: "Executor",
) -> "Report":
    from cicpe.model.model import model_folder
    from cicpe.reporting.measure import default_setting
    from cicpe.reporting.model_page import model_report

    played = tasks_of(model, None, option, noise)
    folder = model_folder(name)
    setting = default_setting(model, epsilon, delta, noise, episodes, random_seed, played.problem)
    page_report = model_report(model, folder.name, setting, folder, robustness, played.problem, executor)
    if not played.changed:
        return page_report
    lead = f"{page_report.lead} Tasks with {played.said}, which is not the model's own."
    return page_report._replace(lead=lead, numbers=page_report.numbers | {"options": played.options})
