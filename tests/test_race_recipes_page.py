"""``benchmarks/race_recipes.py``: what its page says of a race, reached or missed."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("race_recipes", REPOSITORY / "benchmarks" / "race_recipes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "race_recipes", module)  # its dataclass asks for it
    spec.loader.exec_module(module)
    return module


def look(script: ModuleType, seconds: float, level: float, accuracy: float, queries: float) -> dict[str, Any]:
    at = {str(q): level for q in script.CELLS["binary-search"].queries}
    own = {"episodes": 4000, "accuracy": accuracy, "mean_queries": queries, "truncated": 0.01}
    own |= {"accuracy_ci": (accuracy - 0.01, accuracy + 0.01), "mean_queries_ci": (queries - 0.1, queries + 0.1)}
    facts = {"seconds": seconds, "updates": 10, "cost": 0.02, "moves": True, "horizon": 20, "spread": 0.0}
    return facts | {"accuracy_at_queries": at, "queries_at_0.90": None, "own": own}


def race(script: ModuleType, looks: list[dict[str, Any]]) -> dict[str, Any]:
    fast = look(script, 120.0, 0.95, 0.0, 0.0)
    del fast["own"]
    words = {"command": "race", "commit": "abc", "date": "today", "hardware": "none"}
    return words | {"minutes": 2.0, "limit": 12.0, "fast": fast, "paper": looks}


def test_the_page_says_what_was_reached_and_when(script: ModuleType) -> None:
    looks = [look(script, 60.0 * k, 0.5 + 0.04 * k, 0.91, 11.0) for k in range(1, script.LOOKS + 1)]
    text = script.page({"binary-search": race(script, looks)})
    assert "accuracy 0.910 (0.900 to 0.920) with 11.00 queries" in text
    assert "**reached**" in text
    assert "after 12.0 minutes at the latest: 6.0 times as long" in text
    assert text.count("| paper |") == script.LOOKS


@pytest.mark.parametrize(("accuracy", "queries"), [(0.88, 11.0), (0.94, 11.0), (0.91, 12.1)])
def test_a_miss_is_printed(script: ModuleType, accuracy: float, queries: float) -> None:
    looks = [look(script, 60.0, 0.9, accuracy, queries)]
    text = script.page({"binary-search": race(script, looks)})
    assert "**missed**" in text
    assert "**reached**" not in text
    assert "in a run that was not finished" in text
    assert "`paper` did not reach, within 12 minutes," in text
