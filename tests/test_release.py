"""What a release needs: metadata that agree, every extra tried, a changelog that can be dated."""

import datetime
import re
import tomllib
from pathlib import Path

import pytest

import cicpe
from commands import script

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DAY = datetime.date(2026, 1, 2)


def test_every_extra_is_tried_alone() -> None:
    trials = script("try_package").TRIALS
    assert set(PROJECT["optional-dependencies"]) - {"dev"} == set(trials) - {"core", "core-sdist"}
    assert all(trials.values())


def test_every_dependency_has_a_lower_bound_and_an_upper_one() -> None:
    extras = PROJECT["optional-dependencies"]
    own = [line for name, lines in extras.items() if name != "dev" for line in lines if not line.startswith("cicpe[")]
    bounded = re.compile(r"[A-Za-z0-9_.-]+(\[[a-z]+\])?(>=\d[\d.]*,<\d[\d.]*|==\d[\d.]*)")
    assert [line for line in PROJECT["dependencies"] + own if not bounded.fullmatch(line)] == []


def test_the_lowest_versions_are_those_of_the_metadata_and_are_tried() -> None:
    found = script("lowest_versions").lowest(["store", "server"])
    assert {"numpy==1.26.*", "jaxtyping==0.2.30", "fastapi==0.115.*", "sqlalchemy==2.0.*"} <= set(found)
    assert len(found) == len(PROJECT["dependencies"]) - 1 + 4, "all but torch, and what the extras need"
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "scripts/lowest_versions.py" in targets
    assert "pip-audit" in targets


def test_the_citation_has_the_version() -> None:
    assert script("release").version_of() == cicpe.__version__


def test_another_version_in_the_citation_is_refused(tmp_path: Path) -> None:
    (tmp_path / "src" / "cicpe").mkdir(parents=True)
    (tmp_path / "src" / "cicpe" / "_version.py").write_text('__version__ = "1.2.0"\n')
    (tmp_path / "CITATION.cff").write_text("version: 1.1.0\n")
    with pytest.raises(SystemExit, match=r"CITATION\.cff must say version 1\.2\.0"):
        script("release").version_of(tmp_path)


def test_the_changelog_is_dated() -> None:
    before = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A thing.\n"
    after = script("release").dated(before, "0.1.0", DAY)
    assert after == "# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-01-02\n\n### Added\n\n- A thing.\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("## [Unreleased]\n\n## [0.0.9] - 2025-01-01\n\n- Old.\n", "must have something under"),
        ("## [Unreleased]\n\n- New.\n\n## [0.1.0] - 2025-01-01\n", "has an entry for 0.1.0 already"),
        ("# Changelog\n", "must have something under"),
    ],
)
def test_a_release_of_nothing_or_of_the_same_again_is_refused(text: str, words: str) -> None:
    with pytest.raises(SystemExit, match=words):
        script("release").dated(text, "0.1.0", DAY)


def test_workflows_call_targets_that_there_are() -> None:
    yaml = pytest.importorskip("yaml")
    targets = {line.partition(":")[0] for line in (ROOT / "Makefile").read_text().splitlines() if ":" in line}
    called = []
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"].values():
            called += [step["run"].split()[1] for step in job["steps"] if step.get("run", "").startswith("make ")]
    assert len(called) >= 5
    assert set(called) - targets == set()


def test_issue_forms_ask_something() -> None:
    yaml = pytest.importorskip("yaml")
    forms = [path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]
    for form in forms:
        fields = yaml.safe_load(form.read_text(encoding="utf-8"))["body"]
        assert any(field.get("validations", {}).get("required") for field in fields), form.name
    assert len(forms) == 3
