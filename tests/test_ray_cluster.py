"""A real Ray cluster of two nodes without a common folder: the same figures, though a node is killed."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_cluster import Cluster, ray_cluster

pytest.importorskip("ray")
pytestmark = pytest.mark.slow  # minutes: nodes and workers start, and import torch

EVALUATE = ["evaluate", "best-arm-5d", "--epsilon", "0.02", "--delta", "0.1", "--episodes", "3000", "--json"]
SWEEP = {
    "problem": "binary-search",
    "cells": [{"epsilon": 0.9, "delta": 0.4}],
    "episodes": 200,
    "train": {"dim": 1, "noise": 0.1, "epsilon": 0.9, "updates": 6, "calibration-episodes": 256},
    "product": {"seed": [0, 1, 2, 3]},
}
TIMES = ("minutes", "seconds")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with ray_cluster() as made:
        yield made


def command(cluster: Cluster | None, *words: str) -> "subprocess.Popen[str]":
    address = {} if cluster is None else {"RAY_ADDRESS": cluster.address}
    backend = [] if cluster is None else ["--backend", "ray"]
    return subprocess.Popen(
        [sys.executable, "-m", "cicpe", *words, *backend],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | address,
    )


def figures_of(process: "subprocess.Popen[str]") -> Any:
    out, err = process.communicate(timeout=900)
    assert process.returncode == 0, err[-2000:]
    return json.loads(out)


def without_times(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in TIMES}


def sweep_file(folder: Path) -> Path:
    folder.mkdir()
    (folder / "sweep.json").write_text(json.dumps(SWEEP | {"out": str(folder / "out")}))
    return folder / "sweep.json"


def test_an_evaluation_on_a_cluster_is_the_same(cluster: Cluster) -> None:
    here, there = figures_of(command(None, *EVALUATE)), figures_of(command(cluster, *EVALUATE))
    assert without_times(there) == without_times(here)


def test_a_sweep_finishes_though_a_node_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    here = figures_of(command(None, "sweep", str(sweep_file(tmp_path / "here")), "--json"))
    sweep = command(cluster, "sweep", str(sweep_file(tmp_path / "there")), "--json")
    doomed = cluster.nodes[1]
    while not any("sweep_child" in words for words in doomed.processes().values()):
        assert sweep.poll() is None, "the sweep was over before the second node had a run"
        time.sleep(0.2)
    doomed.kill()
    there = figures_of(sweep)
    assert there["failed"] == {}
    assert [without_times(row) for row in there["rows"]] == [without_times(row) for row in here["rows"]]
    for seed in range(4):  # the models have come home
        name = f"seed-{seed}/weights.safetensors"
        assert (tmp_path / "there" / "out" / name).read_bytes() == (tmp_path / "here" / "out" / name).read_bytes()
    assert not list(cluster.nodes[0].folder.rglob("weights.safetensors"))
