"""What README and docs name is there: commands with their options, make targets, files, a source of every figure."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from cicpe.cli.main import app
from commands import REPOSITORY, script
from pages import PAGES, RECORDS, blocks_of

DECISIONS = REPOSITORY / "docs" / "decisions"
"""Records of what was so on a day."""
TODAY = [page for page in PAGES if DECISIONS not in page.parents]
ROOT_PAGES = [REPOSITORY / name for name in ("CONTRIBUTING.md", "SECURITY.md")]
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
FIGURE = re.compile(r"\b0\.\d{3,}\b|\b\d{1,3},\d{3}\b")
"""What only a measurement gives: three decimals, or thousands."""
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
MADE = re.compile(r"python ((?:scripts|benchmarks)/\w+(?:\.py)?)|`(make [a-z-]+)|(cicpe [a-z]+)")
"""A command that measures something."""


COMMANDS: Any = typer.main.get_command(app)


def code_of(page: Path) -> list[str]:
    """Commands and names in the text of a page, and the lines of its blocks that are not run."""
    text = page.read_text(encoding="utf-8")
    lines = [line for block in blocks_of(page) if block.language == "text" for line in block.code.splitlines()]
    return [*INLINE.findall(FENCED.sub("", text)), *lines]


def command_faults(code: str) -> Iterator[str]:
    """What of ``cicpe WORD ... --option`` there is not. Capital letters stand for what a user types."""
    words = code.split("#")[0].split()
    if not words or words[0] != "cicpe" or "|" in words[1:3]:
        return
    command = COMMANDS
    known = {"-h", "--help"} | {option for param in command.params for option in param.opts}
    for word in words[1:]:
        inner = getattr(command, "commands", None)
        if word.startswith("-"):
            continue
        if inner is None or not re.fullmatch(r"[a-z][a-z-]*", word):
            break
        if word not in inner:
            yield f"no command {word!r}"
            return
        command = inner[word]
    known |= {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    if hasattr(command, "commands") and len(words) > 1 and words[1].islower():
        return  # a group as such: its commands have options of their own
    for word in words[1:]:
        option = word.strip("[]").partition("=")[0]
        if re.fullmatch(r"--[a-z-]+", option) and option not in known:
            yield f"no option {option} of {command.name}"


def faults_of(code: str) -> Iterator[str]:
    """What a piece of code names that there is not."""
    yield from command_faults(code)
    made = re.match(r"make ([a-z][a-z-]*)", code)
    if made and made[1] not in TARGETS:
        yield f"no target {made[1]}"
    path = re.search(r"(?:^|\s)((?:benchmarks|docs|examples|scripts|src|tests)/[\w./-]*\w)", code)
    if path and "NAME" not in path[1] and not (REPOSITORY / path[1]).exists():
        yield f"no file {path[1]}"


@pytest.mark.parametrize("page", [*TODAY, *ROOT_PAGES], ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_what_a_page_names_is_there(page: Path) -> None:
    assert [(code, fault) for code in code_of(page) for fault in faults_of(code)] == []


def test_what_is_not_there_would_be_seen() -> None:
    """The negative control."""
    assert list(faults_of("cicpe session tell 0.3 --yes")) == []
    assert list(faults_of("cicpe sesion tell 0.3")) == ["no command 'sesion'"]
    assert list(faults_of("cicpe train FILE --out DIR --minute 5")) == ["no option --minute of train"]
    assert list(faults_of("make tset")) == ["no target tset"]
    assert list(faults_of("python examples/none.py")) == ["no file examples/none.py"]


def test_the_trial_of_the_package_types_what_there_is() -> None:
    trials = [trial for some in script("try_package").TRIALS.values() for trial in some]
    assert len(trials) > 20
    assert [(trial, fault) for trial in trials for fault in command_faults(trial)] == []


RESULTS = sorted(path for path in RECORDS.glob("*.md") if path.name != "README.md")


@pytest.mark.parametrize("page", RESULTS, ids=lambda page: page.name)
def test_a_page_of_results_names_the_command_that_made_it(page: Path) -> None:
    named = [next(filter(None, found)) for found in MADE.findall(page.read_text(encoding="utf-8"))]
    assert named
    there = [name for name in named if "/" in name]
    assert [name for name in there if not (REPOSITORY / name).exists()] == []


def unsourced(text: str, elsewhere: str = "") -> list[str]:
    """Figures in prose that no block or table of the page, and no page of results, has."""
    prose = INLINE.sub("", FENCED.sub("", text))
    lines = [line for line in prose.splitlines() if not line.startswith("|")]
    shown = "\n".join([*FENCED.findall(text), *(line for line in text.splitlines() if line.startswith("|")), elsewhere])
    shown += "".join(INLINE.findall(text))
    return [figure for line in lines for figure in FIGURE.findall(line) if figure not in shown]


MEASURED = "\n".join(path.read_text(encoding="utf-8") for path in RECORDS.glob("*.md"))


@pytest.mark.parametrize(
    "page", [page for page in TODAY if RECORDS not in page.parents], ids=lambda page: str(page.relative_to(REPOSITORY))
)
def test_a_figure_has_a_source(page: Path) -> None:
    assert unsourced(page.read_text(encoding="utf-8"), MEASURED) == []


def test_a_figure_without_a_source_would_be_seen() -> None:
    assert unsourced("It is right in 0.931 of 2,000.\n\n```text\n2,000 tasks\n```\n") == ["0.931"]


def test_the_readmes_table_is_what_the_data_says() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    table = text.partition("<!-- results -->\n")[2].partition("\n<!-- /results -->")[0]
    assert table == script("results").readme_table()


def test_every_image_is_made_by_a_command() -> None:
    sources = "".join(
        file.read_text(encoding="utf-8")
        for folder in ("scripts", "benchmarks")
        for file in (REPOSITORY / folder).rglob("*.py")
    )
    images = [path.stem for path in (REPOSITORY / "docs" / "images").glob("*.png")]
    assert [name for name in images if not is_made(name, sources)] == []
    assert not is_made("holiday", sources)


def is_made(name: str, sources: str) -> bool:
    """Whether a program names an image, or its name but for what comes after the last words."""
    words = name.split("-")
    starts = ["-".join(words[:n]) for n in range(len(words), 0, -1)]
    return any(re.search(rf"[\"'/]{re.escape(start)}(\.png)?[\"']", sources) for start in starts[:1]) or any(
        re.search(rf"[\"'/]{re.escape(start)}-\{{", sources) for start in starts[1:]
    )
