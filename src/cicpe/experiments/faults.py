"""What is wrong with an experiment file: all of it at once, each with its line, field, value and what is allowed."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from cicpe.errors import CicpeError, allowed_by, refusal

Path = tuple[str | int, ...]
"""Where something is in a document: names of tables and fields, and places in lists counted from 0."""
LONGEST_VALUE = 120
"""Letters of a value that are shown."""
_TABLE = re.compile(r"\s*\[(?P<many>\[)?\s*(?P<name>[^\[\]]+?)\s*\]")
_FIELD = re.compile(r"\s*(?P<name>(?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")


class FileFault(NamedTuple):
    """One thing that is wrong."""

    path: Path
    value: Any
    allowed: str
    """What it must be, in words that follow "must be"."""
    line: int | None = None
    """Of the file, where there is one."""

    @property
    def field(self) -> str:
        """The field as people say it: ``setting 2 range``."""
        words = [str(part + 1) if isinstance(part, int) else part for part in self.path]
        return " ".join(words) or "the file"

    def __str__(self) -> str:
        shown = self.value
        if len(repr(shown)) > LONGEST_VALUE:
            shown = repr(shown)[:LONGEST_VALUE] + "..."
        where = "" if self.line is None else f"line {self.line}: "
        return where + refusal(self.field, shown, self.allowed)

    @property
    def row(self) -> dict[str, Any]:
        """For JSON."""
        return {"line": self.line, "field": self.field, "value": repr(self.value)[:LONGEST_VALUE], "message": str(self)}


class ExperimentError(CicpeError):
    """An experiment cannot be understood, with every fault that was found.

    Args:
        faults: Every fault, in the order of the file.
    """

    def __init__(self, faults: Sequence[FileFault]) -> None:
        super().__init__("; ".join(map(str, faults)))
        self.faults = tuple(faults)


def faults_of(error: ValidationError, path: Path = (), tagged: bool = False) -> list[FileFault]:
    """What pydantic found, as faults.

    Args:
        error: Pydantic's.
        path: Where in the document the part is that was checked.
        tagged: Whether the part is one of several kinds, whose name pydantic puts before every place.

    Returns:
        One fault per place: of the alternatives of a value that may be one of several, all are named, unless one of
        them says what is wrong inside the value.
    """
    errors = [(fault["loc"][1:] if tagged else fault["loc"], fault) for fault in error.errors(include_url=False)]
    places = [path + tuple(part for part in place if not _is_alternative(part)) for place, _ in errors]
    faults: dict[Path, FileFault] = {}
    for (location, fault), place in zip(errors, places, strict=True):
        # A list that is too short without its faulty items, or a value that is none of the simpler alternatives.
        is_whole = fault["type"] == "too_short" or len(path + location) > len(place)
        if is_whole and any(_is_inside(other, place) for other in places):
            continue
        allowed = allowed_by(fault["msg"])
        before = faults.get(place)
        if before is not None:
            allowed = before.allowed if allowed in before.allowed else f"{before.allowed}, or {allowed}"
        faults[place] = FileFault(place, None if fault["type"] == "missing" else fault["input"], allowed)
    return list(faults.values())


def _is_inside(place: Path, whole: Path) -> bool:
    return len(place) > len(whole) and place[: len(whole)] == whole


def _is_alternative(part: str | int) -> bool:
    """Whether a part of a place is pydantic's name of an alternative, not a name in the document."""
    return isinstance(part, str) and ("[" in part or part in _ALTERNATIVES)


_ALTERNATIVES = ("float", "constrained-float", "str", "constrained-str", "tuple", "ExperimentParameter", "int")


def with_lines(faults: Iterable[FileFault], text: str) -> list[FileFault]:
    """Faults with their lines in a file, in the order of the lines.

    Args:
        faults: What is wrong.
        text: The file.

    Returns:
        The same faults; where a field is missing, with the line of the table that it is missing in.
    """
    lines = _lines(text)
    placed = [fault._replace(line=fault.line or _line_of(fault.path, lines)) for fault in faults]
    return sorted(placed, key=lambda fault: fault.line or 0)


def _line_of(path: Path, lines: dict[Path, int]) -> int | None:
    return next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), None)


def _lines(text: str) -> dict[Path, int]:
    """The line on which every table and field begins, as far as they stand on lines of their own."""
    line_numbers: dict[Path, int] = {}
    table: Path = ()
    counts: dict[Path, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        heading, field = _TABLE.match(line), _FIELD.match(line)
        if heading is not None:
            table = _names(heading["name"])
            if heading["many"]:
                line_numbers.setdefault(table, number)
                counts[table] = counts.get(table, 0) + 1
                table = (*table, counts[table] - 1)
            line_numbers.setdefault(table, number)
        elif field is not None:
            line_numbers.setdefault(table + _names(field["name"]), number)
    return line_numbers


def _names(dotted: str) -> Path:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))
