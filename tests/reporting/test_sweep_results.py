"""The results of a sweep in one file: what is kept is read back, and seeds are taken together."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cicpe.cli.main import main
from cicpe.errors import InvalidInput
from cicpe.evaluation.bootstrap import bootstrap_mean, paired_difference
from cicpe.reporting.sweep_results import SweepResults, is_sweep, sweep_groups

EPISODES = 50


def figures(seed: int, dim: int, epsilon: float = 0.2) -> dict[str, Any]:
    """What a run says of one cell: random, but the same for the same arguments."""
    rng = np.random.default_rng([seed, dim])
    queries, losses = rng.integers(1, 9, EPISODES) + dim, rng.random(EPISODES).astype(np.float32) / 3
    cell = {"epsilon": epsilon, "delta": 0.1, "noise": None}
    return cell | {
        "asked": json.dumps(cell),
        "model_sha256": f"{seed} {dim}",
        "refused": None,
        "accuracy": float((losses <= epsilon).mean()),
        "mean_queries": float(queries.mean()),
        "all_queries": queries.tolist(),
        "all_losses": losses.tolist(),
    }


def kept(folder: Path) -> SweepResults:
    """A sweep of two dimensions and three seeds, of which one run has failed."""
    results = SweepResults(folder / "results.sqlite")
    runs = {f"dim-{dim}_seed-{seed}": {"dim": dim, "seed": seed} for dim in (1, 2) for seed in (0, 1, 2)}
    results.begin(runs)
    for name, settings in runs.items():
        if name == "dim-2_seed-1":
            results.keep(name, [], "out of memory")
        else:
            results.keep(name, [figures(**settings)], None)
    return results


def test_what_is_kept_is_read_back(tmp_path: Path) -> None:
    results = kept(tmp_path)
    rows = results.rows()
    assert [row.run for row in rows] == [f"dim-{d}_seed-{s}" for d, s in ((1, 0), (1, 1), (1, 2), (2, 0), (2, 2))]
    expected = figures(2, 1)
    assert rows[2].settings == {"dim": 1, "seed": 2}
    assert rows[2].all_queries.tolist() == expected.pop("all_queries")
    assert rows[2].all_losses.tolist() == expected.pop("all_losses")
    assert rows[2].row == expected
    assert results.failures() == {"dim-2_seed-1": "out of memory"}
    with closing(sqlite3.connect(results.path)) as connection:  # the figures can be asked for in SQL
        (mean,) = connection.execute("SELECT avg(accuracy) FROM figures WHERE run LIKE 'dim-1%'").fetchone()
    assert mean == pytest.approx(np.mean([figures(seed, 1)["accuracy"] for seed in range(3)]))


def test_later_figures_of_a_cell_replace_earlier_ones_and_mend_a_failure(tmp_path: Path) -> None:
    results = kept(tmp_path)
    results.begin({"dim-2_seed-1": {"dim": 2, "seed": 1}})  # what is known stays
    assert results.failures() == {"dim-2_seed-1": "out of memory"}
    results.keep("dim-2_seed-1", [figures(1, 2)], None)
    results.keep("dim-2_seed-1", [figures(7, 2) | {"model_sha256": "trained again"}], None)
    assert results.failures() == {}
    (row,) = (row for row in results.rows() if row.run == "dim-2_seed-1")
    assert row.row["model_sha256"] == "trained again"
    assert row.all_queries.tolist() == figures(7, 2)["all_queries"]


def test_seeds_are_taken_together(tmp_path: Path) -> None:
    groups = sweep_groups(kept(tmp_path).rows())
    assert [(group.settings, group.seeds, group.episodes) for group in groups] == [
        ({"dim": 1}, 3, EPISODES),
        ({"dim": 2}, 2, EPISODES),
    ]
    queries = np.stack([figures(seed, 1)["all_queries"] for seed in range(3)])[..., None]
    assert groups[0].queries == bootstrap_mean(queries)
    right = np.stack([np.array(figures(seed, 2)["all_losses"]) <= 0.2 for seed in (0, 2)])[..., None]
    assert groups[1].accuracy == bootstrap_mean(right)
    assert groups[1].versus_best is None  # not on the same seeds
    results = kept(tmp_path)
    results.keep("dim-2_seed-1", [figures(1, 2)], None)
    other = np.stack([figures(seed, 2)["all_queries"] for seed in (0, 1, 2)])[..., None]
    versus = sweep_groups(results.rows())[1].versus_best
    assert versus is not None
    assert versus[1].value == pytest.approx(paired_difference(other, queries).value)
    assert versus[1].value == pytest.approx(float(other.mean() - queries.mean()))


def test_cells_are_apart_and_refusals_are_passed_over(tmp_path: Path) -> None:
    results = kept(tmp_path)
    refused = figures(0, 1, epsilon=0.1) | {"refused": "epsilon must be more", "accuracy": None}
    for name in ("all_queries", "all_losses"):
        refused.pop(name)
    results.keep("dim-1_seed-0", [refused], None)
    assert [group.cell for group in sweep_groups(results.rows())] == [(0.2, 0.1, None)] * 2
    results.keep("dim-1_seed-1", [figures(1, 1, epsilon=0.1)], None)
    assert [group.cell for group in sweep_groups(results.rows())] == [(0.2, 0.1, None)] * 2 + [(0.1, 0.1, None)]


def test_what_is_no_file_of_a_sweep_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    assert not is_sweep(path)
    path.write_text("something else")
    assert not is_sweep(path)
    with pytest.raises(InvalidInput, match=r"results must be a file that a sweep has written.*results\.sqlite"):
        SweepResults(path).rows()
    assert path.read_text() == "something else"
    path.unlink()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE campaigns (name TEXT)")
    assert not is_sweep(path)
    kept(tmp_path / "another")
    assert is_sweep(tmp_path / "another" / "results.sqlite")


def test_compare_and_report_read_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = kept(tmp_path)
    assert main(["compare", str(results.path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in found["rows"]] == ["dim 1", "dim 2"]
    assert found["rows"] == [json.loads(json.dumps(group.to_json())) for group in sweep_groups(results.rows())]
    assert found["failed"] == {"dim-2_seed-1": "out of memory"}
    assert main(["compare", str(results.path), "--epsilon", "0.2"]) == 0
    assert "dim 2" in capsys.readouterr().out
    assert main(["compare", str(results.path), "--epsilon", "0.3"]) == 2
    assert "a cell of this sweep: (0.2, None)" in capsys.readouterr().err
    assert main(["report", str(results.path), "--out", str(tmp_path / "page")]) == 0
    page = (tmp_path / "page" / "index.html").read_text()
    for words in ("epsilon 0.2, delta 0.1", "dim 1", "out of memory", f"{found['rows'][1]['mean_queries']:.2f}"):
        assert words in page
    assert json.loads((tmp_path / "page" / "report.json").read_text())["rows"] == found["rows"]


def test_a_problem_is_compared_at_an_epsilon(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "best-arm"]) == 2
    assert "epsilon must be given" in capsys.readouterr().err


def test_plays_of_a_task_are_the_third_level(tmp_path: Path) -> None:
    """Five plays of ten tasks each: the interval is the three-level bootstrap's."""
    results = SweepResults(tmp_path / "results.sqlite")
    runs = {f"seed-{seed}": {"seed": seed} for seed in (0, 1)}
    results.begin(runs)
    for name, settings in runs.items():
        results.keep(name, [figures(**settings, dim=1) | {"trajectories": 5}], None)
    (group,) = sweep_groups(results.rows())
    assert (group.seeds, group.episodes, group.trajectories) == (2, 10, 5)
    queries = np.array([figures(seed, 1)["all_queries"] for seed in (0, 1)], dtype=float).reshape(2, 10, 5)
    assert group.queries == bootstrap_mean(queries)
    assert group.to_json()["trajectories"] == 5
