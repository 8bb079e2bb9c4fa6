"""Every refusal as one kind of JSON object: which field, which value, what is allowed."""

import json
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from cicpe.errors import Implausible, InvalidInput, ModelError, ProblemError, SessionError, allowed_by, refusal
from cicpe.experiments import ExperimentError
from cicpe.server.schemas import PATTERNS_IN_WORDS, Fault
from cicpe.sessions.stores import StoreError

SHOWN = 200
"""Letters of a refused value that are sent back."""
PLACES = {"body", "query", "path", "header"}


def answer(code: int, fault: Fault) -> Response:
    """A refusal. Letters outside ASCII are escaped: a value may hold what UTF-8 cannot."""
    body = json.dumps(fault.model_dump(mode="json", exclude_none=False), allow_nan=False)
    return Response(body, code, media_type="application/json")


def fault(field: str | None, value: object, allowed: str, message: str | None = None) -> Fault:
    """A refusal of a value."""
    sentence = message or refusal(str(field), value, allowed)[: 4 * SHOWN]
    return Fault(field=field, value=_plain(value), allowed=allowed, message=sentence)


class Refused(Exception):
    """Ends a request with a refusal."""

    def __init__(self, code: int, body: Fault) -> None:
        super().__init__(body.message)
        self.code, self.body = code, body


def add_handlers(app: FastAPI) -> None:
    """Makes every exception that a user can cause a refusal with a code below 500."""

    @app.exception_handler(Refused)
    def refused(_: Request, error: Refused) -> Response:
        return answer(error.code, error.body)

    @app.exception_handler(Implausible)
    def implausible(_: Request, error: Implausible) -> Response:
        doubted = fault(error.field, error.value, error.allowed)
        return answer(422, doubted.model_copy(update={"needs_confirmation": True}))

    @app.exception_handler(InvalidInput)
    def invalid(_: Request, error: InvalidInput) -> Response:
        return answer(404 if error.field == "campaign" else 422, fault(error.field, error.value, error.allowed))

    @app.exception_handler(ExperimentError)
    def no_experiment(_: Request, error: ExperimentError) -> Response:
        first = error.faults[0]
        return answer(422, fault(first.field, first.value, first.allowed, str(error)[: 4 * SHOWN]))

    @app.exception_handler(SessionError)
    def not_now(_: Request, error: SessionError) -> Response:
        return answer(409, fault("campaign", None, "what its state allows", str(error)))

    @app.exception_handler(ModelError)
    @app.exception_handler(ProblemError)
    def no_model(_: Request, error: ModelError | ProblemError) -> Response:
        return answer(409, fault("model", None, "the model that the campaign was begun with", str(error)))

    @app.exception_handler(StoreError)
    def no_store(_: Request, error: StoreError) -> Response:
        return answer(503, fault("store", None, "a store that answers", str(error)))

    @app.exception_handler(RequestValidationError)
    def unreadable(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        field = _field(first["loc"])
        pattern = first.get("ctx", {}).get("pattern")
        allowed = PATTERNS_IN_WORDS.get(str(pattern)) or allowed_by(str(first["msg"]))
        return answer(422, fault(field, first.get("input"), allowed))

    @app.exception_handler(HTTPException)
    def elsewhere(request: Request, error: HTTPException) -> Response:
        response = answer(error.status_code, fault(None, None, "see /api/openapi.json", str(error.detail)))
        response.headers.update(error.headers or {})
        return response


def _field(place: Sequence[int | str]) -> str:
    names = [str(part) for part in place if isinstance(part, str)]
    return ".".join(names[1:] if names and names[0] in PLACES else names) or "body"


def _plain(value: object) -> Any:
    """The value where JSON can hold it and it is short; otherwise its beginning as text."""
    try:
        if len(json.dumps(value, allow_nan=False, ensure_ascii=False).encode()) <= SHOWN:
            return value
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return repr(value)[:SHOWN]
    except RecursionError:
        return None
