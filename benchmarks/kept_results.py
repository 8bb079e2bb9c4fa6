"""Figures of a run, kept as JSON beside the scripts: pages are written from these files and from nothing else."""

import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def provenance() -> dict[str, Any]:
    """Which code ran, when, and how busy the machine was."""
    words = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(words, capture_output=True, text=True).stdout.strip()
    machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return {"commit": commit, "date": time.strftime("%Y-%m-%d"), "machine": machine, "load": os.getloadavg()[1]}


def keep(where: str, figures: dict[str, Any]) -> None:
    """Writes the figures of one run to ``benchmarks/results``, over those of an earlier one.

    Args:
        where: A folder and a name, such as ``attack/names``.
        figures: What was measured.
    """
    path = RESULTS / f"{where}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(figures | provenance(), indent=1) + "\n")


def kept(where: str) -> dict[str, Any] | None:
    """The figures of an earlier run, or nothing."""
    path = RESULTS / f"{where}.json"
    return json.loads(path.read_text()) if path.exists() else None
