"""The log of a bisection, in the git directory: one JSON object per line, only ever appended to.

The first line says how the bisection was begun; every further one is a run, a skip or an undoing. A line is flushed to
the disk before anything is said to be recorded. A write that a crash or a kill has cut short leaves a last line without
an end: it was never reported as recorded, and is taken away before the next one is written.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

from cicpe.errors import CicpeError
from cicpe.files import locked, sync_folder, write_atomic

FORMAT = 1
NAME = "cicpe-bisect.jsonl"
PATIENCE = 10.0
"""Seconds that a command waits for another one in the same repository."""

Outcome = Literal["pass", "fail", "skip"]
OUTCOMES: tuple[Outcome, ...] = ("pass", "fail", "skip")


class JournalError(CicpeError):
    """The log of a bisection is not there, is there already, or cannot be read."""


class RunEntry(NamedTuple):
    """A run or a skip that is in force."""

    commit: str
    outcome: Outcome


@final
class Journal:
    """The file itself."""

    def __init__(self, git_dir: Path) -> None:
        self.path = git_dir / NAME

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the log against other commands that read, decide and write."""
        try:
            with locked(self.path, PATIENCE):
                yield
        except TimeoutError:
            raise JournalError(
                f"another `cicpe bisect` must end first; it has held {self.path} for {PATIENCE:g} s"
            ) from None

    def exists(self) -> bool:
        """Whether a bisection is under way."""
        return self.path.exists()

    def begin(self, header: dict[str, Any]) -> None:
        """Writes the first line, whole or not at all."""
        write_atomic(self.path, _line({"format": FORMAT, **header}))

    def append(self, event: dict[str, Any]) -> None:
        """Adds a line, and returns when it is on the disk."""
        with self.path.open("r+b") as file:
            data = file.read()
            whole = data.rfind(b"\n") + 1
            if whole < len(data):
                file.truncate(whole)
            file.seek(whole)
            file.write(_line(event))
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The first line and all others; a last line that was cut short is left out.

        Raises:
            JournalError: There is no log, or it is damaged.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            raise JournalError("a bisection must be under way; begin one with `cicpe bisect start GOOD BAD`") from None
        events = []
        for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), start=1):
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            if not isinstance(event, dict):
                raise JournalError(f"{self.path} is damaged in line {number}; `cicpe bisect reset --force` gives it up")
            events.append(event)
        if not events or events[0].get("format") != FORMAT:
            raise JournalError(
                f"{self.path} is not of a format that this version reads; `cicpe bisect reset --force` gives it up"
            )
        return events[0], events[1:]

    def end(self) -> None:
        """Takes the log away."""
        self.path.unlink(missing_ok=True)
        sync_folder(self.path.parent)


def in_force(events: list[dict[str, Any]]) -> list[RunEntry]:
    """The runs and skips that no undoing has taken back, in their order.

    Raises:
        JournalError: An event is none that a version of this program has written.
    """
    entries: list[RunEntry] = []
    for number, event in enumerate(events, start=2):
        match event:
            case {"event": "undo"} if entries:
                entries.pop()
            case {"event": "run", "commit": str(commit), "outcome": ("pass" | "fail" | "skip") as outcome}:
                entries.append(RunEntry(commit, outcome))
            case _:
                raise JournalError(f"the log is damaged in line {number}: {event!r}")
    return entries


def _line(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, allow_nan=False) + "\n").encode()
