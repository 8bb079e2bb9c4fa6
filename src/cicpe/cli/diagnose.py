"""``cicpe diagnose``: is a model's confidence what it says, and is its posterior?"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cicpe.cli import options
from cicpe.cli.arguments import whole
from cicpe.cli.output import plain_table, print_json, print_table
from cicpe.cli.playing import playing
from cicpe.cli.tasks import load_model, tasks_of

if TYPE_CHECKING:
    from cicpe.evaluation.diagnose import Diagnosis

ERROR = 0.02
"""Calibration error from which confidence should not be read as a probability."""
RANK_LEVEL = 0.001


def diagnose(
    model: options.Model,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    noise: options.Noise = None,
    context: options.Context = None,
    stop: options.Stop = "confidence",
    episodes: Annotated[int, typer.Option(parser=whole, metavar="N", help="Fresh tasks to play.")] = 4000,
    random_seed: options.Seed = 0,
    problem: options.OwnProblem = None,
    changed_problem: options.ChangedProblem = False,
    option: options.OtherTasks = None,
    jobs: options.Jobs = None,
    backend: options.Backend = "local",
    as_json: options.Json = False,
) -> None:
    """Check a model's confidence and posterior on fresh tasks.

    Confidence is compared with the share of successes; the true target's rank among draws of the posterior is tested
    for uniformity. Exit code 1 if the confidence is off by more than 0.02 on average, and by more than twice what so
    few episodes would show by chance.

    \b
    Examples:
      cicpe diagnose gp-max-1d --epsilon 0.2 --delta 0.1
      cicpe diagnose runs/copper --epsilon 0.2 --delta 0.1 --option regions=held-out
    """
    from cicpe.evaluation.diagnose import diagnose as measure

    trained = load_model(model, problem, changed_problem)
    epsilon, delta = trained.promise(epsilon, delta)
    played = tasks_of(trained, problem, option, noise, context)
    tasks = played.problem
    with playing(jobs, backend) as executor:
        result = measure(trained.agent(epsilon, delta, stop), tasks, episodes, random_seed, executor)
    if as_json:
        about = {
            "options": played.options,
            "epsilon": epsilon,
            "delta": delta,
            "noise": played.context.get("noise"),
            "context": played.context,
            "stop": stop,
        }
        print_json(about | _plain(result))
    else:
        _report(result, epsilon)
    if result.at_stop.error > max(ERROR, 2 * result.at_stop.by_chance):
        raise typer.Exit(1)


def _plain(result: "Diagnosis") -> dict[str, Any]:
    rewards = None if result.rewards is None else result.rewards._asdict()
    return result._asdict() | {
        "at_stop": result.at_stop._asdict(),
        "ranks": result.ranks._asdict(),
        "rewards": rewards,
    }


def _report(result: "Diagnosis", epsilon: float) -> None:
    table = plain_table()
    for heading in ("", "measured", ""):
        table.add_column(heading)
    worst = max(result.by_time, key=lambda row: row[1], default=(0, 0.0, 0.0))
    fine = result.at_stop.error <= max(ERROR, 2 * result.at_stop.by_chance)
    verdict = "can be read as a probability" if fine else "is off: do not read it as one"
    ranks = "uniform ranks" if result.ranks.p_value > RANK_LEVEL else "not uniform: the posterior has another shape"
    rows = [
        ("accuracy", f"{result.accuracy:.3f}", f"within {epsilon:g}, after {result.mean_queries:.2f} queries"),
        ("calibration error", f"{result.at_stop.error:.4f}", f"of the confidence at the stop: it {verdict}"),
        ("", f"{result.at_stop.by_chance:.4f}", "would be there by chance, were it perfect"),
        ("Brier score", f"{result.at_stop.brier:.4f}", "of the same"),
        ("worst in time", f"{worst[1]:.4f}", f"calibration error after {worst[0]} queries"),
        ("rank test", f"p = {result.ranks.p_value:.3g}", f"of the posterior at the stop: {ranks}"),
        ("Markov bound", f"{result.markov_bound:.3f}", "success is at least this, from the mean loss alone"),
        ("sampled answers", f"{result.sampled_accuracy:.3f}", "success of a draw from the posterior"),
    ]
    if result.second_moment_bound is not None:
        rows.append(("second moment", f"{result.second_moment_bound:.3f}", "a bound on that, from the mean square"))
    if result.rewards is not None:
        own = result.rewards
        rows += [
            ("best answer", f"{own.ideal:.3f}", "what the posterior gives the best answer that was tried"),
            ("recommended", f"{own.recommended:.3f}", "the same of the recommendation"),
            ("drawn", f"{own.drawn:.3f}", "the same of an answer that is drawn"),
            ("given away", f"{own.gap_bound:.3f}", "at most, by recommending what is recommended (the paper's bound)"),
        ]
    for row in rows:
        table.add_row(*row)
    print_table(table)
    table = plain_table()
    for heading in ("confidence", "succeeded", "episodes"):
        table.add_column(heading)
    bins = result.at_stop
    for shown, right, count in zip(bins.confidence, bins.accuracy, bins.sizes, strict=True):
        table.add_row(f"{shown:.3f}", f"{right:.3f}", str(count))
    print_table(table)
