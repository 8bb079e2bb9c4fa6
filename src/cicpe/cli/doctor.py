"""``cicpe check`` (or ``doctor``): is a family as it has to be, and what does it look like before training?"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cicpe.cli import options
from cicpe.cli.arguments import given, number, one_or_two, seed, whole
from cicpe.cli.check import check_experiment
from cicpe.cli.output import note, print_json
from cicpe.cli.tasks import problem_of
from cicpe.display import amount
from cicpe.errors import InvalidInput

BAD_INPUT = 2

if TYPE_CHECKING:
    from cicpe.doctor import FamilyPortrait
    from cicpe.problems import Problem


def doctor(
    problem: Annotated[
        str,
        typer.Argument(
            metavar="PROBLEM|FILE",
            help="An experiment file, a template, a registered name, module:Class, or path/to/file.py:Class.",
        ),
    ],
    dim: Annotated[int | None, typer.Option(parser=whole, metavar="D", help="Number of dimensions.")] = None,
    noise: Annotated[
        list[float] | None, typer.Option(parser=number, metavar="S | LO HI", help="Noise: one level, or a range.")
    ] = None,
    option: options.ProblemOption = None,
    epsilon: Annotated[
        list[float] | None, typer.Option(parser=number, metavar="E | LO HI", help="Epsilon: one value, or a range.")
    ] = None,
    random_seed: Annotated[int, typer.Option("--seed", parser=seed, metavar="N", help="Seeds the simulations.")] = 0,
    png: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Of an experiment: draw into this file, not at the terminal.")
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(parser=number, metavar="S", help="Of an experiment: how long simulated campaigns may take."),
    ] = 10.0,
    as_json: options.Json = False,
) -> None:
    """Check a family or an experiment file, and say what it looks like before anything is trained.

    Of an experiment file: every fault of it (exit 2), or what was understood, eight experiments that might happen, and
    how many measurements to expect. Of a problem: what is wrong with its code (exit 2), what is hidden, what an
    observation tells, how many queries any agent needs at least, and what could go wrong.

    \b
    Examples:
      cicpe check anneal.toml
      cicpe check anneal.toml --png anneal.png
      cicpe check binary-search --dim 6
      cicpe check examples/dose_finding.py:DoseFinding --epsilon 0.05 0.15
    """
    from cicpe.doctor import diagnose_problem
    from cicpe.problems.registry import is_experiment

    if is_experiment(problem):
        for flag, value in given(dim=dim, noise=noise or None, option=option, epsilon=epsilon or None).items():
            raise InvalidInput(flag, value, "left out: all that an experiment needs is in its file")
        check_experiment(problem, png, seconds, random_seed, as_json)
        return
    family, _ = problem_of(problem, option, dim=dim, noise=one_or_two("noise", noise))
    faults = _faults(family)
    if faults and not as_json:
        for fault in faults:
            note(f"error: {fault}")
    if faults:
        if as_json:
            print_json(_basics(family) | {"faults": faults})
        raise typer.Exit(BAD_INPUT)
    wanted = one_or_two("epsilon", epsilon)
    limits = None if wanted is None else (wanted, wanted) if isinstance(wanted, float) else wanted
    portrait = diagnose_problem(family, limits, random_seed)
    if as_json:
        print_json(_basics(family) | _as_json(portrait))
        return
    for line in _lines(family, portrait):
        print(line)


def _faults(problem: "Problem") -> list[str]:
    """What is wrong with a problem's own code, a line each."""
    from cicpe.errors import ProblemError
    from cicpe.testing import check_problem

    try:
        check_problem(problem)
    except ProblemError as error:
        return [line.strip() for line in str(error).splitlines() if line.strip()]
    return []


def _basics(problem: "Problem") -> dict[str, Any]:
    return {"query_space": problem.query_space.to_json(), "answer_space": problem.answer_space.to_json()}


def _as_json(seen: "FamilyPortrait") -> dict[str, Any]:
    bounds = [
        bound._asdict() | {"least_queries": bound.least_queries if math.isfinite(bound.least_queries) else None}
        for bound in seen.bounds
    ]
    kinds = list(dict.fromkeys(seen.observation))
    return {
        **seen._asdict(),
        "unknowns": None if seen.hidden is None else seen.hidden + (0 if seen.gives_answer else seen.answer),
        "observation_kind": kinds[0] if len(kinds) == 1 else kinds,
        "expected_queries": bounds[len(bounds) // 2]["least_queries"],
        "bounds": bounds,
        "faults": [],
    }


def _lines(problem: "Problem", seen: "FamilyPortrait") -> list[str]:
    if seen.hidden is None:
        hidden = "what else is hidden cannot be read as numbers"
    elif seen.gives_answer:
        hidden = f"it is a function of {amount(seen.hidden, 'number')}"
    else:
        hidden = f"{amount(seen.hidden, 'number')} beside it"
    where = ", ".join(f"{value:.3g}" for value in seen.best_query)
    lines = [
        f"Hidden           an answer of {amount(seen.answer, 'number')}; {hidden}",
        f"Observation      {_observation(seen)}; {seen.milliseconds:.3g} ms to simulate",
        f"Information      the best single query seen ({where}) tells about {seen.bits:.2f} bits",
    ]
    for bound in seen.bounds:
        least = f"{bound.least_queries:.1f}" if math.isfinite(bound.least_queries) else "no number of"
        lines.append(
            f"Epsilon {bound.epsilon:<8.3g} a guess is right in {bound.guess:.2f} of tasks; 0.9 takes about {least} "
            f"queries at least (the problem allows {problem.horizon})"
        )
    return lines + [f"Mind             {warning}" for warning in seen.warnings]


def _observation(seen: "FamilyPortrait") -> str:
    """The entries of an observation in words, equal ones once."""
    kinds = list(dict.fromkeys(seen.observation))
    counts = [seen.observation.count(kind) for kind in kinds]
    return "; ".join(kind if count == 1 else f"{count} x {kind}" for kind, count in zip(kinds, counts, strict=True))
