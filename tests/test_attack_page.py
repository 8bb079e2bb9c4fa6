"""The page of the attacks prints what was kept, says what broke, and says what was not run."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from commands import REPOSITORY


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    sys.path.insert(0, str(REPOSITORY / "benchmarks"))
    monkeypatch.setattr(importlib.import_module("kept_results"), "RESULTS", tmp_path)
    yield importlib.import_module("attack_page")
    sys.path.remove(str(REPOSITORY / "benchmarks"))


def test_what_was_not_run_is_said(pages: ModuleType) -> None:
    lines = pages.page().splitlines()
    assert sum("| not run" in line for line in lines) == len(pages.ROWS)


def test_figures_are_those_of_the_files(pages: ModuleType, tmp_path: Path) -> None:
    kept = {"kills": 600, "acknowledged": 1234, "faults": [], "commit": "abc1234", "load": 2.4}
    (tmp_path / "attack").mkdir()
    (tmp_path / "attack" / "kills.json").write_text(json.dumps(kept))
    broken = kept | {"kills": 7, "faults": ["kills-3: a step is lost"]}
    (tmp_path / "attack" / "kills_postgres.json").write_text(json.dumps(broken))
    page = pages.page()
    assert "| 600 | 600 kills, 1,234 steps acknowledged | held | abc1234 | 2 |" in page
    assert "7 kills, 1,234 steps acknowledged | **broken**: 1 faults" in page


def test_a_script_that_has_not_come_to_its_end_is_broken(pages: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "attack").mkdir()
    kept = {"faults": ["campaigns.py ended with 1"], "commit": "abc1234", "load": 2.4}
    (tmp_path / "attack" / "kills.json").write_text(json.dumps(kept))
    assert "| 600 | not to its end | **broken**: 1 faults | abc1234 | 2 |" in pages.page()


def test_latencies_are_printed_with_the_load(pages: ModuleType, tmp_path: Path) -> None:
    cell = {"before": 80.2, "after": 61.6, "ratio": 0.77, "ratio_range": [0.7, 0.81], "ratios": []}
    figures = {"clients": 20, "rounds": 5, "before": "abc", "after": "def", "loads": [1.2, 3.4], "faults": []}
    (tmp_path / "attack").mkdir()
    (tmp_path / "attack" / "latency.json").write_text(json.dumps(figures | {"stores": {"sqlite": {"p99": cell}}}))
    page = pages.page()
    assert "| sqlite | p99 | 80 | 62 | 0.77 (0.70 to 0.81) |" in page
    assert "load of the machine was 1 to 3" in page


def test_every_attack_has_a_row(pages: ModuleType) -> None:
    attacks = importlib.import_module("attack").ATTACKS
    assert {row.name for row in pages.ROWS} - set(attacks) == {"soak-sqlite", "soak-postgres"}
    assert set(attacks) <= {row.name for row in pages.ROWS}


def test_only_the_full_size_is_kept(pages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attack = importlib.import_module("attack")
    monkeypatch.setattr(attack, "ATTACKS", {"names": lambda folder: ({"made": []}, [])})
    monkeypatch.setattr(attack, "write_page", lambda: None)
    for size, kept in (("0.1", False), ("1", True)):
        monkeypatch.setattr(sys, "argv", ["attack.py", "--size", size])
        assert attack.main() == 0
        assert (tmp_path / "attack" / "names.json").exists() == kept
