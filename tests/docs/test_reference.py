"""Every public name in the API reference has a docstring with its arguments and its result."""

from pathlib import Path

import pytest

from api_reference import class_faults, faults, function_faults, listed_names, load_package, resolved

UNDOCUMENTED = Path(__file__).with_name("undocumented.txt")
"""Names whose docstrings lack something still. Take a name out once it is documented."""
AT_MOST = 122
"""How many there are; lower it with the list, which `python tests/api_reference.py` writes anew."""


def test_names_are_documented() -> None:
    package = load_package()
    found = {path: fault for name in listed_names() for path, fault in faults(resolved(package, name))}
    allowed = set(UNDOCUMENTED.read_text().split())
    assert {path: fault for path, fault in found.items() if path not in allowed} == {}


def test_the_list_only_gets_shorter() -> None:
    names = UNDOCUMENTED.read_text().split()
    assert names == sorted(set(names))
    assert len(names) <= AT_MOST


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
