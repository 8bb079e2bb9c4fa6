"""A plug-in without the package that it plugs into says what to install."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("name", ["optuna", "gymnasium"])
def test_a_missing_package_is_named(name: str) -> None:
    code = f"import sys; sys.modules['{name}'] = None; import cicpe.integrations.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert f"pip install 'cicpe[{name}]'" in done.stderr
