"""A git repository with a test that becomes flaky: fixtures, imported by conftest.py."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Git = Callable[..., str]

FLAKY = """import pathlib, sys
count = pathlib.Path(".git/count")
n = int(count.read_text()) if count.exists() else 0
count.write_text(str(n + 1))
sys.exit(1 if {late} and n % 4 else 0)
"""
"""Passes before; from the culprit on it fails three times of four, in a fixed order."""


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """Runs git in a new repository, which is also the working directory."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "A Person")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "a@example.org")

    def run(*words: str) -> str:
        return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.strip()

    run("init", "--quiet", "--initial-branch=main")
    return run


@pytest.fixture
def flaky(git: Git) -> list[str]:
    """Eight commits on main; the sixth, at position 5, is the culprit. Returns their hashes, the oldest first."""
    hashes = []
    for number in range(8):
        Path("check.py").write_text(FLAKY.format(late=number >= 5))
        Path("number").write_text(str(number))
        git("add", "--all")
        git("commit", "--quiet", "--message", f"change {number}")
        hashes.append(git("rev-parse", "HEAD"))
    return hashes
