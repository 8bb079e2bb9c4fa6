"""A word means one thing: no public class name is defined in two modules."""

import ast
from collections import defaultdict
from pathlib import Path

import cicpe

SOURCE = Path(cicpe.__file__).parent


def places_of_classes(root: Path) -> dict[str, set[str]]:
    """The modules in which each public class is defined, wherever in the module."""
    places = defaultdict(set)
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(str(path.relative_to(root)))
    return places


def twice_defined(root: Path) -> dict[str, set[str]]:
    """Only those with several modules."""
    return {name: modules for name, modules in places_of_classes(root).items() if len(modules) > 1}


def test_every_class_name_has_one_meaning() -> None:
    assert twice_defined(SOURCE) == {}


def test_a_second_meaning_would_be_seen(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "one.py").write_text("class Cell: ...\nclass _Own: ...\n")
    (tmp_path / "inner" / "two.py").write_text("def f():\n    class Cell: ...\nclass _Own: ...\nclass Other: ...\n")
    assert twice_defined(tmp_path) == {"Cell": {"one.py", "inner/two.py"}}
