"""What a page says a command prints is what it prints, numbers aside. ``tests/test_pages.py`` runs every block."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from commands import REPOSITORY, Run

PAGES = [
    "how-to/correct-a-typo.md",
    "how-to/numpy-simulator.md",
    "how-to/postgresql.md",
    "how-to/read-a-certificate.md",
    "how-to/when-it-refuses.md",
]
FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\b[0-9a-f]{8,}\b|-?\d[\d.,:]*")


class Command(NamedTuple):
    """A command of a page, and what the page says it prints."""

    words: list[str]
    printed: str


def blocks(page: str, language: str) -> list[str]:
    text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
    return [body for kind, body in FENCE.findall(text) if kind == language]


def commands_of(block: str) -> list[Command]:
    """Every line that begins with a dollar, with the lines below it."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [Command(shlex.split(part.partition("\n")[0]), part.partition("\n")[2]) for part in parts]


def masked(text: str) -> list[str]:
    """Lines without their numbers, hashes and widths."""
    lines = (" ".join(NUMBER.sub("#", line).replace("─", "").split()) for line in text.splitlines())
    return [line for line in lines if line]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with the examples in it and a store of its own."""
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CICPE_STORE", str(tmp_path / "campaigns.db"))
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")])
def test_commands_print_what_the_page_says(page: str, desk: Path, run: Run) -> None:
    for block in blocks(page, "console"):
        for command in commands_of(block):
            assert command.words[0] == "cicpe", command
            done = run(*command.words[1:])
            if not command.printed:
                assert done.code == 0, done
                continue
            # What happened goes to standard error, before what is asked for on standard output.
            assert masked(done.err + done.out) == masked(command.printed), command.words
            assert done.code == (2 if command.printed.startswith("error: ") else 0)


def test_pages_with_an_example_show_it_as_it_is() -> None:
    assert (REPOSITORY / "examples" / "own_simulator.py").read_text() in blocks("how-to/numpy-simulator.md", "python")


def test_another_printout_would_be_seen() -> None:
    (command,) = commands_of("$ cicpe zoo list\nfurnace: query 3   (confidence 0.31)\n")
    assert command.words == ["cicpe", "zoo", "list"]
    assert masked(command.printed) == masked("furnace:  query 4 (confidence 0.99)")
    assert masked(command.printed) != masked("furnace has stopped (confidence 0.99)")
