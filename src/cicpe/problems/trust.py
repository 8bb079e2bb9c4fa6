"""Problem files of this user's own that may be run: a list in the user's state folder.

``cicpe train`` adds the file that it was given, and so does ``--problem``: what the user has typed once, and run. An
entry holds for one source and no other. A file that was edited since is not run, and a model's folder cannot add to
the list, since it lies elsewhere.
"""

import json
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple

from cicpe.files import state_folder, write_json
from cicpe.problems.source import class_source, file_digest

KEPT = 200
"""Entries that are kept, the latest ones."""


class TrustedProblem(NamedTuple):
    """A problem file that was run on this machine by this user."""

    file: Path
    class_name: str
    source: str
    """Of the file as it was when it was trusted; see ``source.class_source``."""
    module: str | None = None
    """The module that it is, where it was named by that."""

    @property
    def place(self) -> str:
        """As one would type it."""
        return f"{self.module or self.file}:{self.class_name}"

    @property
    def fault(self) -> str | None:
        """Why it cannot be run as it was trusted, in words; None where it can."""
        if not self.file.is_file() or (self.module is not None and _file_of(self.module) != self.file):
            return f"it was {self.place}, which is not there any more"
        if class_source(file_digest(self.file), self.class_name) != self.source:
            return f"it was {self.place}, which has been edited since"
        return None


def _file_of(module: str) -> Path | None:
    """Where a module would be imported from. Nothing is imported, no package around it either."""
    names = module.split(".")
    spec, places = None, None
    for end in range(1, len(names) + 1):
        spec = PathFinder.find_spec(".".join(names[:end]), places)
        places = None if spec is None else spec.submodule_search_locations
        if spec is None or (places is None and end < len(names)):
            return None
    return None if spec is None or spec.origin is None else Path(spec.origin).resolve()


def trusted(source: str) -> TrustedProblem | None:
    """The file that is trusted in the place of a source that a model names; it may be gone or edited by now."""
    entry = _read().get(source)
    try:
        return None if entry is None else TrustedProblem(Path(entry.pop("file")), **entry)
    except (AttributeError, KeyError, TypeError):
        return None


def trust(source: str, problem: TrustedProblem) -> str | None:
    """Adds to the list: models that name ``source`` may run a file as it is now.

    Args:
        source: What they name.
        problem: The file, with its own source.

    Returns:
        Why it could not be remembered, in words; None where it was.
    """
    entries = _read()
    entries.pop(source, None)
    entries[source] = problem._asdict() | {"file": str(problem.file)}
    try:
        write_json(_list_file(), dict(list(entries.items())[-KEPT:]))
    except OSError as error:
        return f"{_list_file()}: {error.strerror or error}"
    return None


def _list_file() -> Path:
    return state_folder() / "problems.json"


def _read() -> dict[str, Any]:
    try:
        content = json.loads(_list_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
