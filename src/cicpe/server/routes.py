"""What can be asked of a server, one function a route. What each does is in ``Campaign`` and ``Session``."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.security import HTTPBearer

from cicpe.errors import SessionError
from cicpe.server.errors import Refused, fault
from cicpe.server.schemas import (
    AboutOpenQuery,
    Attach,
    AttachTable,
    CampaignLog,
    Campaigns,
    CampaignView,
    Correct,
    Fault,
    Fork,
    Key,
    LogEntry,
    MeasuredValue,
    Models,
    ModelView,
    NewCampaign,
    PlotData,
    Question,
    Release,
    Skipping,
    Tell,
    Undo,
    Verify,
)
from cicpe.server.service import CampaignService, model_view, plot_data
from cicpe.sessions.campaign import Campaign, OtherQuery
from cicpe.sessions.events import in_force, in_words
from cicpe.sessions.stores import Conflict, StoredEvent
from cicpe.sessions.stores.references import NAME, read_reference
from cicpe.sessions.tables import rows_of, table_of
from cicpe.units import Units

CampaignName = Annotated[
    str, Path(description="Its name or `name:NAME`, its id, or `id:` and the first letters of its id.", max_length=69)
]
IdempotencyKey = Annotated[
    Key | None,
    Header(
        alias="Idempotency-Key",
        description="A name for this change: sent again with the same one, it is made only once.",
    ),
]
CSV = {"text/csv": {"schema": {"type": "string"}}}
"""The documented content of a table; a refusal is JSON there too."""
REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Fault, "description": "The body cannot be read."},
    401: {"model": Fault, "description": "The token is missing or wrong."},
    403: {"model": Fault, "description": "The Host or the Origin is not this server's."},
    404: {"model": Fault, "description": "There is no such campaign."},
    408: {"model": Fault, "description": "The body did not arrive in time."},
    409: {"model": Fault, "description": "Not as things are now; what they are is under `now`."},
    413: {"model": Fault, "description": "More than 1 MB."},
    422: {"model": Fault, "description": "A value that cannot be taken; the field is named."},
    503: {"model": Fault, "description": "The store does not answer."},
}


def new_router() -> APIRouter:
    """A router of ``/api`` whose routes say how they are guarded and what they refuse."""
    bearer = HTTPBearer(auto_error=False, description="Needed where the server was started with a token.")
    return APIRouter(prefix="/api", dependencies=[Depends(bearer)], responses=REFUSALS)


def make_routes(service: CampaignService) -> APIRouter:
    """The routes that a service of campaigns answers."""
    api = new_router()

    def opened(name: str) -> Campaign:
        return service.open(_checked(name))

    def changed(name: str, change: Callable[[Campaign], None]) -> CampaignView:
        campaign = opened(name)
        try:
            change(campaign)
        except SessionError as error:
            raise Refused(409, _refusal(service, opened(name), error)) from None
        service.keep(campaign)
        return service.view(campaign)

    @api.get("/models")
    def models() -> Models:
        """What a campaign can be begun with."""
        return Models(models=list(service.models))

    @api.get("/models/{name}")
    def model(name: Annotated[str, Path(max_length=200)]) -> ModelView:
        """What a model is for: its range of epsilon, its deltas, what it wants to know beforehand."""
        if name not in service.models:
            raise Refused(404, fault("model", name, f"one of {', '.join(service.models)}"))
        return model_view(name, service.model(name))

    @api.get("/campaigns")
    def campaigns() -> Campaigns:
        """Every campaign of the store, oldest first."""
        return Campaigns(campaigns=service.store.campaigns())

    @api.post("/campaigns", status_code=201)
    def create(wish: NewCampaign) -> CampaignView:
        """Begin a campaign."""
        return service.view(service.begin(wish))

    @api.get("/campaigns/{campaign}")
    def status(campaign: CampaignName) -> CampaignView:
        """Everything that follows from a campaign's log."""
        return service.view(opened(campaign))

    @api.get("/campaigns/{campaign}/ask")
    def ask(campaign: CampaignName) -> Question:
        """The open query: the same one until it is told or skipped."""
        now = opened(campaign).session.status()
        return Question.model_validate(now.model_dump(include=set(Question.model_fields)))

    @api.post("/campaigns/{campaign}/tell")
    def tell(campaign: CampaignName, body: Tell, key: IdempotencyKey = None) -> CampaignView:
        """Record what was measured at the open query, which the body names by the version, the step or the query."""
        measured = _measured(body, key)
        return changed(
            campaign, lambda open_campaign: open_campaign.tell(body.observation, at=body.at, **measured, **_which(body))
        )

    @api.post("/campaigns/{campaign}/correct")
    def correct(campaign: CampaignName, body: Correct, key: IdempotencyKey = None) -> CampaignView:
        """Replace the value of an earlier step. The log keeps both."""
        values, seen = body.observation, body.expected_version
        how = _measured(body, key)
        return changed(
            campaign, lambda open_campaign: open_campaign.correct(body.step, values, expected_version=seen, **how)
        )

    @api.post("/campaigns/{campaign}/undo")
    def undo(campaign: CampaignName, body: Undo, key: IdempotencyKey = None) -> CampaignView:
        """Take back the last change that still counts. The log keeps both."""
        return changed(
            campaign, lambda open_campaign: open_campaign.undo(key=key, expected_version=body.expected_version)
        )

    @api.post("/campaigns/{campaign}/skip")
    def skip(campaign: CampaignName, body: Skipping, key: IdempotencyKey = None) -> CampaignView:
        """The open query, which the body names, cannot be measured: another is asked for, away from it."""
        return changed(campaign, lambda open_campaign: open_campaign.skip(body.reason, key=key, **_which(body)))

    @api.post("/campaigns/{campaign}/attach")
    def attach(campaign: CampaignName, body: Attach, key: IdempotencyKey = None) -> CampaignView:
        """Record a measurement made elsewhere."""
        values, seen = body.observation, body.expected_version
        how = _measured(body, key)
        return changed(
            campaign, lambda open_campaign: open_campaign.attach(body.query, values, expected_version=seen, **how)
        )

    @api.post("/campaigns/{campaign}/release")
    def release(campaign: CampaignName, body: Release, key: IdempotencyKey = None) -> CampaignView:
        """Let a campaign stop that the alarm holds, once someone has looked at its data."""
        seen = body.expected_version
        return changed(
            campaign, lambda open_campaign: open_campaign.release(body.reason, key=key, expected_version=seen)
        )

    @api.post("/campaigns/{campaign}/verify")
    def verify(campaign: CampaignName, body: Verify, key: IdempotencyKey = None) -> CampaignView:
        """Ask for redundant queries before a stop is final: they expose a prior that is wrong."""
        seen = body.expected_version
        return changed(
            campaign, lambda open_campaign: open_campaign.ask_to_verify(body.queries, key=key, expected_version=seen)
        )

    @api.post("/campaigns/{campaign}/fork", status_code=201)
    def fork(campaign: CampaignName, body: Fork) -> CampaignView:
        """Another campaign with the same past."""
        return service.view(opened(campaign).fork(body.name))

    @api.post("/campaigns/{campaign}/restart", status_code=201)
    def restart(campaign: CampaignName, body: Fork) -> CampaignView:
        """A new campaign with the same model and settings, and nothing measured: for a run that is spoilt."""
        return service.view(service.restart(opened(campaign), body.name))

    @api.get("/campaigns/{campaign}/log")
    def log(campaign: CampaignName) -> CampaignLog:
        """Everything that happened, corrections and undone entries included."""
        record = service.store.find(_checked(campaign))
        stored = service.store.events(record.id)
        counts = set(in_force(entry.event for entry in stored))
        return CampaignLog(campaign=record, events=_entries(stored, counts, service.units(record)))

    @api.get("/campaigns/{campaign}/plot")
    def plot(campaign: CampaignName) -> PlotData:
        """What was believed after each step, by the history as it is known now."""
        return plot_data(opened(campaign).session)

    @api.get("/campaigns/{campaign}/export", response_class=JSONResponse)
    def export(campaign: CampaignName) -> JSONResponse:
        """One document with everything: the model's hash, the settings, the log, and what follows from it."""
        open_campaign = opened(campaign)
        disposition = f'attachment; filename="{open_campaign.record.name}.json"'
        return JSONResponse(open_campaign.export(), headers={"Content-Disposition": disposition})

    @api.get("/campaigns/{campaign}/table", response_class=JSONResponse, responses={200: {"content": CSV}})
    def table(campaign: CampaignName) -> PlainTextResponse:
        """The measurements as CSV, in the units of the campaign."""
        open_campaign = opened(campaign)
        disposition = f'attachment; filename="{open_campaign.record.name}.csv"'
        return PlainTextResponse(
            table_of(open_campaign.session), media_type="text/csv", headers={"Content-Disposition": disposition}
        )

    @api.post("/campaigns/{campaign}/table")
    def attach_table(campaign: CampaignName, body: AttachTable, key: IdempotencyKey = None) -> CampaignView:
        """Record the measurements of a CSV file, made before or elsewhere: all of them, or none."""
        return changed(campaign, lambda open_campaign: _take_table(open_campaign, body, key))

    return api


def _take_table(campaign: Campaign, body: AttachTable, key: str | None) -> None:
    rows = rows_of(body.csv, campaign.session)
    campaign.attach_all(rows, confirm=body.confirm, key=key, expected_version=body.expected_version)


def _checked(campaign: str) -> str:
    if not NAME.fullmatch(read_reference(campaign).text):
        raise Refused(404, fault("campaign", campaign, "a name or an id"))
    return campaign


def _which(body: AboutOpenQuery) -> dict[str, Any]:
    """The query that a change is about; without one, a value could be recorded where it was not measured."""
    if body.expected_version is None and body.step is None and body.query is None:
        allowed = "the version that you saw, or in its place the step or the query that this is about"
        raise Refused(422, fault("expected_version", None, allowed, f"expected_version is missing: {allowed}"))
    return {"expected_version": body.expected_version, "step": body.step, "query": body.query}


def _measured(body: MeasuredValue, key: str | None) -> dict[str, Any]:
    """How a measurement is to be recorded."""
    return {"confirm": body.confirm, "key": key}


def _refusal(service: CampaignService, campaign: Campaign, error: SessionError) -> Fault:
    """What is there now, for someone who thought otherwise."""
    refusal = fault("campaign", campaign.record.name, "what its state allows", str(error))
    now: dict[str, Any] = {"now": service.view(campaign)}
    if isinstance(error, Conflict):
        counts = set(in_force(campaign.session.log))
        now |= {"expected_version": error.expected, "since": _entries(error.since, counts, campaign.session.units)}
        now |= {"field": "expected_version", "value": error.expected, "allowed": f"{error.version}, the version it has"}
    if isinstance(error, OtherQuery):
        now |= {"field": error.field, "value": error.given, "allowed": f"{error.now}, the open query"}
    return refusal.model_copy(update=now)


def _entries(stored: Iterable[StoredEvent], counts: set[int], units: Units) -> list[LogEntry]:
    return [
        LogEntry(
            **entry.model_dump(exclude={"event"}),
            words=in_words(entry.event, units),
            in_force=entry.position in counts,
            event=entry.event,
        )
        for entry in stored
    ]
