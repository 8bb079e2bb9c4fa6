"""How much one client may take from the others: connections, time, and lines of the log.

uvicorn has settings for the size of headers, for idle connections and for shutting down, and they are used. It has none
for how long a request may take to arrive: that is here, in a protocol of a few lines on top of its own, and for the
body in ``guard.py``.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 400
"""Connections at a time; fewer where the system allows only few open files."""
HEADER_SECONDS = 10.0
"""From the first moment of a connection, or of a further request on it, to the end of the headers."""
ANSWER_SECONDS = 60.0
"""A client that takes nothing of its answer for so long has gone."""
IDLE_SECONDS = 5
"""Between two requests on one connection."""
ENDING_SECONDS = 10
"""For requests under way when the server is told to end."""
HEADER_BYTES = 16 * 1024
AT_ONCE = 64
"""Connections that are taken in one go, before any is looked at."""
LINES, PERIOD = 30, 60.0
"""Lines, tracebacks counted as one, that each logger may write in so many seconds."""


def most_connections() -> int:
    """How many connections there may be: half of the open files, so that stores, models and pages have theirs."""
    import resource  # here, because not every system has it

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = files // 2 - AT_ONCE if files != resource.RLIM_INFINITY else MOST_CONNECTIONS
    return max(8, min(MOST_CONNECTIONS, allowed))


def uvicorn_config(app: Any) -> uvicorn.Config:
    """How the server is run."""
    config = uvicorn.Config(
        app,
        http=LimitedProtocol,
        loop="asyncio",
        ws="none",
        lifespan="off",
        log_level="warning",
        server_header=False,
        backlog=AT_ONCE,
        h11_max_incomplete_event_size=HEADER_BYTES,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=ENDING_SECONDS,
    )
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        for before in [log_filter for log_filter in logger.filters if isinstance(log_filter, LogRate)]:
            logger.removeFilter(before)
        logger.addFilter(LogRate())
    return config


@final
class LimitedProtocol(H11Protocol):
    """A connection that is ended when it keeps the server waiting, or when there are too many.

    Where there are too many, the one that has kept the server waiting for longest is ended for the new one, so that
    whoever sends a whole request at once is always heard.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._since = 0.0
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()
        self._watch()
        if len(self.connections) > most_connections():
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        for what in list(self._timers):
            self._stop(what)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._since = self.loop.time()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start("answer", ANSWER_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop("answer")

    @property
    def keeps_waiting(self) -> bool:
        """Whether it is the client's turn: nothing of it is being worked on."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _watch(self) -> None:
        """Gives a request that has begun to arrive its time; an idle connection has uvicorn's own."""
        ours, theirs = self.conn.our_state, self.conn.their_state
        unfinished = theirs is h11.IDLE or (theirs is h11.SEND_BODY and ours is h11.DONE)
        if unfinished and self.timeout_keep_alive_task is None:
            self._start("request", HEADER_SECONDS)
        else:
            self._stop("request")

    def _start(self, what: str, seconds: float) -> None:
        if what not in self._timers and not self.transport.is_closing():
            self._timers[what] = self.loop.call_later(seconds, self.transport.abort)

    def _stop(self, what: str) -> None:
        timer = self._timers.pop(what, None)
        if timer is not None:
            timer.cancel()

    def _make_room(self) -> None:
        others = [
            connection
            for connection in self.connections
            if isinstance(connection, LimitedProtocol) and connection is not self
        ]
        waiting = [
            connection for connection in others if connection.keeps_waiting and not connection.transport.is_closing()
        ]
        oldest = min(waiting, key=lambda connection: connection._since, default=self)
        oldest.transport.abort()
        self.connections.discard(oldest)


@final
class LogRate(logging.Filter):
    """Lets so many lines through in every period, and says how many it kept back."""

    def __init__(self, lines: int = LINES, period: float = PERIOD, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._lines, self._period, self._clock = lines, period, clock
        self._began, self._written, self._kept_back = clock(), 0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written."""
        now = self._clock()
        if now - self._began >= self._period:
            if self._kept_back:
                record.msg = f"({self._kept_back} lines were kept back) {record.msg}"
            self._began, self._written, self._kept_back = now, 0, 0
        self._written += 1
        self._kept_back += self._written > self._lines
        return self._written <= self._lines
