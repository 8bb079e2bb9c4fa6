"""The program behind a problem, hashed: a model knows which one it was trained on without being able to run it.

What is hashed is the text of the file that defines a class, with the neighbours that it imports (files and packages in
the same folder). Neither the file's name nor its place counts: a file that was moved or renamed is the same program.
"""

import ast
import hashlib
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cicpe.problems.base import Problem

USER_MODULE = "cicpe_user_"
"""How the modules begin that problem files are imported as."""
HASHED = "__cicpe_source__"
"""The attribute of such a module that holds the text of its file and neighbours, hashed before it ran."""


def file_digest(path: Path) -> str:
    """A SHA-256 of a Python file and of the neighbours that it imports. Nothing is run.

    Args:
        path: The file.

    Returns:
        The same for the same texts, wherever they lie.
    """
    texts = {"": _text_digest(path)} | {name: _text_digest(file) for name, file in neighbours(path).items()}
    return hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()


def neighbours(path: Path) -> dict[str, Path]:
    """The files beside a file that it imports, and those that they import, by their names from there."""
    folder = path.resolve().parent
    files: dict[str, Path] = {}
    waiting = [path]
    while waiting:
        for name in _imported(waiting.pop()):
            for file in _files_of(folder, name):
                key = file.relative_to(folder).as_posix()
                if key not in files and file != path.resolve():
                    files[key] = file
                    waiting.append(file)
    return files


def _files_of(folder: Path, name: str) -> list[Path]:
    """The files of a module or package in a folder."""
    file, package = folder / f"{name}.py", folder / name
    inside = sorted(package.rglob("*.py")) if package.is_dir() else []  # a package need not have an __init__.py
    return [file, *inside] if file.is_file() else inside


def _imported(path: Path) -> Iterator[str]:
    """The first names of what a file imports, anywhere in it."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):  # from . import ...
            yield from (alias.name for alias in node.names)


def _text_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def class_source(digest: str, class_name: str) -> str:
    """What a model keeps of a class: a SHA-256 of its name and of the digest of its file."""
    return hashlib.sha256(json.dumps([class_name, digest]).encode()).hexdigest()


def source_of(cls: type[Problem]) -> str | None:
    """The source of a class that is at hand, hashed.

    Args:
        cls: A class of problems.

    Returns:
        None for the library's own families, and where the text is not known any more (typed into a plain prompt).
    """
    if cls.__module__.partition(".")[0] == "cicpe":
        return None
    digest = _digest_of(cls, sys.modules.get(cls.__module__))
    return None if digest is None else class_source(digest, cls.__qualname__)


def has_changed(cls: type[Problem]) -> bool:
    """Whether the problem file of a class was edited or moved since it was imported."""
    module = sys.modules.get(cls.__module__)
    digest, file = getattr(module, HASHED, None), getattr(module, "__file__", None)
    return digest is not None and (file is None or not Path(file).is_file() or file_digest(Path(file)) != digest)


def _digest_of(cls: type[Problem], module: Any) -> str | None:
    digest: str | None = getattr(module, HASHED, None)
    if digest is not None:
        return digest
    file = getattr(module, "__file__", None)
    if file is not None and Path(file).is_file():
        return file_digest(Path(file))
    try:  # a notebook keeps the text of its cells
        return hashlib.sha256(inspect.getsource(cls).encode()).hexdigest()
    except (OSError, TypeError):
        return None
