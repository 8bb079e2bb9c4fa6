"""``benchmarks/actors.py``: one model with a tiny budget, resumed; and a page that prints what is missed."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture
def actors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with its models and its page in a folder of the test."""
    spec = importlib.util.spec_from_file_location("actors", REPOSITORY / "benchmarks" / "actors.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, "actors", module)  # its dataclass asks for it
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(module, "OUT", tmp_path)
    return module


TINY = [
    "--family",
    "binary-search",
    "--dim",
    "6",
    "--updates",
    "4",
    "--episodes",
    "40",
    "--calibration-episodes",
    "100",
]


@pytest.mark.filterwarnings("ignore::cicpe.UnservedWarning")
def test_one_model_is_trained_once_and_measured_in_its_cells(
    actors: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    actors.main([*TINY, "--actor", "uniform"])
    rows = json.loads((tmp_path / "actors.json").read_text())["rows"]
    assert [(row["epsilon"], row["noise"]) for row in rows] == [(0.2, 0.05), (0.2, 0.1), (0.1, 0.025), (0.1, 0.05)]
    assert {row["recipe"] for row in rows} == {"fast"}
    # So little training serves nothing: every cell is a miss, and is printed as one.
    page = (tmp_path / "actors.md").read_text()
    assert page.split("## Misses")[1].count("- binary-search d = 6") == 4
    assert "(0.901 / 36.3)" in page  # the paper's, beside ours
    # Resumed: a finished model is not trained again.
    monkeypatch.setattr(actors.cicpe, "train", lambda *args, **kwargs: pytest.fail("trained again"))
    actors.main([*TINY, "--actor", "uniform"])
    assert json.loads((tmp_path / "actors.json").read_text())["rows"] == rows


def row(**changes: Any) -> dict[str, Any]:
    usual = {"problem": "gp-max", "dim": 1, "epsilon": 0.2, "noise": 0.05, "actor": "td3", "recipe": "paper"}
    figures = {"stop": "own", "memory": "lstm", "updates": 9, "accuracy": 0.91, "mean_queries": 13.0}
    return usual | figures | changes


def test_a_miss_is_one_of_accuracy_or_of_queries(actors: ModuleType) -> None:
    assert actors.misses(row()) is None
    assert "below 0.9" in actors.misses(row(accuracy=0.89))
    assert "the paper's 13.7" in actors.misses(row(mean_queries=13.8))
    assert "by itself" in actors.misses(row(stop="never"))
    # An actor that the paper has not is measured by its accuracy alone.
    assert actors.misses(row(actor="acquisition", mean_queries=99.0)) is None
    assert "None." in actors.page([row()])
    assert "†" not in actors.column(row())
    assert "†" in actors.column(row(memory="regression"))


def test_all_46_cells_are_asked_for(actors: ModuleType) -> None:
    every = list(actors.runs(actors.arguments([])))
    assert len(every) == 11 * 4 + 2
    assert sum(len(run.cells) for run in every if run.actor == "uniform") == 46
    assert {run.recipe for run in every if run.actor == "td3"} == {"paper"}
    one = list(actors.runs(actors.arguments(["--family", "gp-max", "--actor", "acquisition"])))
    assert [(run.family, run.actor, run.recipe) for run in one] == [("gp-max", "acquisition", "fast")]
