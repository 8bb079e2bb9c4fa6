"""Fixtures that several suites share."""

import os
from collections.abc import Iterator

import pytest

from cicpe.cli.main import main
from commands import Done, Run
from flaky_repository import flaky, git  # noqa: F401 - fixtures
from shape_checker import check_new_modules

SUITES = frozenset({"check_agent", "check_memory", "check_problem"})
"""Conformance suites of ``cicpe.testing`` that compute: a test that runs one of them is marked ``conformance``."""


def pytest_configure(config: pytest.Config) -> None:
    """Tests train for seconds: what such a model cannot serve is not what they are about, but for tests/test_api.py.

    Here and not in pyproject.toml, where the warning's class would be imported before the shape checker is there.
    """
    config.addinivalue_line("filterwarnings", "ignore::cicpe.errors.UnservedWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that run a conformance suite, so that new ones are run under other arithmetic too."""
    for item in items:
        if isinstance(item, pytest.Function):
            property_test = getattr(item.function, "hypothesis", None)
            function = item.function if property_test is None else property_test.inner_test
            if SUITES & set(function.__code__.co_names):
                item.add_marker("conformance")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Under the checker: functions and dataclasses are checked as they are imported, named tuples before a test."""
    if item.config.getoption("--jaxtyping-packages"):
        check_new_modules()


@pytest.fixture(autouse=True, scope="session")
def _state_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the command line remembers of its user is not what it remembers of whoever runs the tests."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    yield
    if before is None:
        del os.environ["XDG_STATE_HOME"]
    else:
        os.environ["XDG_STATE_HOME"] = before


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process."""

    def in_process(*words: object) -> Done:
        capsys.readouterr()
        code = main([str(word) for word in words])
        return Done(code, *capsys.readouterr())

    return in_process
