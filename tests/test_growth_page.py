"""The page of ``benchmarks/growth.py``: powers, limits and tables from stored numbers."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from commands import REPOSITORY


@pytest.fixture
def growth_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The writer, with its files in a folder of the test."""
    spec = importlib.util.spec_from_file_location("growth_page", REPOSITORY / "benchmarks" / "growth_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("FILE", "PAGE", "IMAGE", "NOTES"):
        monkeypatch.setattr(module, name, tmp_path / name)
    return module


def points(*values: float) -> list[dict[str, float]]:
    """Values at sizes 5, 10, 20 ..."""
    return [{"size": 5.0 * 2**i, "value": v, "low": 0.9 * v, "high": 1.1 * v} for i, v in enumerate(values)]


def test_the_power_is_that_of_the_upper_half(growth_page: ModuleType) -> None:
    assert growth_page.power(points(1, 1, 2, 8)) == pytest.approx(2.0)
    assert growth_page.power(points(3, 3)) == pytest.approx(0.0)


def test_a_limit_is_measured_or_carried_on_or_left_open(growth_page: ModuleType) -> None:
    assert growth_page.reached(points(1, 2, 4, 8), 4) == "20 (measured)"
    assert growth_page.reached(points(1, 2, 4, 8), 16) == "about 80, carried on"
    assert growth_page.reached(points(2, 2, 2, 2), 16) == "no size: flat"
    assert growth_page.reached(points(1, 2, 4, 8), 8000) == "more than 100 times the largest size here"


def test_the_page_has_a_table_for_each_study_that_was_made(growth_page: ModuleType) -> None:
    about = {"date": "2026-11-17", "machine": "x86_64", "torch": "2.13"}
    growth_page.write({"about": about, "queries-by-dimension": {"best-arm": points(1.23456, 2.5)}})
    results = growth_page.read()
    assert results["queries-by-dimension"]["best-arm"][0]["value"] == 1.235
    growth_page.write_page(results)
    text = growth_page.PAGE.read_text()
    assert "| | d = 5 | d = 10 | power | 100 ms per query at |" in text
    assert "| best-arm | 1.24 | 2.5 |" in text or "| best-arm | 1.23 | 2.5 |" in text
    assert "## One update" not in text
    assert growth_page.IMAGE.read_bytes().startswith(b"\x89PNG")
