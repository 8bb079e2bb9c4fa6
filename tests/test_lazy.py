"""Names that packages import when they are first used."""

import ast
import importlib
from pathlib import Path

import pytest

PACKAGES = ["gp", "beliefs.network", "beliefs.network.memories", "beliefs.network.posteriors"]


def names_for_type_checkers(path: Path) -> set[str]:
    """What a package imports under ``TYPE_CHECKING``."""
    (block,) = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.If)]
    return {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}


@pytest.mark.parametrize("name", PACKAGES)
def test_every_name_is_there_and_known_to_type_checkers(name: str) -> None:
    package = importlib.import_module(f"cicpe.{name}")
    assert package.__file__ is not None
    assert [export for export in package.__all__ if getattr(package, export) is None] == []
    assert set(package.__all__) == names_for_type_checkers(Path(package.__file__)) == set(dir(package))


def test_a_name_that_is_not_there_is_refused() -> None:
    with pytest.raises(AttributeError, match=r"module 'cicpe.gp' has no attribute 'wavelet'"):
        importlib.import_module("cicpe.gp").wavelet  # noqa: B018
