"""Options that several commands share, said once: ``def command(model: Model, epsilon: Epsilon, ...)``."""

from typing import Annotated

import typer

from cicpe import zoo
from cicpe.cli.arguments import number, seed, threads, whole


def complete_model(typed: str) -> list[str]:
    """Names of the zoo that begin as what was typed; the shell adds folders by itself."""
    return [name for name in zoo.names() if name.startswith(typed)]


Model = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="A model's folder, or its name in the zoo.", autocompletion=complete_model),
]
Epsilon = Annotated[
    float | None,
    typer.Option(
        parser=number,
        metavar="E",
        help="How far off an answer may be; by default what the experiment file says.",
    ),
]
Delta = Annotated[
    float | None,
    typer.Option(
        parser=number,
        metavar="D",
        help="How often it may be farther off; by default what the experiment file says.",
    ),
]
Noise = Annotated[
    float | None,
    typer.Option(parser=number, metavar="S", help="One noise level; the trained range, if left out."),
]
Context = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A known context at one value; may be repeated. --noise S means noise=S."),
]
Stop = Annotated[
    str,
    typer.Option(
        metavar="average|each|bellman|shaped|own",
        help="The stop rule. average (or confidence): 1 - delta of all episodes are right; each: every "
        "episode that stops is that sure itself; own: as a model of the recipe paper was trained to stop, "
        "uncalibrated.",
    ),
]
Verify = Annotated[
    int,
    typer.Option(
        parser=whole,
        metavar="K",
        help="Redundant queries before a stop is final, which expose a prior that is wrong.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", parser=seed, metavar="N", help="Seeds the tasks.")]
OwnProblem = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.py:Class",
        help="The problem that the model was trained on, where that is a program of your own: what a folder names is "
        "never run. It is remembered for as long as its source stays the same.",
    ),
]
ChangedProblem = Annotated[
    bool,
    typer.Option(
        "--changed-problem",
        help="Take --problem even though its source is not what the model was trained on.",
    ),
]
ProblemOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help="A further option of the problem, as JSON or text; may be repeated. `cicpe problems` lists them.",
    ),
]
OtherTasks = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help="Tasks with this option of the model's problem replaced, as JSON or text; may be repeated.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        parser=threads,
        metavar="N",
        help="Workers, each of one thread; 1 if left out, and on Ray all processors of the cluster. The figures do not "
        "depend on it.",
    ),
]
Backend = Annotated[
    str, typer.Option(metavar="local|ray", help="Workers on this machine, or on the Ray cluster of RAY_ADDRESS.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
