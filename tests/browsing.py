"""A server on a free port, and tabs of a real browser that look at it."""

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import uvicorn
from fastapi import FastAPI

from cicpe.server.limits import uvicorn_config

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = os.environ.get("CICPE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path (CICPE_CHROMIUM names another)")


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """Serves an application while the block runs; the processes that it started end with it.

    Args:
        app: What ``make_app`` makes.

    Returns:
        Its address.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn_config(app))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        app.state.close()


@contextmanager
def new_tab(browser: "Browser", address: str, width: int = 1280, touch: bool = False) -> Iterator["Page"]:
    """A tab whose scripts must not fail and which must not ask for anything elsewhere."""
    context = browser.new_context(base_url=address, viewport={"width": width, "height": 900}, has_touch=touch)
    context.set_default_timeout(20_000)
    faults: list[str] = []
    context.on("weberror", lambda error: faults.append(str(error.error)))
    context.on("request", lambda request: None if _is_own(request.url, address) else faults.append(request.url))
    yield context.new_page()
    context.close()
    assert not faults


def _is_own(url: str, address: str) -> bool:
    return url.startswith((address, f"blob:{address}"))
