"""Commands of ``cicpe`` in tests: how one ended, and how a refusal looks. The fixture ``run`` is in conftest.py."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed."""
        return json.loads(self.out)


Run = Callable[..., Done]


def assert_refused(done: Done, *words: str) -> None:
    """Bad input: exit code 2, nothing on standard output, one line that holds every word, no traceback."""
    assert done.code == 2, done
    assert done.out == ""
    message = done.err.splitlines()[-1]
    assert message.startswith("error: ")
    assert "Traceback" not in done.err
    for word in words:
        assert word in message


def script(name: str) -> ModuleType:
    """A file of ``scripts`` as a module."""
    spec = importlib.util.spec_from_file_location(f"script_{name}", REPOSITORY / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
