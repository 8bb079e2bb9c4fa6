"""The entry point: every command by name, and what becomes of errors.

Exit codes: 0 done, 1 the answer is no, 2 bad input, 70 a fault of ours (with its traceback), 130 interrupted.
"""

import shlex
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from cicpe._version import __version__
from cicpe.cli.alarm import alarm
from cicpe.cli.arguments import spread_ranges
from cicpe.cli.bisect import bisect_app
from cicpe.cli.calibrate import calibrate
from cicpe.cli.certify import certify
from cicpe.cli.compare import compare
from cicpe.cli.data import data_app
from cicpe.cli.demo import demo
from cicpe.cli.diagnose import diagnose
from cicpe.cli.doctor import doctor
from cicpe.cli.evaluate import evaluate
from cicpe.cli.new import new
from cicpe.cli.output import note
from cicpe.cli.problems import problems
from cicpe.cli.report import report
from cicpe.cli.robustness import robustness
from cicpe.cli.serve import serve
from cicpe.cli.session import session_app
from cicpe.cli.store import store_app
from cicpe.cli.sweep import sweep
from cicpe.cli.train import train
from cicpe.cli.zoo import zoo_app
from cicpe.errors import CicpeError, UnknownProblem, allowed_by, refusal

BAD_INPUT, OUR_FAULT = 2, 70

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"cicpe {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """What to measure next, when to stop, and what the answer is.

    Start with `cicpe demo`, which trains an agent in a minute or two and deploys it. `cicpe COMMAND --help` says
    more of each command.
    """


app.command()(demo)
app.command()(new)
app.command()(problems)
app.command("check")(doctor)
app.command("doctor")(doctor)
app.add_typer(data_app, name="data")
app.command()(train)
app.command()(sweep)
app.command()(calibrate)
app.command()(evaluate)
app.command()(compare)
app.command()(certify)
app.command()(diagnose)
app.command()(robustness)
app.command()(report)
app.command()(alarm)
app.add_typer(session_app, name="session")
app.add_typer(store_app, name="store")
app.command()(serve)
app.add_typer(zoo_app, name="zoo")
app.add_typer(bisect_app, name="bisect")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; a user's mistake is one line on standard error."""
    words = spread_ranges(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(args=words, prog_name="cicpe", standalone_mode=False)
    except UnknownProblem as error:
        return _refuse(f"{error}. Type:  {_with_problem(words, error.place)}")
    except CicpeError as error:
        for fault in getattr(error, "faults", [error])[:-1]:  # an experiment's: all of them, a line each
            note(f"error: {fault}")
        return _refuse(str(getattr(error, "faults", [error])[-1]))
    except typer.TyperException as error:
        return _refuse_usage(error.format_message())
    except OSError as error:
        return _refuse(f"{error.filename or 'a file'}: {error.strerror or error}")
    except Exception as error:
        return _refuse_settings(error)
    return code if isinstance(code, int) else 0


def _with_problem(words: Sequence[str], place: str) -> str:
    """The command that names the problem: the same again, or the one of a campaign that takes it."""
    if words[:1] == ["session"] and words[1:2] != ["new"]:
        named = [flag for flag in ("-c", "--campaign", "--store") if flag in words]
        kept = [word for flag in named for word in words[words.index(flag) :][:2]]
        words = ["session", "ask", *kept]
    return shlex.join(["cicpe", *words]) + f" --problem {place}"


def _refuse(message: str) -> int:
    note("error: " + " ".join(message.split()))
    return BAD_INPUT


def _refuse_usage(message: str) -> int:
    if not message.startswith("Usage:"):
        return _refuse(message)
    note(message)  # the help of a command that was given nothing to do
    return BAD_INPUT


def _refuse_settings(error: Exception) -> int:
    from pydantic import ValidationError  # here, because it is only needed once something went wrong

    if not isinstance(error, ValidationError):
        traceback.print_exception(error)
        return OUR_FAULT
    fault = error.errors()[0]
    field = ".".join(map(str, fault["loc"]))
    if not field:
        return _refuse(fault["msg"].removeprefix("Value error, "))
    return _refuse(refusal(field, fault["input"], allowed_by(fault["msg"])))
