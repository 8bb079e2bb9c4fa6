"""``cicpe doctor``: what a family looks like before anything is trained."""

import math
from typing import TYPE_CHECKING, Annotated

import typer

from cicpe.cli import options
from cicpe.cli.arguments import number, one_or_two, seed, whole
from cicpe.cli.output import amount, print_json
from cicpe.cli.tasks import problem_of

if TYPE_CHECKING:
    from cicpe.doctor import FamilyPortrait
    from cicpe.problems import Problem


def doctor(
    problem: Annotated[
        str, typer.Argument(metavar="PROBLEM", help="A registered name, module:Class, or path/to/file.py:Class.")
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
    as_json: options.Json = False,
) -> None:
    """Say what a family looks like before anything is trained.

    What is hidden, what an observation tells, how many queries any agent needs at least, and what could go wrong.

    \b
    Examples:
      cicpe doctor binary-search --dim 6
      cicpe doctor examples/dose_finding.py:DoseFinding --epsilon 0.05 0.15
    """
    from cicpe.doctor import diagnose_problem

    family, _ = problem_of(problem, option, dim=dim, noise=one_or_two("noise", noise))
    wanted = one_or_two("epsilon", epsilon)
    limits = None if wanted is None else (wanted, wanted) if isinstance(wanted, float) else wanted
    diagnosis = diagnose_problem(family, limits, random_seed)
    if as_json:
        bounds = [
            bound._asdict() | {"least_queries": bound.least_queries if math.isfinite(bound.least_queries) else None}
            for bound in diagnosis.bounds
        ]
        print_json(diagnosis._asdict() | {"bounds": bounds})
        return
    for line in _lines(family, diagnosis):
        print(line)


def _lines(problem: "Problem", seen: "FamilyPortrait") -> list[str]:
    beside = "what else is hidden cannot be read as numbers" if seen.hidden is None else amount(seen.hidden, "number")
    hidden = beside if seen.hidden is None else f"{beside} beside it"
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
