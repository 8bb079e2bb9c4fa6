"""``cicpe calibrate``: thresholds chosen anew, and for other rules."""

import json
from pathlib import Path

import pytest

import cicpe
from commands import Run, assert_refused


@pytest.mark.parametrize("actor", [[], ["--actor", "ts"]])
def test_thresholds_are_chosen_anew_and_do_not_depend_on_the_workers(
    actor: list[str], run: Run, tmp_path: Path
) -> None:
    tables = []
    for jobs in ("1", "2"):
        words = ["--out", str(tmp_path / jobs), "--episodes", "400", "--jobs", jobs, "--json", *actor]
        done = run("calibrate", "best-arm-5d", *words)
        assert done.code == 0, done.err
        told = json.loads(done.out)
        assert (told["actor"], told["episodes"]) == (actor[-1] if actor else "ucb", 400)
        tables.append(cicpe.load(tmp_path / jobs).calibration)
    assert tables[0] == tables[1]
    assert tables[0] != cicpe.load("best-arm-5d").calibration


def test_it_says_what_to_do_next_and_writes_over_nothing(run: Run, tmp_path: Path) -> None:
    words = ["calibrate", "best-arm-5d", "--out", str(tmp_path / "new"), "--episodes", "400"]
    assert "Next:  cicpe evaluate" in run(*words).out
    assert_refused(run(*words), "out must be a new folder")
    assert_refused(run("calibrate", "best-arm-5d", "--actor", "td3", "--out", str(tmp_path / "td3")), "actor must be")
