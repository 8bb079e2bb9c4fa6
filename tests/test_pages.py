"""Every code block of README and docs runs: ``pages.py`` says how."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import cicpe
from cicpe.testing import check_problem
from commands import REPOSITORY
from pages import (
    BLOCKS,
    DATA,
    PAGES,
    RECORDS,
    REFUSED,
    RUN,
    TEXT,
    Block,
    blocks_of,
    commands_of,
    environment,
    run_python,
    shell_script,
    shortened,
    to_run,
    whole,
)

WAYS = ("script", "stdin", "notebook")
README = REPOSITORY / "README.md"
FAMILY = REPOSITORY / "docs" / "how-to" / "own-family.md"
LONG = {"docs/how-to/optuna.md": "cicpe.train(", "docs/how-to/cluster.md": "jobs=8"}
"""Pages with a Python block that takes long whatever its minutes are, and what tells it."""
OWN = {"docs/tutorials/first-ten-minutes.md"}
"""Pages that tests/cli/test_experiments.py runs, with a training that is short and reliable all the same."""
SHELL_PAGES = [
    page
    for page in PAGES
    if any(one.page == page for one in to_run("console")) and str(page.relative_to(REPOSITORY)) not in OWN
]


def is_long(block: Block, way: str) -> bool:
    """Whether a block is left to the slow tests: what trains for long, and other ways than a script.

    The family of the docs has tests of its own below, one of them quick; blocks of the README are quick in every way.
    """
    told = LONG.get(str(block.page.relative_to(REPOSITORY)))
    is_told = told is not None and told in block.code
    return block.page == FAMILY or is_told or (block.page != README and way != "script")


CASES = [
    pytest.param(block, way, id=f"{block.name}-{way}", marks=[pytest.mark.slow] * is_long(block, way))
    for block in to_run("python")
    for way in WAYS
]


def test_every_block_names_its_language() -> None:
    assert [
        one.name for one in BLOCKS if one.language not in RUN | TEXT | DATA and RECORDS not in one.page.parents
    ] == []
    assert len(to_run("python")) >= 4
    assert len(to_run("console")) >= 20


def test_what_is_not_run_is_counted_and_has_a_reason() -> None:
    marked = [one for one in BLOCKS if one.mark is not None and one.reason is not None]
    assert all(len(one.reason or "") > 10 for one in marked)
    assert len(marked) <= 22, [one.name for one in marked]
    assert len([one for one in BLOCKS if RECORDS in one.page.parents]) <= 19


def test_commands_are_run_or_marked() -> None:
    assert [one.name for one in BLOCKS if one.is_typed and one.reason is None] == []
    (typed,) = blocks_of(README, "```text\ncicpe demo\n```\n")
    (printed,) = blocks_of(README, "```text\nfurnace: told 0.31\n```\n")
    assert (typed.is_typed, printed.is_typed) == (True, False)


@pytest.mark.parametrize("block", [one for one in BLOCKS if one.language in DATA], ids=lambda block: block.name)
def test_an_experiment_of_a_page_is_understood(block: Block) -> None:
    experiment = cicpe.Experiment.from_toml(block.code)
    check_problem(experiment.problem())
    with pytest.raises(cicpe.CicpeError, match="goal find must be"):
        cicpe.Experiment.from_toml(re.sub('find = "[a-z]+"', 'find = "nothing"', block.code))


def test_a_block_is_read_with_its_line_language_and_mark() -> None:
    """The negative control: what is not as it should be is seen."""
    text = "a\n\n<!-- not run: it needs the survey -->\n```console\n$ one \\\n  two\nout\n$ three\n```\n\n```\nx\n```\n"
    first, second = blocks_of(README, text)
    assert (first.line, first.language, first.reason) == (4, "console", "it needs the survey")
    assert list(commands_of(first)) == [("one \\\n  two", "out"), ("three", "")]
    assert (second.language, second.reason) == ("", None)
    assert shortened("train(minutes=10) --minutes 0.01") == "train(minutes=0.05) --minutes 0.01"


@pytest.mark.parametrize(("block", "way"), CASES)
def test_a_python_block_runs(block: Block, way: str, tmp_path: Path) -> None:
    code = shortened(whole(block))
    done = run_python(code, way, tmp_path)
    if code != whole(block) and done.returncode and REFUSED.search(done.stderr):
        return  # trained to the end; the seconds were too few for what is asked of it then
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_block_that_fails_is_seen(tmp_path: Path) -> None:
    """The negative control, in each of the three ways."""
    for way in WAYS:
        assert run_python("import cicpe\ncicpe.load('no-such-model')", way, tmp_path).returncode != 0, way


def family() -> str:
    """The family of the page about families of one's own."""
    (block,) = [one for one in to_run("python") if one.page == FAMILY]
    return block.code


def test_the_family_of_the_docs_saved_as_a_file_trains_once(tmp_path: Path) -> None:
    """It once trained for ever: evaluating ran the file again, which trained again."""
    count = "open('ran.txt', 'a').write('once ')\n"
    done = run_python(count + shortened(family()), "script", tmp_path)
    assert done.returncode == 0 or REFUSED.search(done.stderr), done.stderr[-3000:]
    assert (tmp_path / "ran.txt").read_text() == "once "


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_family_of_the_docs_with_its_own_minutes_is_reliable(way: str, tmp_path: Path) -> None:
    done = run_python(family(), way, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Evaluation: accuracy 0.9" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("page", SHELL_PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_the_shell_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    """In one shell, in a folder that holds the page's own files."""
    assert shutil.which("curl"), "curl is needed to know when a server answers"
    for block in blocks_of(page):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.code)
    script = tmp_path / "page.sh"
    script.write_text(shell_script(blocks_of(page)))
    own = environment(tmp_path)
    done = subprocess.run(["bash", script], cwd=tmp_path, env=own, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_command_that_fails_ends_the_page(tmp_path: Path) -> None:
    """The negative control of the shell."""
    page = tmp_path / "page.md"
    page.write_text("```console\n$ true\n$ cicpe no-such-command\n$ touch never\n```\n")
    script = shell_script(blocks_of(page))
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment(tmp_path), capture_output=True)
    assert done.returncode == 4
    assert not (tmp_path / "never").exists()
