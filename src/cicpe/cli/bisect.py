"""``cicpe bisect``: which commit made a test flaky, in a git repository."""

import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cicpe.cli import options
from cicpe.cli.arguments import number, whole
from cicpe.cli.bisect_view import show_bisection, show_log, to_json
from cicpe.cli.output import note, print_json, say
from cicpe.errors import CicpeError, InvalidInput

if TYPE_CHECKING:
    from cicpe.bisection.campaign import Bisection, BisectionCampaign
    from cicpe.bisection.journal import Outcome

bisect_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Flaky tests: which commit made a test fail more often, at a stated confidence.",
)

SKIP, LAST_FAILURE = 125, 127
"""Exit codes of a test, as `git bisect run` reads them: 0 passes, 125 skips, 1 to 127 fail, and others abort."""

STANDARD_ERROR = 2
"""Its descriptor."""

Commit = Annotated[
    str | None,
    typer.Option("--commit", "-c", metavar="REV", help="The commit that was run. Default: what is checked out."),
]


@bisect_app.command()
def start(
    good: Annotated[str, typer.Argument(metavar="GOOD", help="A commit at which the test failed rarely, or never.")],
    bad: Annotated[str, typer.Argument(metavar="BAD", help="A later commit at which it fails more often.")] = "HEAD",
    confidence: Annotated[
        float, typer.Option(parser=number, metavar="P", help="How sure to be of the culprit before it stops.")
    ] = 0.95,
    cap: Annotated[int, typer.Option(parser=whole, metavar="N", help="The most runs; it then ends unanswered.")] = 1000,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="F,P", help="What you know of the rate before: as if F runs had failed and P passed [0.5,5]."
        ),
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="F,P", help="The same of the rate from the culprit on [1,1: anything].")
    ] = None,
    any_order: Annotated[
        bool, typer.Option("--any-order", help="The test may also fail less often from the culprit on.")
    ] = False,
    nothing: Annotated[
        float | None,
        typer.Option(parser=number, metavar="P", help="How likely it is that no commit of the range changed anything."),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Begin: say where the test was good and where it is bad, and get the first commit to run.

    A flaky test fails with some unknown probability, and from the culprit on with a larger one. A single pass or
    failure proves nothing, so commits are run again and again, always the most informative one, until one commit is
    the culprit with the probability that you ask for. GOOD need not be perfect: it must only be before the change.

    Commits are those along first parents from GOOD to BAD, each of which contains all earlier ones; a merge stands for
    the branch that it brought in. The work tree must have no changes to tracked files. Nothing is run that you do not
    give to `run`. The bisection is kept in the git directory and survives anything; `reset` ends it.

    \b
    Examples:
      cicpe bisect start v1.4 main
      cicpe bisect run python -m pytest tests/test_upload.py -x    # until it is sure
      cicpe bisect start HEAD~200 --confidence 0.99 --cap 300
      cicpe bisect start v1.4 --before 1,99 --after 5,5            # failed about 1 in 100, now about half
    """
    from cicpe.bisection.campaign import BisectionSettings
    from cicpe.bisection.rates import RatePrior

    usual = BisectionSettings()
    rates = RatePrior(
        _shape("before", before) if before else usual.rates.before,
        _shape("after", after) if after else usual.rates.after,
        not any_order,
    )
    settings = BisectionSettings(confidence, cap, rates, usual.nothing if nothing is None else nothing)
    campaign = _campaign()
    return _show(campaign, campaign.start(good, bad, settings), as_json)


@bisect_app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run(
    command: Annotated[list[str], typer.Argument(metavar="CMD...", help="The test, as you would type it.")],
    at_most: Annotated[
        int | None, typer.Option("--runs", parser=whole, metavar="N", help="End after N runs; it can go on later.")
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Run a test again and again, at the most informative commit, until the culprit is known.

    CMD is run at the top of the work tree, as it stands and without a shell. Exit code 0 is a pass, 125 a skip (this
    commit cannot be tested), anything else from 1 to 127 a failure; a higher one, or a signal, aborts and records
    nothing. Options of `run` itself come before CMD. Interrupt it whenever you like: the same command goes on.

    The exit code is 0 if a culprit was found, 1 if not (nothing changed, the cap, or --runs).

    \b
    Examples:
      cicpe bisect run ./flaky-test.sh
      cicpe bisect run --runs 20 python -m pytest tests/test_upload.py -x
      cicpe bisect run sh -c 'make || exit 125; ./flaky-test.sh'
    """
    if at_most is not None and at_most < 1:
        raise InvalidInput("runs", at_most, "a whole number of at least 1")
    campaign = _campaign()
    bisection = campaign.prepare()
    n_runs = 0
    while bisection.next_commit is not None and (at_most is None or n_runs < at_most):
        bisection = _run_once(campaign, bisection.next_commit, command, as_json)
        n_runs += 1
    return _show(campaign, bisection, as_json) or int(not bisection.found)


@bisect_app.command("pass")
def passed(commit: Commit = None, as_json: options.Json = False) -> int:
    """Say that the test passed at what is checked out, and get the next commit.

    \b
    Examples:
      cicpe bisect pass
      cicpe bisect pass --commit v1.4
    """
    return _record("pass", commit, as_json)


@bisect_app.command("fail")
def failed(commit: Commit = None, as_json: options.Json = False) -> int:
    """Say that the test failed at what is checked out, and get the next commit.

    \b
    Examples:
      cicpe bisect fail
      cicpe bisect fail --commit main~3 --json
    """
    return _record("fail", commit, as_json)


@bisect_app.command("skip")
def skipped(commit: Commit = None, as_json: options.Json = False) -> int:
    """Say that what is checked out cannot be tested: it is not asked for again, and may still be the culprit.

    Where the culprit lies next to commits that were skipped, the answer is all of them together.

    \b
    Examples:
      cicpe bisect skip
    """
    return _record("skip", commit, as_json)


@bisect_app.command()
def status(as_json: options.Json = False) -> int:
    """Show what is believed: the suspects, both failure rates, the next commit, and how many runs to expect.

    \b
    Examples:
      cicpe bisect status --json
    """
    campaign = _campaign()
    return _show(campaign, campaign.read(), as_json)


@bisect_app.command()
def undo(as_json: options.Json = False) -> int:
    """Take back the last pass, fail or skip; again for the one before. The log keeps both.

    \b
    Examples:
      cicpe bisect undo
    """
    campaign = _campaign()
    bisection, entry = campaign.undo()
    note(f"Undone: {entry.outcome} at {entry.commit[:12]}.")
    return _show(campaign, bisection, as_json)


@bisect_app.command()
def log(as_json: options.Json = False) -> int:
    """Show everything that was recorded, as the commands that would record it again.

    \b
    Examples:
      cicpe bisect log > bisection.sh
    """
    campaign = _campaign()
    bisection = campaign.read()
    events = campaign.journal.read()[1]
    if as_json:
        print_json({"start": bisection.settings.to_json(), "commits": list(bisection.commits), "events": events})
    else:
        show_log(bisection, events)
    return 0


@bisect_app.command()
def reset(
    force: Annotated[
        bool, typer.Option("--force", help="Give up a log that cannot be read, and leave the checkout as it is.")
    ] = False,
    as_json: options.Json = False,
) -> int:
    """End the bisection, and check out again what was checked out when it began.

    \b
    Examples:
      cicpe bisect reset
    """
    head = _campaign().reset(force)
    if as_json:
        print_json({"reset": True, "branch": head and head.branch, "commit": head and head.commit})
    elif head is None:
        say("The log is gone; the checkout is as it was.")
    else:
        name = head.branch.removeprefix("refs/heads/") if head.branch else head.commit[:12]
        say(f"The bisection is over; {name} is checked out again.")
    return 0


def _campaign() -> "BisectionCampaign":
    from cicpe.bisection.campaign import BisectionCampaign

    return BisectionCampaign(Path.cwd())


def _record(outcome: "Outcome", commit: str | None, as_json: bool) -> int:
    campaign = _campaign()
    return _show(campaign, campaign.record(outcome, commit), as_json)


def _show(campaign: "BisectionCampaign", bisection: "Bisection", as_json: bool) -> int:
    if as_json:
        print_json(to_json(campaign.repository, bisection))
    else:
        show_bisection(campaign.repository, bisection)
    return 0


def _run_once(campaign: "BisectionCampaign", commit: str, command: list[str], as_json: bool) -> "Bisection":
    """Runs the test once at the commit that is checked out, and records what became of it."""
    folder = campaign.repository.folder
    try:
        # Standard output is for our own JSON where that is wanted.
        code = subprocess.run(command, cwd=folder, check=False, stdout=STANDARD_ERROR if as_json else None).returncode
    except OSError as error:
        allowed = "a program that can be run at the top of the work tree"
        raise InvalidInput("command", command[0], f"{allowed} ({error.strerror}); nothing was recorded") from None
    if code < 0 or code > LAST_FAILURE:
        ended = f"was ended by signal {-code}" if code < 0 else f"exited with {code}"
        raise CicpeError(
            f"the command must exit with 0 (pass), {SKIP} (skip) or 1 to {LAST_FAILURE} (fail); "
            f"{shlex.join(command)} {ended}. Nothing was recorded; the same command goes on"
        )
    outcome: Outcome = "pass" if code == 0 else "skip" if code == SKIP else "fail"
    bisection = campaign.record(outcome, commit)
    verdict = bisection.verdict
    likeliest = f"likeliest {verdict.answer[0].commit[:12]} ({verdict.probability:.3f})"
    note(f"{outcome} at {commit[:12]}; {bisection.runs} runs; {likeliest}")
    return bisection


def _shape(field: str, text: str) -> Any:
    from cicpe.bisection.rates import BetaShape

    parts = text.split(",")
    try:
        fails, passes = map(float, parts)
    except ValueError:
        raise InvalidInput(field, text, "two numbers with a comma between, failures and passes, such as 1,9") from None
    try:
        return BetaShape(fails, passes)
    except InvalidInput as error:
        raise InvalidInput(field, text, error.allowed) from None
