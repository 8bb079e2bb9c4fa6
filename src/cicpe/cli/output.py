"""What the command line prints: results on standard output, everything else on standard error."""

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table


def print_json(value: dict[str, Any]) -> None:
    """One JSON object on standard output."""
    print(json.dumps(value, indent=1, allow_nan=False))


def say(text: str) -> None:
    """A line of the result on standard output, at once, so that it keeps its place among the notes."""
    print(text, flush=True)


def note(text: str) -> None:
    """A line for the person who watches: standard error."""
    print(text, file=sys.stderr, flush=True)


def print_table(table: "Table") -> None:
    """A table on standard output, never cut: where that is not a terminal it is as wide as it needs to be.

    Cells are shown as they are: what looks like rich's markup in one, such as a commit's subject, is none.
    """
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 160, markup=False, emoji=False).print(table)


def plain_table(title: str | None = None) -> "Table":
    """A table in the house style: no frame, a rule below the head."""
    from rich import box
    from rich.table import Table

    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
