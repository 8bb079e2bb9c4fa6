"""Who may talk to the server: checked before anything else looks at a request."""

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, final
from urllib.parse import urlsplit

from cicpe.server.errors import answer, fault
from cicpe.server.schemas import Fault

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
BODY_LIMIT = 1_000_000
"""Bytes of a request."""
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
    """Lets a request through if its Host, its Origin, its token and its size are right.

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
        refusal = self._refusal(scope)
        body = b"" if refusal else await _read(receive)
        if body is None:
            refusal = 413, fault("body", None, f"at most {BODY_LIMIT:,} bytes", "the body is too large")
        if refusal is not None:
            await answer(*refusal)(scope, receive, _with_headers(send))
            return
        await self.app(scope, _replaying(body or b"", receive), _with_headers(send))

    def _refusal(self, scope: Message) -> tuple[int, Fault] | None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._known(_name(host)):
            return 403, fault("Host", host, f"one of {', '.join(sorted(self.hosts))}")
        origin = headers.get(b"origin")
        if origin is not None and urlsplit(text := origin.decode("latin-1")).netloc.lower() != host.lower():
            return 403, fault("Origin", text, "this server's own page")
        if self.token is not None and scope["path"].startswith("/api/"):
            kind, _, given = headers.get(b"authorization", b"").partition(b" ")
            if kind.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self.token):
                return 401, fault("Authorization", None, "Bearer and the server's token", "a token is needed")
        return None

    def _known(self, name: str) -> bool:
        if name in self.hosts:
            return True
        try:
            return self.addresses and bool(ipaddress.ip_address(name))
        except ValueError:
            return False


def _name(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


async def _read(receive: Receive) -> bytes | None:
    """The whole body; None where it is too large."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return bytes(body)
        body += message.get("body", b"")
        if len(body) > BODY_LIMIT:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _replaying(body: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [(name, value) for name, value in message.get("headers", []) if name.lower() not in HEADERS]
            message["headers"] = [*kept, *HEADERS.items()]
        await send(message)

    return sending
