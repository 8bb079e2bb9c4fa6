"""The site: every page is in its navigation, every command in its reference, and nothing is loaded from elsewhere."""

import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from cicpe import zoo
from cicpe.cli.main import app

pytest.importorskip("mkdocs")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    """The hooks, as MkDocs imports them."""
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "scripts" / "site_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it: a warning is an error, and a link that leads nowhere is a warning."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return out


BROWSER = os.environ.get("CICPE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    if BROWSER is None:
        pytest.skip("no chromium on the path (CICPE_CHROMIUM names another)")
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def test_search_works_from_a_folder(site: Path, browser: Any) -> None:
    """Without a server, and without a network."""
    page = browser.new_page()
    page.goto((site / "how-to" / "index.html").as_uri())
    page.keyboard.press("/")
    page.keyboard.type("certificate")
    found = page.locator(".md-search-result__link").first
    found.wait_for(timeout=60_000)
    assert found.get_attribute("href").startswith("file:")
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone(site: Path, browser: Any, scheme: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    for name in ("index", "tutorials/first-campaign", "gallery", "api/sessions", "commands", "results/comparison"):
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, name
    light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert light == (scheme == "light")
    page.close()


LOADED = re.compile(
    r'<(?:script|img|iframe|source)[^>]*\bsrc="([^"]*)|<link[^>]*rel="(?:stylesheet|icon|preload)"[^>]*href="([^"]*)'
)


def loaded_from_elsewhere(text: str) -> list[str]:
    """What a page would ask other hosts for. Links that a reader may follow are not among it."""
    return [address for match in LOADED.findall(text) for address in match if re.match(r"(https?:)?//", address)]


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    built = sorted(site.rglob("*.html"))
    assert len(built) > 50
    assert {str(page): loaded_from_elsewhere(page.read_text(encoding="utf-8")) for page in built} == {
        str(page): [] for page in built
    }
    # The theme asks a repository's host for its stars where it shows one.
    assert not any('data-md-component="source"' in page.read_text(encoding="utf-8") for page in built)


def test_what_comes_from_elsewhere_would_be_seen() -> None:
    text = '<script src="https://cdn.example/x.js"></script><a href="https://ok.example">o</a><img src="a.png">'
    assert loaded_from_elsewhere(text + '<link rel="stylesheet" href="//fonts.example/f.css">') == [
        "https://cdn.example/x.js",
        "//fonts.example/f.css",
    ]


def test_search_and_machines_find_the_pages(site: Path) -> None:
    assert "certificate" in (site / "search" / "search_index.json").read_text(encoding="utf-8")
    told = (site / "llms.txt").read_text(encoding="utf-8")
    for address in re.findall(r"\(https://[^/]+/cicpe/([^)]+)\)", told):
        assert (site / address).exists(), address
    assert "how-to/correct-a-typo.html" in told


def test_every_page_is_in_the_navigation(pages: ModuleType) -> None:
    names = ["index.md", "how-to/new.md", "surprise.md", "kinds/ec50.md", "decisions/0009-x.md"]
    tabs = {title: list(pages.flat(entries)) for tab in pages.navigation(names) for title, entries in tab.items()}
    assert tabs == {
        "Start": ["index.md"],
        "How to": ["how-to/new.md"],
        "Gallery": ["kinds/ec50.md"],
        "Explanation": ["decisions/0009-x.md", "surprise.md"],
    }


def test_links_that_leave_the_docs(pages: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    text = "[a](../../README.md#x) [b](../../examples/sweep.toml) [c](../guarantees.md) [d](https://x.example)"
    expected = "[a](../index.md) [b](R/blob/main/examples/sweep.toml) [c](../guarantees.md) [d](https://x.example)"
    with caplog.at_level(logging.WARNING):
        assert pages.outside_links(text, "how-to/x.md", "R") == expected
        assert caplog.records == []
        pages.outside_links("[e](../../nowhere.md)", "how-to/x.md", "R")
    assert "nowhere.md" in caplog.text


def test_every_command_and_option_is_in_the_reference(pages: ModuleType) -> None:
    page = pages.command_page()
    commands = dict(pages.commands_of(typer.main.get_command(app), ()))
    assert ("session", "tell") in commands
    for words, command in commands.items():
        section = page.partition(f"## cicpe {' '.join(words)}\n")[2].partition("\n## ")[0]
        for option in command.params:
            if option.param_type_name == "option" and not option.hidden:
                assert option.opts[0] in section, (words, option.opts)
    assert "\b" not in page


def test_the_gallery_shows_the_zoo(pages: ModuleType) -> None:
    gallery = pages.gallery_page()
    assert [name for name in zoo.names() if f"`{name}`" not in gallery] == []
    assert [name for name in pages.templates() if f"## {name}\n" not in gallery] == []
    shown = re.findall(r"!\[[^]]*\]\(([^)]+)\)", gallery)
    assert {f"images/kind-{name}.png" for name in pages.templates()} <= set(shown)
    assert [place for place in shown if not (ROOT / "docs" / place).exists()] == []
