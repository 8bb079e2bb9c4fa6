"""``cicpe serve``: campaigns over HTTP, and the page for them."""

from pathlib import Path
from typing import Annotated

import typer

from cicpe.cli.arguments import whole
from cicpe.cli.output import say
from cicpe.cli.session import Place
from cicpe.errors import CicpeError, InvalidInput
from cicpe.files import data_folder

PORT = 8642


def serve(
    place: Place = None,
    host: Annotated[
        str, typer.Option(metavar="H", help="Where to listen. Any address but this machine's own needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(parser=whole, metavar="P", help="0 takes a free one.")] = PORT,
    token: Annotated[
        str | None,
        typer.Option(envvar="CICPE_TOKEN", metavar="T", help="A secret that every request has to show."),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="HOST", help="A name by which a proxy in front of it is called; needs a token."),
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="DIR", help="A model's folder, beside the zoo, to begin campaigns with."),
    ] = None,
    trained: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where models are kept that are trained on the page. Default: your data folder."
        ),
    ] = None,
) -> None:
    """Serve the campaigns of a store, with a page to run them from. Ctrl-C ends it."""
    folders = models or []
    _check(port, token, folders)
    try:
        import uvicorn

        from cicpe.server.app import make_app
        from cicpe.server.limits import uvicorn_config
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "starlette", "uvicorn"):
            raise
        raise CicpeError(f"{error.name} is missing: install it with  pip install 'cicpe[server]'") from None
    import socket

    import torch

    from cicpe.sessions.stores import open_store

    torch.set_num_threads(1)
    store = open_store(place)
    try:
        app = make_app(store, token, [host, *(names or [])], folders, trained or data_folder() / "models")
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listening = socket.create_server((host, port), family=family)
        except OSError as error:
            raise InvalidInput("host, port", f"{host}, {port}", f"an address that is free ({error.strerror})") from None
        with listening:
            shown = f"[{host}]" if ":" in host else host
            address = f"http://{shown}:{listening.getsockname()[1]}/"
            say(f"{address}" + (f"  (with the token: {address}#token=...)" if token else ""))
            try:
                uvicorn.Server(uvicorn_config(app)).run(sockets=[listening])
            finally:
                app.state.close()
    finally:
        store.close()


def _check(port: int, token: str | None, folders: list[str]) -> None:
    if not 0 <= port < 2**16:
        raise InvalidInput("port", port, f"from 0 to {2**16 - 1}")
    if token is not None and not (
        token.isascii() and token.isprintable() and token.strip() == token and len(token) >= 8
    ):
        raise InvalidInput("token", "...", "8 or more plain letters, without spaces at its ends")
    for folder in folders:
        if not (Path(folder) / "config.json").is_file():
            raise InvalidInput("model", folder, "the folder of a saved model")
