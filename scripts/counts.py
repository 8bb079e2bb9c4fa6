"""Counts how much of the house stands in one place: the table of docs/decisions/0004.

    python scripts/counts.py             # of this repository
    python scripts/counts.py ../before   # of another version of it

What can be held is held by tests/test_house.py and tests/test_names.py, whose functions this uses.
"""

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tests"))

from test_house import loops_that_play, most_arguments  # noqa: E402
from test_names import twice_defined  # noqa: E402

KIND = re.compile(
    r"(Network|Particle|Function|Answer|Headed)(Core|Belief|BeliefConfig|Training)$|(Training|Paper)Config$"
)
"""Classes that are one kind of belief, by this version's names and by those before it."""
SHAPE = re.compile(r"\b(Float|Int|Bool|Integer|Shaped|Num)\[[^\]]*\"")
LONG = 300
"""Lines above which a test file is long."""


def places_that_ask(path: Path) -> Iterator[str]:
    """Where an ``isinstance`` asks which kind of belief something is."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            names = [part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)]
            if any(KIND.fullmatch(name) for name in names):
                yield f"{path}:{node.lineno}"


def lines_of(path: Path) -> int:
    """Lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def count(root: Path) -> Iterator[tuple[str, object]]:
    """What there is in a repository, and how much of it."""
    source = root / "src" / "cicpe"
    files, tests = sorted(source.rglob("*.py")), sorted((root / "tests").rglob("*.py"))
    loops = [loop for file in files for loop in loops_that_play(file, source)]
    yield "loops that play episodes, without the conformance suite", len([x for x in loops if "testing/" not in x])
    asked = [place for file in files if file.parent != source / "training" for place in places_that_ask(file)]
    yield "places outside training that ask a belief for its kind", len(asked)
    yield "class names with two meanings", len(twice_defined(source))
    library = [file for file in files if "cli" not in file.parts]
    arguments = [(n, name) for file in library for n, name in most_arguments(file) if name != "train"]
    yield "most arguments of a function beside train", max(arguments)
    modules = [file for file in files if file.name != "__init__.py"]
    names = Counter(file.name.removeprefix("test_") for file in tests if file.name.startswith("test_"))
    yield "modules with a test file of their name", f"{sum(m.name in names for m in modules)} of {len(modules)}"
    yield "shape types", sum(len(SHAPE.findall(file.read_text(encoding="utf-8"))) for file in files)
    long = [file for file in tests if file.name.startswith("test_") and lines_of(file) > LONG]
    yield f"test files above {LONG} lines", len(long)
    yield "source lines", sum(map(lines_of, files))
    for part in sorted(path for path in source.iterdir() if path.is_dir() and any(path.glob("*.py"))):
        yield f"  of which {part.name}/", sum(map(lines_of, part.rglob("*.py")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", type=Path, nargs="?", default=REPOSITORY)
    for what, number in count(parser.parse_args().repository.resolve()):
        print(f"{what}: {number}")


if __name__ == "__main__":
    main()
