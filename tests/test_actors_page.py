"""``benchmarks/actors.py``: models with a tiny budget, resumed; shared weights; a page that prints what is missed."""

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from commands import REPOSITORY


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """What makes the models, with a folder of the test for them."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    module = importlib.import_module("actor_models")
    monkeypatch.setattr(module, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(module, "COPPER", tmp_path / "copper")
    return module


@pytest.fixture
def actors(models: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with its page in a folder of the test."""
    module = importlib.import_module("actors")
    monkeypatch.setattr(module, "OUT", tmp_path)
    return module


@pytest.fixture
def page(models: ModuleType) -> ModuleType:
    """What writes the page."""
    return importlib.import_module("actors_page")


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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::cicpe.UnservedWarning")
def test_one_model_is_trained_once_and_measured_in_its_cells(
    actors: ModuleType, models: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [*TINY, "--actor", "uniform", "--weights", "own"]
    actors.main(own)
    rows = json.loads((tmp_path / "actors.json").read_text())["rows"]
    assert [(row["epsilon"], row["noise"]) for row in rows] == [(0.2, 0.05), (0.2, 0.1), (0.1, 0.025), (0.1, 0.05)]
    assert {(row["recipe"], row["weights"]) for row in rows} == {("fast", "own")}
    # So little training serves nothing: every cell is a miss, and is printed as one.
    page = (tmp_path / "actors.md").read_text()
    assert page.split("## Misses")[1].count("- binary-search d = 6") == 4
    assert "(0.901 / 36.3)" in page  # the paper's, beside ours
    # Resumed: a finished model is not trained again.
    monkeypatch.setattr(models.cicpe, "train", lambda *args, **kwargs: pytest.fail("trained again"))
    actors.main(own)
    assert json.loads((tmp_path / "actors.json").read_text())["rows"] == rows


def row(**changes: Any) -> dict[str, Any]:
    usual = {"problem": "gp-max", "dim": 1, "epsilon": 0.2, "noise": 0.05, "actor": "td3", "recipe": "paper"}
    figures = {"stop": "own", "memory": "lstm", "updates": 9, "accuracy": 0.91, "mean_queries": 13.0}
    return usual | figures | changes


def test_a_miss_is_one_of_accuracy_or_of_queries(page: ModuleType) -> None:
    assert page.misses(row()) is None
    assert "below 0.9" in page.misses(row(accuracy=0.89))
    assert "the paper's 13.7" in page.misses(row(mean_queries=13.8))
    assert "by itself" in page.misses(row(stop="never"))
    # An actor that the paper has not is measured by its accuracy alone.
    assert page.misses(row(actor="acquisition", mean_queries=99.0)) is None
    assert "None." in page.page([row()])
    assert "†" not in page.column(row())
    assert "†" in page.column(row(memory="regression"))


def test_all_46_cells_are_asked_for(actors: ModuleType) -> None:
    every = list(actors.runs(actors.arguments([])))
    assert len(every) == 11 * 4 + 2
    assert sum(len(run.cells) for run in every if run.actor == "uniform") == 46
    assert {run.recipe for run in every if run.actor == "td3"} == {"paper"}
    assert {run.is_shared for run in every if run.actor == "td3" or run.family in ("ackley", "geochem")} == {False}
    others = [run for run in every if run.actor != "td3" and run.family not in ("ackley", "geochem")]
    assert {run.is_shared for run in others} == {True}
    one = list(actors.runs(actors.arguments(["--family", "gp-max", "--actor", "acquisition"])))
    assert [(run.family, run.actor, run.recipe) for run in one] == [("gp-max", "acquisition", "fast")]
    some = list(actors.runs(actors.arguments(["--dim", "6", "--actor", "ts", "ttps"])))
    assert [(run.actor, run.weights) for run in some] == [("ts", "binary-search-6d"), ("ttps", "binary-search-6d")]
    # A likelihood that was learned from simulations is the zoo's, where it has one.
    answers = list(actors.runs(actors.arguments(["--family", "ackley", "--dim", "3", "--recipe", "answers"])))
    assert [(run.actor, run.weights) for run in answers] == [
        (actor, "ackley-3d-simulator") for actor in ("ts", "ttps", "td3", "uniform")
    ]
    learned = list(actors.runs(actors.arguments(["--family", "binary-search", "--dim", "6", "--recipe", "answers"])))
    assert [(run.actor, run.weights) for run in learned] == [
        ("ts", "own"),
        ("ttps", "binary-search-6d-ts-answers"),
        ("td3", "binary-search-6d-ts-answers"),
        ("uniform", "binary-search-6d-ts-answers"),
    ]
    # Where queries are no answers, nothing is asked by an actor that is drawn to them.
    heights = actors.runs(actors.arguments(["--family", "gp-max", "--recipe", "answers"]))
    assert [run.actor for run in heights] == ["uniform"]


BEST_ARM = ["--family", "best-arm", "--dim", "5", "--episodes", "60", "--calibration-episodes", "200"]


def test_weights_are_shared_without_training(
    actors: ModuleType, models: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of an actor's own weights gives way where sharing is honest, and every row says whose weights they are."""
    monkeypatch.setattr(models.cicpe, "train", lambda *args, **kwargs: pytest.fail("trained"))
    old = [
        row(problem="best-arm", dim=5, actor=actor, recipe="fast", memory="regression") for actor in ("uniform", "fts")
    ]
    (tmp_path / "actors.json").write_text(json.dumps({"rows": old}))
    actors.main([*BEST_ARM, "--actor", "uniform"])
    kept = json.loads((tmp_path / "actors.json").read_text())["rows"]
    assert [(r["actor"], r.get("weights", "own")) for r in kept] == [("uniform", "best-arm-5d")] * 4 + [("fts", "own")]
    assert all(4 < r["mean_queries"] < 9 for r in kept[:4])
    text = (tmp_path / "actors.md").read_text()
    assert "uniform (fast, regression †, weights of `best-arm-5d`, 1592 updates)" in text
    assert "the actor reads its posterior" in text
    # Resumed: its thresholds are not chosen again. The zoo's own rule is the zoo's model as it is.
    monkeypatch.setattr(models.cicpe, "with_actor", lambda *args, **kwargs: pytest.fail("calibrated again"))
    actors.main([*BEST_ARM, "--actor", "uniform"])
    assert models.model_of(models.run_for("best-arm", 5, "ucb", "fast"), models.ActorBudget()).alarm is not None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::cicpe.UnservedWarning")
def test_one_likelihood_serves_several_actors(models: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = models.ActorBudget(minutes=0.03, calibration_episodes=100)
    small = models.cicpe.make_problem("binary-search", dim=1, noise=(0.05, 0.1))
    monkeypatch.setattr(models.Run, "problem", lambda run: small)
    monkeypatch.setattr(models.zoo, "names", list)  # which has such a likelihood already
    first, second = (models.run_for("ackley", 3, actor, "answers") for actor in ("ts", "uniform"))
    shared = models.model_of(second, budget)
    assert first.is_there  # it was learned for that one
    learned = models.model_of(first, budget)
    assert [model.description.training.query_rule for model in (learned, shared)] == ["ts", "uniform"]
    before, after = learned.belief.tensors(), shared.belief.tensors()
    assert all(bool((before[name] == after[name]).all()) for name in before | after)


def test_foreign_weights_do_not_replace_own_ones(page: ModuleType) -> None:
    own = row(problem="binary-search", dim=6, actor="uniform", recipe="fast")
    foreign = own | {"weights": "binary-search-6d"}
    assert page.model_key(own) != page.model_key(foreign)
    assert "‡" in page.column(foreign)
    same, shared = (
        row(problem="best-arm", dim=5, actor="ts", recipe="fast", weights=w) for w in ("own", "best-arm-5d")
    )
    assert page.model_key(same) == page.model_key(shared)
    assert "‡" not in page.column(shared)


def test_figures_take_shared_weights_unless_they_are_foreign(models: ModuleType) -> None:
    assert models.run_in_figures("best-arm", 5, "ttps").is_shared
    assert models.run_in_figures("gp-max", 1, "uniform").is_foreign
    own = models.Run("gp-max", 1, "uniform", "fast")
    own.folder.mkdir(parents=True)
    (own.folder / "config.json").write_text("{}")
    assert models.run_in_figures("gp-max", 1, "uniform") == own
    assert models.run_in_figures("gp-max", 1, "td3") is None
    zoos = models.run_in_figures("ackley", 3, "uniform")  # no likelihood was learned yet
    assert (zoos.recipe, zoos.weights, zoos.is_shared) == ("particles", "ackley-3d", True)
    assert models.run_in_figures("geochem", 2, "ttps") is None  # scripts/copper.py has made none here
    copper = models.Run("geochem", 2, "ttps", "functions", is_shared=True)
    copper.folder.mkdir(parents=True)
    (copper.folder / "config.json").write_text("{}")
    assert models.run_in_figures("geochem", 2, "ttps") == copper
    assert copper.weights.startswith("resolvable")
    assert models.knows_likelihood("ackley-3d")
    assert not models.knows_likelihood("geochem-2d")


def test_the_rows_of_copper_are_those_of_its_own_page(actors: ModuleType, page: ModuleType, tmp_path: Path) -> None:
    """Held-out regions are the paper's cell; seen ones stand beside them, and miss nothing."""
    usual = {"split": 0, "seed": 0, "resolvable": True, "delta": 0.1, "minutes": 2.0, "updates": 250, "horizon": 60}
    measured = [
        usual | {"region": f"{part} {i}", "part": part, "epsilon": 0.2, "loss": [0.1, loss], "queries": [queries, 20]}
        for part, loss, queries in (("held-out", 0.1, 30), ("train", 0.3, 90))
        for i in range(3)
    ]
    (tmp_path / "copper.json").write_text(json.dumps({"ours-functions-ts": measured}))
    (tmp_path / "actors.json").write_text(json.dumps({"rows": [row(problem="geochem", dim=2, actor="uniform")]}))
    actors.main(["--page"])
    rows = json.loads((tmp_path / "actors.json").read_text())["rows"]
    assert [(r["regions"], r["accuracy"], r["mean_queries"], r["episodes"]) for r in rows] == [
        ("held-out", 1.0, 25.0, 6),
        ("seen", 0.5, 55.0, 6),
    ]
    assert page.misses(rows[0]) == "25.0 queries are more than the paper's 22"
    assert page.misses(rows[1]) is None
    assert "stops for 0.2" in page.misses(rows[0] | {"delta": 0.2})
    text = (tmp_path / "actors.md").read_text()
    assert "ts (functions, Gaussian processes †, weights of `resolvable`, 250 updates)" in text
    assert "| (0.2, 0) held-out | 1.000 / 25.0 (0.913 / 22) **miss** |" in text
    assert "| (0.2, 0) seen | 0.500 / 55.0 |" in text


def test_a_page_shows_how_a_network_was_trained(page: ModuleType) -> None:
    looks = [[100 * i, i / 50, 60.0 - i] for i in range(40)]
    text = page.page([row(curve=looks)])
    (line,) = [line for line in text.splitlines() if line.startswith("- td3")]
    assert line.endswith("3900: 0.78 / 21")
    assert line.count(" / ") == 10
    assert "Over training" not in page.page([row()])
