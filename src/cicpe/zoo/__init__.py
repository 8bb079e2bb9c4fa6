"""Trained models that ship with the library, by name: PROBLEM-Dd, such as binary-search-6d."""

from pathlib import Path

_HERE = Path(__file__).parent


def names() -> list[str]:
    """Every model in the zoo.

    Returns:
        Their names, sorted.
    """
    return sorted(path.parent.name for path in _HERE.glob("*/config.json"))


def folder(name: str) -> Path:
    """Where a model of the zoo lies.

    Args:
        name: Its name.

    Returns:
        The folder, whether or not it is there.
    """
    return _HERE / name
