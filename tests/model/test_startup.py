"""Telling a number loads what it needs and no more."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from commands import Run

LATER = {
    *("scipy", "matplotlib", "sklearn", "botorch", "optuna", "alembic", "fastapi", "rich"),
    *("cicpe.api", "cicpe.baselines", "cicpe.certification", "cicpe.doctor", "cicpe.evaluation"),
    *("cicpe.calibration.thresholds", "cicpe.calibration.alarm_fit", "cicpe.plots", "cicpe.race", "cicpe.reporting"),
    *("cicpe.server", "cicpe.testing", "cicpe.training.base", "cicpe.training.loop", "cicpe.training.paper"),
}
"""What no campaign needs."""
NETWORK = "cicpe.beliefs.network"
MEMORIES = {f"{NETWORK}.memories.{name}" for name in ("attention", "delta_rule", "per_axis", "regression")}
FUNCTIONS = {"cicpe.beliefs.functions", "cicpe.gp.mixture", "cicpe.gp.matheron"}
PARTICLES = {"cicpe.beliefs.particles"}
ANSWERS = {"cicpe.beliefs.answers"}
SURVEYS = {"cicpe.data"}
KINDS = {
    "geochem-2d": PARTICLES | ANSWERS | MEMORIES | {f"{NETWORK}.network"},
    "ackley-3d": SURVEYS | FUNCTIONS | ANSWERS | MEMORIES | {f"{NETWORK}.network"},
    "gp-max-1d": SURVEYS | FUNCTIONS | PARTICLES | ANSWERS | MEMORIES - {f"{NETWORK}.memories.regression"},
    "binary-search-6d": SURVEYS
    | FUNCTIONS
    | PARTICLES
    | ANSWERS
    | MEMORIES - {f"{NETWORK}.memories.per_axis"}
    | {"cicpe.gp"},
}
"""Model -> what the other kinds of belief and the other memories need."""

CODE = """
import json, sys
from cicpe.cli.main import main

code = main(sys.argv[1:])
assert not code, code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def modules_of(*words: object) -> set[str]:
    """The modules that a command has imported at its end, in a process of its own."""
    command = [sys.executable, "-c", CODE, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


def within(modules: set[str], packages: set[str]) -> list[str]:
    """The modules that are one of the packages, or in one."""
    return sorted(name for name in modules if any(f"{name}.".startswith(f"{package}.") for package in packages))


@pytest.mark.parametrize("name", KINDS)
def test_telling_a_number_imports_no_more_than_its_belief(name: str, tmp_path: Path, run: Run) -> None:
    place = "--store", tmp_path / "campaigns.db"
    assert run("session", "new", name, "--epsilon", 0.2, "--delta", 0.1, *place).code == 0
    modules = modules_of("session", "tell", *[1.0] * (6 if name == "binary-search-6d" else 1), *place)
    assert within(modules, LATER | KINDS[name]) == []
    assert "torch" in modules


def test_what_must_not_be_imported_exists() -> None:
    """A name that has moved would be guarded no more."""
    ours = [name for name in LATER | set().union(*KINDS.values()) if name.startswith("cicpe.")]
    assert [name for name in ours if importlib.util.find_spec(name) is None] == []


def test_an_import_would_be_found() -> None:
    """The negative control."""
    modules = {"scipy.stats", "cicpe.api", "cicpe.apiary", "cicpe.model"}
    assert within(modules, LATER) == ["cicpe.api", "scipy.stats"]
