"""``scripts/reproduce.py``: what it would run, and the page that it writes from stored numbers."""

import json
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cicpe.cli.sweep_runs import read_sweep, runs_of
from cicpe.evaluation.bootstrap import bootstrap_mean
from cicpe.reporting.sweep_results import SweepResults
from commands import REPOSITORY, script

TARGETS = json.loads((REPOSITORY / "benchmarks" / "targets.json").read_text())["cells"]


@pytest.fixture
def reproduce(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script; its neighbours are found as if it were run."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts"))
    return script("reproduce")


def asked(reproduce: ModuleType, *words: str) -> list[Any]:
    protocol = tomllib.loads(reproduce.PROTOCOL.read_text())
    return list(reproduce.sweeps(reproduce.arguments(list(words), protocol), protocol))


def test_the_protocol_has_every_cell_of_the_targets(reproduce: ModuleType) -> None:
    cells = {
        (sweep.family, sweep.dim, cell["epsilon"], cell["noise"])
        for sweep in asked(reproduce)
        for cell in sweep.content["cells"]
    }
    assert cells == {(t["problem"], t["dim"], t["epsilon"], t["noise"]) for t in TARGETS}
    contents = [sweep.content for sweep in asked(reproduce)]
    assert {(len(c["product"]["seed"]), c["episodes"], c["trajectories"]) for c in contents} == {(3, 300, 15)}


def test_every_sweep_is_one_that_the_command_line_takes(reproduce: ModuleType, tmp_path: Path) -> None:
    for sweep in asked(reproduce, "--out", str(tmp_path)):
        file = tmp_path / "sweep.json"
        file.write_text(json.dumps(sweep.content))
        runs = runs_of(read_sweep(file))
        assert [run.settings for run in runs] == [{"seed": 0}, {"seed": 1}, {"seed": 2}]
        assert ["--option", f"dim={sweep.dim}"] == runs[0].words[runs[0].words.index("--option") :][:2]


def test_a_part_is_chosen_by_family_and_dimension(reproduce: ModuleType, tmp_path: Path) -> None:
    (sweep,) = asked(reproduce, "--family", "best-arm", "--dim", "5", "--minutes", "1", "--out", str(tmp_path))
    assert sweep.folder == tmp_path / "best-arm-5d-1-minutes"
    assert sweep.content["train"]["minutes"] == 1
    with pytest.raises(SystemExit, match="no family has that dimension"):
        reproduce.main(["--dim", "7", "--write"])


def store(folder: Path, refused: bool = False) -> np.ndarray:
    """Three seeds of four tasks, each played twice, at two cells of best-arm; the last may be refused by one seed."""
    rng = np.random.default_rng(0)
    queries = rng.integers(4, 7, (3, 4, 2))
    results = SweepResults(folder / "results.sqlite")
    results.begin({f"seed-{seed}": {"seed": seed} for seed in range(3)})
    for seed in range(3):
        rows = []
        for epsilon, noise in ((0.02, 0.005), (0.02, 0.01)):
            about = {"epsilon": epsilon, "delta": 0.1, "noise": noise}
            row = about | {
                "model_sha256": f"{seed}",
                "minutes": 2.0,
                "refused": None,
                "seconds": 36.0,
                "trajectories": 2,
            }
            row["asked"] = json.dumps(about | {"episodes": 4, "tasks": {}, "trajectories": 2})
            if refused and noise == 0.01 and seed == 1:
                rows.append(row | {"refused": "not safe"})
                continue
            losses = np.where(np.arange(8) == seed, 1.0, 0.0)
            rows.append(row | {"all_queries": queries[seed].ravel().tolist(), "all_losses": losses.tolist()})
        results.keep(f"seed-{seed}", rows, None)
    return queries


@pytest.mark.parametrize("refused", [False, True])
def test_the_page_has_ours_beside_the_papers(reproduce: ModuleType, tmp_path: Path, refused: bool) -> None:
    queries = store(tmp_path / "best-arm-5d", refused)
    page = tmp_path / "RESULTS.md"
    words = ("--family", "best-arm", "--dim", "5", "--tasks", "4", "--trajectories", "2", "--write")
    reproduce.main([*words, "--out", str(tmp_path), "--page", str(page)])
    text = page.read_text()
    mean = bootstrap_mean(queries)
    assert f"| 5 | 0.02 | 0.005 | {mean.value:.2f} ({mean.low:.2f}-{mean.high:.2f}) | 7.4 | 7.3 | 7.3 | 8.3 |" in text
    assert "**0.875 (" in text  # below what was asked for: in bold
    assert "| 5 | 0.005 | 0.00125 | not measured |" in text
    assert ("refused by 1 of 3 seeds" in text) == refused
    assert "3 x 4 x 2 (best-arm) seeds x tasks x trajectories" in text
    assert "| best-arm | 3 | 0.10 | 0.0" in text  # three models of two minutes
    assert "| reference-conjugate |" in text


def test_claims_that_fail_are_said_to_fail(reproduce: ModuleType, tmp_path: Path) -> None:
    store(tmp_path / "best-arm-5d")
    args = ("--family", "best-arm", "--dim", "5", "--tasks", "4", "--trajectories", "2", "--out", str(tmp_path))
    (sweep,) = asked(reproduce, *args)
    lines = reproduce.reproduce_page.claim_lines(reproduce.measured(sweep))
    by_claim = {line.split(" | ")[0].removeprefix("| "): line for line in lines}
    assert "does not hold" in by_claim["Learned agents meet an accuracy of 1 - delta in every cell"]
    assert "not measured" in by_claim["Binary search: queries grow less than linearly with d"]
    # The slope that was measured, over a finite range, is not the theorem's: no verdict is drawn from it.
    assert any("Separation" in line and "| not settled by these tasks |" in line for line in lines)


def test_other_sizes_are_not_mixed_in(reproduce: ModuleType, tmp_path: Path) -> None:
    store(tmp_path / "best-arm-5d")
    (sweep,) = asked(reproduce, "--family", "best-arm", "--dim", "5", "--out", str(tmp_path))
    assert [cell.seeds for cell in reproduce.measured(sweep)] == [0, 0, 0, 0]


def test_a_family_that_was_not_trained_has_the_figures_of_the_zoo(reproduce: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    reproduce.main(["--family", "ackley", "--dim", "4", "--write", "--out", str(tmp_path), "--page", str(page)])
    text = page.read_text()
    (row,) = [
        row
        for row in json.loads((REPOSITORY / "docs" / "results" / "ackley.json").read_text())
        if (row["dim"], row["epsilon"], row["noise"]) == (4, 0.2, 0.1)
    ]
    stopped = row["confidence"]
    low, high = stopped["mean_queries_ci"]
    assert f"| 4 | 0.2 | 0.1 | {stopped['mean_queries']:.2f} ({low:.2f}-{high:.2f}) |" in text
    assert "1 x 4000 x 1 (ackley)" in text
    assert "## copper" in text


def test_a_verdict_is_drawn_where_all_of_the_intervals_agree(reproduce: ModuleType) -> None:
    claims = sys.modules["reproduce_claims"]
    cases = ((True, True), claims.HOLDS), ((False, False), claims.FAILS), ((False, True), claims.UNSETTLED)
    for (surely, possibly), words in cases:
        assert claims.verdict(claims.settled(surely, possibly)) == words


def test_what_comes_from_docs_results_can_be_renewed_without_the_models(reproduce: ModuleType, tmp_path: Path) -> None:
    """Tables of other agents and claims are as their files say; what models did stays to the letter."""
    page = tmp_path / "RESULTS.md"
    text = (REPOSITORY / "docs" / "RESULTS.md").read_text()
    lines = text.splitlines()
    changed = next(line for line in lines if "tpe, budget" in line)
    claim = next(line for line in lines if line.startswith("| Ackley: Bayesian optimisation"))
    page.write_text(text.replace(changed + "\n", "").replace(claim, claim.replace("holds", "is not known")))
    assert page.read_text() != text
    reproduce.main(["--others", "--page", str(page)])
    assert page.read_text() == text
