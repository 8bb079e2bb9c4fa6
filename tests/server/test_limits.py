"""Clients that keep the server waiting: they are ended, others are heard, and the log stays short."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn

from cicpe.server import guard, limits
from cicpe.server.app import make_app
from cicpe.server.limits import LogRate, most_connections, uvicorn_config
from cicpe.sessions.stores import open_store

Connect = Callable[..., socket.socket]


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """A server with little patience."""
    monkeypatch.setattr(limits, "HEADER_SECONDS", 0.5)
    monkeypatch.setattr(limits, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(limits, "IDLE_SECONDS", 10)
    monkeypatch.setattr(limits, "MOST_CONNECTIONS", 20)
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.5)
    store = open_store(tmp_path / "campaigns.db")
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn_config(make_app(store)))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield listening.getsockname()
    server.should_exit = True
    thread.join()
    store.close()


@pytest.fixture
def connect(address: tuple[str, int]) -> Iterator[Connect]:
    opened: list[socket.socket] = []

    def one(content: bytes = b"") -> socket.socket:
        connection = socket.create_connection(address, timeout=10)
        connection.sendall(content)
        opened.append(connection)
        return connection

    yield one
    for connection in opened:
        connection.close()


def answers(address: tuple[str, int]) -> bool:
    return httpx.get(f"http://127.0.0.1:{address[1]}/api/campaigns", timeout=5).json() == {"campaigns": []}


def answered(connection: socket.socket) -> None:
    """Reads one answer, to its end."""
    content = b""
    while not content.endswith(b'{"campaigns":[]}'):
        piece = connection.recv(65536)
        assert piece, content
        content += piece


def ended(connection: socket.socket) -> tuple[bytes, float]:
    """What came back until the server ended the connection, and how long that took."""
    began, content = time.monotonic(), b""
    try:
        while piece := connection.recv(65536):
            content += piece
    except ConnectionResetError:
        pass
    return content, time.monotonic() - began


def dripped(connection: socket.socket, piece: bytes) -> float:
    """How long the server takes one piece after the other, in seconds."""
    began = time.monotonic()
    try:
        while time.monotonic() - began < 10:
            connection.sendall(piece)
            time.sleep(0.05)
    except (ConnectionResetError, BrokenPipeError):
        pass
    return time.monotonic() - began


@pytest.mark.parametrize("content", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "])
def test_a_request_that_does_not_come_is_not_waited_for(connect: Connect, content: bytes) -> None:
    said, took = ended(connect(content))
    assert said == b""
    assert 0.3 < took < 5


def test_headers_that_drip_have_no_more_time(connect: Connect) -> None:
    assert dripped(connect(b"GET / HTTP/1.1\r\n"), b"X: y\r\n") < 5


def test_a_second_request_has_its_own_time(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEADER_SECONDS", 2.0)
    whole = b"GET /api/campaigns HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    connection = connect(whole)
    for _ in range(3):  # longer, all in all, than one request may take
        answered(connection)
        time.sleep(0.8)
        connection.sendall(whole)
    answered(connection)
    connection.sendall(whole[:20])
    assert ended(connection)[1] < 10


def test_a_body_that_does_not_come_is_answered(connect: Connect) -> None:
    head = b"POST /api/campaigns HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"
    said, took = ended(connect(head))
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b'"field": "body"' in said
    assert 0.3 < took < 5


def test_a_body_that_drips_after_its_refusal_is_not_waited_for(connect: Connect) -> None:
    head = b"POST /api/campaigns HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 100000\r\n\r\n"
    connection = connect(head)
    assert connection.recv(65536).startswith(b"HTTP/1.1 403 ")
    assert dripped(connection, b"x") < 5


def test_whoever_asks_at_once_is_heard_among_any_number_of_others(
    connect: Connect, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HEADER_SECONDS", 60.0)
    crowd = [connect(b"GET / HT") for _ in range(100)]
    assert answers(address)
    gone = 0
    for connection in crowd:
        connection.settimeout(0.01)
        try:
            gone += connection.recv(1) == b""
        except ConnectionResetError:
            gone += 1
        except TimeoutError:
            continue
    assert gone >= 80  # the oldest of them, down to what is allowed at a time
    assert answers(address)


def test_fewer_where_there_are_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    for files, expected in ((1024, 400), (256, 64), (64, 8), (resource.RLIM_INFINITY, 400), (10**6, 400)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, files))
        assert most_connections() == expected


def test_the_log_has_a_rate() -> None:
    now = [0.0]
    rate = LogRate(lines=3, period=60.0, clock=lambda: now[0])
    record = logging.LogRecord("uvicorn.error", logging.WARNING, "", 0, "Invalid HTTP request received.", None, None)
    assert [rate.filter(record) for _ in range(100)] == [True] * 3 + [False] * 97
    now[0] = 61.0
    assert rate.filter(record)
    assert record.getMessage() == "(97 lines were kept back) Invalid HTTP request received."
    assert [rate.filter(record) for _ in range(3)] == [True, True, False]


def test_noise_does_not_fill_the_log(
    connect: Connect, address: tuple[str, int], capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3 * limits.LINES):
        connect(b"\x00\x01 nonsense\r\n\r\n").close()
    assert answers(address)
    assert capfd.readouterr().err.count("Invalid HTTP request") <= limits.LINES
