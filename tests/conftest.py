"""Fixtures that several suites share."""

import pytest

from cicpe.cli.main import main
from commands import Done, Run


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process."""

    def in_process(*words: object) -> Done:
        capsys.readouterr()
        code = main([str(word) for word in words])
        return Done(code, *capsys.readouterr())

    return in_process
