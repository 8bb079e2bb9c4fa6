"""Who may talk to the server: checked before anything else looks at a request."""

import asyncio
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, final
from urllib.parse import urlsplit

from cicpe.server.errors import Refused, answer, fault

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
BODY_LIMIT = 1_000_000
"""Bytes of a request."""
BODY_SECONDS = 30.0
"""From the end of the headers to the end of the body. For the headers see ``limits.py``."""
TOO_LATE = 408
HEADERS = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


@final
class Guard:
    """Lets a request through if its Host, its Origin, its token and its size are right, and it arrives in time.

    The Host check keeps a page of another site from reaching a local server by a name that it points here. Such a
    page has to use a name: with ``addresses``, every Host that is a bare address is taken.
    """

    def __init__(self, app: Application, hosts: Iterable[str], addresses: bool, token: str | None) -> None:
        self.app, self.hosts, self.addresses = app, frozenset(host.lower() for host in hosts), addresses
        self.token = None if token is None else token.encode()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        try:
            self._check(scope)
            body = await _read_in_time(receive)
        except _Gone:
            return
        except Refused as error:
            response = answer(error.code, error.body)
            if error.code == TOO_LATE:
                response.headers["connection"] = "close"
            await response(scope, receive, _with_headers(send))
            return
        await self.app(scope, _replaying(body, receive), _with_headers(send))

    def _check(self, scope: Message) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._known(_name(host)):
            raise Refused(403, fault("Host", host, f"one of {', '.join(sorted(self.hosts))}"))
        origin = headers.get(b"origin")
        if origin is not None and _authority(text := origin.decode("latin-1")) != host.lower():
            raise Refused(403, fault("Origin", text, "this server's own page"))
        if self.token is not None and scope["path"].startswith("/api/"):
            kind, _, token = headers.get(b"authorization", b"").partition(b" ")
            if kind.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self.token):
                what = "the token is wrong" if token.strip() else "a token is needed"
                raise Refused(401, fault("Authorization", None, "Bearer and the server's token", what))

    def _known(self, name: str) -> bool:
        if name in self.hosts:
            return True
        try:
            return self.addresses and bool(ipaddress.ip_address(name))
        except ValueError:
            return False


class _Gone(Exception):
    """The client left before its request was whole: there is nothing to do and nobody to tell."""


def _authority(origin: str) -> str | None:
    """Host and port of an Origin header; None where it is no address at all."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _name(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


async def _read_in_time(receive: Receive) -> bytes:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _read(receive)
    except TimeoutError:
        allowed = f"within {BODY_SECONDS:g} seconds"
        raise Refused(TOO_LATE, fault("body", None, allowed, f"the body did not arrive {allowed}")) from None


async def _read(receive: Receive) -> bytes:
    """The whole body."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise _Gone
        body += message.get("body", b"")
        if len(body) > BODY_LIMIT:
            raise Refused(413, fault("body", None, f"at most {BODY_LIMIT:,} bytes", "the body is too large"))
        if not message.get("more_body", False):
            return bytes(body)


def _replaying(body: bytes, receive: Receive) -> Receive:
    replayed = False

    async def again() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [(name, value) for name, value in message.get("headers", []) if name.lower() not in HEADERS]
            message["headers"] = [*kept, *HEADERS.items()]
        await send(message)

    return sending
