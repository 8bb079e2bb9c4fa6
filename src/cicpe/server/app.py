"""The application: routes, page, refusals, and the guard before them."""

from collections.abc import Sequence
from pathlib import Path

from fastapi import FastAPI
from starlette.staticfiles import StaticFiles

from cicpe._version import __version__
from cicpe.errors import InvalidInput
from cicpe.server.drafts import DraftService
from cicpe.server.errors import add_handlers
from cicpe.server.experiment_routes import make_experiment_routes
from cicpe.server.guard import LOOPBACK, Guard
from cicpe.server.routes import make_routes
from cicpe.server.service import CampaignService
from cicpe.server.training import TrainingService, trained_models
from cicpe.sessions.stores import Store

WEB = Path(__file__).parent / "web"
EVERYWHERE = frozenset({"0.0.0.0", "::"})
"""Hosts that mean every address of the machine."""


def make_app(
    store: Store,
    token: str | None = None,
    hosts: Sequence[str] = (),
    models: Sequence[str | Path] = (),
    trained: str | Path | None = None,
) -> FastAPI:
    """A server of the campaigns of a store.

    Args:
        store: Where they are kept.
        token: What every request to ``/api/`` has to show as ``Authorization: Bearer TOKEN``.
        hosts: Names and addresses, beside those of this machine itself, by which it may be called. Any needs a token.
        models: Folders of models, beside the zoo, that campaigns may be begun with.
        trained: A folder of the server's own for the models that it trains; without one it trains none.

    Returns:
        The application. ``app.state.close()`` ends the processes that it may have started.
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
    place = None if trained is None else Path(trained)
    service, drafts = CampaignService(store, models), DraftService()
    for folder in [] if place is None else trained_models(place):
        service.add_model(folder)
    training = TrainingService(place, service.add_model)
    app.include_router(make_routes(service))
    app.include_router(make_experiment_routes(service, drafts, training))
    app.state.close = lambda: [resource.close() for resource in (training, drafts)]
    app.mount("/", StaticFiles(directory=WEB, html=True), name="web")
    add_handlers(app)
    app.add_middleware(
        Guard,
        hosts=LOOPBACK | (beyond - EVERYWHERE),
        addresses=bool(beyond & EVERYWHERE),
        token=token,
    )
    return app
