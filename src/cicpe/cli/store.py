"""``cicpe store``: the campaigns of a store as a whole: checked, backed up, put back, and moved."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from cicpe.cli import options
from cicpe.cli.output import note, print_json, say
from cicpe.cli.session import Place
from cicpe.display import amount

store_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Whole stores: check, back up, put back, and move between SQLite and PostgreSQL.",
)
DAMAGED = 1


@store_app.command()
def check(place: Place = None, as_json: options.Json = False) -> int:
    """Read everything in a store and say what is damaged. Exit code 1 if anything is."""
    from cicpe.sessions.stores.moving import check_store
    from cicpe.sessions.stores.opening import open_existing

    with closing(open_existing(place)) as store:
        result, where = check_store(store), store.place
    if as_json:
        print_json({"store": where} | result._asdict())
    else:
        _say_faults(result.faults)
        held = f"{amount(result.campaigns, 'campaign')} with {amount(result.events, 'entry')}"
        say(f"{where}: {held}, {amount(len(result.faults), 'fault') if result.faults else 'all whole'}.")
    return DAMAGED if result.faults else 0


@store_app.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to: a new file.")],
    place: Place = None,
    as_json: options.Json = False,
) -> int:
    """Write a store to one file while others go on using it, and check the file. Exit code 1 if it has faults."""
    from cicpe.sessions.stores.moving import back_up

    result = back_up(place, file)
    if as_json:
        print_json({"file": str(file)} | result._asdict())
    else:
        _say_faults(result.faults)
        say(f"{file}: {amount(result.campaigns, 'campaign')} with {amount(result.events, 'entry')}.")
    return DAMAGED if result.faults else 0


@store_app.command()
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A backup.")],
    place: Place = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Even if the store holds campaigns; they are kept in a file beside it.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Put a backup in the place of a store. End the server that uses it first."""
    from cicpe.sessions.stores.moving import restore as put_back

    held, kept = put_back(file, place, replace)
    if as_json:
        print_json({"file": str(file), "kept": None if kept is None else str(kept)} | held._asdict())
        return
    say(f"Restored {amount(held.campaigns, 'campaign')} with {amount(held.events, 'entry')} from {file}.")
    if kept is not None:
        say(f"What was there is in {kept}.")


@store_app.command()
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A store: a file, or postgresql://...")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Another; it is made if it is not there.")],
    as_json: options.Json = False,
) -> None:
    """Copy every campaign to another store, all or none. The first store stays as it is."""
    from cicpe.sessions.stores.moving import copy_store
    from cicpe.sessions.stores.opening import open_existing, open_store
    from cicpe.sessions.stores.sql import SqlStore

    with closing(open_existing(source)) as source_store, closing(open_store(target)) as target_store:
        assert isinstance(target_store, SqlStore)
        done = copy_store(source_store, target_store)
        where = target_store.place
    if as_json:
        print_json({"to": where} | done._asdict())
        return
    already = f" ({done.already_there} had been there before)" if done.already_there else ""
    say(f"{where}: {amount(done.campaigns, 'campaign')} with {amount(done.events, 'entry')} copied{already}.")


def _say_faults(faults: list[str]) -> None:
    for fault in faults:
        note(" ".join(fault.split()))
