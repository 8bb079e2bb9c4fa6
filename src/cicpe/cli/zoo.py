"""``cicpe zoo``: the trained models that ship with the library."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from cicpe import zoo
from cicpe.cli import options
from cicpe.cli.arguments import whole
from cicpe.cli.output import note, plain_table, print_json, print_table
from cicpe.errors import InvalidInput, ModelError, meant
from cicpe.files import read_file

zoo_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Trained models that ship with the library.")


@zoo_app.command("list")
def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """List the models of the zoo. Each name can be given wherever a MODEL is asked for.

    Ready-made kinds of experiment come first, with what each is for; the families of the paper follow.
    """
    rows = [_summary(name, zoo.folder(name)) for name in zoo.names()]
    rows.sort(key=lambda row: row["title"] == "")  # stable: each part stays in the order of its names
    if as_json:
        print_json({"models": rows})
        return
    if not rows:
        print("The zoo is empty. Train a model of your own: cicpe train binary-search --out runs/mine --minutes 2")
        return
    if rows[0]["title"]:
        _show_ready_made([row for row in rows if row["title"]])
    rows = [row for row in rows if not row["title"]]
    table = plain_table()
    for heading in ("name", "problem", "epsilon", "at most", "actor", "trained"):
        table.add_column(heading)
    for row in rows:
        low, high = row["epsilon"]
        epsilon, limit = f"{low:g} to {high:g}", f"{row['horizon']} queries"
        table.add_row(row["name"], row["problem"], epsilon, limit, row["actor"], f"{row['minutes']:.1f} min")
    print_table(table)


def _show_ready_made(rows: list[dict[str, Any]]) -> None:
    """Kinds of experiment, each with what it is for."""
    table = plain_table()
    for heading in ("ready-made", "for", "within", "at most"):
        table.add_column(heading)
    for row in rows:
        table.add_row(row["name"], row["title"], row["within"], f"{row['horizon']} measurements")
    print_table(table)


@zoo_app.command("show")
def show_model(
    name: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A name in the zoo, or a folder.", autocompletion=options.complete_model),
    ],
    as_json: options.Json = False,
) -> None:
    """Print a model's card: what it was trained for, how, and how it was calibrated."""
    folder = _folder(name)
    if as_json:
        print_json(_summary(name, folder) | {"card": _card(folder)})
    else:
        print(_card(folder), end="")


def _card(folder: Path) -> str:
    from cicpe.sessions.texts import shown_page

    try:
        return shown_page(read_file(folder / "card.md").decode(errors="replace"))
    except FileNotFoundError:
        raise ModelError(f"{folder} holds no card.md: it is not a saved model") from None


@zoo_app.command("use")
def use_model(
    name: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="A ready-made kind, or a folder.", autocompletion=options.complete_model),
    ],
    experiment: Annotated[Path, typer.Argument(metavar="FILE", help="Your experiment file.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for your model.")],
    as_json: options.Json = False,
) -> None:
    """Take a ready-made model for your own experiment of the same shape, without training.

    Ranges, units, names and steps may be your own; what is asked has to be, as a share of the ranges, what the model
    was trained for. `cicpe new --template NAME` begins with a file that is.

    \b
    Example:
      cicpe zoo use psychometric-2afc mine.toml --out mine
    """
    import cicpe

    if out.exists():
        raise InvalidInput("out", str(out), "a new folder")
    cicpe.adapt(cicpe.load(name), str(experiment)).save(out)
    if as_json:
        print_json({"out": str(out), "model": name, "experiment": str(experiment)})
    else:
        print(f"The model is in {out}. Next:  cicpe session new {out}")


@zoo_app.command("verify")
def verify_models(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL", help="Names in the zoo, or folders; all of the zoo.")
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(parser=whole, metavar="N", help="Fresh tasks of each; 400, or 60 for the slow ones, by default."),
    ] = None,
    random_seed: options.Seed = 0,
    as_json: options.Json = False,
) -> int:
    """Check models: their files, their hashes, and whether they keep their promise.

    Every file has to parse, and the weights have to be those that the config, the card and the certificates speak of.
    Then each model plays fresh tasks at its middle epsilon and delta 0.1. It fails if it succeeds so rarely that an
    exact binomial test refutes a probability of 1 - delta at the 1 % level; that shows large faults, not small ones.
    The exit code is 1 if a model fails.

    \b
    Examples:
      cicpe zoo verify
      cicpe zoo verify binary-search-6d runs/mine --episodes 4000 --json
    """
    import torch

    from cicpe.cli.zoo_verify import verify

    if episodes is not None and episodes < 1:
        raise InvalidInput("episodes", episodes, "a whole number of at least 1")
    torch.set_num_threads(1)
    verdicts = []
    for name, folder in [(name, _folder(name)) for name in names or zoo.names()]:
        note(f"{name} ...")
        verdicts.append(verify(name, folder, episodes, random_seed))
    verified = all(verdict.fault is None for verdict in verdicts)
    if as_json:
        print_json({"verified": verified, "models": [verdict.to_json() for verdict in verdicts]})
    else:
        table = plain_table()
        for heading in ("name", "", "weights", "epsilon", "delta", "tasks", "accuracy", "p", "queries", ""):
            table.add_column(heading)
        for verdict in verdicts:
            table.add_row(*verdict.cells())
        print_table(table)
    return 0 if verified else 1


def _folder(name: str) -> Path:
    """The folder of a name in the zoo, or the name as a folder."""
    folder = zoo.folder(name) if name in zoo.names() else Path(name)
    if not folder.is_dir():
        known = ", ".join(zoo.names()) or "it is empty"
        raise InvalidInput("model", name, f"a folder, or one of the zoo: {known}{meant(name, zoo.names())}")
    return folder


def _summary(name: str, folder: Path) -> dict[str, Any]:
    """What a model says of itself, read without its weights."""
    from cicpe.units import Units

    path = folder / "config.json"
    try:
        config = json.loads(read_file(path))
        training = config["training"]
        units = Units.model_validate(config.get("units", {}))
        return {
            "name": name,
            "title": units.title,
            "within": "" if units.epsilon is None else units.tolerance_words(units.epsilon),
            "problem": config["problem"],
            "options": config["problem_options"],
            "epsilon": training["epsilon"],
            "horizon": config["horizon"],
            "actor": training["actor"],
            "recipe": config["recipe"],
            "minutes": config["minutes"],
        }
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist: {folder} is not a saved model") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(f"{path} is damaged: {type(error).__name__}: {error}") from None
