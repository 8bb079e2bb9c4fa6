"""A word means one thing: no public class name is defined in two modules, and variables say what they hold."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Set
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


VAGUE = {"found", "one", "given", "made", "said", "FEW", "FINE", "SURE", "SCHOOL"}
"""What no variable is called: the words say that there is something, and not what it is."""
MOST_VAGUE_NAMES = {"training": 0, "beliefs/network": 1, "bisection": 0, "baselines": 0}
"""Folders in which some are left, with how many at most: a number here may only fall."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def parameters(function: Function | ast.Lambda) -> dict[str, int]:
    """The parameters of a function, each with its line."""
    return {node.arg: node.lineno for node in ast.iter_child_nodes(function.args) if isinstance(node, ast.arg)}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def vague_names(node: ast.AST, kept: Set[str] = frozenset(), public: bool = True) -> Iterator[tuple[int, str]]:
    """The lines on which a variable, a parameter or an import gets one of the names.

    Args:
        node: Where to look.
        kept: Names that are parameters of a public function around: they are its interface, as a class's fields are.
        public: Whether a function or a class inside can be reached from elsewhere.

    Returns:
        Pairs of a line and a name, as they come.
    """
    for child in ast.iter_child_nodes(node):
        inside, reachable = kept, public
        if isinstance(child, Function | ast.Lambda):
            own = parameters(child)
            if public and isinstance(child, Function) and not is_private(child.name):
                inside = own.keys()
            else:
                yield from ((line, name) for name, line in own.items() if name in VAGUE)
                inside = kept - own.keys()
            reachable = False
        elif isinstance(child, ast.ClassDef):
            reachable = public and not is_private(child.name)
        elif isinstance(node, ast.ClassDef) and isinstance(child, ast.Assign | ast.AnnAssign):
            child = ast.Tuple([] if child.value is None else [child.value], ast.Load())  # not the field's name
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store) and child.id in VAGUE - kept:
            yield child.lineno, child.id
        elif isinstance(child, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and child.name in VAGUE - kept:
            yield child.lineno, child.name
        elif isinstance(child, ast.alias) and child.asname in VAGUE:
            yield child.lineno, child.asname
        yield from vague_names(child, inside, reachable)


def places_of_vague_names(root: Path) -> list[str]:
    """All of them below a folder, as file, line and name."""
    return [
        f"{path.relative_to(root).as_posix()}:{line} {name}"
        for path in sorted(root.rglob("*.py"))
        for line, name in sorted(vague_names(ast.parse(path.read_text(encoding="utf-8"))))
    ]


def test_variables_say_what_they_hold() -> None:
    left = tuple(f"{folder}/" for folder in MOST_VAGUE_NAMES)
    assert [place for place in places_of_vague_names(SOURCE) if not place.startswith(left)] == []


def test_vague_names_become_fewer() -> None:
    for folder, most in MOST_VAGUE_NAMES.items():
        places = places_of_vague_names(SOURCE / folder)
        assert len(places) <= most, f"{folder}: {places}"


VAGUE_FILE = """\
FINE = 1000
def show(given, one=lambda said: said):
    given = [found for found in given]
    with open(given) as made, open(one) as file:
        return lambda one: one
def _hide(given, *, kept): ...
class Record:
    made: str
    given = [said for said in ()]
    def read(self, given):
        def inside(given): ...
        self.found = (found := given)
        return dict(one=self.made)
class _Own:
    def read(self, given): ...
try:
    from cicpe import api as one
except ValueError as said:
    "given, made and found"
match FINE:
    case [*one]: ...
    case {"found": made}: ...
    case str(given): ...
"""


def test_a_vague_name_would_be_seen(tmp_path: Path) -> None:
    (tmp_path / "vague.py").write_text(VAGUE_FILE)
    assert [place.removeprefix("vague.py:") for place in places_of_vague_names(tmp_path)] == [
        "1 FINE",
        "2 said",
        "3 found",
        "4 made",
        "5 one",
        "6 given",
        "9 said",
        "11 given",
        "12 found",
        "15 given",
        "17 one",
        "18 said",
        "21 one",
        "22 made",
        "23 given",
    ]
