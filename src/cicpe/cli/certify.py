"""``cicpe certify``: test a model's promise on fresh tasks, and keep the evidence."""

import math
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cicpe import zoo
from cicpe.cli import options
from cicpe.cli.arguments import number, whole
from cicpe.cli.output import note, print_json, say
from cicpe.cli.playing import playing
from cicpe.cli.tasks import load_model, tasks_of

if TYPE_CHECKING:
    from cicpe.certification.certificate import Certificate

NOT_CERTIFIED = 1


def certify(
    model: options.Model,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    noise: options.Noise = None,
    context: options.Context = None,
    alpha: Annotated[
        float, typer.Option(parser=number, metavar="A", help="Probability of a false certificate.")
    ] = 0.05,
    episodes: Annotated[int, typer.Option(parser=whole, metavar="N", help="Fresh tasks to play at most.")] = 20_000,
    random_seed: options.Seed = 0,
    stop: options.Stop = "confidence",
    problem: options.OwnProblem = None,
    changed_problem: options.ChangedProblem = False,
    option: options.OtherTasks = None,
    jobs: options.Jobs = None,
    backend: options.Backend = "local",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where certificates are kept; MODEL/certificate.json, if left out."),
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Test on fresh tasks whether a model keeps its promise.

    Ends as soon as the evidence is enough. The exit code is 0 if certified and 1 if not. Every test of the same
    weights spends alpha, and the file of certificates remembers. Models of the zoo are read-only: their
    certificate is printed, and kept only with --out.

    \b
    Examples:
      cicpe certify runs/mine --epsilon 0.2 --delta 0.1
      cicpe certify binary-search-6d --epsilon 0.2 --delta 0.1 --noise 0.05 --out certificates.json
      cicpe certify runs/copper --epsilon 0.2 --delta 0.1 --option regions=held-out
    """
    from cicpe.certification.certificate import LEDGER, open_ledger, read_ledger
    from cicpe.certification.certify import certify as certified
    from cicpe.model.model import model_folder

    trained = load_model(model, problem, changed_problem)
    epsilon, delta = trained.promise(epsilon, delta)
    shipped = model in zoo.names()
    own = model_folder(model) / LEDGER
    place = out or (None if shipped else own)
    played = tasks_of(trained, problem, option, noise, context)
    # From reading to adding, nobody else tests: two at once would both spend what is left for one.
    with nullcontext() if place is None else open_ledger(place) as kept, playing(jobs, backend) as executor:
        others = read_ledger(own) if place is None or place.resolve() != own.resolve() else ()
        certificate = certified(
            trained,
            epsilon=epsilon,
            delta=delta,
            context=played.context,
            stop=stop,
            alpha=alpha,
            episodes=episodes,
            seed=random_seed,
            problem=played.problem,
            ledger=others + (() if kept is None else kept.certificates),
            executor=executor,
        )
        if played.changed:
            sentence = f"{certificate.sentence} The tasks had {played.said}, which is not the model's own."
            certificate = certificate.model_copy(update={"sentence": sentence, "problem_options": played.options})
        if kept is not None:
            kept.append(certificate)
    if place is None:
        note("Models of the zoo are read-only: this certificate is not remembered. --out FILE keeps it.")
    if as_json:
        print_json(_summary(certificate, place))
    else:
        _report(certificate, place)
    return 0 if certificate.certified else NOT_CERTIFIED


def _summary(certificate: "Certificate", place: Path | None) -> dict[str, Any]:
    return certificate.model_dump(mode="json") | {"kept_in": None if place is None else str(place)}


def _report(certificate: "Certificate", place: Path | None) -> None:
    say(certificate.sentence)
    evidence = math.exp(certificate.log_martingale)
    say(f"Evidence: the martingale reached {evidence:.1f}; {1 / certificate.alpha:g} certifies.")
    say(f"Queries: {certificate.mean_queries:.2f} on average. Weights: {certificate.model_sha256[:12]}.")
    if place is not None:
        say(f"Kept in {place}; alpha spent on these weights: {certificate.alpha_spent:g}.")
