"""Every example runs, with small budgets where it has a budget; its answer is looked at."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import cicpe
from cicpe.testing import check_problem

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name: str) -> ModuleType:
    """The example as a module of its own."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_example_is_left_out() -> None:
    """Each is named in some test."""
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("test_*.py"))
    assert [path.name for path in EXAMPLES.glob("*.*") if not re.search(rf"\b{path.stem}\b", tests)] == []


@pytest.mark.parametrize(("name", "problem"), [("own_simulator", "HalfLife"), ("dose_finding", "DoseFinding")])
def test_own_problems_are_as_they_have_to_be(name: str, problem: str) -> None:
    check_problem(getattr(example(name), problem)())


def test_an_experiment_file_is_trained_and_run_in_its_units(capsys: pytest.CaptureFixture[str]) -> None:
    """Made easy, so that seconds of training are enough to be near: a factor of two, and little noise."""
    module = example("experiment_file")
    easy = module.ENZYME.replace('"20 %", sure = 0.9, at_most = 60', '"100 %", sure = 0.7, at_most = 14')
    easy = easy.replace("[0.05, 0.3]", "0.1")
    small = {"hidden": 24, "prior_draws": 2048}
    session = module.main(easy, recipe="answers", updates=120, settings=small, calibration_episodes=150)
    assert 0.25 < float(session.recommendation[0]) < 4.0
    assert re.search(r"^km [\d.]+ mM", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.slow
def test_an_own_simulator_is_trained_to_its_promise() -> None:
    results = example("own_simulator").main(minutes=2.0, episodes=400)
    assert all(result.accuracy > 0.85 for result in results.values())
    assert results[0.3].mean_queries <= results[0.2].mean_queries


def test_a_halving_agent_in_gymnasium() -> None:
    """Five steps of 0.5 to 0.03; with a twentieth of lies it is often right, and not as often as was asked for."""
    pytest.importorskip("gymnasium")
    accuracy, queries = example("gymnasium_loop").main(episodes=100)
    assert 0.5 < accuracy < 0.9
    assert queries == 4


def test_copper_says_that_it_has_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CICPE_CACHE", str(tmp_path))
    assert example("copper").main() is None
    assert "no copper data" in capsys.readouterr().out


def test_a_certificate_is_kept_and_is_about_its_model(tmp_path: Path) -> None:
    kept = example("certificate").main(tmp_path / "certificates.json")
    assert kept.certified
    assert kept.success_lower_bound >= 0.9
    with pytest.raises(cicpe.CicpeError, match="certify it again"):
        kept.check("0" * 64, kept.calibration_sha256)


@pytest.mark.slow
def test_beside_botorch_on_the_same_tasks() -> None:
    pytest.importorskip("botorch")
    found = example("against_botorch").main(tasks=2, methods=("cicpe", "gp-ucb"))
    assert [row.method for row in found.rows][1:] == ["gp-ucb"]
    assert all(len(row.played.queries) == 2 for row in found.rows)


def test_a_research_loop_over_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    """Far too short to be any good: each seed is either measured or refused, and said to be."""
    tiny = {"horizon": 6, "batch": 8}
    successes = example("research_loop").main(
        (0, 1), dim=1, settings=tiny, episodes=50, updates=4, calibration_episodes=100
    )
    printed = capsys.readouterr().out
    assert printed.count("seed 0:") == printed.count("seed 1:") == 1
    assert len(successes) == 2 - printed.count(": refused, delta must be")
