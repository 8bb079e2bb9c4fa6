"""What the suites of the server share: a store, a browser, and a training that takes no time."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browsing import CHROMIUM
from cicpe import zoo
from cicpe.sessions.stores import Store, open_store

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PRETENDER = """
import json, os, shutil, sys, time
from cicpe.parallel import when_parent_ends

asked = json.loads(sys.stdin.buffer.readline())
when_parent_ends(lambda: os._exit(1))
say = lambda **news: print(json.dumps(news), flush=True)
print("a library says hello", flush=True)
say(stage="pretending", pid=os.getpid())
say(lines=["tried nothing"])
name = asked["document"]["title"]
if name == "fails":
    say(error="nothing can be learnt of this")
    sys.exit(2)
if name == "waits":
    time.sleep(600)
if name != "empty":
    shutil.copytree({model!r}, asked["folder"])
say(done={{"delta": 0.1, "expected_queries": 4.5, "at_most": 20}})
"""
"""A worker that trains nothing: what it does is the title of its experiment."""


PATIENCE = 20_000
"""Milliseconds that something may take to be seen, on a busy machine."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "campaigns.db")
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """A Chromium without a window."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def pretender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Trainings that take no time; the program that pretends."""
    from cicpe.server import jobs

    script = tmp_path / "pretender.py"
    script.write_text(PRETENDER.format(model=str(zoo.folder("gp-max-1d"))))
    monkeypatch.setattr(jobs, "WORKER", (sys.executable, str(script)))
    return script
