"""The how-to page: its example is the file, and both blocks run as scripts."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "tune_svm.py"
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "how-to" / "optuna.md").read_text(), re.DOTALL)


def run(file: Path, seconds: float) -> str:
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_shows_the_example_as_it_is() -> None:
    assert BLOCKS[1] == EXAMPLE.read_text()


def test_the_short_example_finds_the_least_value(tmp_path: Path) -> None:
    file = tmp_path / "short.py"
    file.write_text(BLOCKS[0])
    found = re.match(r"(\d+) {'value': ([\d.]+)} ([\d.]+) The stop rule for delta 0.1 is met", run(file, 120))
    assert found is not None
    assert int(found[1]) < 20
    assert 3.88 < float(found[2]) < 4.12


class _At:
    """A trial at a given place."""

    def __init__(self, **params: float) -> None:
        self.params = params

    def suggest_float(self, name: str, *args: Any, **options: Any) -> float:
        return self.params[name]


@pytest.mark.slow
def test_a_real_model_is_tuned_to_a_stop() -> None:
    """The study ends by itself, and no place on a lattice is better than its answer by more than epsilon."""
    pytest.importorskip("sklearn")
    words = run(EXAMPLE, 1800)
    found = re.search(r"after (\d+) trials: {'C': ([\d.e+-]+), 'gamma': ([\d.e+-]+)}, confidence ([\d.]+)", words)
    assert found is not None, words
    assert int(found[1]) < 15
    assert "The stop rule for delta 0.1 is met" in words
    spec = importlib.util.spec_from_file_location("tune_svm", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    lattice = [
        example.error_rate(_At(C=c, gamma=gamma))
        for c in np.geomspace(1e-2, 1e3, 6)
        for gamma in np.geomspace(1e-5, 1, 6)
    ]
    answer = example.error_rate(_At(C=float(found[2]), gamma=float(found[3])))
    assert answer <= min(lattice) + 0.05
    assert np.median(lattice) > answer + 0.3  # most places are far worse
