"""The arrows between layers, read from the imports themselves, and what importing the package costs."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import cicpe

ROOT = Path(cicpe.__file__).parent
BASE = {
    "_version",
    "errors",
    "files",
    "trees",
    "config",
    "lazy",
    "statistics",
    "streams",
    "plates",
    "units",
    "rounding",
    "display",
    "frames",
    "parallel",
}
SIMULATOR = BASE | {"spaces", "gp", "data", "problems"}
DECIDER = SIMULATOR | {"beliefs", "agents", "episodes"}
MODEL = DECIDER | {"calibration", "training", "sessions", "zoo", "model"}
EVERYTHING = MODEL | {"evaluation", "certification", "api", "experiments"}

MAY_IMPORT: dict[str, set[str]] = {
    "_version": set(),
    "errors": set(),
    "lazy": set(),
    "config": {"errors"},
    "statistics": {"errors"},
    "files": {"errors"},
    "trees": {"errors"},
    "streams": {"errors"},
    "zoo": {"errors"},
    "plates": {"errors"},
    "rounding": set(),
    "display": set(),
    "frames": {"errors"},
    "units": {"errors", "config", "rounding"},
    "parallel": {"errors"},
    "spaces": BASE,
    "gp": BASE | {"spaces"},
    "data": BASE | {"gp"},
    "problems": BASE | {"spaces", "gp", "data"},
    "experiments": BASE | {"spaces", "problems"},
    "beliefs": SIMULATOR,
    "agents": SIMULATOR | {"beliefs"},
    "episodes": SIMULATOR | {"beliefs", "agents"},
    "baselines": DECIDER,
    "training": DECIDER,
    "calibration": DECIDER,
    "sessions": DECIDER | {"plots"},
    "evaluation": DECIDER | {"calibration"},
    "model": MODEL - {"model"},
    "certification": MODEL | {"evaluation"},
    "plots": {"errors"},
    "testing": DECIDER | {"sessions"},
    "bisection": {"_version", "errors", "files"},
    "doctor": DECIDER,
    "progress": {"training"},
    "scoring": DECIDER,
    "estimate": DECIDER | {"scoring", "training", "doctor"},
    "race": DECIDER | {"scoring", "calibration", "training"},
    "assembly": EVERYTHING - {"api", "experiments", "evaluation"},
    "api": EVERYTHING - {"api"} | {"assembly", "race", "progress"},
    "integrations": EVERYTHING | {"baselines"},
    "server": BASE | {"spaces", "sessions", "zoo", "model", "api", "experiments", "estimate", "progress", "training"},
    "reporting": EVERYTHING | {"baselines", "plots"},
    "cli": EVERYTHING
    | {"bisection", "doctor", "race", "estimate", "progress", "plots", "testing", "baselines", "reporting", "server"},
    "__init__": EVERYTHING,
    "__main__": {"cli"},
}
"""Layer -> the layers that it may use beside itself. A new layer is added here, with its arrows, or refused."""


def layer_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def imported_layers(path: Path) -> set[str]:
    """The layers of this package that a file imports anywhere, in functions and type-checking blocks too."""
    layers: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively; name the module in full"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        layers |= {name.split(".")[1] for name in names if name.startswith("cicpe.")}
    return layers


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(ROOT)) for path in FILES])
def test_imports_follow_the_arrows(path: Path) -> None:
    layer = layer_of(path)
    assert layer in MAY_IMPORT, f"{layer} has no place among the layers: add it to MAY_IMPORT and docs/architecture.md"
    forbidden = imported_layers(path) - MAY_IMPORT[layer] - {layer}
    # The package's own lazy names (cicpe.train in the command line, say) are no layers.
    forbidden -= set(cicpe.__all__)
    assert not forbidden, f"{path.relative_to(ROOT)} ({layer}) may not import {sorted(forbidden)}"


def test_the_arrows_have_no_cycle() -> None:
    done: set[str] = set()
    waiting = {layer: set(below) - {layer} for layer, below in MAY_IMPORT.items() if not layer.startswith("__")}
    while waiting:
        free = {layer for layer, below in waiting.items() if below <= done}
        assert free, f"a cycle among {sorted(waiting)}"
        done |= free
        waiting = {layer: below for layer, below in waiting.items() if layer not in free}


def test_a_forbidden_import_is_found(tmp_path: Path) -> None:
    """The negative control: the reader sees every way to write an import."""
    file = tmp_path / "bad.py"
    file.write_text(
        "import cicpe.cli.main\nfrom cicpe import plots\n\n\ndef late():\n    from cicpe.training.loop import Trainer\n"
    )
    assert imported_layers(file) == {"cli", "plots", "training"}


def test_no_postponed_annotations() -> None:
    """They break shape types."""
    for path in FILES:
        assert "from __future__ import annotations" not in path.read_text(encoding="utf-8"), path


@pytest.mark.parametrize(
    "statement", ["import cicpe", "import cicpe.cli.main", "from cicpe import zoo; zoo.names()"], ids=str
)
def test_torch_is_imported_only_when_needed(statement: str) -> None:
    code = (
        f"import sys; {statement}\n"
        "heavy = {'torch', 'numpy', 'scipy', 'matplotlib', 'rich', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


COMMANDS = sorted(file for folder in ("benchmarks", "scripts") for file in (ROOT.parents[1] / folder).glob("*.py"))


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_command_of_the_repository_finds_what_it_imports(path: Path) -> None:
    """Benchmarks and scripts are run by hand, and seldom: what they import from the package must still be there."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "cicpe":
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                inside = (
                    importlib.util.find_spec(f"{node.module}.{alias.name}") if hasattr(module, "__path__") else None
                )
                assert hasattr(module, alias.name) or inside, f"{node.module} has no {alias.name}"
