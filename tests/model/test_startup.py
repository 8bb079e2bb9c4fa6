"""Telling a session a number loads what it needs and no more."""

import subprocess
import sys

import pytest

TOLD = """
import sys
import cicpe
session = cicpe.load({name!r}).session(epsilon={epsilon}, delta=0.1)
session.ask()
session.tell([1.0] * {width})
print(sorted({{name.split(".")[0] for name in sys.modules}} & {{"scipy", "matplotlib", "sklearn", "botorch"}}))
"""


@pytest.mark.parametrize(
    ("name", "epsilon", "width"),
    [("geochem-2d", 0.2, 1), ("gp-max-1d", 0.2, 1), ("ackley-3d", 0.2, 1), ("binary-search-6d", 0.2, 6)],
    ids=["functions", "regression", "particles", "attention"],
)
def test_a_number_is_told_without_scipy(name: str, epsilon: float, width: int) -> None:
    code = TOLD.format(name=name, epsilon=epsilon, width=width)
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert told.stdout.strip() == "[]"
