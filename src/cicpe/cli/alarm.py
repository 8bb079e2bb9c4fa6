"""``cicpe alarm``: how well a model notices that the world is not its prior."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cicpe import zoo
from cicpe.cli import options
from cicpe.cli.arguments import whole
from cicpe.cli.output import note, plain_table, print_json, print_table, say
from cicpe.cli.playing import playing
from cicpe.cli.tasks import load_model, tasks_of
from cicpe.display import amount
from cicpe.errors import InvalidInput

if TYPE_CHECKING:
    from cicpe.evaluation.alarm_study import AlarmRow


def alarm(
    model: options.Model,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    noise: options.Noise = None,
    context: options.Context = None,
    stop: options.Stop = "confidence",
    episodes: Annotated[int, typer.Option(parser=whole, metavar="N", help="Fresh tasks in every world.")] = 500,
    verify: options.Verify = 0,
    random_seed: options.Seed = 0,
    problem: options.OwnProblem = None,
    changed_problem: options.ChangedProblem = False,
    option: options.OtherTasks = None,
    jobs: options.Jobs = None,
    backend: options.Backend = "local",
    save: Annotated[bool, typer.Option("--save", help="Fit the model's alarm anew and keep it in MODEL.")] = False,
    as_json: options.Json = False,
) -> None:
    """Measure a model's alarm: false alarms under its prior, and what it notices in worlds that are off.

    A model without an alarm is given one first, which takes a minute and is forgotten unless --save is there. With
    --verify K the agent makes K redundant queries before it stops: what they buy, and what they cost.

    \b
    Examples:
      cicpe alarm gp-max-1d --epsilon 0.2 --delta 0.1
      cicpe alarm gp-max-1d --epsilon 0.2 --delta 0.1 --verify 2
      cicpe alarm runs/mine --epsilon 0.2 --delta 0.1 --save
    """
    import cicpe
    from cicpe.evaluation.alarm_study import alarm_study

    trained = load_model(model, problem, changed_problem)
    epsilon, delta = trained.promise(epsilon, delta)
    if save and model in zoo.names():
        raise InvalidInput("save", model, "a model's folder: models of the zoo are read-only")
    played = tasks_of(trained, problem, option, noise, context)
    tasks = played.problem
    with playing(jobs, backend) as executor:
        if save or trained.alarm is None:
            note("Fitting an alarm.")
            trained = cicpe.fit_alarm(trained, executor=executor)
        if save:
            trained.save(Path(model))
        agent, unstopped = trained.agent(epsilon, delta, stop), trained.unstopped(epsilon)
        rows = alarm_study(agent, unstopped, tasks, epsilon, delta, episodes, random_seed, verify, executor)
    about = {
        "problem": trained.description.problem,
        "options": played.options,
        "noise": played.context.get("noise"),
        "context": played.context,
        "epsilon": epsilon,
        "delta": delta,
        "stop": stop,
        "verify": verify,
        "episodes": episodes,
        "seed": random_seed,
        "model_sha256": trained.sha256,
    }
    if as_json:
        print_json(about | {"worlds": [row._asdict() for row in rows]})
    else:
        _report(about, rows)


def _report(about: dict[str, Any], rows: "list[AlarmRow]") -> None:
    say(f"{about['problem']} at epsilon {about['epsilon']:g}, delta {about['delta']:g} ({about['stop']} stop)")
    checks = f", {about['verify']} redundant queries before a stop" if about["verify"] else ""
    say(f"{amount(about['episodes'], 'task')} in each world{checks}; * marks an accuracy below 1 - 2 delta.")
    table = plain_table()
    wrong_ones = "of the wrong: no", "doubtful or no"
    for heading in ("world", "accuracy", "queries", "no", "doubtful or no", *wrong_ones, "at the horizon"):
        table.add_column(heading)
    for row in rows:
        held = "none" if row.wrong_held is None else f"{row.wrong_held:.0%} of {row.wrong}"
        wrong = "none" if row.wrong_flagged is None else f"{row.wrong_flagged:.0%}"
        horizon = "" if row.doubtful_at_horizon is None else f"{row.doubtful_at_horizon:.1%}"
        table.add_row(
            row.world,
            f"{row.accuracy:.3f}" + "*" * row.misleads,
            f"{row.mean_queries:.1f}",
            f"{row.no:.1%}",
            f"{row.doubtful:.1%}",
            held,
            wrong,
            horizon,
        )
    print_table(table)
