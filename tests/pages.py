"""The code blocks of README and docs, read from the pages themselves, and how each is run.

A block names its language. ``python`` blocks are run as a script, from standard input and in a notebook's kernel, each
alone unless the line before it says ``<!-- continues -->``: then the blocks of the page before it come first. One whose
first line is ``# NAME.py`` is that file, which the page's shell blocks use. ``console`` blocks are typed into one shell
per page, line by line after each ``$``; what the page prints below a line is not compared, but a line whose output
begins with ``error:`` has to fail. All blocks of a page share a folder, with the repository's ``examples`` in it.

A line ``<!-- not run: REASON -->`` before a block leaves it out, and a test counts those. ``toml`` blocks are read as
experiments. Other languages (``text``, ``nginx`` ...) are not code of ours; one that holds commands all the same has to
say that it is not run.

Minutes of training that a page states are shortened (``shortened``). An agent of a few seconds may be too unreliable
for what the page goes on to ask of it: only after that may a command or a block end with a refusal of delta, or
``train`` with 1. The slow tests run the Python blocks once more with the minutes as they are.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from commands import REPOSITORY

PAGES = sorted([REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")])
RUN = {"python", "console"}
TEXT = {"text", "nginx", "ini"}
DATA = {"toml"}
TYPED = re.compile(r"^\s*(\$|cicpe|createdb|curl|export|git|make|pip|python3?|ray|srun) ", re.MULTILINE)
"""A line that someone types into a shell."""
RECORDS = REPOSITORY / "docs" / "results"
"""Pages of results: their blocks are records of what was run to make them, for minutes to hours each."""
SHORT = 0.05
"""Minutes in the place of those that a page states."""
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARK = re.compile(r"<!-- (not run: .+|continues) -->\n\Z")
MINUTES = re.compile(r"(minutes=|--minutes )([\d.]+)")
REFUSED = re.compile(r"InvalidInput.*: delta must be")


class Block(NamedTuple):
    """A code block of a page."""

    page: Path
    line: int
    language: str
    code: str
    mark: str | None

    @property
    def name(self) -> str:
        """Where it is."""
        return f"{os.path.relpath(self.page, REPOSITORY)}:{self.line}"

    @property
    def reason(self) -> str | None:
        """Why it is not run; None where it is."""
        if self.mark is not None and self.mark.startswith("not run: "):
            return self.mark.removeprefix("not run: ")
        return "a record of what was run" if RECORDS in self.page.parents else None

    @property
    def is_typed(self) -> bool:
        """Whether it holds commands though it is not a block of commands."""
        return self.language not in RUN | DATA and TYPED.search(self.code) is not None

    @property
    def file(self) -> str | None:
        """The file that it is, by its first line."""
        found = re.match(r"# (\w+\.py)\n", self.code)
        return found[1] if self.language == "python" and found else None


def blocks_of(page: Path, text: str | None = None) -> list[Block]:
    """Every fenced block of a page."""
    text = page.read_text(encoding="utf-8") if text is None else text
    found = []
    for fence in FENCE.finditer(text):
        mark = MARK.search(text, 0, fence.start())
        line = text.count("\n", 0, fence.start()) + 1
        found.append(Block(page, line, fence[1], fence[2], None if mark is None else mark[1]))
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def to_run(language: str) -> list[Block]:
    """The blocks of a language that are run by themselves."""
    return [one for one in BLOCKS if one.language == language and one.reason is None and one.file is None]


def whole(block: Block) -> str:
    """A block, after those that it continues."""
    if block.mark != "continues":
        return block.code
    before = [one for one in to_run("python") if one.page == block.page and one.line < block.line]
    return "\n".join([*(one.code for one in before), block.code])


def shortened(code: str) -> str:
    """The same with seconds of training for minutes."""
    return MINUTES.sub(lambda found: f"{found[1]}{min(float(found[2]), SHORT):g}", code)


def environment(folder: Path) -> dict[str, str]:
    """Of a user of their own, who has ``cicpe`` and ``python`` on the path."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name, words in (("python", ""), ("cicpe", " -m cicpe")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
        program.chmod(0o755)
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(REPOSITORY / "examples")
    own = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("STATE", "DATA", "CACHE")}
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    source = os.pathsep.join([str(REPOSITORY / "src"), os.environ.get("PYTHONPATH", "")])
    threads = {"OMP_NUM_THREADS": "1", "JUPYTER_PLATFORM_DIRS": "1"}
    return {**os.environ, **own, **threads, "PATH": path, "PYTHONPATH": source}


def commands_of(block: Block) -> Iterator[tuple[str, str]]:
    """Every command of a console block, and what the page prints below it."""
    for part in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        last = next(i for i, line in enumerate(lines) if not line.endswith("\\"))
        yield "\n".join(lines[: last + 1]), "\n".join(lines[last + 1 :])


PROLOGUE = """\
server=''
end_server() { if [ -n "$server" ]; then kill $server; wait $server; server=''; fi 2> /dev/null; true; }
trap end_server EXIT
answers() { for i in $(seq 300); do curl -s -o /dev/null http://127.0.0.1:8642/ && return; sleep 0.2; done; exit 5; }
fails() { cat last.txt >&2; echo "failed: $1" >&2; exit 4; }
"""
"""A shell that ends a server before it starts another, and says which command failed."""


def shell_script(blocks: Sequence[Block], short: bool = True) -> str:
    """What a page's shell types: every command is checked as it is made."""
    lines, lenient = [PROLOGUE], False
    for block in blocks:
        if block.language != "console" or block.reason is not None:
            continue
        for command, printed in commands_of(block):
            typed = shortened(command) if short else command
            lenient = lenient or typed != command
            lines += [f"echo '== {block.name}' >&2", _typed(typed, printed, lenient)]
    return "\n".join(lines) + "\n"


def _typed(command: str, printed: str, lenient: bool) -> str:
    """One command with its check; ``lenient`` after a training that was shortened."""
    quoted = shlex.quote(command)
    if printed.startswith("error:"):
        return f"{command} && fails {quoted}"
    if re.search(r"\bcicpe serve\b", command):
        return f"end_server; {command} & server=$!; answers"
    if re.match(r"export \w+=", command):
        return command
    # "The answer is no" is an answer too: not certified, not reached, not reliable.
    answers_no = " || [ $? -eq 1 ]" if command.startswith("cicpe ") else ""
    refused = 'grep -Eq "error: delta must be" last.txt || ' if lenient else ""
    return f"{{ {command}\n}} 2> last.txt{answers_no} || {refused}fails {quoted}"


def run_python(code: str, way: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a block as a ``script``, from ``stdin`` or in a ``notebook``, in a folder."""
    file = folder / "block.py"
    file.write_text(code)
    words = {"script": [file.name], "stdin": ["-"], "notebook": ["-m", "run_notebook", str(file)]}[way]
    surroundings = environment(folder)
    surroundings["PYTHONPATH"] += os.pathsep + str(REPOSITORY / "tests")
    given = code if way == "stdin" else None
    return subprocess.run(
        [sys.executable, *words], input=given, capture_output=True, text=True, cwd=folder, env=surroundings
    )
