"""Every public name in the API reference has a docstring with its arguments and its result."""

from pathlib import Path

import pytest

import cicpe
from api_reference import class_faults, faults, function_faults, listed_names, load_package, resolved

EXPORTS = [f"cicpe.{name}" for name in cicpe.__all__ if not name.startswith("_")]


def test_every_export_is_in_the_reference() -> None:
    assert sorted(set(EXPORTS) - set(listed_names())) == []


def test_every_name_is_documented() -> None:
    package = load_package()
    assert [fault for name in listed_names() for fault in faults(resolved(package, name))] == []


@pytest.fixture
def example(tmp_path: Path) -> Path:
    folder = tmp_path / "sample"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        '''
class Base:
    """Has a method."""
    def inherited(self, n: int) -> int:
        """Twice.

        Args:
            n: A number.

        Returns:
            Twice the number.
        """

class Thing(Base):
    """Lacks its argument."""
    def __init__(self, size: int) -> None: ...
    def inherited(self, n: int) -> int: ...
    def bare(self): ...
    @property
    def width(self) -> int:
        """How wide."""

def half(a: int) -> int:
    """Half.

    Args:
        a: A number.
    """
'''
    )
    return tmp_path


def test_faults_are_found(example: Path) -> None:
    """The negative control."""
    package = load_package("sample", example)
    assert list(class_faults(package["Base"])) == []
    assert list(class_faults(package["Thing"])) == [
        ("sample.Thing", "Args: size"),
        ("sample.Thing.bare", "a docstring"),
    ]
    assert list(function_faults(package["half"])) == [("sample.half", "Returns")]
