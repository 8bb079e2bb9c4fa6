"""The application: routes, page, refusals, and the guard before them."""

from collections.abc import Sequence
from pathlib import Path

from fastapi import FastAPI
from starlette.staticfiles import StaticFiles

from cicpe._version import __version__
from cicpe.errors import InvalidInput
from cicpe.server.errors import add_handlers
from cicpe.server.guard import LOOPBACK, Guard
from cicpe.server.routes import make_routes
from cicpe.server.service import CampaignService
from cicpe.sessions.stores import Store

WEB = Path(__file__).parent / "web"
EVERYWHERE = frozenset({"0.0.0.0", "::"})
"""Hosts that mean every address of the machine."""


def make_app(
    store: Store, token: str | None = None, hosts: Sequence[str] = (), models: Sequence[str | Path] = ()
) -> FastAPI:
    """A server of the campaigns of a store.

    Args:
        store: Where they are kept.
        token: What every request to ``/api/`` has to show as ``Authorization: Bearer TOKEN``.
        hosts: Names and addresses, beside those of this machine itself, by which it may be called. Any needs a token.
        models: Folders of models, beside the zoo, that campaigns may be begun with.
    """
    beyond = set(hosts) - LOOPBACK
    if beyond and not token:
        raise InvalidInput("token", token, f"a secret: {', '.join(sorted(beyond))} can be reached by others")
    app = FastAPI(
        title="cicpe",
        version=__version__,
        description="Campaigns: ask what to measure, tell what came out, until it says stop.",
        docs_url=None,  # the usual pages load their scripts from elsewhere
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    app.include_router(make_routes(CampaignService(store, models)))
    app.mount("/", StaticFiles(directory=WEB, html=True), name="web")
    add_handlers(app)
    app.add_middleware(
        Guard,
        hosts=LOOPBACK | (beyond - EVERYWHERE),
        addresses=bool(beyond & EVERYWHERE),
        token=token,
    )
    return app
