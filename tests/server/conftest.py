"""The browser that all suites of the page share."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from browsing import CHROMIUM

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """A Chromium without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()
